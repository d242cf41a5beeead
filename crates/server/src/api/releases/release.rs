//! One release: what is known of it, and registering it.

use axum::Json;
use axum::extract::{Path, State};
use muster_core::names::Version;
use muster_core::release_manifest::Digest;
use muster_release::manifest::authenticate;
use muster_wire::problem::{Code, Problem};
use muster_wire::release::{BundleState, PushRelease, ReleaseDetail, ReleasePushed, Trusted};

use super::blocking;
use super::bundles::unknown_bundle;
use super::download::VersionPath;
use super::list::row;
use crate::App;
use crate::api::answer::{JsonBody, Refusal, chain};
use crate::api::design::Author;
use crate::api::scope::Scope;
use crate::releases::{self, BundleError, PushError, Pushed, trusted_keys};

/// One release: who signed it, who pushed it, and who runs it.
#[utoipa::path(get, path = "/v1/envs/{env}/releases/{version}",
    params(("env" = String, Path), ("version" = String, Path)), responses((status = 200, body = ReleaseDetail)))]
pub(crate) async fn show(
    State(app): State<App>,
    scope: Scope,
    Path(version): Path<VersionPath>,
) -> Result<Json<ReleaseDetail>, Refusal> {
    let version = version.version()?;
    let (found, known) = scope.ask(&app, |fleet| {
        let known: Vec<String> = fleet.releases().keys().map(Version::to_string).collect();
        let record = fleet.releases().get(&version).cloned();
        (record.map(|record| (row(fleet, &version, &record), record, trusted_keys(fleet), fleet.revision)), known)
    })?;
    let Some((row, record, keys, revision)) = found else { return Err(Refusal::unknown_version(&version, &known)) };
    let trusted = keys.map(|keys| match authenticate(&record.signed, &keys) {
        Ok(authentic) => Trusted::By(authentic.signed_by),
        Err(error) => Trusted::Not(chain(&error)),
    });
    let manifest = record.signed.read().ok();
    Ok(Json(ReleaseDetail {
        bundle: bundle_state(&app, record.digest.clone(), record.size).await?,
        content: record.content,
        created: manifest.as_ref().map(|manifest| manifest.created),
        previous: manifest.and_then(|manifest| manifest.previous),
        signed: record.signed,
        trusted,
        row,
        revision,
    }))
}

/// Registers a release whose bundle was uploaded before. The same again changes nothing; another one under a version that
/// is known is refused.
#[utoipa::path(put, path = "/v1/envs/{env}/releases/{version}",
    params(("env" = String, Path), ("version" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = PushRelease, responses((status = 200, body = ReleasePushed)))]
pub(crate) async fn push(
    State(app): State<App>,
    scope: Scope,
    Path(version): Path<VersionPath>,
    author: Author,
    JsonBody(PushRelease { signed }): JsonBody<PushRelease>,
) -> Result<Json<ReleasePushed>, Refusal> {
    let version = version.version()?;
    let by = author.by(None, "").author;
    let Pushed { record, changed, verified_by, revision } =
        releases::push(&app, &scope.env, &version, signed, by).await?;
    let (serial, digest) = (record.serial, record.digest);
    Ok(Json(ReleasePushed { version, serial, digest, changed, verified_by, revision }))
}

/// Whether a bundle of a size is there.
async fn bundle_state(app: &App, digest: String, size: u64) -> Result<BundleState, Refusal> {
    let Ok(digest) = Digest::new(digest) else { return Ok(BundleState::Missing) };
    let blobs = app.blobs.clone();
    let stored = blocking(move || blobs.stored(digest.hex()).ok().flatten().map(|stored| stored.size())).await?;
    Ok(match stored {
        None => BundleState::Missing,
        Some(found) if found == size => BundleState::Kept,
        Some(_) => BundleState::Damaged,
    })
}

impl From<PushError> for Refusal {
    fn from(error: PushError) -> Self {
        let text = chain(&error);
        let refused = |hint: &str| Self(Problem::new(Code::ReleaseRefused, text.clone()).hint(hint));
        match error {
            PushError::Payload(_) | PushError::OtherVersion { .. } => Self::invalid(text),
            PushError::Unsigned => refused("build it with `muster release build … --sign KEY`"),
            PushError::NotTrusted { .. } => {
                refused("`muster key list` shows the keys that count; `muster key trust` adds one")
            }
            PushError::Bundle(BundleError::Missing { digest }) => unknown_bundle(&digest),
            PushError::Bundle(BundleError::Unpack(_) | BundleError::Check(_)) => {
                refused("correct it, and build it anew with `muster release build`")
            }
            PushError::Bundle(BundleError::Io(error)) => super::not_kept(&error, text),
            PushError::Refused(releases::Refused::Another { .. }) => {
                Self(Problem::new(Code::ReleaseTaken, text).hint("build it under a new version"))
            }
            PushError::Refused(releases::Refused::SerialTaken { .. }) => {
                Self(Problem::new(Code::ReleaseTaken, text).hint("build it with a higher --serial"))
            }
            PushError::NotAccepting(error) => (*error).into(),
            PushError::Store(error) => error.into(),
            PushError::StaleView(behind) => behind.into(),
            PushError::Record(_) => Self(Problem::new(Code::Internal, text)),
            PushError::Contended { .. } => Self(Problem::new(Code::Conflict, text)),
            PushError::Stopping => Self::stopping(),
        }
    }
}
