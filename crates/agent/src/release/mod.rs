//! Gets a release onto the node: judged, fetched, proved, unpacked, understood. Nothing of it runs before.
//!
//! - [`admit`](mod@admit): whether the node may run it; pure. [`trust`]: whose signatures count. [`memory`]: what must not be forgotten
//!   for that.
//! - [`download`]: the bundle, however often the line is cut. [`shelf`]: what lies on the node, and what may go.
//!
//! A release that is on the node needs nobody else: it runs with the server away.

pub mod admit;
pub mod download;
pub mod memory;
pub mod shelf;
pub mod trust;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use muster_core::names::{EnvName, Version};
use muster_core::release::dir;
use muster_core::release::manifest::Manifest;
use muster_core::release::spec::ReleaseSpec;
use muster_core::report::reason::{ReleaseRefusal, RunReason};
use muster_release::unpack::{BundleError, UnpackError};
use muster_wire::sync::DesiredState;

use crate::clock;
use crate::config::Config;
use crate::durable;
use crate::ledger::{Ledger, LoadError};
use crate::release::admit::{Known, admit};
use crate::release::download::{FetchError, Source, fetch};
use crate::release::memory::{Kept, Memory};
use crate::release::shelf::Shelf;
use crate::release::trust::Trust;
use crate::servers::Servers;
use crate::state_dir::Layout;
use crate::sync::chain;

/// A release that may be executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    pub directory: PathBuf,
    pub spec: ReleaseSpec,
}

/// Everything that the agent has to do with releases.
#[derive(Debug)]
pub struct Releases {
    env: EnvName,
    servers: Servers,
    trust: Arc<Trust>,
    memory: Mutex<Kept>,
    shelf: Shelf,
    keep: usize,
}

impl Releases {
    /// Reads what the node knows of releases, and removes what a former agent left half done.
    pub fn open(
        config: &Config,
        layout: &Layout,
        servers: Servers,
        trust: Arc<Trust>,
        ledger: &Ledger,
    ) -> Result<Self, LoadError> {
        let memory = Kept::load(layout.release_memory(), proved_serial(ledger))?;
        let releases = Self {
            env: config.env.clone(),
            servers,
            trust,
            memory: Mutex::new(memory),
            shelf: Shelf::new(layout.releases()),
            keep: config.keep_releases.get(),
        };
        let desired = ledger.desired.as_ref().map(|desired| desired.digest.as_str());
        releases.tidy(desired.unwrap_or_default(), releases.keep);
        Ok(releases)
    }

    /// Makes a release ready to be executed. It may take a while, and ends early, with none, if the agent is to end.
    pub async fn prepare(
        &self,
        desired: &DesiredState,
        cancel: &CancellationToken,
    ) -> Option<Result<Release, RunReason>> {
        tokio::select! {
            () = cancel.cancelled() => None,
            prepared = self.ready(desired) => Some(prepared),
        }
    }

    async fn ready(&self, desired: &DesiredState) -> Result<Release, RunReason> {
        let manifest = self.admitted(desired).map_err(|refusal| RunReason::ReleaseRefused { refusal })?;
        let release = self.shelf.release(&manifest.digest);
        let (found, expected) = (release.clone(), manifest.clone());
        if !blocking(move || is_whole(&found, &expected)).await? {
            // Room first: what is fetched is one more.
            self.tidy(manifest.digest.as_str(), self.keep.saturating_sub(1));
            self.bring(&manifest, &release).await?;
        }
        let (directory, version) = (release.clone(), manifest.version.clone());
        let spec = blocking(move || read_spec(&directory, &version)).await?;
        self.shelf.touch(&release);
        self.tidy(manifest.digest.as_str(), self.keep);
        Ok(Release { directory: release, spec })
    }

    /// The node goes to a release that is ready. To look at one, in a preview for example, is not to go there: it may still
    /// expire before anybody does. `fallback` is the digest of what it may have to go back to.
    pub fn going_to(&self, desired: &DesiredState, fallback: Option<&str>) -> Result<(), RunReason> {
        let mut memory = self.memory();
        let gone = memory.get().gone_to(&desired.digest, fallback);
        memory.set(gone).map_err(|error| RunReason::Machine { problem: error.in_one_line() })
    }

    /// Whether a release lies on the node, whole, and may run there: nobody else is needed for it. Else why not.
    pub async fn holds(&self, desired: &DesiredState) -> Result<(), RunReason> {
        let manifest = self.admitted(desired).map_err(|refusal| RunReason::ReleaseRefused { refusal })?;
        let (release, version) = (self.shelf.release(&manifest.digest), manifest.version.clone());
        if blocking(move || is_whole(&release, &manifest)).await? {
            return Ok(());
        }
        Err(RunReason::Release { problem: format!("{version}, which it ran before, is not on the node any more") })
    }

    fn admitted(&self, desired: &DesiredState) -> Result<Manifest, ReleaseRefusal> {
        let (trusted, memory) = (self.trust.keys(), self.memory().get().clone());
        let been_at = [memory.current.as_deref(), memory.proved.as_deref(), memory.fallback.as_deref()];
        admit(desired, Known { trusted: &trusted, highest: memory.highest, been_at: &been_at, now: clock::now() })
    }

