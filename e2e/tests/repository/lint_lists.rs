//! Clippy reads only the `clippy.toml` that is nearest to a crate. So the file of the pure crates has to repeat the
//! workspace's, and this test notices when it does not.

use std::fs;

#[test]
fn the_pure_crates_keep_every_ban_of_the_workspace() {
    let workspace = bans("clippy.toml");
    let missing = |file: &str| -> Vec<_> {
        let there = bans(file);
        workspace.iter().filter(|ban| !there.contains(ban)).cloned().collect()
    };

    assert!(workspace.len() > 5, "the list of bans was not found in clippy.toml");
    for file in ["crates/core/clippy.toml", "crates/design/clippy.toml", "crates/rollout/clippy.toml"] {
        assert_eq!(missing(file), Vec::<String>::new(), "copy these bans from clippy.toml to {file}");
    }
}

/// The lines of the list, one ban each: compared as text, with their reasons.
fn bans(file: &str) -> Vec<String> {
    let path = super::root().join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(str::trim).filter(|line| line.starts_with("{ path = ")).map(str::to_owned).collect()
}
