//! Idempotency keys: a request that a client repeats with the same key is executed once, also by another server.
//!
//! The record of a key is committed with the first transaction of the request, so a change without its record is not possible.
//! The response follows in a second transaction. A repeated request gets it; if it was lost in between, is large or holds a
//! secret, the client learns that the request was executed. A lease removes the records after a day.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use jiff::{SignedDuration, Timestamp};
use muster_core::keys::ServerKey;
use muster_core::txn::{Guard, LeaseId, Op, Txn};
use muster_store::{CommitOutcome, StoreError};
use muster_wire::problem::{Problem, ProblemCode};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::authorization::Client;
use super::contract::{self, takes_idempotency_key};
use super::design;
use super::error::ApiError;
use crate::app::App;

/// Header with the key of a request.
const KEY: &str = "idempotency-key";
/// Header of a response that is repeated.
const REPLAYED: &str = "idempotency-replayed";
/// Longest key, in characters.
const LONGEST_KEY: usize = 100;
/// Largest response that is stored: a value of the store has at most 16 KiB.
const LARGEST_RESPONSE: usize = 12 * 1024;
/// Records of one client.
const MOST_KEYS: usize = 1_000;
/// Life of a record at least, and the time for which a lease is used for new records.
const LIFE: Duration = Duration::from_secs(24 * 3600);
const LEASE_USE: Duration = Duration::from_secs(3600);
/// Operations whose responses hold secrets, which are stored nowhere.
const SECRET_ROUTES: [&str; 2] = ["/v1/envs/{env}/tokens", "/v1/users/{user}/tokens"];

/// Value of a key: the request that was executed, and its response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct IdempotencyRecord {
    /// Digest of the request.
    request: String,
    at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    response: Option<KeptResponse>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KeptResponse {
    status: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
    body: String,
}

/// Record of a request that is being executed. The first transaction of the request commits it.
#[derive(Debug)]
pub(crate) struct IdempotencyClaim {
    key: String,
    record: IdempotencyRecord,
    lease: LeaseId,
    is_committed: AtomicBool,
}

impl IdempotencyClaim {
    /// Adds the record to a transaction, unless an earlier one has committed it.
    pub(crate) fn add_to(&self, txn: Txn) -> Txn {
        match self.put(None) {
            Some(put) if !self.is_committed.load(Ordering::Relaxed) => {
                txn.guard(Guard::Absent { key: self.key.clone() }).op(put)
            }
            Some(_) | None => txn,
        }
    }

    /// A transaction with the record was committed.
    pub(crate) fn mark_committed(&self) {
        self.is_committed.store(true, Ordering::Relaxed);
    }

    fn put(&self, response: Option<KeptResponse>) -> Option<Op> {
        let value = serde_json::to_vec(&IdempotencyRecord { response, ..self.record.clone() }).ok()?;
        Some(Op::Put { key: self.key.clone(), value, lease: Some(self.lease) })
    }
}

/// Executes requests with a key once.
#[derive(Debug)]
pub(super) struct IdempotencyKeys {
    app: App,
    /// Methods and templates of the operations that take a key.
    operations: BTreeSet<(String, String)>,
    /// Keys of the requests that this server executes at the moment.
    running: Mutex<BTreeSet<String>>,
    lease: tokio::sync::Mutex<Option<(LeaseId, Timestamp)>>,
}

/// A key whose request is being executed, until it is dropped.
struct RunningKey<'k> {
    keys: &'k IdempotencyKeys,
    key: String,
}

impl Drop for RunningKey<'_> {
    fn drop(&mut self) {
        self.keys.running().remove(&self.key);
    }
}

impl IdempotencyKeys {
    pub(super) fn new(app: App, document: &serde_json::Value) -> Arc<Self> {
        let operations = contract::operations(document).map(|(method, path, _)| (method.to_string(), path.to_owned()));
        let operations = operations.filter(|(method, path)| takes_idempotency_key(method, path)).collect();
        Arc::new(Self { app, operations, running: Mutex::default(), lease: tokio::sync::Mutex::default() })
    }

