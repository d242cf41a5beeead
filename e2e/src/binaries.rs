//! Finds the binaries under test.
//!
//! `CARGO_BIN_EXE_…` exists only for binaries of the test's own package. Tests and binaries of one build profile lie in
//! one directory, so they are found from the test's own path: `target/debug/deps/story-1a2b` → `target/debug/muster`.

use std::path::{Path, PathBuf};

/// The operator's tool.
pub fn muster() -> PathBuf {
    built("muster")
}

/// The agent; `muster up` looks for it beside itself.
pub fn muster_agent() -> PathBuf {
    built("muster-agent")
}

/// Panics if it is not there: a test without the program that it tests must fail, loudly and with the remedy.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap_or_default();
    match test.parent().and_then(Path::parent).map(|profile| profile.join(name)) {
        Some(path) if path.is_file() => path,
        missing => panic!(
            "the binary `{name}` is not built (looked for {}): run `make test`, \
             or first `cargo build --workspace --all-targets`",
            missing.unwrap_or_default().display()
        ),
    }
}