    /// Fetches a bundle and unpacks it.
    async fn bring(&self, manifest: &Manifest, release: &Path) -> Result<(), RunReason> {
        let part = self.shelf.part(&manifest.digest);
        let source = Source { env: &self.env, servers: &self.servers, manifest };
        loop {
            let fetched = fetch(source, &part).await.map_err(not_fetched)?;
            let unpacking = self.shelf.unpacking(&manifest.digest);
            let (bundle, expected, release) = (part.clone(), manifest.clone(), release.to_owned());
            match blocking(move || Ok(unpack(&bundle, &expected, &unpacking, &release))).await? {
                Ok(()) => {
                    tracing::info!(version = %manifest.version, digest = %manifest.digest, "the release is here");
                    return Ok(());
                }
                // The part that lay here from before may be what is damaged: once more, all of it.
                Err(UnpackError::Bundle(BundleError::Digest { .. })) if fetched.resumed => {
                    tracing::warn!(version = %manifest.version, "what was here of the release is damaged; fetching all of it");
                }
                Err(error) => return Err(not_unpacked(error)),
            }
        }
    }

    /// A validation has passed at a release: from now on there is no way back to an earlier one by itself.
    pub fn proved(&self, desired: &DesiredState) {
        let mut memory = self.memory();
        let proved = memory.get().proved(&desired.digest, desired.serial, desired.allow_older);
        if let Err(error) = memory.set(proved) {
            // It holds as long as the agent lives, and is written with the next run.
            tracing::error!(problem = error.in_one_line(), "cannot note which release was proved");
        }
    }

    fn tidy(&self, digest: &str, keep: usize) {
        let Memory { current, proved, fallback, .. } = self.memory().get().clone();
        let needed = [Some(digest), current.as_deref(), proved.as_deref(), fallback.as_deref()];
        self.shelf.tidy(&needed.into_iter().flatten().collect::<Vec<_>>(), keep);
    }

    fn memory(&self) -> MutexGuard<'_, Kept> {
        // What is in it is replaced whole, and so whole whoever panicked.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The serial of what the ledger says that the node has proved. It stands in for a memory that is damaged.
fn proved_serial(ledger: &Ledger) -> Option<u64> {
    let (local, desired) = (ledger.local.as_ref()?, ledger.desired.as_ref()?);
    (local.digest == desired.digest && desired.serial > 0).then_some(desired.serial)
}

/// Whether a release lies here, unchanged. One that was changed is removed.
///
/// Proved each time, and not at its first use alone: a copy that was changed, or cut off by a power failure, is replaced
/// and not executed. For 50 MB that are 40 ms with a processor that knows SHA-256, and some 150 ms with one that does
/// not, on a thread of its own: less than any applier takes to start. It reads from the cache what the applier is about
/// to read anyway.
fn is_whole(release: &Path, manifest: &Manifest) -> Result<bool, RunReason> {
    if !release.exists() {
        return Ok(false);
    }
    if dir::digest(release).ok().as_deref() == Some(manifest.content.as_str()) {
        return Ok(true);
    }
    tracing::warn!(version = %manifest.version, directory = %release.display(), "the node's copy of the release is damaged; fetching it again");
    fs::remove_dir_all(release).map(|()| false).map_err(|error| machine("remove", release, &error))
}

/// Unpacks beside the place where the release is to lie, and renames it when it is proved.
fn unpack(bundle: &Path, manifest: &Manifest, unpacking: &Path, release: &Path) -> Result<(), UnpackError> {
    let write = |path: &Path| {
        let path = path.to_owned();
        move |source| UnpackError::Write { path, source }
    };
    if unpacking.exists() {
        fs::remove_dir_all(unpacking).map_err(write(unpacking))?;
    }
    match muster_release::unpack(bundle, manifest, unpacking) {
        Ok(()) => {}
        // A bundle that is another one is of no use; one that holds what it must not is kept, so that it is not fetched
        // again and again only to be refused.
        Err(error @ UnpackError::Bundle(BundleError::Size { .. } | BundleError::Digest { .. })) => {
            let _ = fs::remove_file(bundle);
            return Err(error);
        }
        Err(error) => return Err(error),
    }
    fs::rename(unpacking, release).map_err(write(release))?;
    durable::sync_directory(release.parent().unwrap_or(release)).map_err(write(release))?;
    fs::remove_file(bundle).map_err(write(bundle))
}

fn read_spec(directory: &Path, version: &Version) -> Result<ReleaseSpec, RunReason> {
    muster_release::check_directory(directory)
        .map_err(|error| RunReason::Release { problem: format!("version {version} cannot be used: {}", chain(&error)) })
}

fn not_fetched(error: FetchError) -> RunReason {
    match error {
        FetchError::NotHad { .. } => RunReason::Release { problem: error.to_string() },
        FetchError::Write { .. } => RunReason::Machine { problem: chain(&error) },
    }
}

fn not_unpacked(error: UnpackError) -> RunReason {
    match error {
        UnpackError::Bundle(BundleError::Digest { expected, found }) => {
            RunReason::DigestMismatch { expected: expected.to_string(), found: found.to_string() }
        }
        UnpackError::Content { expected, found } => RunReason::DigestMismatch { expected: expected.to_string(), found },
        UnpackError::Entry(_) => {
            RunReason::ReleaseRefused { refusal: ReleaseRefusal::Unsafe { problem: chain(&error) } }
        }
        UnpackError::Bundle(BundleError::Size { .. }) => RunReason::Release { problem: chain(&error) },
        UnpackError::Bundle(BundleError::Read { .. }) | UnpackError::Write { .. } | UnpackError::ReadBack(_) => {
            RunReason::Machine { problem: chain(&error) }
        }
    }
}

fn machine(what: &str, path: &Path, error: &io::Error) -> RunReason {
    RunReason::Machine { problem: format!("cannot {what} {}: {error}", path.display()) }
}

/// Does what waits for the disk, or computes for long, while the stream goes on.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RunReason> + Send + 'static,
) -> Result<T, RunReason> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(RunReason::Machine { problem: error.to_string() }))
}
