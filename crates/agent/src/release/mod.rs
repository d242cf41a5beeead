//! Prepares releases for execution: admission, download, verification, unpacking. Nothing of a release runs before that.
//!
//! - [`admit`](mod@admit) decides whether the node may run a release. [`trust`] holds the keys that sign releases.
//!   [`release_history`] stores what admission needs to know of earlier releases.
//! - [`download`] fetches bundles and resumes broken downloads. [`release_cache`] holds the releases on the node.
//!
//! A cached release runs without a server.

pub mod admit;
pub mod download;
pub mod release_cache;
pub mod release_history;
pub mod trust;

use std::fs;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use muster_core::names::{EnvName, Version};
use muster_core::release::dir;
use muster_core::release::manifest::{Digest, Manifest};
use muster_core::release::spec::ReleaseSpec;
use muster_core::report::reason::{ReleaseRefusal, RunReason};
use muster_release::bundle::{OpenBundleError, UnpackError};
use muster_release::delta::{DeltaInfo, unpack_delta};
use muster_wire::sync::DesiredState;

use crate::clock;
use crate::config::ConfigFile;
use crate::release::admit::{AdmissionInput, admit};
use crate::release::download::{BundleSource, FetchError, FetchedBundle, fetch, fetch_delta};
use crate::release::release_cache::ReleaseCache;
use crate::release::release_history::{ReleaseHistory, ReleaseHistoryFile};
use crate::release::trust::TrustStore;
use crate::state::directory::Layout;
use crate::state::durable;
use crate::state::ledger::{Ledger, LoadError};
use crate::sync::error_chain;
use crate::sync::servers::ServerClients;

/// A release that is ready for execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnpackedRelease {
    pub directory: PathBuf,
    pub spec: ReleaseSpec,
}

/// The releases of a node.
#[derive(Debug)]
pub struct NodeReleases {
    env: EnvName,
    servers: ServerClients,
    trust: Arc<TrustStore>,
    history: Mutex<ReleaseHistoryFile>,
    cache: ReleaseCache,
    keep: usize,
    removal: watch::Sender<Removal>,
}

/// State of the removal of evicted releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Removal {
    /// Nothing is left to remove.
    Done,
    Requested,
    InProgress,
}

/// Reason that a release is not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotReady {
    Failed(RunReason),
    /// A newer desired state has arrived during the download.
    Superseded,
}

impl From<RunReason> for NotReady {
    fn from(reason: RunReason) -> Self {
        Self::Failed(reason)
    }
}

impl NodeReleases {
    /// Loads the release history and removes incomplete releases of an earlier agent.
    pub fn open(
        config: &ConfigFile,
        layout: &Layout,
        servers: ServerClients,
        trust: Arc<TrustStore>,
        ledger: &Ledger,
    ) -> Result<Self, LoadError> {
        let history = ReleaseHistoryFile::load(layout.release_history(), validated_serial(ledger))?;
        let releases = Self {
            env: config.env.clone(),
            servers,
            trust,
            history: Mutex::new(history),
            cache: ReleaseCache::new(layout.releases()),
            keep: config.keep_releases.get(),
            removal: watch::Sender::new(Removal::Requested),
        };
        let desired = ledger.desired.as_ref().map(|desired| desired.digest.as_str());
        releases.evict(desired.unwrap_or_default(), releases.keep);
        Ok(releases)
    }

    /// Makes a release ready for execution, which may take long. A download ends when `superseded` completes. `None` if the
    /// agent shuts down.
    pub async fn prepare(
        &self,
        desired: &DesiredState,
        superseded: impl Future<Output = ()>,
        cancel: &CancellationToken,
    ) -> Option<Result<UnpackedRelease, NotReady>> {
        tokio::select! {
            () = cancel.cancelled() => None,
            prepared = self.ready(desired, superseded) => Some(prepared),
        }
    }

    /// The release of a run that an earlier agent has started. It was checked then, and is in use.
    pub async fn reopen(&self, desired: &DesiredState) -> Result<UnpackedRelease, RunReason> {
        let manifest = desired.manifest.read().map_err(|error| RunReason::Release { problem: error.to_string() })?;
        let (directory, version) = (self.cache.release(&manifest.digest), manifest.version);
        let read = directory.clone();
        let spec = blocking(move || read_spec(&read, &version)).await?;
        Ok(UnpackedRelease { directory, spec })
    }

