//! Downloads bundles and resumes broken downloads: received bytes stay in a file, and only the rest is requested. The bundle
//! is verified when it is unpacked.
//!
//! The download uses the server of the sync stream, and moves to another server with it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::statvfs;
use thiserror::Error;
use tokio::time::{Instant, timeout};

use muster_core::names::EnvName;
use muster_core::release::dir::SIZE_LIMIT;
use muster_core::release::manifest::{Digest, Manifest};
use muster_wire::client::{BundleDownload, Client, ClientError, Download};
use muster_wire::problem::{Problem, ProblemCode};

use crate::backoff::{self, RetryBackoff};
use crate::sync::error_chain;
use crate::sync::servers::ServerClients;

/// Pause between two attempts. A broken connection is often back at once.
const RETRY: RetryBackoff = RetryBackoff { first: Duration::from_millis(200), cap: Duration::from_secs(5) };
/// Attempts without progress, about 20 seconds, after which the run fails and reports the problem. The next run resumes the
/// download.
const MAX_ATTEMPTS: u32 = 8;
/// Restarts from the first byte. One mends a damaged part. If the bundle of the server itself is too short or too long, a
/// second one ends the same way.
const MAX_RESTARTS: u32 = 1;
/// Time until the first byte. A server limits its concurrent downloads and queues further ones for up to a minute.
const START_TIMEOUT: Duration = Duration::from_secs(75);
/// Time between two pieces.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(20);
/// Default and maximum retry-after of a busy server.
const RETRY_AFTER: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));
/// Size of one write, which is also the memory that a download needs.
const WRITE_SIZE: usize = 256 * 1024;

#[derive(Debug, Error)]
pub enum FetchError {
    #[error("cannot download version {version}: {why} ({} of {} received; the next attempt resumes there)",
        format_size(*have), format_size(*size))]
    Unavailable { version: String, why: String, have: u64, size: u64 },
    #[error("cannot download version {version}: {} are needed on the disk of {}, and {} are free; nothing was downloaded",
        format_size(*need), path.display(), format_size(*free))]
    NoSpace { version: String, path: PathBuf, need: u64, free: u64 },
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Release to download and the servers that have it.
#[derive(Clone, Copy, Debug)]
pub struct BundleSource<'a> {
    pub env: &'a EnvName,
    pub servers: &'a ServerClients,
    pub manifest: &'a Manifest,
}

/// A downloaded bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchedBundle {
    /// It was resumed from an earlier part, which may be damaged.
    pub resumed: bool,
}

/// Reason that an attempt ended early.
#[derive(Debug)]
enum AttemptError {
    Lost(String),
    /// The server is busy; retry after this time.
    Busy(String, Duration),
    /// The received bytes do not belong to the bundle: start again.
    InvalidBytes(String),
    Disk(FetchError),
}

/// Downloads a bundle into `part`, which may hold an earlier part. Nothing is requested if the disk has no space for it.
pub async fn fetch(source: BundleSource<'_>, part: &Path) -> Result<FetchedBundle, FetchError> {
    let Manifest { version, size, .. } = source.manifest;
    let (mut have, mut attempts, mut restarts) = (received(part, *size)?, 0, 0);
    let resumed = have > 0;
    check_space(source.manifest, part, have)?;
    // Bytes count as progress only beyond the furthest byte so far: a server whose bundle is cut short sends the same bytes
    // after each restart.
    let mut furthest = have;
    tracing::info!(%version, have = format_size(have), size = format_size(*size), "downloading the release");
    while have < *size {
        let error = match attempt(source, part, have).await {
            Ok(()) => AttemptError::Lost("the server sent less than the manifest says".into()),
            Err(error) => error,
        };
        have = received(part, *size)?;
        if have == *size {
            break;
        }
        attempts = if have > furthest { 1 } else { attempts + 1 };
        furthest = furthest.max(have);
        let (why, pause) = match error {
            AttemptError::Disk(error) => return Err(error),
            AttemptError::Lost(why) => (why, RETRY.pause(attempts, backoff::chance())),
            AttemptError::Busy(why, later) => {
                (why, RetryBackoff { first: later, cap: later }.longest(backoff::chance()))
            }
            AttemptError::InvalidBytes(why) => {
                remove(part)?;
                (have, restarts) = (0, restarts + 1);
                (why, RETRY.pause(attempts, backoff::chance()))
            }
        };
        if attempts >= MAX_ATTEMPTS || restarts > MAX_RESTARTS {
            return Err(FetchError::Unavailable { version: version.to_string(), why, have, size: *size });
        }
        tracing::warn!(%version, why, have = format_size(have), size = format_size(*size), "the download was interrupted; resuming");
        tokio::time::sleep(pause).await;
    }
    Ok(FetchedBundle { resumed })
}

