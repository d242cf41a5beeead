//! HTTP handlers for the certificate authority and its rotation.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use muster_core::authority::{AuthorityRecord, RotationRefusal, rotation_holdouts};
use muster_core::txn::Revision;
use muster_identity::authority::Authority;
use muster_identity::bridge::make_bridge;
use muster_identity::certificate;
use muster_wire::identity::{AuthorityResponse, BridgeRow, RotateAuthority, RotationResponse, RotationStatus};
use muster_wire::problem::{Problem, ProblemCode};

use crate::api::error::{ApiError, JsonBody, chain};
use crate::api::identity::tls;
use crate::api::request::Author;
use crate::app::{App, Identities, Reader, Writer};
use crate::identity::rotation::put;
use crate::identity::tls::{ServerTls, certificates};
use crate::transactions::{ConflictRetry, commit_all};

/// Attempts of one change, if a phase ends at the same time.
const ATTEMPTS: usize = 8;

/// Shows the root certificates of the servers, which are public.
#[utoipa::path(get, path = "/v1/ca", responses((status = 200, body = AuthorityResponse)))]
pub(crate) async fn show_authority(State(identities): State<Identities>) -> Result<Json<AuthorityResponse>, ApiError> {
    let trust = tls(&identities)?.trust();
    let issuing = trust.record.issuing();
    let chain = certificate::from_pem(&issuing.chain).map_err(internal)?;
    let expires = chain.last().map(certificate::expires).transpose().map_err(internal)?;
    let expires = expires.ok_or_else(|| ApiError::internal("the authority has no certificate"))?;
    Ok(Json(AuthorityResponse { pin: issuing.pin.clone(), root: trust.roots.clone(), expires }))
}

/// Shows the rotation of the authority, and the machines and servers that it waits for.
#[utoipa::path(get, path = "/v1/ca/rotation", responses((status = 200, body = RotationResponse)))]
pub(crate) async fn show_rotation(
    State(reader): State<Reader>,
    State(identities): State<Identities>,
) -> Result<Json<RotationResponse>, ApiError> {
    let (tls, (record, at)) = (tls(&identities)?, known(&reader)?);
    Ok(Json(response(&reader, tls, &record, at)))
}

/// Begins to rotate the authority. With `force`, ends the phase of a rotation in progress.
#[utoipa::path(post, path = "/v1/ca/rotation", params(("Muster-Author" = Option<String>, Header)),
    request_body = RotateAuthority, responses((status = 200, body = RotationResponse)))]
pub(crate) async fn rotate_authority(
    writer: Writer,
    State(app): State<App>,
    author: Author,
    JsonBody(RotateAuthority { pin, force }): JsonBody<RotateAuthority>,
) -> Result<Json<RotationResponse>, ApiError> {
    let by = author.by(None, "").author;
    change(&writer, &app, |tls, record| {
        let now = writer.clock.now();
        match &record.rotation {
            None => {
                let next = next_authority(tls, record, pin.as_deref(), &writer)?;
                let current =
                    tls.config().files.get(&record.current.pin).ok_or_else(|| no_key(tls, &record.current.pin))?;
                let bridge = make_bridge(&current, &next, now).map_err(internal)?;
                Ok(Some(record.announce(certificates(&next), bridge, by.clone(), now).map_err(refused)?))
            }
            Some(rotation) if pin.as_ref().is_some_and(|pin| *pin != rotation.next.pin) => {
                Err(refused(RotationRefusal::InProgress { pin: rotation.next.pin.clone() }))
            }
            Some(rotation) if force => {
                tls.config().files.get(&rotation.next.pin).ok_or_else(|| no_key(tls, &rotation.next.pin))?;
                Ok(record.advance(now))
            }
            Some(_) => Ok(None),
        }
    })
    .await
}

/// Cancels a rotation whose new authority has issued no certificate.
#[utoipa::path(delete, path = "/v1/ca/rotation", params(("Muster-Author" = Option<String>, Header)),
    responses((status = 200, body = RotationResponse)))]
pub(crate) async fn cancel_rotation(
    writer: Writer,
    State(app): State<App>,
) -> Result<Json<RotationResponse>, ApiError> {
    change(&writer, &app, |_, record| record.cancel().map(Some).map_err(refused)).await
}

