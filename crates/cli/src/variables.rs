//! The environment variables that `muster` reads. There are no others but `NO_COLOR` and its relatives.

/// The environment, if `--env` does not say.
pub const ENV: &str = "MUSTER_ENV";
/// The server's address, if `--server` does not say.
pub const SERVER: &str = "MUSTER_SERVER";
/// The state directory of the server, if `--state` does not say.
pub const STATE: &str = "MUSTER_STATE";
/// The revision that answers must have reached, if `--min-revision` does not say.
pub const MIN_REVISION: &str = "MUSTER_MIN_REVISION";
/// The password of the store's user, if `--store-password-file` does not say. There is no option for it: everybody on
/// the machine can see the arguments of a process.
pub const STORE_PASSWORD: &str = "MUSTER_STORE_PASSWORD";
/// Where the user's servers announce themselves; see [`crate::discovery`].
pub const RUNTIME_DIR: &str = "XDG_RUNTIME_DIR";
/// The same on a machine without user sessions.
pub const TEMPORARY_DIR: &str = "TMPDIR";
/// Who makes a change to a design: for programs that act for a person.
pub const AUTHOR: &str = "MUSTER_AUTHOR";
/// The same, if that is not said: the user's name.
pub const USER: &str = "USER";
/// The same on a machine that says it otherwise.
pub const LOGIN_NAME: &str = "LOGNAME";
/// Where `muster release build` looks for git repositories first, before the mirror of `repos.yaml`.
pub const GIT_MIRROR: &str = "MUSTER_GIT_MIRROR";
/// Where git repositories are kept between builds, if `--cache` does not say.
pub const CACHE: &str = "MUSTER_CACHE";
/// The same, if that is not said: the user's caches.
pub const CACHE_HOME: &str = "XDG_CACHE_HOME";
/// The same on a machine that says it otherwise.
pub const HOME: &str = "HOME";
