//! All environment variables that `muster` reads, except for `NO_COLOR`, `CLICOLOR`, `TERM` and `RUST_LOG`.

use std::env;
use std::path::{Path, PathBuf};

/// Default of `--env`.
pub const ENV: &str = "MUSTER_ENV";
/// Default of `--server`.
pub const SERVER: &str = "MUSTER_SERVER";
/// Default of `--state`.
pub const STATE: &str = "MUSTER_STATE";
/// Default of `--token-file`.
pub const TOKEN_FILE: &str = muster_wire::token::TOKEN_FILE_VARIABLE;
/// Default of `--ca-file`.
pub const CA_FILE: &str = "MUSTER_CA_FILE";
/// Default of `--min-revision`.
pub const MIN_REVISION: &str = "MUSTER_MIN_REVISION";
/// Password of the store's user, without `--store-password-file`. There is no option for it: all users of a machine can
/// see the arguments of a process.
pub const STORE_PASSWORD: &str = "MUSTER_STORE_PASSWORD";
/// Directory of the announcements of the user's servers; see [`crate::connect`].
pub const RUNTIME_DIR: &str = "XDG_RUNTIME_DIR";
/// The same without [`RUNTIME_DIR`].
pub const TEMPORARY_DIR: &str = "TMPDIR";
/// Author of a change, for programs that act for a person.
pub const AUTHOR: &str = "MUSTER_AUTHOR";
/// The name of the user, part of the default author.
pub const USER: &str = "USER";
/// The same on systems without [`USER`].
pub const LOGIN_NAME: &str = "LOGNAME";
/// Git mirror of `muster release build`; overrides the mirror of `repos.yaml`.
pub const GIT_MIRROR: &str = "MUSTER_GIT_MIRROR";
/// Address of the Puppet Forge, or of a server with the same API; overrides `forge` of `repos.yaml`.
pub const FORGE: &str = "MUSTER_FORGE";
/// Default of `--cache` of `muster release build`.
pub const CACHE: &str = "MUSTER_CACHE";
/// Cache directory of the user.
pub const CACHE_HOME: &str = "XDG_CACHE_HOME";
/// Configuration directory of the user, with the logins; without it `.config` in the home directory.
pub const CONFIG_HOME: &str = "XDG_CONFIG_HOME";
/// Home directory of the user; its `.cache` is used without [`CACHE_HOME`].
pub const HOME: &str = "HOME";

/// Cache directory, as an absolute path: the given one, or that of the user.
pub(crate) fn cache_dir(given: Option<&Path>) -> PathBuf {
    let home = || env::var_os(HOME).filter(|home| !home.is_empty()).map(|home| Path::new(&home).join(".cache"));
    let user = || env::var_os(CACHE_HOME).filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let found = given.map(Path::to_owned).or_else(|| user().or_else(home).map(|caches| caches.join("muster/git")));
    let cache =
        found.unwrap_or_else(|| env::temp_dir().join(format!("muster-git-{}", rustix::process::getuid().as_raw())));
    // Absolute: git runs in the directory of the release.
    std::path::absolute(&cache).unwrap_or(cache)
}

/// The author of a change, for history: MUSTER_AUTHOR, or the user on this machine, such as `jo@build7`. Not authenticated.
pub(crate) fn author() -> String {
    if let Some(author) = env::var(AUTHOR).ok().filter(|author| !author.is_empty()) {
        return author;
    }
    let user = [USER, LOGIN_NAME].iter().find_map(|name| env::var(name).ok());
    let user = user.filter(|user| !user.is_empty());
    let user = user.unwrap_or_else(|| format!("uid{}", rustix::process::getuid().as_raw()));
    let host = rustix::system::uname();
    format!("{user}@{}", host.nodename().to_string_lossy())
}