/// Changes the record, and uses it on this server before it responds.
async fn change(
    writer: &Writer,
    app: &App,
    decide: impl Fn(&ServerTls, &AuthorityRecord) -> Result<Option<AuthorityRecord>, ApiError>,
) -> Result<Json<RotationResponse>, ApiError> {
    let tls = tls(&app.identities)?;
    let mut retry = ConflictRetry::new(ATTEMPTS);
    while retry.begin_attempt() {
        let (record, at) = known(writer)?;
        let Some(next) = decide(tls, &record)? else { return Ok(Json(response(writer, tls, &record, at))) };
        let committed = commit_all(writer, vec![put(&next, Some(at)).map_err(internal)?]).await?;
        writer.view.reach(committed.revision).await?;
        if committed.complete {
            crate::identity::rotation::follow(app, tls);
            let (record, at) = known(writer)?;
            return Ok(Json(response(writer, tls, &record, at)));
        }
    }
    Err(ApiError(Problem::new(ProblemCode::Busy, "the authority changes at the same time").retry_after(1)))
}

/// The new authority: that with a pin, the only one that was never used, or one that is made now.
fn next_authority(
    tls: &ServerTls,
    record: &AuthorityRecord,
    pin: Option<&str>,
    reader: &Reader,
) -> Result<Arc<Authority>, ApiError> {
    let (files, now) = (&tls.config().files, reader.clock.now());
    let problems = files.read_again(now);
    if let Some(pin) = pin {
        return files.get(pin).ok_or_else(|| {
            let why = problems.first().map(|problem| format!(" ({})", chain(problem))).unwrap_or_default();
            let detail =
                format!("this server has no authority with the pin {pin} in {}{why}", files.directory().display());
            let hint = "copy its ca.crt and ca.key to a directory of any name in that directory, on every server";
            ApiError(Problem::new(ProblemCode::UnknownIdentity, detail).hint(hint))
        });
    }
    let is_unused = |pin: &String| *pin != record.current.pin && !record.retired.contains(pin);
    let unused: Vec<String> = files.pins().into_iter().filter(is_unused).collect();
    match unused.as_slice() {
        [] => files.create(now).map_err(internal),
        [only] => files.get(only).ok_or_else(|| no_key(tls, only)),
        several => {
            let detail = format!("{} has several authorities that were never used", files.directory().display());
            Err(ApiError(Problem::new(ProblemCode::Conflict, detail).hint(format!("give one: {}", several.join(", ")))))
        }
    }
}

fn known(reader: &Reader) -> Result<(AuthorityRecord, Revision), ApiError> {
    let known = reader.view.server_records().authority().cloned();
    known.ok_or_else(|| ApiError(Problem::new(ProblemCode::NotFound, "the servers have no certificate authority")))
}

fn response(reader: &Reader, tls: &ServerTls, record: &AuthorityRecord, revision: Revision) -> RotationResponse {
    let now = reader.clock.now();
    let rotation = record.rotation.as_ref().map(|rotation| RotationStatus {
        pin: rotation.next.pin.clone(),
        phase: rotation.phase,
        since: rotation.since,
        by: rotation.by.clone(),
        is_bridged: rotation.bridge.is_some(),
        waits_for: rotation_holdouts(rotation, reader.view.fleets().values(), tls.config().grace, now),
    });
    let bridges = record.bridges.iter().filter(|bridge| bridge.until > now);
    RotationResponse {
        pin: record.issuing().pin.clone(),
        rotation,
        bridges: bridges.map(|bridge| BridgeRow { pin: bridge.replaced.pin.clone(), until: bridge.until }).collect(),
        retired: record.retired.clone(),
        host: crate::replica::identity::host(),
        directory: tls.config().files.directory().display().to_string(),
        revision,
    }
}

fn no_key(tls: &ServerTls, pin: &str) -> ApiError {
    let detail = format!("this server lacks the key of the certificate authority {pin}");
    let directory = tls.config().files.directory().display();
    let hint = format!("copy ca.crt and ca.key from a server that has it to a directory of any name in {directory}");
    ApiError(Problem::new(ProblemCode::CannotTell, detail).hint(hint))
}

fn refused(refusal: RotationRefusal) -> ApiError {
    let hint = match &refusal {
        RotationRefusal::InProgress { .. } => "`muster ca show` shows what it waits for",
        RotationRefusal::NotInProgress => "`muster ca rotate` begins one",
        RotationRefusal::SameAuthority => "give the pin of another authority, or none to make one",
        RotationRefusal::TooLong => "leave certificates out that are not of the chain, or use ECDSA keys",
        RotationRefusal::HasIssued => "let it end, and rotate again to another authority",
    };
    ApiError(Problem::new(ProblemCode::Conflict, refusal.to_string()).hint(hint))
}

fn internal(error: impl std::error::Error) -> ApiError {
    ApiError(Problem::new(ProblemCode::Internal, chain(&error)))
}
