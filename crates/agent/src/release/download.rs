//! Brings a bundle onto the node, however often the line is cut: what has arrived stays in a file, and the rest is asked
//! for. Nothing is believed here; whoever unpacks the bundle proves it first.
//!
//! It talks to the server that the stream talks to, and leaves it when the stream does.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;
use tokio::time::{Instant, timeout};

use muster_core::names::EnvName;
use muster_core::release::manifest::Manifest;
use muster_wire::client::{BundleDownload, Client, ClientError};
use muster_wire::problem::{Problem, ProblemCode};

use crate::backoff::{self, Backoff};
use crate::servers::Servers;
use crate::sync::chain;

/// Between two attempts. A line that was cut is often back at once.
const AGAIN: Backoff = Backoff { first: Duration::from_millis(200), cap: Duration::from_secs(5) };
/// So many attempts that brought nothing, some 20 seconds, and the run fails: whoever looks at the node is to see why it
/// stands. The next run goes on where this one ended.
const FRUITLESS: u32 = 8;
/// How long a server may take to begin: it sends to so many nodes at once, and lets the others wait for up to a minute.
const BEGIN: Duration = Duration::from_secs(75);
/// How long it may then be silent.
const SILENCE: Duration = Duration::from_secs(20);
/// What a server means that says only that it is busy; and longer than the other nobody waits, whatever it says.
const BUSY: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));
/// What is written at once. It is all the memory that a bundle takes on its way, whatever its size.
const PIECE: usize = 256 * 1024;

#[derive(Debug, Error)]
pub enum FetchError {
    #[error("version {version} cannot be had: {why} ({} of {} have arrived, and the next attempt goes on from there)",
        megabytes(*have), megabytes(*size))]
    NotHad { version: String, why: String, have: u64, size: u64 },
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Of which release, and from whom.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    pub env: &'a EnvName,
    pub servers: &'a Servers,
    pub manifest: &'a Manifest,
}

/// A bundle that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// A part of it was there before. If it turns out wrong, that may be why.
    pub resumed: bool,
}

/// Why one attempt has ended before the bundle was whole.
#[derive(Debug)]
enum Cut {
    Lost(String),
    /// The server asks for patience, so long.
    Busy(String, Duration),
    /// What has arrived is of no use.
    Useless(String),
    Disk(FetchError),
}

/// Fetches a bundle into `part`, which holds what arrived before.
pub async fn fetch(source: Source<'_>, part: &Path) -> Result<Fetched, FetchError> {
    let Manifest { version, size, .. } = source.manifest;
    let (mut have, mut fruitless) = (arrived(part, *size)?, 0);
    let resumed = have > 0;
    tracing::info!(%version, have = megabytes(have), size = megabytes(*size), "fetching the release");
    while have < *size {
        let cut = match attempt(source, part, have).await {
            Ok(()) => Cut::Lost("the server sent less than the manifest says".into()),
            Err(cut) => cut,
        };
        let before = std::mem::replace(&mut have, arrived(part, *size)?);
        if have == *size {
            break;
        }
        fruitless = if have > before { 1 } else { fruitless + 1 };
        let (why, pause) = match cut {
            Cut::Disk(error) => return Err(error),
            Cut::Lost(why) => (why, AGAIN.pause(fruitless, backoff::chance())),
            Cut::Busy(why, later) => (why, Backoff { first: later, cap: later }.longest(backoff::chance())),
            Cut::Useless(why) => {
                remove(part)?;
                have = 0;
                (why, AGAIN.pause(fruitless, backoff::chance()))
            }
        };
        if fruitless >= FRUITLESS {
            return Err(FetchError::NotHad { version: version.to_string(), why, have, size: *size });
        }
        tracing::warn!(%version, why, have = megabytes(have), size = megabytes(*size), "the release is not here yet; going on");
        tokio::time::sleep(pause).await;
    }
    Ok(Fetched { resumed })
}

/// One connection, from what is there on.
async fn attempt(source: Source<'_>, part: &Path, have: u64) -> Result<(), Cut> {
    let client = source.servers.current().clone();
    tokio::select! {
        ended = receive(source, &client, part, have) => ended,
        () = left(source.servers, &client) => Err(Cut::Lost(format!("the agent has left the server at {}", client.base()))),
    }
}

