//! HTTP handlers for releases: list, details and registration, and the keys that agents trust to sign them.

pub(crate) mod bundles;

use std::io;

use axum::Json;
use axum::extract::State;
use muster_core::fleet::Fleet;
use muster_core::names::Version;
use muster_core::release::ReleaseRecord;
use muster_core::release::manifest::{Digest, SignedTrust};
use muster_release::manifest::authenticate;
use muster_wire::operator::Page;
use muster_wire::problem::{Problem, ProblemCode};
use muster_wire::release::{
    BundleState, PushRelease, PushReleaseResponse, ReleaseDetail, ReleaseRow, ReplaceTrustResponse, SignatureTrust,
    TrustResponse, TrustedKeys,
};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::api::error::{ApiError, JsonBody, Path, Query, chain};
use crate::api::releases::bundles::{VersionPath, unknown_bundle};
use crate::api::request::{Author, PageQuery, Scope};
use crate::app::{Agents, Reader, Writer};
use crate::blobs::ReceiveError;
use crate::blobs::downloads::DownloadsOverloaded;
use crate::releases::{
    self, BundleError, PushError, PushedRelease, RefusedRelease, ReplaceTrustError, ReplacedTrust,
    replace as replace_trust, trusted_keys,
};

/// `Retry-After` of a busy server, in seconds.
const RETRY_AFTER: u16 = 5;

impl From<DownloadsOverloaded> for ApiError {
    fn from(error: DownloadsOverloaded) -> Self {
        let problem = Problem::new(ProblemCode::Busy, error.to_string());
        Self(problem.retry_after(RETRY_AFTER).hint("retry in a few seconds"))
    }
}

impl From<ReceiveError> for ApiError {
    fn from(error: ReceiveError) -> Self {
        let text = format!("the bundle was refused: {}", chain(&error));
        match error {
            ReceiveError::TooLarge { .. } => {
                Self(Problem::new(ProblemCode::TooLarge, text).hint("packages and images do not belong into a release"))
            }
            ReceiveError::Another { .. } => Self(
                Problem::new(ProblemCode::ReleaseRefused, text)
                    .hint("it was damaged during the upload or before: send it again"),
            ),
            ReceiveError::Io(error) => not_kept(&error, text),
        }
    }
}

/// Error of the blob store as a problem.
fn not_kept(error: &io::Error, text: String) -> ApiError {
    if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        return ApiError(Problem::new(ProblemCode::StoreFull, text).hint("free space in the server's blob directory"));
    }
    ApiError(Problem::new(ProblemCode::StoreUnavailable, text).hint("check the directory of --blobs"))
}

/// Runs blocking work on its own thread.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ApiError(Problem::new(ProblemCode::Internal, chain(&error))))
}

/// Lists the releases of the environment, newest first.
#[utoipa::path(get, path = "/v1/envs/{env}/releases", params(("env" = String, Path), PageQuery),
    responses((status = 200, body = Page<ReleaseRow>)))]
pub(crate) async fn list_releases(
    State(reader): State<Reader>,
    scope: Scope,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<ReleaseRow>>, ApiError> {
    let (mut rows, revision) = scope.read(&reader, |fleet| {
        let rows: Vec<ReleaseRow> =
            fleet.releases().iter().map(|(version, record)| release_row(fleet, version, record)).collect();
        (rows, fleet.revision)
    })?;
    rows.sort_by(|a, b| (b.serial, &b.version).cmp(&(a.serial, &a.version)));
    Ok(Json(page.cut(rows, revision, |row| row.version.to_string())?))
}

pub(super) fn release_row(fleet: &Fleet, version: &Version, record: &ReleaseRecord) -> ReleaseRow {
    let current = fleet.current_version().is_some_and(|(current, _)| current == version);
    ReleaseRow {
        version: version.clone(),
        serial: record.serial,
        digest: record.digest.clone(),
        size: record.size,
        pushed: record.pushed,
        by: record.by.clone(),
        expires: record.signed.read().ok().and_then(|manifest| manifest.expires),
        signed_by: record.signed.signatures.iter().map(|signature| signature.key.clone()).collect(),
        current,
        desired: if current { fleet.designed().count() } else { 0 },
        running: fleet.running().get(version).map_or(0, |nodes| nodes.len()),
    }
}

/// Shows one release: its signatures, its author, and the number of nodes that run it.
#[utoipa::path(get, path = "/v1/envs/{env}/releases/{version}",
    params(("env" = String, Path), ("version" = String, Path)), responses((status = 200, body = ReleaseDetail)))]
