//! Connects a command to a server: finds the server of this machine and opens a session with it.
//!
//! A server announces itself in two files, and removes both when it stops:
//!
//! - `server.json` in its state directory, found from `.muster` in this or a parent directory, or with `--state`; if there is
//!   such a directory and its server is stopped, no other server is used in its place;
//! - `<pid>.json` in a directory of the user (`$XDG_RUNTIME_DIR/muster`, or `muster-<uid>` in the temporary directory),
//!   found from any terminal of the user. One file per server: with two servers a command refuses to guess.
//!
//! Commands use the Unix socket of a server that they discover, and else its TCP port with the token of its token file.
//!
//! Without a server on this machine, commands use the server of the last `muster login`.
//!
//! A process that can write such a file can redirect the commands of an operator. For this reason the files are private,
//! the user's directory must be writable by the user only, and a file of another user in a parent directory is skipped.

mod announcement;
mod find;
mod logins;
mod session;

pub use announcement::{AnnounceError, Announcement, AnnouncementGuard, SERVER_FILE, STATE_DIR, SearchPaths, announce};
pub use find::{FindServerError, FoundServer, SearchResult, SearchedPath, find, find_by_state};
pub(crate) use logins::{Login, Logins, server_key};
pub(crate) use session::{ServerConnection, Session, is_retryable};