async fn receive(source: Source<'_>, client: &Client, part: &Path, have: u64) -> Result<(), Cut> {
    let Source { env, servers, manifest } = source;
    let asked = Instant::now();
    let silent = || {
        servers.doubt(asked);
        Cut::Lost("the server does not answer".into())
    };
    let opened = timeout(BEGIN, client.download_bundle(env, &manifest.version, have)).await.map_err(|_| silent())?;
    let BundleDownload { from, digest, mut download } = opened.map_err(|error| refused(&error))?;
    if let Some(digest) = digest.filter(|digest| *digest != manifest.digest) {
        return Err(Cut::Lost(format!("the server has another bundle under this version, {digest}")));
    }
    if from != have && from != 0 {
        return Err(Cut::Lost(format!("the server began at byte {from}, and was asked for byte {have}")));
    }
    let mut writing = Writing::open(part, from).await.map_err(Cut::Disk)?;
    let mut total = from;
    loop {
        let piece = match timeout(SILENCE, download.next()).await {
            Ok(Ok(piece)) => piece,
            ended => {
                // What has come so far need not come again.
                writing.flush().await.map_err(Cut::Disk)?;
                let Ok(Err(error)) = ended else { return Err(silent()) };
                return Err(Cut::Lost(chain(&error)));
            }
        };
        let Some(piece) = piece else { return writing.flush().await.map(drop).map_err(Cut::Disk) };
        total += piece.as_ref().len() as u64;
        if total > manifest.size {
            return Err(Cut::Useless(format!(
                "the server sends more than the {} bytes of the manifest",
                manifest.size
            )));
        }
        writing = writing.take(piece.as_ref()).await.map_err(Cut::Disk)?;
    }
}

fn refused(error: &ClientError) -> Cut {
    let (usual, longest) = BUSY;
    match error.problem() {
        Some(Problem { code: ProblemCode::Busy, retry_after_seconds, .. }) => {
            let later = retry_after_seconds.map_or(usual, |seconds| Duration::from_secs(seconds.into()));
            Cut::Busy(chain(error), later.min(longest))
        }
        Some(Problem { code: ProblemCode::RangeNotSatisfiable, .. }) => Cut::Useless(chain(error)),
        Some(_) | None => Cut::Lost(chain(error)),
    }
}

/// Waits until the agent talks to another server.
async fn left(servers: &Servers, client: &Client) {
    let mut moves = servers.doubts();
    while servers.current().base() == client.base() {
        if moves.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// How much of a bundle is there. More than all of it is something else.
fn arrived(part: &Path, size: u64) -> Result<u64, FetchError> {
    match fs::metadata(part) {
        Ok(meta) if meta.is_file() && meta.len() <= size => Ok(meta.len()),
        Ok(_) => remove(part).map(|()| 0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(source) => Err(FetchError::Write { path: part.to_owned(), source }),
    }
}

/// Forgets what has arrived.
pub(super) fn remove(part: &Path) -> Result<(), FetchError> {
    match fs::remove_file(part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(FetchError::Write { path: part.to_owned(), source: error })
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Collects pieces and writes them, on a thread that may wait for the disk.
struct Writing {
    path: PathBuf,
    file: File,
    waiting: Vec<u8>,
}

impl Writing {
    /// Goes on behind the first `from` bytes.
    async fn open(path: &Path, from: u64) -> Result<Self, FetchError> {
        let path = path.to_owned();
        blocking(path.clone(), move || {
            let file = OpenOptions::new().create(true).append(true).open(&path)?;
            file.set_len(from)?;
            Ok(Self { path, file, waiting: Vec::new() })
        })
        .await
    }

    async fn take(mut self, piece: &[u8]) -> Result<Self, FetchError> {
        self.waiting.extend_from_slice(piece);
        if self.waiting.len() < PIECE { Ok(self) } else { self.flush().await }
    }

    async fn flush(mut self) -> Result<Self, FetchError> {
        let path = self.path.clone();
        blocking(path, move || {
            let written = self.file.write_all(&self.waiting);
            if let Err(error) = written {
                // The agent needs the space itself: to write down that there is none.
                let _ = fs::remove_file(&self.path);
                return Err(error);
            }
            self.waiting.clear();
            Ok(self)
        })
        .await
    }
}

async fn blocking<T: Send + 'static>(
    path: PathBuf,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, FetchError> {
    let done = tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)));
    done.map_err(|source| FetchError::Write { path, source })
}

/// A size for people.
pub(super) fn megabytes(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..1_000_000 => format!("{} kB", bytes / 1000),
        1_000_000.. => format!("{} MB", bytes / 1_000_000),
    }
}
