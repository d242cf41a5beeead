//! HTTP handlers for backup and restore of an environment.

use std::fs::File;
use std::io::{self, Write};

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{Stream, TryStreamExt};
use muster_core::names::EnvName;
use muster_wire::backup::{MEDIA_TYPE, RestoreQuery, RestoreResponse};
use muster_wire::problem::{Problem, ProblemCode};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use crate::api::contract::Archive;
use crate::api::error::{ApiError, Path, Query, chain};
use crate::api::request::{Scope, fresh_enough};
use crate::app::{Reader, ReplicaState, Writer};
use crate::backup::{
    self, BackupError, BackupReadError, Contents, RefusedRestore, RestoreError, RestoreTarget, verify,
};

/// Streams a backup of the environment: its keys at one revision and their blobs, as a tar archive in a zstd stream.
#[utoipa::path(get, path = "/v1/envs/{env}/backup", params(("env" = String, Path)),
    responses((status = 200, content_type = "application/zstd", body = inline(Archive))))]
pub(crate) async fn download_backup(writer: Writer, scope: Scope) -> Result<Response, ApiError> {
    let backup = backup::read_environment(&*writer.store, &scope.env, writer.clock.now()).await?;
    writer.store.record(Some(&scope.env), "a backup was downloaded".to_owned()).await?;
    let (to, broken, pieces) = pipe();
    let blobs = writer.blobs.clone();
    tokio::task::spawn_blocking(move || {
        if let Err(error) = backup.write(&blobs, to) {
            tracing::warn!(error = &error as &dyn std::error::Error, "writing a backup failed");
            // Breaks the connection: a body that just ended would look complete.
            let _ = broken.blocking_send(Err(io::Error::other(error)));
        }
    });
    let headers = [(header::CONTENT_TYPE, MEDIA_TYPE), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(pieces)).into_response())
}

/// Restores an environment from a backup. Writes nothing before the whole file has arrived and is verified.
///
/// The restore continues if the client disconnects.
#[utoipa::path(post, path = "/v1/envs/{env}/restore", params(("env" = String, Path), RestoreQuery),
    request_body(content = inline(Archive), content_type = "application/zstd"), responses((status = 200, body = RestoreResponse)))]
pub(crate) async fn restore_backup(
    writer: Writer,
    State(replica): State<ReplicaState>,
    Path(env): Path<String>,
    Query(query): Query<RestoreQuery>,
    parts: Parts,
    body: Body,
) -> Result<Json<RestoreResponse>, ApiError> {
    check_media_type(&parts.headers)?;
    fresh_enough(&parts, &writer).await?;
    let env = EnvName::new(env).map_err(|error| ApiError::invalid(error.to_string()))?;
    let (file, contents) = receive_backup(&writer, body).await?;
    let target = RestoreTarget {
        // Its thousands of keys are one record, which follows.
        store: writer.store.unaudited().clone(),
        blobs: writer.blobs.clone(),
        env: env.clone(),
        replace: query.replace,
        incomplete: query.incomplete,
        by: format!("the server {}", replica.membership.id()),
        now: writer.clock.now(),
    };
    if query.check {
        return Ok(Json(backup::check(file, &contents, &target).await?));
    }
    let manifest = &contents.manifest;
    let what = format!("a backup of {} of {} was restored", manifest.env, manifest.taken);
    writer.store.record(Some(&env), what).await?;
    tracing::warn!(%env, from = %contents.manifest.env, taken = %contents.manifest.taken, "restoring a backup");
    let runtime = tokio::runtime::Handle::current();
    // On a thread of its own, since nothing cancels it there.
    let restoring =
        tokio::task::spawn_blocking(move || runtime.block_on(backup::restore(file, &contents, &target, |_| {})));
    let restored = restoring.await.map_err(|error| ApiError(Problem::new(ProblemCode::Internal, chain(&error))))??;
    tracing::warn!(%env, epoch = restored.epoch, "restored");
    if let Some(revision) = restored.revision {
        writer.view.reach(revision).await?;
    }
    Ok(Json(restored))
}

/// Refuses a body that is not declared as a backup. A web page cannot send this type without asking the server first.
fn check_media_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let declared = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if declared.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(MEDIA_TYPE)) {
        return Ok(());
    }
    let detail = format!("a restore takes a body of the type {MEDIA_TYPE}, not {declared:?}");
    let problem = Problem::new(ProblemCode::UnsupportedMediaType, detail);
    Err(ApiError(problem.hint(format!("send the header `Content-Type: {MEDIA_TYPE}`"))))
}

