//! The other commands' side: finding the server that is meant.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, test_kill_process};
use thiserror::Error;

use super::Announced;
use super::places::{Places, SERVER_FILE, check_private_dir, is_own};

/// What the user said about the server.
#[derive(Clone, Debug, Default)]
pub struct Sought {
    pub server: Option<String>,
    pub state: Option<PathBuf>,
}

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
    pub what: &'static str,
}

impl fmt::Display for LookedIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what)
    }
}

fn looked_in(places: &[LookedIn]) -> String {
    places.iter().map(|place| format!("\n  {place}")).collect()
}

fn several(servers: &[Announced]) -> String {
    servers.iter().map(|server| format!("\n  {} of {}", server.url, server.state.display())).collect()
}

/// Finds the server that is meant: the one that the user names, the one of the nearest state directory, or the only
/// one that the user runs.
pub fn find(sought: &Sought, places: &Places) -> Result<Found, NotFound> {
    if let Some(url) = &sought.server {
        return Ok(Found::Told { url: url.clone() });
    }
    if let Some(state) = &sought.state {
        return find_by_state(state);
    }
    let mut looked = Vec::new();
    let mut ended = None;
    for state in places.near() {
        let path = state.join(SERVER_FILE);
        match is_own(&path) {
            Err(_) => {}
            Ok(false) => looked.push(LookedIn { path, what: "belongs to somebody else, and is not trusted" }),
            Ok(true) => match load(&path)? {
                Some(server) if is_alive(server.pid) => return Ok(Found::Announced { by: path, server }),
                // It may have left this behind when it was killed, and run from elsewhere now.
                Some(server) => ended = ended.or(Some(server)),
                None => {}
            },
        }
    }
    let mut servers = of_user(&places.user_dir, &mut looked)?;
    match (servers.len(), ended) {
        // The nearest server is the one that is meant; another one of the user is not.
        (_, Some(server)) => {
            let others = servers.into_iter().map(|(_, other)| other).collect();
            Err(NotFound::Ended { server: Box::new(server), others })
        }
        (1, None) => {
            let (by, server) = servers.remove(0);
            Ok(Found::Announced { by, server })
        }
        (0, None) => {
            let near = places.current_dir.join(super::STATE_DIR).join(SERVER_FILE);
            looked.insert(0, LookedIn { path: near, what: "is not there, nor in a directory above" });
            Err(NotFound::Nowhere(looked))
        }
        (_, None) => Err(NotFound::Several(servers.into_iter().map(|(_, server)| server).collect())),
    }
}

/// Finds the server of a state directory that is known.
pub fn find_by_state(state: &Path) -> Result<Found, NotFound> {
    let path = state.join(SERVER_FILE);
    match load(&path)? {
        Some(server) if is_alive(server.pid) => Ok(Found::Announced { by: path, server }),
        Some(server) => Err(NotFound::Ended { server: Box::new(server), others: Vec::new() }),
        None => Err(NotFound::Nowhere(vec![LookedIn { path, what: "is not there" }])),
    }
}

/// The user's servers that run.
fn of_user(dir: &Path, looked: &mut Vec<LookedIn>) -> Result<Vec<(PathBuf, Announced)>, NotFound> {
    let what = match check_private_dir(dir) {
        Ok(()) => "has no server that runs",
        Err(error) if error.kind() == io::ErrorKind::NotFound => "is not there",
        Err(_) => "is not a directory of yours alone, and is not trusted",
    };
    looked.push(LookedIn { path: dir.to_owned(), what });
    if what != "has no server that runs" {
        return Ok(Vec::new());
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
    Ok(servers)
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
