//! HTTP handlers for bundles of releases: upload by digest, download with ranges, and deltas.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::TryStreamExt;
use muster_core::names::Version;
use muster_core::release::ReleaseRecord;
use muster_core::release::manifest::Digest;
use muster_release::tree::BUNDLE_LIMIT;
use muster_wire::problem::{Problem, ProblemCode};
use muster_wire::release::{MEDIA_TYPE, UploadedBundle};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::api::contract::Archive;
use crate::api::error::{ApiError, Path, Query, chain};
use crate::api::releases::{blocking, not_kept};
use crate::api::request::Scope;
use crate::app::Reader;
use crate::blobs::unregistered::UploadReservation;
use crate::blobs::{BlobReader, ReceiveError};
use crate::releases::deltas::{DeltaReader, DeltaRequest};

/// Bytes that are written at once.
const PIECE: usize = 256 * 1024;

#[derive(Deserialize)]
pub(crate) struct DigestPath {
    digest: String,
}

impl DigestPath {
    fn digest(self) -> Result<Digest, ApiError> {
        Digest::new(self.digest).map_err(|error| ApiError::invalid(error.to_string()))
    }
}

/// Shows a stored bundle, so that a client need not upload it again.
#[utoipa::path(get, path = "/v1/envs/{env}/bundles/{digest}",
    params(("env" = String, Path), ("digest" = String, Path)), responses((status = 200, body = UploadedBundle)))]
pub(crate) async fn show_bundle(
    State(reader): State<Reader>,
    _scope: Scope,
    Path(digest): Path<DigestPath>,
) -> Result<Json<UploadedBundle>, ApiError> {
    let digest = digest.digest()?;
    match kept_size(&reader, &digest).await? {
        Some(size) => Ok(Json(UploadedBundle { digest, size })),
        None => Err(unknown_bundle(&digest)),
    }
}

/// Uploads a bundle. A duplicate is a no-op; a partial upload is discarded.
#[utoipa::path(put, path = "/v1/envs/{env}/bundles/{digest}",
    params(("env" = String, Path), ("digest" = String, Path)),
    request_body(content = inline(Archive), content_type = "application/zstd"), responses((status = 200, body = UploadedBundle)))]
pub(crate) async fn put_bundle(
    State(reader): State<Reader>,
    _scope: Scope,
    Path(digest): Path<DigestPath>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<UploadedBundle>, ApiError> {
    let digest = digest.digest()?;
    // A client that announces the size need not send a bundle that is too large.
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|size| size.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|size| size > BUNDLE_LIMIT) {
        return Err(ReceiveError::TooLarge { limit: BUNDLE_LIMIT }.into());
    }
    let (reservation, is_registered) = reserve(&reader, &digest, announced.unwrap_or(BUNDLE_LIMIT)).await?;
    let blobs = reader.blobs.clone();
    let mut incoming = blocking(move || blobs.receive(BUNDLE_LIMIT)).await?.map_err(|error| cannot_keep(&error))?;
    let mut pieces = body.into_data_stream();
    let mut waiting = Vec::with_capacity(PIECE);
    loop {
        let lost = |error| ApiError::invalid(format!("the bundle is incomplete: {}", chain(&error)));
        let piece = pieces.try_next().await.map_err(lost)?;
        waiting.extend_from_slice(piece.as_deref().unwrap_or_default());
        if piece.is_some() && waiting.len() < PIECE {
            continue;
        }
        let (written, back) = blocking(move || {
            let written = incoming.write_piece(&waiting).map(|()| incoming);
            waiting.clear();
            (written, waiting)
        })
        .await?;
        (incoming, waiting) = (written?, back);
        if piece.is_none() {
            break;
        }
    }
    let (blobs, name) = (reader.blobs.clone(), digest.hex().to_owned());
    let stored = blocking(move || {
        let size = blobs.finish(incoming, &name)?;
        if !is_registered {
            blobs.mark_upload(reservation, &name, size).map_err(ReceiveError::Io)?;
        }
        Ok::<_, ReceiveError>(size)
    });
    let size = stored.await??;
    tracing::info!(%digest, size, "bundle uploaded");
    Ok(Json(UploadedBundle { digest, size }))
}