/// One connection, starting at byte `have`.
async fn attempt(source: BundleSource<'_>, part: &Path, have: u64) -> Result<(), AttemptError> {
    let client = source.servers.current();
    tokio::select! {
        ended = receive(source, &client, part, have) => ended,
        () = server_changed(source.servers, &client) => Err(AttemptError::Lost(format!("the agent has moved away from the server at {}", client.base()))),
    }
}

async fn receive(source: BundleSource<'_>, client: &Client, part: &Path, have: u64) -> Result<(), AttemptError> {
    let BundleSource { env, servers, manifest } = source;
    let sent = Instant::now();
    let silent = || {
        servers.report_unanswered(sent);
        AttemptError::Lost("the server does not answer".into())
    };
    let opened =
        timeout(START_TIMEOUT, client.download_bundle(env, &manifest.version, have)).await.map_err(|_| silent())?;
    let BundleDownload { from, digest, mut download } = opened.map_err(|error| refused(&error))?;
    if let Some(digest) = digest.filter(|digest| *digest != manifest.digest) {
        return Err(AttemptError::Lost(format!("the server has another bundle for this version, {digest}")));
    }
    if from != have && from != 0 {
        return Err(AttemptError::Lost(format!("the server started at byte {from} instead of {have}")));
    }
    let writing = PartWriter::open(part, from).await.map_err(AttemptError::Disk)?;
    receive_pieces(&mut download, writing, from, manifest.size).await.map_err(|error| error.unwrap_or_else(silent))
}

/// Writes the pieces of a download. The error is none if the server sent nothing for too long.
async fn receive_pieces(
    download: &mut Download,
    mut writing: PartWriter,
    from: u64,
    limit: u64,
) -> Result<(), Option<AttemptError>> {
    let disk = |error| Some(AttemptError::Disk(error));
    let mut total = from;
    loop {
        let piece = match timeout(SILENCE_TIMEOUT, download.next()).await {
            Ok(Ok(piece)) => piece,
            ended => {
                // Keep what was received.
                writing.flush().await.map_err(disk)?;
                let Ok(Err(error)) = ended else { return Err(None) };
                return Err(Some(AttemptError::Lost(error_chain(&error))));
            }
        };
        let Some(piece) = piece else { return writing.flush().await.map(drop).map_err(disk) };
        total += piece.as_ref().len() as u64;
        if total > limit {
            let problem = format!("the server sends more than the {limit} bytes of the manifest");
            return Err(Some(AttemptError::InvalidBytes(problem)));
        }
        writing = writing.push(piece.as_ref()).await.map_err(disk)?;
    }
}

