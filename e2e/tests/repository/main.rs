//! Tests of the repository itself. They start no process but cargo, and are part of `make check`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod book;
mod dependency_direction;
mod lint_lists;

use std::path::PathBuf;

/// The root of the workspace.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().expect("e2e/ is in the root").to_path_buf()
}
