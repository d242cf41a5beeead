//! How a server on this machine says where it is, and how the other commands find it.
//!
//! A server announces itself in two places, and takes both away when it ends:
//!
//! - `server.json` in its state directory, for whoever is near it (`.muster` here or above) or names it (`--state`);
//! - `<pid>.json` in a directory of the user (`$XDG_RUNTIME_DIR/muster`, or `muster-<uid>` among the temporary files),
//!   for the user's other terminals. One file a server: with two servers, nobody is sent to the wrong one by accident.
//!
//! Whoever can write such a file can send an operator's commands elsewhere. So the files are private, the user's
//! directory must be the user's alone, and a file of somebody else above the current directory is passed over.

mod announce;
mod find;
mod places;

use std::path::PathBuf;

use jiff::Timestamp;
use muster_core::names::EnvName;
use serde::{Deserialize, Serialize};

pub use announce::{AnnounceError, Announcement, announce};
pub use find::{Found, LookedIn, NotFound, Seen, find, find_by_state};
pub use places::{Places, SERVER_FILE, STATE_DIR};

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announced {
    pub url: String,
    pub pid: i32,
    /// The environment that it is for, if it is for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<EnvName>,
    pub started: Timestamp,
    /// Its state directory, by which people know one server from another.
    pub state: PathBuf,
}