/// Downloads the files of a release that the bundle `base` does not have into `part`. One attempt: deltas are small, and
/// without one the agent downloads the whole bundle, which can be resumed.
pub async fn fetch_delta(source: BundleSource<'_>, base: &Digest, part: &Path) -> Result<(), String> {
    let BundleSource { env, servers, manifest } = source;
    remove(part).map_err(|error| error_chain(&error))?;
    let client = servers.current();
    let sent = Instant::now();
    let silent = || {
        servers.report_unanswered(sent);
        "the server does not answer".to_owned()
    };
    let opened = timeout(START_TIMEOUT, client.download_delta(env, &manifest.version, base)).await;
    let BundleDownload { digest, mut download, .. } =
        opened.map_err(|_| silent())?.map_err(|error| error_chain(&error))?;
    if digest.as_ref() != Some(&manifest.digest) {
        return Err("the server has another bundle for this version".to_owned());
    }
    let writing = PartWriter::open(part, 0).await.map_err(|error| error_chain(&error))?;
    receive_pieces(&mut download, writing, 0, manifest.size).await.map_err(|error| match error {
        None => silent(),
        Some(AttemptError::Disk(error)) => error_chain(&error),
        Some(AttemptError::Lost(why) | AttemptError::Busy(why, _) | AttemptError::InvalidBytes(why)) => why,
    })
}

fn refused(error: &ClientError) -> AttemptError {
    let (usual, longest) = RETRY_AFTER;
    match error.problem() {
        Some(Problem { code: ProblemCode::Busy, retry_after_seconds, .. }) => {
            let later = retry_after_seconds.map_or(usual, |seconds| Duration::from_secs(seconds.into()));
            AttemptError::Busy(error_chain(error), later.min(longest))
        }
        Some(Problem { code: ProblemCode::RangeNotSatisfiable, .. }) => AttemptError::InvalidBytes(error_chain(error)),
        Some(_) | None => AttemptError::Lost(error_chain(error)),
    }
}

/// Waits until the agent uses another server.
async fn server_changed(servers: &ServerClients, client: &Client) {
    let mut moves = servers.unanswered();
    while servers.current().base() == client.base() {
        if moves.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Compares the rest of the bundle and its unpacked content with the free space. A disk whose size is unknown is tried.
fn check_space(manifest: &Manifest, part: &Path, have: u64) -> Result<(), FetchError> {
    let directory = part.parent().unwrap_or(part);
    let Ok(disk) = statvfs(directory) else { return Ok(()) };
    let content = manifest.content_size.unwrap_or(0).min(SIZE_LIMIT);
    let need = manifest.size.saturating_sub(have).saturating_add(content);
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if need <= free {
        return Ok(());
    }
    Err(FetchError::NoSpace { version: manifest.version.to_string(), path: directory.to_owned(), need, free })
}

/// Number of received bytes. A file that is too long is removed.
fn received(part: &Path, size: u64) -> Result<u64, FetchError> {
    match fs::metadata(part) {
        Ok(meta) if meta.is_file() && meta.len() <= size => Ok(meta.len()),
        Ok(_) => remove(part).map(|()| 0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(source) => Err(FetchError::Write { path: part.to_owned(), source }),
    }
}

/// Removes a partial download.
pub(super) fn remove(part: &Path) -> Result<(), FetchError> {
    match fs::remove_file(part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(FetchError::Write { path: part.to_owned(), source: error })
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Collects pieces and writes them on a blocking thread.
struct PartWriter {
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
}

impl PartWriter {
    /// Continues after the first `from` bytes.
    async fn open(path: &Path, from: u64) -> Result<Self, FetchError> {
        let path = path.to_owned();
        blocking(path.clone(), move || {
            let file = OpenOptions::new().create(true).append(true).open(&path)?;
            file.set_len(from)?;
            Ok(Self { path, file, buffer: Vec::new() })
        })
        .await
    }

    async fn push(mut self, piece: &[u8]) -> Result<Self, FetchError> {
        self.buffer.extend_from_slice(piece);
        if self.buffer.len() < WRITE_SIZE { Ok(self) } else { self.flush().await }
    }

    async fn flush(mut self) -> Result<Self, FetchError> {
        let path = self.path.clone();
        blocking(path, move || {
            let written = self.file.write_all(&self.buffer);
            if let Err(error) = written {
                // The agent needs the space to store its own state.
                let _ = fs::remove_file(&self.path);
                return Err(error);
            }
            self.buffer.clear();
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

/// A size with its unit.
pub(super) fn format_size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..1_000_000 => format!("{} kB", bytes / 1000),
        1_000_000.. => format!("{} MB", bytes / 1_000_000),
    }
}