/// Reserves room for an upload. Returns true if a release already has this bundle.
async fn reserve(reader: &Reader, digest: &Digest, bytes: u64) -> Result<(UploadReservation, bool), ApiError> {
    let registered: HashSet<String> = {
        let fleets = reader.view.fleets();
        let releases = fleets.values().flat_map(|fleet| fleet.releases().values());
        releases.filter_map(|release| release.digest.strip_prefix("sha256:").map(str::to_owned)).collect()
    };
    let is_registered = registered.contains(digest.hex());
    let blobs = reader.blobs.clone();
    let reserved = blocking(move || blobs.reserve_upload(bytes, |digest| registered.contains(digest))).await?;
    match reserved.map_err(|error| cannot_keep(&error))? {
        Ok(reservation) => Ok((reservation, is_registered)),
        Err(full) => {
            let problem = Problem::new(ProblemCode::UploadsFull, full.to_string());
            Err(ApiError(
                problem.hint("register them with `muster release push`; a sweep removes the others within two hours"),
            ))
        }
    }
}

/// Size of a stored bundle, which is kept long enough to be registered; none if it is missing or damaged.
async fn kept_size(reader: &Reader, digest: &Digest) -> Result<Option<u64>, ApiError> {
    let (blobs, name) = (reader.blobs.clone(), digest.hex().to_owned());
    let result = blocking(move || match blobs.renew(&name)? && blobs.is_intact(&name)? {
        true => blobs.size(&name),
        false => Ok(None),
    });
    result.await?.map_err(|error| cannot_keep(&error))
}

fn cannot_keep(error: &std::io::Error) -> ApiError {
    not_kept(error, format!("bundles cannot be stored: {error}"))
}

pub(super) fn unknown_bundle(digest: &Digest) -> ApiError {
    let problem = Problem::new(ProblemCode::UnknownBundle, format!("there is no bundle {digest}"));
    ApiError(problem.hint("upload it first; `muster release push` does both"))
}

#[derive(Deserialize)]
pub(crate) struct VersionPath {
    version: String,
}

impl VersionPath {
    pub(super) fn version(self) -> Result<Version, ApiError> {
        Version::new(self.version).map_err(|error| ApiError::invalid(error.to_string()))
    }
}

/// Downloads the bundle of a release, or a range of it.
///
/// At most 32 downloads are served at once; further requests wait in order. After 60 seconds they get 503 with
/// `Retry-After`.
#[utoipa::path(get, path = "/v1/envs/{env}/releases/{version}/bundle",
    params(("env" = String, Path), ("version" = String, Path), ("Range" = Option<String>, Header),
        ("If-Range" = Option<String>, Header)),
    responses(
        (status = 200, content_type = "application/zstd", body = inline(Archive), headers(("ETag" = String, description = "The digest."))),
        (status = 206, content_type = "application/zstd", body = inline(Archive)),
        (status = 416, description = "It begins behind the end.")))]
pub(crate) async fn download_bundle(
    State(reader): State<Reader>,
    scope: Scope,
    Path(version): Path<VersionPath>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let version = version.version()?;
    let release = release_of(&reader, &scope, &version)?;
    let digest = digest_in(&release, &version)?;
    let bundle = open_bundle(&reader, &version, &release).await?;
    let size = bundle.size();
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let etag = format!("\"{digest}\"");
    // A client with a part of another bundle gets all of this one.
    let same = text(header::IF_RANGE).is_none_or(|known| known == etag);
    let part = if same { BundleRange::parse(text(header::RANGE), size) } else { BundleRange::All };
    let (status, part) = match part {
        BundleRange::All => (StatusCode::OK, 0..size),
        BundleRange::Some(part) => (StatusCode::PARTIAL_CONTENT, part),
        BundleRange::PastEnd => {
            let problem = Problem::new(ProblemCode::RangeNotSatisfiable, format!("{digest} has {size} bytes"));
            let range = [(header::CONTENT_RANGE, format!("bytes */{size}"))];
            return Ok((range, ApiError(problem)).into_response());
        }
    };
    let turn = reader.downloads.turn().await?;
    let mut answer = Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, MEDIA_TYPE)
        .header(header::CONTENT_LENGTH, part.end - part.start)
        .header(header::ACCEPT_RANGES, "bytes")
        .header(header::ETAG, etag)
        // A bundle never changes, but a proxy must not store a part of it as the whole.
        .header(header::CACHE_CONTROL, "no-store");
    if status == StatusCode::PARTIAL_CONTENT {
        answer = answer.header(header::CONTENT_RANGE, format!("bytes {}-{}/{size}", part.start, part.end - 1));
    }
    let pieces = reader.downloads.send(turn, bundle, part);
    finished(answer.body(Body::from_stream(pieces)))
}

