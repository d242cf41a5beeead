//! Bundles on their way in: named by their digest, kept only if they are what it says, and only when they are whole.

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, header};
use futures::TryStreamExt;
use muster_core::release_manifest::Digest;
use muster_release::limits::BUNDLE_LIMIT;
use muster_wire::problem::{Code, Problem};
use muster_wire::release::Bundle;
use serde::Deserialize;

use super::{blocking, not_kept};
use crate::App;
use crate::api::answer::{Refusal, chain};
use crate::api::scope::Scope;
use crate::blobs::ReceiveError;

/// What is written at once.
const PIECE: usize = 256 * 1024;

#[derive(Deserialize)]
pub(crate) struct DigestPath {
    digest: String,
}

impl DigestPath {
    fn digest(self) -> Result<Digest, Refusal> {
        Digest::new(self.digest).map_err(|error| Refusal::invalid(error.to_string()))
    }
}

/// Whether a bundle is there, so that nobody sends it twice.
#[utoipa::path(get, path = "/v1/envs/{env}/bundles/{digest}",
    params(("env" = String, Path), ("digest" = String, Path)), responses((status = 200, body = Bundle)))]
pub(crate) async fn show(
    State(app): State<App>,
    _scope: Scope,
    Path(digest): Path<DigestPath>,
) -> Result<Json<Bundle>, Refusal> {
    let digest = digest.digest()?;
    match kept(&app, &digest).await? {
        Some(size) => Ok(Json(Bundle { digest, size })),
        None => Err(unknown_bundle(&digest)),
    }
}

/// Takes in a bundle. Sending the same again changes nothing; what was cut off leaves nothing behind.
#[utoipa::path(put, path = "/v1/envs/{env}/bundles/{digest}",
    params(("env" = String, Path), ("digest" = String, Path)),
    request_body(content = Vec<u8>, content_type = "application/zstd"), responses((status = 200, body = Bundle)))]
pub(crate) async fn put(
    State(app): State<App>,
    _scope: Scope,
    Path(digest): Path<DigestPath>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Bundle>, Refusal> {
    let digest = digest.digest()?;
    // Who says beforehand that it is too large need not send it.
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|size| size.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|size| size > BUNDLE_LIMIT) {
        return Err(ReceiveError::TooLarge { limit: BUNDLE_LIMIT }.into());
    }
    let blobs = app.blobs.clone();
    let mut incoming = blocking(move || blobs.receive(BUNDLE_LIMIT)).await?.map_err(|error| cannot_keep(&error))?;
    let mut pieces = body.into_data_stream();
    let mut waiting = Vec::with_capacity(PIECE);
    loop {
        let lost = |error| Refusal::invalid(format!("the bundle did not arrive whole: {}", chain(&error)));
        let piece = pieces.try_next().await.map_err(lost)?;
        waiting.extend_from_slice(piece.as_deref().unwrap_or_default());
        if piece.is_some() && waiting.len() < PIECE {
            continue;
        }
        let (taken, back) = blocking(move || {
            let taken = incoming.take(&waiting).map(|()| incoming);
            waiting.clear();
            (taken, waiting)
        })
        .await?;
        (incoming, waiting) = (taken?, back);
        if piece.is_none() {
            break;
        }
    }
    let (blobs, name) = (app.blobs.clone(), digest.hex().to_owned());
    let size = blocking(move || blobs.finish(incoming, &name)).await??;
    tracing::info!(%digest, size, "a bundle was taken in");
    Ok(Json(Bundle { digest, size }))
}

/// The size of a bundle that is kept, and stays so for long enough to be registered; none if there is none.
async fn kept(app: &App, digest: &Digest) -> Result<Option<u64>, Refusal> {
    let (blobs, name) = (app.blobs.clone(), digest.hex().to_owned());
    let looked = blocking(move || match blobs.renew(&name)? {
        true => Ok(blobs.stored(&name)?.map(|stored| stored.size())),
        false => Ok(None),
    });
    looked.await?.map_err(|error| cannot_keep(&error))
}

fn cannot_keep(error: &std::io::Error) -> Refusal {
    not_kept(error, format!("bundles cannot be kept: {error}"))
}

pub(super) fn unknown_bundle(digest: &Digest) -> Refusal {
    let problem = Problem::new(Code::UnknownBundle, format!("there is no bundle {digest}"));
    Refusal(problem.hint("upload it first; `muster release push` does both"))
}