    async fn ready(
        &self,
        desired: &DesiredState,
        superseded: impl Future<Output = ()>,
    ) -> Result<UnpackedRelease, NotReady> {
        let manifest = self.admit(desired).map_err(|refusal| RunReason::ReleaseRefused { refusal })?;
        let release = self.cache.release(&manifest.digest);
        let (found, expected) = (release.clone(), manifest.clone());
        if !blocking(move || Ok(is_intact(&found, &expected))).await? {
            self.cache.evict_entry(&release).map_err(|error| RunReason::Machine {
                problem: format!("cannot remove {}: {error}", release.display()),
            })?;
            self.fetch_and_unpack(&manifest, &release, superseded).await?;
        }
        let (directory, version) = (release.clone(), manifest.version.clone());
        let spec = blocking(move || read_spec(&directory, &version)).await?;
        self.cache.mark_used(&release);
        Ok(UnpackedRelease { directory: release, spec })
    }

    /// Removes evicted releases on a thread of its own, until the agent shuts down.
    pub async fn remove_evicted(&self, cancel: CancellationToken) {
        let mut removal = self.removal.subscribe();
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                requested = removal.wait_for(|state| *state == Removal::Requested) => if requested.is_err() { return },
            }
            self.removal.send_replace(Removal::InProgress);
            let cache = self.cache.clone();
            tokio::select! {
                // The rest is removed after the next start.
                () = cancel.cancelled() => return,
                _ = tokio::task::spawn_blocking(move || cache.remove_evicted()) => {}
            }
            self.removal.send_if_modified(|state| {
                let is_done = *state == Removal::InProgress;
                if is_done {
                    *state = Removal::Done;
                }
                is_done
            });
        }
    }

    /// Removes releases that are no longer needed. Called after work with `desired`, which is kept: removing files during
    /// a run would compete with it for the disk.
    pub fn remove_old(&self, desired: &DesiredState) {
        self.evict(&desired.digest, self.keep);
    }

    /// Removes a release that was only previewed, unless it is needed otherwise.
    pub fn discard(&self, desired: &DesiredState) {
        let ReleaseHistory { current, validated, fallback, .. } = self.history().get().clone();
        let Ok(manifest) = desired.manifest.read() else { return };
        if [current, validated, fallback].iter().flatten().any(|needed| *needed == desired.digest) {
            return;
        }
        if let Err(error) = self.cache.evict_entry(&self.cache.release(&manifest.digest)) {
            tracing::warn!(version = %manifest.version, %error, "cannot remove a release that was previewed");
        }
        self.removal.send_replace(Removal::Requested);
    }

    /// Downloads a bundle. If there is no space, it removes old releases and tries again.
    async fn fetch(&self, source: BundleSource<'_>, part: &Path) -> Result<FetchedBundle, FetchError> {
        match fetch(source, part).await {
            Err(FetchError::NoSpace { .. }) => {}
            fetched => return fetched,
        }
        self.evict(source.manifest.digest.as_str(), self.keep.saturating_sub(1));
        let _ = self.removal.subscribe().wait_for(|state| *state == Removal::Done).await;
        fetch(source, part).await
    }

    /// Records that the node is about to apply a release. A preview does not record it, so the release may still expire
    /// before it is applied. `fallback` is the digest of the release that the node may roll back to.
    pub fn record_current(&self, desired: &DesiredState, fallback: Option<&str>) -> Result<(), RunReason> {
        let mut history = self.history();
        let mut current = history.get().with_current(&desired.digest, fallback);
        if let Ok(manifest) = desired.manifest.read() {
            current.add_run(manifest.version, &manifest.content);
        }
        history.set(current).map_err(|error| RunReason::Machine { problem: error.in_one_line() })
    }

    /// Checks that a release is cached, undamaged, and admitted: it can run without a server.
    pub async fn check_local(&self, desired: &DesiredState) -> Result<(), RunReason> {
        let manifest = self.admit(desired).map_err(|refusal| RunReason::ReleaseRefused { refusal })?;
        let (release, version) = (self.cache.release(&manifest.digest), manifest.version.clone());
        if blocking(move || Ok(is_intact(&release, &manifest))).await? {
            return Ok(());
        }
        Err(RunReason::Release { problem: format!("the previous release {version} is no longer on the node") })
    }

    fn admit(&self, desired: &DesiredState) -> Result<Manifest, ReleaseRefusal> {
        let (trusted, history) = (self.trust.keys(), self.history().get().clone());
        let previous = [history.current.as_deref(), history.validated.as_deref(), history.fallback.as_deref()];
        let input = AdmissionInput {
            env: &self.env,
            trusted: &trusted,
            highest: history.highest,
            previous: &previous,
            run_content: history.content_of(&desired.version),
            now: clock::now(),
        };
        admit(desired, input)
    }

    /// Downloads a bundle and unpacks it.
    async fn fetch_and_unpack(
        &self,
        manifest: &Manifest,
        release: &Path,
        superseded: impl Future<Output = ()>,
    ) -> Result<(), NotReady> {
        let part = self.cache.part(&manifest.digest);
        let source = BundleSource { env: &self.env, servers: &self.servers, manifest };
        let mut superseded = pin!(superseded);
        if let Some(base) = self.previous_release() {
            let delta = self.cache.delta(&manifest.digest);
            // Only the download is cancelled: a directory is never unpacked twice at the same time.
            let fetched = tokio::select! {
                biased;
                () = &mut superseded => return Err(NotReady::Superseded),
                fetched = fetch_delta(source, &base, &delta) => fetched,
            };
            match fetched {
                Ok(()) if self.build_from_previous(manifest, &base, delta, release).await => return Ok(()),
                Ok(()) => {}
                Err(problem) => {
                    tracing::info!(version = %manifest.version, problem, "no delta to the previous release; downloading the bundle");
                }
            }
        }
        loop {
            let fetched = tokio::select! {
                biased;
                () = &mut superseded => {
                    tracing::info!(version = %manifest.version, "a newer desired state has arrived; the download is cancelled");
                    return Err(NotReady::Superseded);
                }
                fetched = self.fetch(source, &part) => fetched.map_err(not_fetched)?,
            };
            let unpacking = self.cache.unpacking(&manifest.digest);
            self.cache.evict_entry(&unpacking).map_err(|error| RunReason::Machine {
                problem: format!("cannot remove {}: {error}", unpacking.display()),
            })?;
            let (bundle, expected, release) = (part.clone(), manifest.clone(), release.to_owned());
            match blocking(move || Ok(unpack(&bundle, &expected, &unpacking, &release))).await? {
                Ok(()) => {
                    tracing::info!(version = %manifest.version, digest = %manifest.digest, "the release is ready");
                    return Ok(());
                }
                // The part from an earlier download may be damaged: download everything once more.
                Err(UnpackError::Bundle(OpenBundleError::Digest { .. })) if fetched.resumed => {
                    tracing::warn!(version = %manifest.version, "the partly downloaded release is damaged; downloading all of it");
                }
                Err(error) => return Err(not_unpacked(error).into()),
            }
        }
    }

    /// Builds a release from a previous one of the node and the downloaded files that differ. False if the whole bundle is needed.
    async fn build_from_previous(&self, manifest: &Manifest, base: &Digest, delta: PathBuf, release: &Path) -> bool {
        let (version, unpacking) = (&manifest.version, self.cache.unpacking(&manifest.digest));
        let (base, expected, release) = (self.cache.release(base), manifest.clone(), release.to_owned());
        let evicted = self.cache.evict_entry(&unpacking);
        let built = blocking(move || {
            let built = unpack_delta(&delta, &base, &expected, &unpacking);
            let placed = built.map_err(|error| error_chain(&error)).and_then(|info| {
                place(&unpacking, &release, &delta).map(|()| info).map_err(|error| error_chain(&error))
            });
            if placed.is_err() {
                let _ = fs::remove_file(&delta);
            }
            Ok(placed)
        });
        match evicted
            .map_err(|error| error.to_string())
            .and(built.await.unwrap_or_else(|reason| Err(reason.to_string())))
        {
            Ok(DeltaInfo { unchanged, changed, changed_size }) => {
                let digest = &manifest.digest;
                tracing::info!(%version, %digest, unchanged, changed, changed_size, "the release is ready, from the previous one");
                true
            }
            Err(problem) => {
                tracing::warn!(%version, problem, "cannot build the release from the previous one; downloading the bundle");
                false
            }
        }
    }

    /// Digest of a release on the node that a new one probably resembles.
    fn previous_release(&self) -> Option<Digest> {
        let ReleaseHistory { current, validated, fallback, .. } = self.history().get().clone();
        let known = [current, validated, fallback].into_iter().flatten();
        known.filter_map(|digest| Digest::new(digest).ok()).find(|digest| self.cache.release(digest).is_dir())
    }

    /// Records that a release was validated. From now on an older one needs `allow_older`.
    pub fn record_validated(&self, desired: &DesiredState) {
        let mut history = self.history();
        let validated = history.get().with_validated(&desired.digest, desired.serial, desired.allow_older);
        if let Err(error) = history.set(validated) {
            // It is kept in memory, and written with the next run.
            tracing::error!(problem = error.in_one_line(), "cannot store which release was validated");
        }
    }

    fn evict(&self, digest: &str, keep: usize) {
        let ReleaseHistory { current, validated, fallback, .. } = self.history().get().clone();
        let needed = [Some(digest), current.as_deref(), validated.as_deref(), fallback.as_deref()];
        self.cache.evict(&needed.into_iter().flatten().collect::<Vec<_>>(), keep);
        self.removal.send_replace(Removal::Requested);
    }

    fn history(&self) -> MutexGuard<'_, ReleaseHistoryFile> {
        // The content is always replaced as a whole, so it is consistent also after a panic.
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serial of the validated release in the ledger, used if the release history is damaged.
fn validated_serial(ledger: &Ledger) -> Option<u64> {
    let (local, desired) = (ledger.local.as_ref()?, ledger.desired.as_ref()?);
    (local.digest == desired.digest && desired.serial > 0).then_some(desired.serial)
}

