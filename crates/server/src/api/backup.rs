//! Saving an environment, and bringing it back.

use std::fs::File;
use std::io;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use futures::TryStreamExt;
use muster_core::names::EnvName;
use muster_wire::backup::{MEDIA_TYPE, RestoreQuery, Restored};
use muster_wire::problem::{Code, Problem};
use tokio::io::AsyncWriteExt;

use crate::App;
use crate::backup::{self, Contents, ReadError, Refused, RestoreError, TakeError, Target, pipe, verify};

use super::answer::{Refusal, chain};
use super::scope::{Scope, fresh_enough};

/// A backup of the environment: its keys at one revision and the blobs that they name. A tar archive in a zstd stream.
#[utoipa::path(get, path = "/v1/envs/{env}/backup", params(("env" = String, Path)),
    responses((status = 200, content_type = "application/zstd", body = Vec<u8>)))]
pub(crate) async fn take(State(app): State<App>, scope: Scope) -> Result<Response, Refusal> {
    let taken = backup::take(app.store.as_ref(), &scope.env, app.clock.now()).await?;
    let (to, broken, pieces) = pipe();
    let blobs = app.blobs.clone();
    tokio::task::spawn_blocking(move || {
        if let Err(error) = taken.write(&blobs, to) {
            tracing::warn!(error = &error as &dyn std::error::Error, "a backup could not be written to its end");
            // Breaks the connection: a body that just ended would look whole.
            let _ = broken.blocking_send(Err(io::Error::other(error)));
        }
    });
    let headers = [(header::CONTENT_TYPE, MEDIA_TYPE), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(pieces)).into_response())
}

/// Restores an environment from a backup. Nothing is changed before all of it is here and was found to be whole.
///
/// It is brought to its end even if whoever sent it does not wait for the answer.
#[utoipa::path(post, path = "/v1/envs/{env}/restore", params(("env" = String, Path), RestoreQuery),
    request_body(content = Vec<u8>, content_type = "application/zstd"), responses((status = 200, body = Restored)))]
pub(crate) async fn restore(
    State(app): State<App>,
    Path(env): Path<String>,
    Query(query): Query<RestoreQuery>,
    parts: Parts,
    body: Body,
) -> Result<Json<Restored>, Refusal> {
    fresh_enough(&parts, &app).await?;
    let env = EnvName::new(env).map_err(|error| Refusal::invalid(error.to_string()))?;
    let (file, contents) = receive(&app, body).await?;
    let target = Target {
        store: app.store.clone(),
        blobs: app.blobs.clone(),
        env: env.clone(),
        replace: query.replace,
        by: format!("the server {}", app.membership.id()),
        now: app.clock.now(),
    };
    if query.check {
        return Ok(Json(backup::check(file, &contents, &target).await?));
    }
    tracing::warn!(%env, from = %contents.manifest.env, taken = %contents.manifest.taken, "a backup is restored");
    let runtime = tokio::runtime::Handle::current();
    // On a thread of its own, which nothing cancels.
    let restoring =
        tokio::task::spawn_blocking(move || runtime.block_on(backup::restore(file, &contents, &target, |_| {})));
    let restored = restoring.await.map_err(|error| Refusal(Problem::new(Code::Internal, chain(&error))))??;
    tracing::warn!(%env, epoch = restored.epoch, "restored");
    if let Some(revision) = restored.revision {
        app.view.reach(revision).await?;
    }
    Ok(Json(restored))
}

/// Takes the whole file in, and looks through it.
async fn receive(app: &App, body: Body) -> Result<(File, Contents), Refusal> {
    let kept = |error: io::Error| {
        let code = if error.kind() == io::ErrorKind::StorageFull { Code::StoreFull } else { Code::StoreUnavailable };
        Refusal(Problem::new(code, format!("the backup cannot be kept while it is looked through: {error}")))
    };
    let mut file = tokio::fs::File::from_std(app.blobs.spool().map_err(kept)?);
    let mut pieces = body.into_data_stream();
    let lost = |error: axum::Error| Refusal::invalid(format!("the backup did not arrive whole: {}", chain(&error)));
    while let Some(piece) = pieces.try_next().await.map_err(lost)? {
        file.write_all(&piece).await.map_err(kept)?;
    }
    file.flush().await.map_err(kept)?;
    let mut file = file.into_std().await;
    let looked = tokio::task::spawn_blocking(move || {
        io::Seek::rewind(&mut file).map_err(ReadError::Io)?;
        verify(&file).map(|contents| (file, contents))
    });
    let looked = looked.await.map_err(|error| Refusal(Problem::new(Code::Internal, chain(&error))))?;
    Ok(looked?)
}

impl From<TakeError> for Refusal {
    fn from(error: TakeError) -> Self {
        match error {
            TakeError::Store(error) => error.into(),
            TakeError::Nothing { .. } => Self(Problem::new(Code::UnknownEnvironment, chain(&error))),
            TakeError::Destroying { .. } => Self(Problem::new(Code::Destroying, chain(&error))),
            TakeError::Restoring { .. } => Self(Problem::new(Code::CannotTell, chain(&error))),
        }
    }
}

impl From<ReadError> for Refusal {
    fn from(error: ReadError) -> Self {
        Self::invalid(chain(&error))
    }
}

impl From<RestoreError> for Refusal {
    fn from(error: RestoreError) -> Self {
        let text = chain(&error);
        match error {
            RestoreError::Refused(Refused::Exists { .. }) => {
                let problem = Problem::new(Code::Conflict, text);
                Self(problem.hint("--replace takes away what is there and is not in the backup"))
            }
            RestoreError::Refused(Refused::AnotherRestore { .. }) => {
                let problem = Problem::new(Code::Conflict, text);
                Self(problem.hint("restore that file again to complete it, or choose this one with --replace"))
            }
            RestoreError::Refused(Refused::Destroying { .. }) => {
                Self(Problem::new(Code::Destroying, text).hint("restore it when it is gone"))
            }
            RestoreError::Overtaken { .. } => Self(Problem::new(Code::Conflict, text)),
            RestoreError::Read(_) => Self::invalid(text),
            RestoreError::Look(error) => error.into(),
            RestoreError::Store(_) => Self(Problem::new(Code::StoreUnavailable, text)),
            RestoreError::Blobs(error) if error.kind() == io::ErrorKind::StorageFull => {
                Self(Problem::new(Code::StoreFull, text))
            }
            RestoreError::Blobs(_) => Self(Problem::new(Code::StoreUnavailable, text)),
            RestoreError::Marker(_) => Self(Problem::new(Code::Internal, text)),
        }
    }
}