pub(crate) async fn show_release(
    State(reader): State<Reader>,
    scope: Scope,
    Path(version): Path<VersionPath>,
) -> Result<Json<ReleaseDetail>, ApiError> {
    let version = version.version()?;
    let (found, known) = scope.read(&reader, |fleet| {
        let known: Vec<String> = fleet.releases().keys().map(Version::to_string).collect();
        let record = fleet.releases().get(&version).cloned();
        (
            record.map(|record| (release_row(fleet, &version, &record), record, trusted_keys(fleet), fleet.revision)),
            known,
        )
    })?;
    let Some((row, record, keys, revision)) = found else { return Err(ApiError::unknown_version(&version, &known)) };
    let trusted = keys.map(|keys| match authenticate(&record.signed, &keys) {
        Ok(authentic) => SignatureTrust::By(authentic.signed_by),
        Err(error) => SignatureTrust::Not(chain(&error)),
    });
    let manifest = record.signed.read().ok();
    Ok(Json(ReleaseDetail {
        bundle: bundle_state(&reader, record.digest.clone(), record.size).await?,
        content: record.content,
        created: manifest.as_ref().map(|manifest| manifest.created),
        previous: manifest.and_then(|manifest| manifest.previous),
        signed: record.signed,
        trusted,
        row,
        revision,
    }))
}

/// Registers a release whose bundle was uploaded. A duplicate is a no-op; other content under a known version is refused.
#[utoipa::path(put, path = "/v1/envs/{env}/releases/{version}",
    params(("env" = String, Path), ("version" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = PushRelease, responses((status = 200, body = PushReleaseResponse)))]
pub(crate) async fn push_release(
    writer: Writer,
    scope: Scope,
    Path(version): Path<VersionPath>,
    author: Author,
    JsonBody(PushRelease { signed }): JsonBody<PushRelease>,
) -> Result<Json<PushReleaseResponse>, ApiError> {
    let version = version.version()?;
    let by = author.by(None, "").author;
    let PushedRelease { record, changed, verified_by, unchecked, revision } =
        releases::push(&writer, &scope.env, &version, signed, by).await?;
    let (serial, digest) = (record.serial, record.digest);
    Ok(Json(PushReleaseResponse { version, serial, digest, changed, verified_by, unchecked, revision }))
}

/// State of a bundle: kept if a blob of this size is stored, damaged if the size differs.
async fn bundle_state(reader: &Reader, digest: String, size: u64) -> Result<BundleState, ApiError> {
    let Ok(digest) = Digest::new(digest) else { return Ok(BundleState::Missing) };
    let blobs = reader.blobs.clone();
    let stored = blocking(move || blobs.size(digest.hex()).ok().flatten()).await?;
    Ok(match stored {
        None => BundleState::Missing,
        Some(found) if found == size => BundleState::Kept,
        Some(_) => BundleState::Damaged,
    })
}

impl From<RefusedRelease> for ApiError {
    fn from(refused: RefusedRelease) -> Self {
        let code = match &refused {
            RefusedRelease::Another { .. } | RefusedRelease::SerialTaken { .. } => ProblemCode::ReleaseTaken,
            RefusedRelease::UnknownRoles { .. } => ProblemCode::ReleaseRefused,
        };
        Self(Problem::new(code, refused.to_string()).hint(refused.hint()))
    }
}