    fn running(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, key: &str) -> Result<RunningKey<'_>, ApiError> {
        if self.running().insert(key.to_owned()) {
            return Ok(RunningKey { keys: self, key: key.to_owned() });
        }
        let problem = Problem::new(ProblemCode::Conflict, "the request with this idempotency key is being executed");
        Err(ApiError(problem.retry_after(1).hint("repeat the request to get its response")))
    }

    /// The lease of new records. It is granted again every hour, so that a record lives for a day at least.
    async fn lease(&self) -> Result<LeaseId, StoreError> {
        let now = self.app.clock.now();
        let mut current = self.lease.lock().await;
        let is_new = |granted: Timestamp| {
            now >= granted && now.duration_since(granted) < SignedDuration::try_from(LEASE_USE).unwrap_or_default()
        };
        if let Some((lease, granted)) = *current
            && is_new(granted)
        {
            return Ok(lease);
        }
        let lease = self.app.store.grant(LIFE + LEASE_USE).await?;
        *current = Some((lease.id, now));
        Ok(lease.id)
    }

    async fn find(&self, key: &str) -> Result<Option<IdempotencyRecord>, ApiError> {
        let found = self.app.store.get(key).await?;
        let unreadable = |error: serde_json::Error| ApiError::internal(format!("{key} cannot be read: {error}"));
        found.map(|found| serde_json::from_slice(&found.value).map_err(unreadable)).transpose()
    }

    async fn execute(&self, name: String, client: String, request: Request, next: Next) -> Result<Response, ApiError> {
        let is_secret = is_secret(&request);
        let (mut parts, body) = request.into_parts();
        let too_large = |error: axum::Error| ApiError(Problem::new(ProblemCode::TooLarge, error.to_string()));
        let body = to_bytes(body, design::BODY_LIMIT).await.map_err(too_large)?;
        let digest = digest(&[
            parts.method.as_str().as_bytes(),
            parts.uri.to_string().as_bytes(),
            // The store has no more than a digest of the key: so the body, which may be a secret, cannot be guessed from this.
            header_bytes(&parts.headers, header::HeaderName::from_static(KEY)),
            header_bytes(&parts.headers, header::CONTENT_TYPE),
            header_bytes(&parts.headers, header::IF_MATCH),
            &body,
        ]);
        let key = ServerKey::Idempotency { client: client.clone(), key: name }.text();
        let _running = self.begin(&key)?;
        if let Some(record) = self.find(&key).await? {
            return replay(record, &digest);
        }
        if self.app.view.server_records().idempotency_keys(&client) >= MOST_KEYS {
            let detail = format!("{MOST_KEYS} idempotency keys of this client are stored, which is the limit");
            return Err(ApiError(
                Problem::new(ProblemCode::Busy, detail).retry_after(3600).hint("keys are deleted after a day"),
            ));
        }
        let record = IdempotencyRecord { request: digest.clone(), at: self.app.clock.now(), response: None };
        let (lease, is_committed) = (self.lease().await?, AtomicBool::new(false));
        let claim = Arc::new(IdempotencyClaim { key: key.clone(), record, lease, is_committed });
        parts.extensions.insert(claim.clone());
        let response = next.run(Request::from_parts(parts, Body::from(body))).await;
        if !response.status().is_success() {
            // The lease may have ended, after the store was restored.
            *self.lease.lock().await = None;
            // Another server may have executed the request meanwhile.
            return match self.find(&key).await {
                Ok(Some(record)) if !claim.is_committed.load(Ordering::Relaxed) => replay(record, &digest),
                Ok(_) | Err(_) => Ok(response),
            };
        }
        let (response, kept) = keep(response, is_secret).await?;
        self.store_response(&claim, kept).await;
        Ok(response)
    }

    /// Stores the response. A failure loses only the response: the request was executed.
    async fn store_response(&self, claim: &IdempotencyClaim, kept: Option<KeptResponse>) {
        let Some(put) = claim.put(kept) else { return };
        let committed = claim.is_committed.load(Ordering::Relaxed);
        let txn = if committed { Txn::new() } else { Txn::new().guard(Guard::Absent { key: claim.key.clone() }) };
        match self.app.store.unaudited().commit(txn.op(put)).await {
            Ok(CommitOutcome::Committed { .. } | CommitOutcome::Conflict { .. }) => {}
            Err(error) => tracing::warn!(%error, "the response of an idempotency key cannot be stored"),
        }
    }
}

