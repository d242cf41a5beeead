//! Finds the server of this machine by its announcement.

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use rustix::process::{Pid, test_kill_process};
use thiserror::Error;

use super::announcement::{Announcement, SERVER_FILE, STATE_DIR, SearchPaths, check_private_dir, is_own};

/// The server that a command talks to, and how it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundServer {
    /// By `--server` or MUSTER_SERVER.
    Explicit { url: String },
    /// By the announcement in a file.
    Announced { file: PathBuf, announcement: Announcement },
}

impl FoundServer {
    pub fn url(&self) -> &str {
        match self {
            FoundServer::Explicit { url } => url,
            FoundServer::Announced { announcement, .. } => &announcement.url,
        }
    }
}

/// Reasons that no server was found.
#[derive(Debug, Error)]
pub enum FindServerError {
    #[error("no server was found{}", format_searched(.0))]
    NotFound(Vec<SearchedPath>),
    #[error("the server of {} is not running", state.display())]
    Stopped {
        state: PathBuf,
        /// Other running servers of the user, for a hint.
        others: Vec<Announcement>,
    },
    #[error("{} servers run on this machine{}", .0.len(), format_servers(.0))]
    Ambiguous(Vec<Announcement>),
    #[error("cannot read {}", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot determine the current directory")]
    CurrentDir(#[source] io::Error),
}

/// A path that was searched without success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchedPath {
    pub path: PathBuf,
    pub result: SearchResult,
}

/// Result of a search without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchResult {
    Missing,
    MissingHereAndAbove,
    /// The file belongs to another user, who could redirect commands.
    ForeignFile,
    /// Other users can create files in the directory.
    NotPrivate,
    NoneRunning,
    /// Only root and the server's user can read the directory.
    NotReadable,
}

impl fmt::Display for SearchedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let result = match self.result {
            SearchResult::Missing => "does not exist",
            SearchResult::MissingHereAndAbove => "does not exist here or in a parent directory",
            SearchResult::ForeignFile => "belongs to another user and is not trusted",
            SearchResult::NotPrivate => "can be written by other users and is not trusted",
            SearchResult::NoneRunning => "has no running server",
            SearchResult::NotReadable => "can be read by root only; other users need --server and `muster login`",
        };
        write!(f, "{}: {result}", self.path.display())
    }
}

fn format_searched(paths: &[SearchedPath]) -> String {
    paths.iter().map(|path| format!("\n  {path}")).collect()
}

fn format_servers(servers: &[Announcement]) -> String {
    servers.iter().map(|server| format!("\n  {} of {}", server.url, server.state.display())).collect()
}

/// Finds the server of the nearest state directory, or else the only running server of the user, or else that of the machine.
pub fn find(paths: &SearchPaths) -> Result<FoundServer, FindServerError> {
    let near = paths.current_dir.join(STATE_DIR).join(SERVER_FILE);
    let mut searched = vec![SearchedPath { path: near, result: SearchResult::MissingHereAndAbove }];
    for state in paths.state_dirs() {
        let announcement = state.join(SERVER_FILE);
        let stopped = || FindServerError::Stopped { state: state.clone(), others: Vec::new() };
        // Even if the server of this directory has stopped, no other server is used in its place.
        let found = match (is_own(&announcement), is_own(&state)) {
            (Ok(true), _) => find_by_state(&state),
            (Err(_), Ok(true)) => Err(stopped()),
            (Ok(false), _) => {
                searched.push(SearchedPath { path: announcement, result: SearchResult::ForeignFile });
                continue;
            }
            (Err(_), Ok(false) | Err(_)) => continue,
        };
        return found.map_err(|error| error.with_other_servers(&paths.user_dir));
    }
    let (mut servers, result) = user_servers(&paths.user_dir)?;
    if let Some(project) = paths.current_dir.ancestors().find(|dir| is_project(dir)) {
        // The server of another project is not used in its place. A server with a state directory of its own may have many.
        let of_other = |server: &Announcement| server.state.file_name().is_some_and(|name| name == STATE_DIR);
        let (others, common): (Vec<_>, Vec<_>) = servers.into_iter().partition(|(_, server)| of_other(server));
        if common.is_empty() && !others.is_empty() {
            let others = others.into_iter().map(|(_, server)| server).collect();
            return Err(FindServerError::Stopped { state: project.join(STATE_DIR), others });
        }
        servers = common;
    }
    searched.push(SearchedPath { path: paths.user_dir.clone(), result });
    match servers.len() {
        0 => find_system_server(&paths.system_state, searched),
        1 => {
            let (file, announcement) = servers.remove(0);
            Ok(FoundServer::Announced { file, announcement })
        }
        _ => Err(FindServerError::Ambiguous(servers.into_iter().map(|(_, server)| server).collect())),
    }
}

