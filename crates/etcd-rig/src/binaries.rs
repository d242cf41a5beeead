//! Finds etcd's programs.

use std::path::{Path, PathBuf};

/// Where `scripts/setup` puts programs of which it does not want to install the package.
const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.tools/bin");

pub(crate) fn etcd() -> PathBuf {
    program("etcd")
}

pub(crate) fn etcdctl() -> PathBuf {
    program("etcdctl")
}

/// Panics if it is not there: a test without the real thing must fail, loudly and with the remedy.
fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    places.push(Path::new(TOOLS).to_owned());
    let found = places.iter().map(|place| place.join(name)).find(|program| program.is_file());
    found.unwrap_or_else(|| panic!("`{name}` is neither on the PATH nor in {TOOLS}: run `make setup`"))
}