/// Executes a request with an idempotency key once, and repeats its response.
pub(super) async fn execute_once(State(keys): State<Arc<IdempotencyKeys>>, request: Request, next: Next) -> Response {
    if !request.headers().contains_key(KEY) {
        return next.run(request).await;
    }
    let template = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let operation = template.map(|path| (request.method().to_string(), path.to_owned()));
    let takes_key = operation.is_some_and(|operation| keys.operations.contains(&operation));
    let Some(name) = request.headers().get(KEY).filter(|_| takes_key) else { return next.run(request).await };
    let client = match request.extensions().get::<Client>() {
        Some(Client::User { name, .. }) => format!("user {name}"),
        Some(Client::Administrator) => "administrator".to_owned(),
        Some(Client::Replica | Client::Node { .. } | Client::CertificateHolder { .. } | Client::Unknown) | None => {
            return next.run(request).await;
        }
    };
    let is_legal = |byte: &u8| byte.is_ascii_alphanumeric() || b"._:-".contains(byte);
    let bytes = name.as_bytes();
    if !(1..=LONGEST_KEY).contains(&bytes.len()) || !bytes.iter().all(is_legal) {
        let detail = format!("an idempotency key has 1 to {LONGEST_KEY} letters, digits and characters of `._:-`");
        return ApiError::invalid(detail).into_response();
    }
    let (name, client) = (digest(&[bytes]), digest(&[client.as_bytes()]));
    keys.execute(name, client, request, next).await.unwrap_or_else(IntoResponse::into_response)
}

fn is_secret(request: &Request) -> bool {
    let template = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    template.is_some_and(|template| SECRET_ROUTES.contains(&template))
}

/// Digest of several parts, each with its length.
fn digest(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn header_bytes(headers: &HeaderMap, name: header::HeaderName) -> &[u8] {
    headers.get(name).map(header::HeaderValue::as_bytes).unwrap_or_default()
}

/// The response of the first request, for one that has the same content.
fn replay(record: IdempotencyRecord, digest: &str) -> Result<Response, ApiError> {
    if record.request != digest {
        let detail = format!("another request had this idempotency key at {}", record.at);
        let problem = Problem::new(ProblemCode::IdempotencyKeyReused, detail);
        return Err(ApiError(problem.hint("make a new key for each request that is not a repetition")));
    }
    let Some(KeptResponse { status, etag, body }) = record.response else {
        let detail = format!("the request was executed at {}, and its response is not kept", record.at);
        let problem = Problem::new(ProblemCode::AlreadyExecuted, detail);
        return Err(ApiError(problem.hint("read the present state; a secret is shown once only")));
    };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    let mut response = (status, [(REPLAYED, "true")], body).into_response();
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_TYPE);
    if status != StatusCode::NO_CONTENT {
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    }
    if let Some(etag) = etag.and_then(|etag| etag.parse().ok()) {
        headers.insert(header::ETAG, etag);
    }
    Ok(response)
}

/// The response, and what is stored of it.
async fn keep(response: Response, is_secret: bool) -> Result<(Response, Option<KeptResponse>), ApiError> {
    let (parts, body) = response.into_parts();
    // The JSON of a handler: it is in memory already.
    let body = to_bytes(body, usize::MAX).await.map_err(|error| ApiError::internal(error.to_string()))?;
    let etag = parts.headers.get(header::ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned);
    let text = std::str::from_utf8(&body).ok().filter(|text| text.len() <= LARGEST_RESPONSE && !is_secret);
    let kept = text.map(|text| KeptResponse { status: parts.status.as_u16(), etag, body: text.to_owned() });
    Ok((Response::from_parts(parts, Body::from(body)), kept))
}