/// True for the directory of a project.
fn is_project(directory: &Path) -> bool {
    directory.join("environments").is_dir() || directory.join("muster.yaml").is_file()
}

/// Finds the server that the package installs, which runs as a user of its own.
fn find_system_server(state: &Path, mut searched: Vec<SearchedPath>) -> Result<FoundServer, FindServerError> {
    match find_by_state(state) {
        Err(FindServerError::NotFound(_)) => {}
        Err(FindServerError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
            searched.push(SearchedPath { path: state.to_owned(), result: SearchResult::NotReadable });
        }
        found => return found,
    }
    Err(FindServerError::NotFound(searched))
}

/// Finds the server of a given state directory.
pub fn find_by_state(state: &Path) -> Result<FoundServer, FindServerError> {
    let path = state.join(SERVER_FILE);
    let found = read(&path).map_err(|source| FindServerError::Unreadable { path: path.clone(), source })?;
    match found {
        Some(announcement) if is_alive(announcement.pid) => Ok(FoundServer::Announced { file: path, announcement }),
        Some(_) => Err(FindServerError::Stopped { state: state.to_owned(), others: Vec::new() }),
        None => Err(FindServerError::NotFound(vec![SearchedPath { path, result: SearchResult::Missing }])),
    }
}

/// The announced server at a URL, if it runs on this machine.
pub(super) fn find_by_url(paths: &SearchPaths, state: Option<&Path>, url: &str) -> Option<Announcement> {
    let states = state.map(Path::to_owned).into_iter().chain(paths.state_dirs());
    let near = states.map(|state| state.join(SERVER_FILE)).filter(|file| is_own(file).unwrap_or(false));
    let near = near.filter_map(|file| read(&file).ok().flatten()).filter(|server| is_alive(server.pid));
    let of_user = user_servers(&paths.user_dir).map(|(servers, _)| servers).unwrap_or_default();
    let mut servers = near.chain(of_user.into_iter().map(|(_, server)| server));
    servers.find(|server| is_url_of(&server.url, url.trim_end_matches('/')))
}

/// True if a URL is the announced one, or has `localhost` in place of the address.
fn is_url_of(announced: &str, url: &str) -> bool {
    let port = announced.rsplit_once(':').map(|(_, port)| port);
    url == announced || port.is_some_and(|port| url.strip_prefix("http://localhost:") == Some(port))
}

impl FindServerError {
    fn with_other_servers(mut self, user_dir: &Path) -> Self {
        if let (FindServerError::Stopped { others, .. }, Ok((servers, _))) = (&mut self, user_servers(user_dir)) {
            others.extend(servers.into_iter().map(|(_, other)| other));
        }
        self
    }
}

/// The running servers of the user, with the files that announce them.
fn user_servers(dir: &Path) -> Result<(Vec<(PathBuf, Announcement)>, SearchResult), FindServerError> {
    match check_private_dir(dir) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), SearchResult::Missing)),
        Err(_) => return Ok((Vec::new(), SearchResult::NotPrivate)),
    }
    let unreadable = |source| FindServerError::Unreadable { path: dir.to_owned(), source };
    let mut servers = Vec::new();
    for entry in fs::read_dir(dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        // A file that cannot be parsed is of another version or incomplete, and is skipped.
        if let Ok(Some(server)) = read(&path)
            && is_alive(server.pid)
        {
            servers.push((path, server));
        }
    }
    servers.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok((servers, SearchResult::NoneRunning))
}

/// Reads an announcement; none if there is no file.
pub(super) fn read(path: &Path) -> io::Result<Option<Announcement>> {
    match fs::read(path) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// True if a process with this id runs. The id may have been reused; then the address does not answer.
pub(super) fn is_alive(pid: i32) -> bool {
    let Some(pid) = Pid::from_raw(pid) else { return false };
    // A process that has ended stays in the table until its parent reads its status.
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    if stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')) {
        return false;
    }
    // Any other error, such as a missing permission, means that the process exists.
    !matches!(test_kill_process(pid), Err(rustix::io::Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn localhost_names_the_announced_server() {
        for (announced, url, is_same) in [
            ("http://127.0.0.1:7300", "http://127.0.0.1:7300", true),
            ("http://127.0.0.1:7300", "http://localhost:7300", true),
            ("http://[::1]:7300", "http://localhost:7300", true),
            ("http://127.0.0.1:7300", "http://localhost:73", false),
            ("http://127.0.0.1:7300", "http://localhost", false),
            ("http://127.0.0.1:7300", "http://127.0.0.2:7300", false),
            ("http://127.0.0.1:7300", "http://localhost.example:7300", false),
        ] {
            assert_eq!(is_url_of(announced, url), is_same, "{announced} {url}");
        }
    }
}
