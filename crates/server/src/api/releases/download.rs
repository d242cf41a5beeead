//! Bundles on their way out. Who was cut off asks for the rest.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use muster_core::names::Version;
use muster_core::records::ReleaseRecord;
use muster_core::release_manifest::Digest;
use muster_wire::problem::{Code, Problem};
use muster_wire::release::MEDIA_TYPE;
use serde::Deserialize;

use super::blocking;
use super::range::Part;
use crate::App;
use crate::api::answer::Refusal;
use crate::api::scope::Scope;
use crate::blobs::Stored;

#[derive(Deserialize)]
pub(crate) struct VersionPath {
    version: String,
}

impl VersionPath {
    pub(super) fn version(self) -> Result<Version, Refusal> {
        Version::new(self.version).map_err(|error| Refusal::invalid(error.to_string()))
    }
}

/// The bundle of a release, or a part of it.
///
/// So many are sent at once; the others wait for their turn, in order. Who had to wait for a minute gets 503 with
/// `Retry-After`.
#[utoipa::path(get, path = "/v1/envs/{env}/releases/{version}/bundle",
    params(("env" = String, Path), ("version" = String, Path), ("Range" = Option<String>, Header),
        ("If-Range" = Option<String>, Header)),
    responses(
        (status = 200, content_type = "application/zstd", body = Vec<u8>, headers(("ETag" = String, description = "The digest."))),
        (status = 206, content_type = "application/zstd", body = Vec<u8>),
        (status = 416, description = "It begins behind the end.")))]
pub(crate) async fn show(
    State(app): State<App>,
    scope: Scope,
    Path(version): Path<VersionPath>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let version = version.version()?;
    let digest = digest_of(&app, &scope, &version)?;
    let bundle = open(&app, &version, &digest).await?;
    let size = bundle.size();
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let etag = format!("\"{digest}\"");
    // Somebody who has a part of another bundle gets all of this one.
    let same = text(header::IF_RANGE).is_none_or(|known| known == etag);
    let part = if same { Part::of(text(header::RANGE), size) } else { Part::Whole };
    let (status, part) = match part {
        Part::Whole => (StatusCode::OK, 0..size),
        Part::Some(part) => (StatusCode::PARTIAL_CONTENT, part),
        Part::StaleView => {
            let problem = Problem::new(Code::RangeNotSatisfiable, format!("{digest} has {size} bytes"));
            let range = [(header::CONTENT_RANGE, format!("bytes */{size}"))];
            return Ok((range, Refusal(problem)).into_response());
        }
    };
    let turn = app.downloads.turn().await?;
    let mut answer = Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, MEDIA_TYPE)
        .header(header::CONTENT_LENGTH, part.end - part.start)
        .header(header::ACCEPT_RANGES, "bytes")
        .header(header::ETAG, etag)
        // It never changes, and no proxy should keep half of it for another.
        .header(header::CACHE_CONTROL, "no-store");
    if status == StatusCode::PARTIAL_CONTENT {
        answer = answer.header(header::CONTENT_RANGE, format!("bytes {}-{}/{size}", part.start, part.end - 1));
    }
    let pieces = app.downloads.send(turn, bundle, part);
    answer.body(Body::from_stream(pieces)).map_err(|error| Refusal(Problem::new(Code::Internal, error.to_string())))
}

/// The digest of a release's bundle.
pub(super) fn digest_of(app: &App, scope: &Scope, version: &Version) -> Result<Digest, Refusal> {
    let (release, known) = scope.ask(app, |fleet| {
        let known: Vec<String> = fleet.releases().keys().map(Version::to_string).collect();
        (fleet.releases().get(version).cloned(), known)
    })?;
    let Some(release) = release else { return Err(Refusal::unknown_version(version, &known)) };
    digest_in(&release, version)
}

pub(in crate::api) fn digest_in(release: &ReleaseRecord, version: &Version) -> Result<Digest, Refusal> {
    Digest::new(release.digest.as_str()).map_err(|error| {
        let problem = Problem::new(Code::ReleaseUnreadable, format!("the record of release {version}: {error}"));
        Refusal(problem.hint("a release from before there were bundles: register it anew under another version"))
    })
}

/// The bundle of a release, which must be there.
pub(in crate::api) async fn open(app: &App, version: &Version, digest: &Digest) -> Result<Arc<dyn Stored>, Refusal> {
    let (blobs, name) = (app.blobs.clone(), digest.hex().to_owned());
    let why = match blocking(move || blobs.stored(&name)).await? {
        Ok(Some(stored)) => return Ok(stored.into()),
        Ok(None) => "is missing where the server keeps its blobs".to_owned(),
        Err(error) => format!("cannot be read: {error}"),
    };
    let problem = Problem::new(Code::ReleaseUnreadable, format!("the bundle of release {version} ({digest}) {why}"));
    Err(Refusal(problem.hint("upload the same bundle again with `muster release push`, or restore a backup")))
}