fn finished(answer: Result<Response, axum::http::Error>) -> Result<Response, ApiError> {
    answer.map_err(|error| ApiError(Problem::new(ProblemCode::Internal, error.to_string())))
}

#[derive(Deserialize, IntoParams)]
pub(crate) struct DeltaQuery {
    /// Digest of the bundle that the client has.
    from: String,
}

/// Downloads the files of a release that another release does not have, for a client that has the other one.
///
/// There is none if the other release is not registered, or if it differs too much: the client then downloads the bundle.
#[utoipa::path(get, path = "/v1/envs/{env}/releases/{version}/delta",
    params(("env" = String, Path), ("version" = String, Path), DeltaQuery),
    responses(
        (status = 200, content_type = "application/zstd", body = inline(Archive), headers(("ETag" = String, description = "The digest of the release's bundle."))),
        (status = 404, description = "There is no delta.")))]
pub(crate) async fn download_delta(
    State(reader): State<Reader>,
    scope: Scope,
    Path(version): Path<VersionPath>,
    Query(query): Query<DeltaQuery>,
) -> Result<Response, ApiError> {
    let version = version.version()?;
    let base = Digest::new(query.from).map_err(|error| ApiError::invalid(error.to_string()))?;
    let release = release_of(&reader, &scope, &version)?;
    let target = digest_in(&release, &version)?;
    let known = scope.read(&reader, |fleet| {
        let mut releases = fleet.releases().iter();
        releases
            .find(|(_, other)| other.digest == base.as_str())
            .map(|(version, other)| (version.clone(), other.clone()))
    })?;
    let (base_version, base_release) = known.ok_or_else(|| no_delta(&version, &base, "is not registered"))?;
    let request = DeltaRequest {
        base: (base.clone(), open_bundle(&reader, &base_version, &base_release).await?),
        target: (target.clone(), open_bundle(&reader, &version, &release).await?),
    };
    let delta = reader.deltas.get(request).await.ok_or_else(|| no_delta(&version, &base, "differs too much"))?;
    let turn = reader.downloads.turn().await?;
    let delta = DeltaReader(delta);
    let size = delta.size();
    let answer = Response::builder()
        .header(header::CONTENT_TYPE, MEDIA_TYPE)
        .header(header::CONTENT_LENGTH, size)
        .header(header::ETAG, format!("\"{target}\""))
        .header(header::CACHE_CONTROL, "no-store");
    finished(answer.body(Body::from_stream(reader.downloads.send(turn, Arc::new(delta), 0..size))))
}

fn no_delta(version: &Version, base: &Digest, why: &str) -> ApiError {
    let text = format!("there is no delta of release {version}: the bundle {base} {why}");
    ApiError(Problem::new(ProblemCode::NotFound, text).hint("download the whole bundle"))
}

/// Record of a release.
fn release_of(reader: &Reader, scope: &Scope, version: &Version) -> Result<ReleaseRecord, ApiError> {
    let (release, known) = scope.read(reader, |fleet| {
        let known: Vec<String> = fleet.releases().keys().map(Version::to_string).collect();
        (fleet.releases().get(version).cloned(), known)
    })?;
    release.ok_or_else(|| ApiError::unknown_version(version, &known))
}

fn digest_in(release: &ReleaseRecord, version: &Version) -> Result<Digest, ApiError> {
    Digest::new(release.digest.as_str()).map_err(|error| {
        let problem = Problem::new(ProblemCode::ReleaseUnreadable, format!("the record of release {version}: {error}"));
        ApiError(problem.hint("a release from before there were bundles: register it again under another version"))
    })
}