/// True if the release is cached and its digest is correct.
///
/// This is verified before each use: a copy that was changed, or truncated by a power failure, is replaced and not
/// executed. For 50 MB it takes 40 ms on a processor with SHA-256 instructions and about 150 ms without, on its own thread.
/// That is less than any applier takes to start, and it reads the files that the applier reads next.
fn is_intact(release: &Path, manifest: &Manifest) -> bool {
    if fs::symlink_metadata(release).is_err() {
        return false;
    }
    let intact = dir::digest(release).ok().as_deref() == Some(manifest.content.as_str());
    if !intact {
        tracing::warn!(version = %manifest.version, directory = %release.display(), "the cached release is damaged");
    }
    intact
}

/// Unpacks next to the final directory and renames it after verification.
fn unpack(bundle: &Path, manifest: &Manifest, unpacking: &Path, release: &Path) -> Result<(), UnpackError> {
    match muster_release::unpack(bundle, manifest, unpacking) {
        Ok(()) => {}
        // A wrong bundle is removed. One with forbidden content is kept, so that it is not downloaded again only to be
        // refused.
        Err(error @ UnpackError::Bundle(OpenBundleError::Size { .. } | OpenBundleError::Digest { .. })) => {
            let _ = fs::remove_file(bundle);
            return Err(error);
        }
        Err(error) => return Err(error),
    }
    place(unpacking, release, bundle)
}

