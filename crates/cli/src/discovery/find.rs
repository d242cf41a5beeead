//! The other commands' side: finding the server that is meant.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, test_kill_process};
use thiserror::Error;

use super::Announced;
use super::places::{Places, SERVER_FILE, STATE_DIR, check_private_dir, is_own};

/// A server, and how it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The user said where it is.
    Told {
        url: String,
    },
    Announced {
        by: PathBuf,
        server: Announced,
    },
}

impl Found {
    pub fn url(&self) -> &str {
        match self {
            Found::Told { url } => url,
            Found::Announced { server, .. } => &server.url,
        }
    }
}

/// Why no server was found.
#[derive(Debug, Error)]
pub enum NotFound {
    #[error("no server was found{}", looked_in(.0))]
    Nowhere(Vec<LookedIn>),
    #[error("the server of {} is not running any more", server.state.display())]
    Ended {
        server: Box<Announced>,
        /// The user's other servers: not what was asked for, but maybe what was meant.
        others: Vec<Announced>,
    },
    #[error("{} servers run on this machine{}", .0.len(), several(.0))]
    Several(Vec<Announced>),
    #[error("cannot read {}", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the current directory cannot be determined")]
    Nowhereabouts(#[source] io::Error),
}

/// A place that was looked in, and what was there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookedIn {
    pub path: PathBuf,
    pub seen: Seen,
}

/// What was in a place that has no server to offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    Nothing,
    NothingNorAbove,
    /// A file of somebody else, who may want to send our commands elsewhere.
    Foreign,
    /// A directory in which somebody else could put a file.
    NotPrivate,
    NoneRuns,
}

impl fmt::Display for LookedIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = match self.seen {
            Seen::Nothing => "is not there",
            Seen::NothingNorAbove => "is not there, nor in a directory above",
            Seen::Foreign => "belongs to somebody else, and is not trusted",
            Seen::NotPrivate => "is not a directory of yours alone, and is not trusted",
            Seen::NoneRuns => "has no server that runs",
        };
        write!(f, "{}: {seen}", self.path.display())
    }
}

fn looked_in(places: &[LookedIn]) -> String {
    places.iter().map(|place| format!("\n  {place}")).collect()
}

fn several(servers: &[Announced]) -> String {
    servers.iter().map(|server| format!("\n  {} of {}", server.url, server.state.display())).collect()
}

/// Finds the server that is meant when nobody says which: the one of the nearest state directory, or the only one that
/// the user runs.
pub fn find(places: &Places) -> Result<Found, NotFound> {
    let near = places.current_dir.join(STATE_DIR).join(SERVER_FILE);
    let mut looked = vec![LookedIn { path: near, seen: Seen::NothingNorAbove }];
    for state in places.near() {
        match is_own(&state.join(SERVER_FILE)) {
            // Whatever became of it, it is the one that is meant: no other is taken for it.
            Ok(true) => return find_by_state(&state).map_err(|error| error.but_there_are(&places.user_dir)),
            Ok(false) => looked.push(LookedIn { path: state.join(SERVER_FILE), seen: Seen::Foreign }),
            Err(_) => {}
        }
    }
    let (mut servers, seen) = of_user(&places.user_dir)?;
    looked.push(LookedIn { path: places.user_dir.clone(), seen });
    match servers.len() {
        0 => Err(NotFound::Nowhere(looked)),
        1 => {
            let (by, server) = servers.remove(0);
            Ok(Found::Announced { by, server })
        }
        _ => Err(NotFound::Several(servers.into_iter().map(|(_, server)| server).collect())),
    }
}

/// Finds the server of a state directory that is known.
pub fn find_by_state(state: &Path) -> Result<Found, NotFound> {
    let path = state.join(SERVER_FILE);
    match load(&path)? {
        Some(server) if is_alive(server.pid) => Ok(Found::Announced { by: path, server }),
        Some(server) => Err(NotFound::Ended { server: Box::new(server), others: Vec::new() }),
        None => Err(NotFound::Nowhere(vec![LookedIn { path, seen: Seen::Nothing }])),
    }
}

impl NotFound {
    /// Adds what may have been meant instead of a server that has ended.
    fn but_there_are(mut self, user_dir: &Path) -> Self {
        if let (NotFound::Ended { others, .. }, Ok((servers, _))) = (&mut self, of_user(user_dir)) {
            others.extend(servers.into_iter().map(|(_, other)| other));
        }
        self
    }
}

/// The user's servers that run.
fn of_user(dir: &Path) -> Result<(Vec<(PathBuf, Announced)>, Seen), NotFound> {
    match check_private_dir(dir) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), Seen::Nothing)),
        Err(_) => return Ok((Vec::new(), Seen::NotPrivate)),
    }
    let unreadable = |source| NotFound::Unreadable { path: dir.to_owned(), source };
    let mut servers = Vec::new();
    for entry in fs::read_dir(dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        // What is not understood here is not this version's, or half written; it is no server that can be found.
        if let Ok(Some(server)) = read(&path)
            && is_alive(server.pid)
        {
            servers.push((path, server));
        }
    }
    servers.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok((servers, Seen::NoneRuns))
}

fn load(path: &Path) -> Result<Option<Announced>, NotFound> {
    read(path).map_err(|source| NotFound::Unreadable { path: path.to_owned(), source })
}

/// Reads an announcement; none if there is no file.
pub(super) fn read(path: &Path) -> io::Result<Option<Announced>> {
    match fs::read(path) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a process runs. Somebody else may have got the number of one that ended; then its address does not answer.
pub(super) fn is_alive(pid: i32) -> bool {
    let Some(pid) = Pid::from_raw(pid) else { return false };
    // Not being allowed to signal it means that it is there.
    !matches!(test_kill_process(pid), Err(rustix::io::Errno::SRCH))
}
