//! The files that the agent and the supervisor share. Fields are only ever added: an agent reads the files of supervisors
//! that an older or newer agent has started.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Version of the files.
pub const VERSION: u32 = 1;
/// Space that is reserved for `ended.json`.
const END_SPACE: usize = 4096;
/// Maximum length of a message in it.
const MAX_MESSAGE: usize = 1000;

/// A path, argument or value: text, or bytes where it is not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OsText {
    Text(String),
    Bytes(Vec<u8>),
}

impl<T: AsRef<OsStr>> From<T> for OsText {
    fn from(value: T) -> Self {
        let value = value.as_ref();
        value.to_str().map_or_else(|| Self::Bytes(value.as_bytes().to_vec()), |text| Self::Text(text.to_owned()))
    }
}

impl OsText {
    pub fn to_os(&self) -> OsString {
        match self {
            Self::Text(text) => text.into(),
            Self::Bytes(bytes) => OsString::from_vec(bytes.clone()),
        }
    }
}

/// The program to supervise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramFile {
    pub version: u32,
    pub path: OsText,
    pub args: Vec<OsText>,
    pub directory: OsText,
    /// All variables; nothing is inherited. The supervisor has the same ones.
    pub environment: Vec<(String, OsText)>,
    /// File for standard output and error, limited in size; see [`crate::output`].
    pub output: OsText,
    /// Environment variable that all processes of the program carry.
    pub mark: (String, String),
    pub deadline: Duration,
    /// Time between two signals at the deadline.
    pub grace: Duration,
    pub packages: PackagePolicy,
    /// Lock file that has the pid of the program while it runs; see [`crate::pid_lock`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid_file: Option<OsText>,
}

/// Treatment of package managers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackagePolicy {
    /// Files that a package manager locks (fcntl) while it works.
    pub locks: Vec<PathBuf>,
    /// Time that a package manager has after the deadline.
    pub limit: Duration,
    /// The database of dpkg.
    pub dpkg: PathBuf,
    /// Command that completes interrupted installations of dpkg, executed before the program if there are any. Empty: none.
    pub repair: Vec<String>,
}

impl PackagePolicy {
    /// The policy for the package managers of this host.
    pub fn of_host(limit: Duration, repair: bool) -> Self {
        let locks = [
            "/var/lib/dpkg/lock-frontend",
            "/var/lib/dpkg/lock",
            "/var/lib/rpm/.rpm.lock",
            "/usr/lib/sysimage/rpm/.rpm.lock",
        ];
        let command: &[&str] = if repair { &["dpkg", "--configure", "-a"] } else { &[] };
        Self {
            locks: locks.map(PathBuf::from).to_vec(),
            limit,
            dpkg: "/var/lib/dpkg".into(),
            repair: command.iter().map(|&word| word.to_owned()).collect(),
        }
    }
}

/// How a program has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ProgramEnd {
    Exited {
        code: i32,
    },
    /// By a signal that the supervisor did not send.
    Killed {
        signal: i32,
    },
    /// It was still running at its deadline, and was ended.
    Deadline,
    NotStarted {
        /// Error number of the system, if there is one.
        errno: Option<i32>,
        message: String,
    },
}

impl ProgramEnd {
    pub(crate) fn not_started(error: &io::Error) -> Self {
        let message = error.to_string().chars().take(MAX_MESSAGE).collect();
        Self::NotStarted { errno: error.raw_os_error(), message }
    }
}

/// The content of `ended.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndFile {
    pub version: u32,
    pub end: ProgramEnd,
    /// Time of the end, in milliseconds since 1970.
    pub at_millis: u64,
    /// dpkg has packages whose installation was interrupted.
    pub dpkg_interrupted: bool,
}

/// State of a supervised program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunState {
    /// The supervisor has not started the program, and never will.
    NotStarted,
    /// The supervisor is alive. The pid is unknown for a moment after its start.
    Running {
        pid: Option<u32>,
    },
    Ended(EndFile),
    /// The supervisor has ended without a result.
    Lost,
}

/// The directory of one supervised program.
#[derive(Clone, Copy, Debug)]
pub struct SupervisedDir<'a>(pub &'a Path);

impl SupervisedDir<'_> {
    fn program(&self) -> PathBuf {
        self.0.join("program.json")
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }

    fn ended(&self) -> PathBuf {
        self.0.join("ended.json")
    }

    fn reserved(&self) -> PathBuf {
        self.0.join("ended.json.reserved")
    }

    /// Standard error of the supervisor, and of the program that starts it.
    pub fn log(&self) -> PathBuf {
        self.0.join("supervisor.log")
    }

    /// Creates the directory and writes the program durably. Returns the locked lock file, which is the standard input of the
    /// supervisor.
    pub fn create(&self, program: &ProgramFile) -> io::Result<File> {
        DirBuilder::new().recursive(true).mode(0o700).create(self.0)?;
        let bytes = serde_json::to_vec(program)?;
        let mut file = private().create(true).truncate(true).open(self.program())?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        let lock = private().read(true).create(true).truncate(true).open(self.lock())?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        self.sync()?;
        sync_directory(self.0.parent().unwrap_or(self.0))?;
        Ok(lock)
    }

    pub fn read_program(&self) -> io::Result<ProgramFile> {
        Ok(serde_json::from_slice(&fs::read(self.program())?)?)
    }

    /// Reads the state. `NotStarted` if there is no such directory.
    pub fn state(&self) -> io::Result<RunState> {
        let mut lock = match File::open(self.lock()) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(RunState::NotStarted),
            Err(error) => return Err(error),
        };
        let mut pid = String::new();
        lock.read_to_string(&mut pid)?;
        let pid = pid.trim().parse().ok();
        // Shared: two readers do not take each other for a supervisor.
        match flock(&lock, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(RunState::Running { pid }),
            Err(error) => return Err(error.into()),
        }
        match fs::read(self.ended()) {
            Ok(bytes) => Ok(RunState::Ended(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(if pid.is_some() { RunState::Lost } else { RunState::NotStarted })
            }
            Err(error) => Err(error),
        }
    }

    /// Reserves the space of `ended.json`.
    pub(crate) fn reserve_end(&self) -> io::Result<()> {
        let mut file = private().create(true).truncate(true).open(self.reserved())?;
        file.write_all(&[b' '; END_SPACE])?;
        file.sync_all()?;
        self.sync()
    }

    /// Writes `ended.json` durably, into the reserved space.
    pub(crate) fn write_end(&self, end: &EndFile) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(end)?;
        bytes.resize(bytes.len().max(END_SPACE), b' ');
        let mut file = private().open(self.reserved())?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(self.reserved(), self.ended())?;
        self.sync()
    }

    fn sync(&self) -> io::Result<()> {
        sync_directory(self.0)
    }
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Options of a file that only the agent's user may read: environments may contain secrets.
fn private() -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.write(true).mode(0o600);
    options
}