/// Gives a verified release its name, and removes the file that it came from.
fn place(unpacking: &Path, release: &Path, bundle: &Path) -> Result<(), UnpackError> {
    let write = |path: &Path| {
        let path = path.to_owned();
        move |source| UnpackError::Write { path, source }
    };
    fs::rename(unpacking, release).map_err(write(release))?;
    durable::sync_directory(release.parent().unwrap_or(release)).map_err(write(release))?;
    fs::remove_file(bundle).map_err(write(bundle))
}

fn read_spec(directory: &Path, version: &Version) -> Result<ReleaseSpec, RunReason> {
    muster_release::check_directory(directory).map_err(|error| RunReason::Release {
        problem: format!("version {version} cannot be used: {}", error_chain(&error)),
    })
}

fn not_fetched(error: FetchError) -> RunReason {
    match error {
        FetchError::Unavailable { .. } | FetchError::NoSpace { .. } => {
            RunReason::Release { problem: error.to_string() }
        }
        FetchError::Write { .. } => RunReason::Machine { problem: error_chain(&error) },
    }
}

fn not_unpacked(error: UnpackError) -> RunReason {
    match error {
        UnpackError::Bundle(OpenBundleError::Digest { expected, found }) => {
            RunReason::DigestMismatch { expected: expected.to_string(), found: found.to_string() }
        }
        UnpackError::Content { expected, found } => RunReason::DigestMismatch { expected: expected.to_string(), found },
        UnpackError::Entry(_) => {
            RunReason::ReleaseRefused { refusal: ReleaseRefusal::Unsafe { problem: error_chain(&error) } }
        }
        UnpackError::Bundle(OpenBundleError::Size { .. }) => RunReason::Release { problem: error_chain(&error) },
        UnpackError::Bundle(OpenBundleError::Read { .. }) | UnpackError::Write { .. } | UnpackError::ReadBack(_) => {
            RunReason::Machine { problem: error_chain(&error) }
        }
    }
}

/// Runs slow disk or CPU work on its own thread, so that other tasks continue.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RunReason> + Send + 'static,
) -> Result<T, RunReason> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(RunReason::Machine { problem: error.to_string() }))
}