/// Receives the whole file and verifies it.
async fn receive_backup(reader: &Reader, body: Body) -> Result<(File, Contents), ApiError> {
    let kept = |error: io::Error| {
        let code = if error.kind() == io::ErrorKind::StorageFull {
            ProblemCode::StoreFull
        } else {
            ProblemCode::StoreUnavailable
        };
        ApiError(Problem::new(code, format!("the backup cannot be stored for verification: {error}")))
    };
    let mut file = tokio::fs::File::from_std(reader.blobs.spool().map_err(kept)?);
    let mut pieces = body.into_data_stream();
    let lost = |error: axum::Error| ApiError::invalid(format!("the backup is incomplete: {}", chain(&error)));
    while let Some(piece) = pieces.try_next().await.map_err(lost)? {
        file.write_all(&piece).await.map_err(kept)?;
    }
    file.flush().await.map_err(kept)?;
    let mut file = file.into_std().await;
    let result = tokio::task::spawn_blocking(move || {
        io::Seek::rewind(&mut file).map_err(BackupReadError::Io)?;
        verify(&file).map(|contents| (file, contents))
    });
    let result = result.await.map_err(|error| ApiError(Problem::new(ProblemCode::Internal, chain(&error))))?;
    Ok(result?)
}

impl From<BackupError> for ApiError {
    fn from(error: BackupError) -> Self {
        match error {
            BackupError::Store(error) => error.into(),
            BackupError::Nothing { .. } => Self(Problem::new(ProblemCode::UnknownEnvironment, chain(&error))),
            BackupError::Destroying { .. } => Self(Problem::new(ProblemCode::Destroying, chain(&error))),
            BackupError::Restoring { .. } => Self(Problem::new(ProblemCode::CannotTell, chain(&error))),
        }
    }
}

impl From<BackupReadError> for ApiError {
    fn from(error: BackupReadError) -> Self {
        Self::invalid(chain(&error))
    }
}

impl From<RestoreError> for ApiError {
    fn from(error: RestoreError) -> Self {
        let text = chain(&error);
        match error {
            RestoreError::Refused(RefusedRestore::Exists { .. }) => {
                let problem = Problem::new(ProblemCode::Conflict, text);
                Self(problem.hint("--replace removes what is not in the backup"))
            }
            RestoreError::Refused(RefusedRestore::AnotherRestore { .. }) => {
                let problem = Problem::new(ProblemCode::Conflict, text);
                Self(problem.hint("restore that file again to complete it, or choose this one with --replace"))
            }
            RestoreError::Refused(RefusedRestore::Destroying { .. }) => {
                Self(Problem::new(ProblemCode::Destroying, text).hint("restore it when it is gone"))
            }
            RestoreError::Refused(RefusedRestore::Incomplete { .. }) => {
                let problem = Problem::new(ProblemCode::InvalidRequest, text);
                Self(problem.hint("use another backup, or restore without these parts with --incomplete"))
            }
            RestoreError::Overtaken { .. } => Self(Problem::new(ProblemCode::Conflict, text)),
            RestoreError::Read(_) => Self::invalid(text),
            RestoreError::ReadStore(error) => error.into(),
            RestoreError::Store(_) => Self(Problem::new(ProblemCode::StoreUnavailable, text)),
            RestoreError::Blobs(error) if error.kind() == io::ErrorKind::StorageFull => {
                Self(Problem::new(ProblemCode::StoreFull, text))
            }
            RestoreError::Blobs(_) => Self(Problem::new(ProblemCode::StoreUnavailable, text)),
            RestoreError::Marker(_) => Self(Problem::new(ProblemCode::Internal, text)),
        }
    }
}

/// Size of a piece. Large enough that a thread is not woken for a few bytes.
const PIECE: usize = 64 * 1024;
/// Pieces that may wait to be sent.
const AHEAD: usize = 4;

/// Writing end of the body. Data is complete only after `flush`.
#[derive(Debug)]
pub(crate) struct Pipe {
    to: mpsc::Sender<io::Result<Bytes>>,
    piece: Vec<u8>,
}

/// Writing end, a sender that can end the stream with an error, and the stream. It ends when the pipe is dropped.
pub(crate) fn pipe() -> (Pipe, mpsc::Sender<io::Result<Bytes>>, impl Stream<Item = io::Result<Bytes>>) {
    let (to, from) = mpsc::channel(AHEAD);
    let pieces = futures::stream::unfold(from, |mut from| async { Some((from.recv().await?, from)) });
    (Pipe { to: to.clone(), piece: Vec::with_capacity(PIECE) }, to, pieces)
}

impl Pipe {
    fn send(&mut self) -> io::Result<()> {
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE));
        // The client has disconnected.
        self.to.blocking_send(Ok(piece.into())).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE {
            self.send()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() { Ok(()) } else { self.send() }
    }
}