/// Opens the bundle of a release. A bundle of another length is refused: agents would download a part of it again and again.
pub(in crate::api) async fn open_bundle(
    reader: &Reader,
    version: &Version,
    release: &ReleaseRecord,
) -> Result<Arc<dyn BlobReader>, ApiError> {
    let digest = digest_in(release, version)?;
    let (blobs, name) = (reader.blobs.clone(), digest.hex().to_owned());
    let why = match blocking(move || blobs.stored(&name)).await? {
        Ok(Some(stored)) if stored.size() == release.size => return Ok(stored.into()),
        Ok(Some(stored)) => {
            format!("is damaged on the server: it has {} bytes, and its record says {}", stored.size(), release.size)
        }
        Ok(None) => "is missing in the blobs of the server".to_owned(),
        Err(error) => format!("cannot be read: {error}"),
    };
    let problem =
        Problem::new(ProblemCode::ReleaseUnreadable, format!("the bundle of release {version} ({digest}) {why}"));
    Err(ApiError(problem.hint("upload the same bundle again with `muster release push`, or restore a backup")))
}

/// Range of a bundle in a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BundleRange {
    All,
    Some(Range<u64>),
    /// It begins after the end.
    PastEnd,
}

impl BundleRange {
    /// Parses `bytes=a-b`, `bytes=a-` and `bytes=-n`. Any other header gets the whole bundle, which every client must accept.
    pub(super) fn parse(header: Option<&str>, size: u64) -> Self {
        let Some((first, last)) = header.and_then(|text| text.trim().strip_prefix("bytes=")?.split_once('-')) else {
            return BundleRange::All;
        };
        let number = |text: &str| {
            let text = text.trim();
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            // A number that overflows is the largest one.
            digits.then(|| text.parse().unwrap_or(u64::MAX))
        };
        match (first.trim().is_empty(), number(first), last.trim().is_empty(), number(last)) {
            (false, Some(first), true, None) if first < size => BundleRange::Some(first..size),
            (false, Some(first), false, Some(last)) if first <= last && first < size => {
                BundleRange::Some(first..size.min(last.saturating_add(1)))
            }
            (false, Some(first), false, Some(last)) if first > last => BundleRange::All,
            (true, None, false, Some(count)) if count > 0 && size > 0 => {
                BundleRange::Some(size.saturating_sub(count)..size)
            }
            (false, Some(_), true, None) | (false, Some(_), false, Some(_)) | (true, None, false, Some(_)) => {
                BundleRange::PastEnd
            }
            _ => BundleRange::All,
        }
    }
}

#[cfg(test)]
mod range_tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_follow_rfc_9110() {
        let table = [
            (None, BundleRange::All),
            (Some("bytes=0-"), BundleRange::Some(0..10)),
            (Some("bytes=0-0"), BundleRange::Some(0..1)),
            (Some("bytes=3-5"), BundleRange::Some(3..6)),
            (Some(" bytes=3-99999999999999999999999"), BundleRange::Some(3..10)),
            (Some("bytes=9-"), BundleRange::Some(9..10)),
            (Some("bytes=10-"), BundleRange::PastEnd),
            (Some("bytes=10-20"), BundleRange::PastEnd),
            (Some("bytes=99999999999999999999999-"), BundleRange::PastEnd),
            (Some("bytes=-3"), BundleRange::Some(7..10)),
            (Some("bytes=-30"), BundleRange::Some(0..10)),
            (Some("bytes=-0"), BundleRange::PastEnd),
            // Not supported, or more than one range: the whole.
            (Some("bytes=5-3"), BundleRange::All),
            (Some("bytes=0-1,3-4"), BundleRange::All),
            (Some("bytes=-"), BundleRange::All),
            (Some("bytes=a-b"), BundleRange::All),
            (Some("bytes=+1-2"), BundleRange::All),
            (Some("lines=1-2"), BundleRange::All),
            (Some(""), BundleRange::All),
        ];
        for (header, part) in table {
            assert_eq!(BundleRange::parse(header, 10), part, "{header:?}");
        }
        assert_eq!(BundleRange::parse(Some("bytes=0-"), 0), BundleRange::PastEnd);
        assert_eq!(BundleRange::parse(Some("bytes=-1"), 0), BundleRange::PastEnd);
    }

    proptest! {
        #[test]
        fn parsed_range_is_within_the_bundle(header in "(bytes=)?[0-9a, +-]{0,30}", size in 0_u64..1000) {
            if let BundleRange::Some(part) = BundleRange::parse(Some(&header), size) {
                prop_assert!(part.start < part.end && part.end <= size, "{part:?}");
            }
        }
    }
}