impl From<PushError> for ApiError {
    fn from(error: PushError) -> Self {
        let text = chain(&error);
        let refused = |hint: &str| Self(Problem::new(ProblemCode::ReleaseRefused, text.clone()).hint(hint));
        match error {
            PushError::Payload(_) | PushError::OtherVersion { .. } => Self::invalid(text),
            PushError::OtherEnvironment { .. } => {
                refused("build it with --env and the name of this environment, or without --env for any environment")
            }
            PushError::Unsigned => refused("build it with `muster release build … --sign KEY`"),
            PushError::NotTrusted { .. } => {
                refused("`muster key list` shows the trusted keys; `muster key trust` adds one")
            }
            PushError::Bundle(BundleError::Missing { digest }) => unknown_bundle(&digest),
            PushError::Bundle(BundleError::Unpack(_) | BundleError::Check(_)) => {
                refused("fix it, and build it again with `muster release build`")
            }
            PushError::Bundle(BundleError::Io(error)) => not_kept(&error, text),
            PushError::Refused(refused) => refused.into(),
            PushError::NotAccepting(error) => (*error).into(),
            PushError::Store(error) => error.into(),
            PushError::StaleView(behind) => behind.into(),
            PushError::Record(_) => Self(Problem::new(ProblemCode::Internal, text)),
            PushError::Contended { .. } => Self(Problem::new(ProblemCode::Conflict, text)),
            PushError::Stopping => Self::stopping(),
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ForceQuery {
    /// Accept the list even if none of its keys has signed the current release.
    #[serde(default)]
    force: bool,
}

/// Shows the trusted keys of the environment.
#[utoipa::path(get, path = "/v1/envs/{env}/trust", params(("env" = String, Path)),
    responses((status = 200, body = TrustResponse)))]
pub(crate) async fn show_trust(State(reader): State<Reader>, scope: Scope) -> Result<Json<TrustResponse>, ApiError> {
    let (trust, revision) =
        scope.read(&reader, |fleet| (fleet.trust().map(|(trust, _)| trust.clone()), fleet.revision))?;
    let list = trust.and_then(|signed| {
        let list = signed.read().ok()?;
        Some(TrustedKeys { serial: list.serial, keys: list.keys, signed })
    });
    Ok(Json(TrustResponse { list, revision }))
}

/// Replaces the list of trusted keys. A key of the previous list must have signed it; agents verify the same.
///
/// Refused if no node could run the current release any more, or if it is the first list and no connected agent trusts a
/// key that signed it, unless `force` is set.
#[utoipa::path(put, path = "/v1/envs/{env}/trust", params(("env" = String, Path), ForceQuery),
    request_body = SignedTrust, responses((status = 200, body = ReplaceTrustResponse)))]
pub(crate) async fn replace_trusted_keys(
    writer: Writer,
    State(agents): State<Agents>,
    scope: Scope,
    Query(ForceQuery { force }): Query<ForceQuery>,
    JsonBody(trust): JsonBody<SignedTrust>,
) -> Result<Json<ReplaceTrustResponse>, ApiError> {
    let replaced = replace_trust(&writer, &agents.hub, &scope.env, trust, force).await?;
    let ReplacedTrust { list, verified, changed, revision } = replaced;
    Ok(Json(ReplaceTrustResponse { serial: list.serial, keys: list.keys, verified, changed, revision }))
}

impl From<ReplaceTrustError> for ApiError {
    fn from(error: ReplaceTrustError) -> Self {
        let text = chain(&error);
        match error {
            ReplaceTrustError::Payload(_) => Self::invalid(text),
            ReplaceTrustError::Refused(_) => {
                let problem = Problem::new(ProblemCode::ReleaseRefused, text);
                Self(problem.hint("sign it with a key of the list that it replaces; `muster key list` shows them"))
            }
            ReplaceTrustError::NotNewer { .. } => {
                let problem = Problem::new(ProblemCode::Conflict, text);
                Self(problem.hint("check `muster key list`, then make the list again"))
            }
            ReplaceTrustError::UntrustsCurrent { .. } => {
                let problem = Problem::new(ProblemCode::UntrustsCurrent, text);
                Self(problem.hint(
                    "build and push the release under a new version, signed with a key that stays, and roll it out with `muster \
                     trigger-update` first; use --force if this is intended",
                ))
            }
            ReplaceTrustError::NotTrusted { trusted, .. } => {
                let problem = Problem::new(ProblemCode::ReleaseRefused, text);
                let ids: Vec<String> = trusted.iter().map(ToString::to_string).collect();
                Self(problem.hint(format!(
                    "sign it with {}{} (`--sign`); `muster key show FILE` prints the id of a key; use --force if the agents \
                     that trust another key are not connected now",
                    if ids.len() == 1 { "" } else { "one of " },
                    ids.join(", ")
                )))
            }
            ReplaceTrustError::NotAccepting(error) => (*error).into(),
            ReplaceTrustError::Store(error) => error.into(),
            ReplaceTrustError::StaleView(behind) => behind.into(),
            ReplaceTrustError::Record(_) => Self(Problem::new(ProblemCode::Internal, text)),
            ReplaceTrustError::Contended { .. } => Self(Problem::new(ProblemCode::Conflict, text)),
        }
    }
}
