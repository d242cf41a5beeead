//! Tests of the repository itself. They start no process but cargo, and are part of `make check`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod book;
mod dependency_direction;

use std::fs;
use std::path::PathBuf;

/// The root of the workspace.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().expect("e2e/ is in the root").to_path_buf()
}

/// Clippy reads only the nearest `clippy.toml`, so the file of the pure crates has to repeat that of the workspace.
#[test]
fn pure_crates_have_all_bans_of_the_workspace() {
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

/// The bans of a file, one a line, with their reasons.
fn bans(file: &str) -> Vec<String> {
    let path = root().join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(str::trim).filter(|line| line.starts_with("{ path = ")).map(str::to_owned).collect()
}
