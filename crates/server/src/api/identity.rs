//! HTTP handlers for identities: joining and renewal, join tokens, and certificates of nodes.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use jiff::{SignedDuration, Timestamp};
use muster_core::fleet::Fleet;
use muster_core::identity::{
    CertificateRecord, JoinRefusal, LONGEST_TOKEN_LIFE, MOST_USES, RenewalRefusal, Revocation, TokenRecord, TokenScope,
};
use muster_core::keys::Keys;
use muster_core::names::{NodeName, TokenId};
use muster_core::release::manifest::PublicKey;
use muster_core::report::summary::clip;
use muster_core::txn::{Guard, Op, Revision, Txn};
use muster_identity::authority::IssuedCertificate;
use muster_identity::token::JoinToken;
use muster_wire::identity::{
    CertificateResponse, CertificateRow, CertificateState, CreateToken, CreateTokenResponse, JoinRequest, JoinResponse,
    RenewRequest, RevokeCertificate, RevokeResponse, TokenRow,
};
use muster_wire::operator::Page;
use muster_wire::problem::{Problem, ProblemCode};

use crate::api::access::Peer;
use crate::api::error::{ApiError, JsonBody, Path, Query, chain};
use crate::api::key_write::{PlannedWrite, write};
use crate::api::request::{Author, LayerTarget, PageQuery, Scope, unknown_target};
use crate::app::{Identities, Reader, ReplicaState, Writer};
use crate::identity::issue::{self, IdentityRequestError};
use crate::identity::server_urls;
use crate::identity::tls::ServerTls;
use crate::transactions::{MAX_OPS, commit_all, pack};

/// Largest body of a machine without an identity. A request has about 1 KiB.
pub(super) const BODY_LIMIT: usize = 16 * 1024;
/// Longest host name that a machine reports, and longest reason, in characters.
const LONGEST_TEXT: usize = 300;
/// Time that an expired token is kept.
const KEPT_EXPIRED: SignedDuration = SignedDuration::from_hours(24);
/// `Retry-After` of a machine for which there is no place yet, in seconds.
const NO_PLACE_RETRY: u16 = 30;

/// Exchanges a join token for the certificate of a node. A repeated request with the same key counts once.
#[utoipa::path(post, path = "/v1/join", request_body = JoinRequest, responses((status = 200, body = JoinResponse)))]
pub(crate) async fn join(
    writer: Writer,
    State(identities): State<Identities>,
    State(replica): State<ReplicaState>,
    Extension(peer): Extension<Peer>,
    JsonBody(mut request): JsonBody<JoinRequest>,
) -> Result<Json<JoinResponse>, ApiError> {
    let tls = tls(&identities)?;
    request.host = line(&request.host);
    check_token(&writer, &identities, &peer, &request).await?;
    let _turn = tls.joins.lock().await;
    let joined = issue::join(&writer, tls, &request).await.inspect_err(|error| {
        let error = error as &dyn std::error::Error;
        tracing::warn!(error, token = %request.token, host = request.host, "a machine was refused");
    })?;
    tracing::info!(env = %joined.env, node = %joined.node, host = request.host, token = %request.token, "a machine has joined");
    let (servers, trusted_keys) = {
        let fleets = writer.view.fleets();
        let fleet = fleets.get(&joined.env).ok_or_else(|| ApiError::unknown_env(joined.env.as_str(), &[]))?;
        (server_urls(fleet, &replica.membership.record().url), trusted_keys(fleet))
    };
    Ok(Json(JoinResponse {
        env: joined.env,
        node: joined.node,
        role: joined.role,
        certificate: response(tls, joined.certificate),
        servers,
        trusted_keys,
    }))
}

/// Refuses a wrong token before it waits for the machines that join, and before it costs the store anything. A token that another
/// server has just made may be missing in the view: only then the store is asked, and not for an address that guesses.
async fn check_token(
    writer: &Writer,
    identities: &Identities,
    peer: &Peer,
    request: &JoinRequest,
) -> Result<(), ApiError> {
    let mut is_valid = issue::token_is_valid(writer, request);
    if is_valid.is_none() {
        identities.failed_logins.check_peer(peer)?;
        writer.view.reach(writer.latest_revision.read().await?).await?;
        is_valid = issue::token_is_valid(writer, request);
    }
    if is_valid == Some(true) {
        return Ok(());
    }
    // Not a warning: a client without any identity could fill the log.
    tracing::debug!(token = %request.token, host = request.host, "a machine has presented a wrong token");
    let refusal = IdentityRequestError::from(JoinRefusal::InvalidToken);
    Err(identities.failed_logins.count_peer(peer, refusal.into()))
}

/// Issues a new certificate to the holder of a node's key, who presents the last one, also within a grace time after its end.
#[utoipa::path(post, path = "/v1/renew", request_body = RenewRequest,
    responses((status = 200, body = CertificateResponse)))]
pub(crate) async fn renew(
    State(writer): State<Writer>,
    State(identities): State<Identities>,
    Extension(peer): Extension<Peer>,
    JsonBody(request): JsonBody<RenewRequest>,
) -> Result<Json<CertificateResponse>, ApiError> {
    let tls = tls(&identities)?;
    let issued = issue::renew(&writer, tls, peer.certificate(), &request).await.map_err(|error| {
        let is_guess = matches!(
            error,
            IdentityRequestError::Renewal(
                RenewalRefusal::NoCertificate
                    | RenewalRefusal::OtherCertificate { .. }
                    | RenewalRefusal::UnknownKey { .. }
            )
        );
        let refusal = ApiError::from(error);
        if is_guess { identities.failed_logins.count_peer(&peer, refusal) } else { refusal }
    })?;
    tracing::debug!(env = %request.env, node = %request.node, expires = %issued.expires, "a certificate was renewed");
    Ok(Json(response(tls, issued)))
}

/// Lists the join tokens. Their secrets are not stored.
#[utoipa::path(get, path = "/v1/envs/{env}/tokens", params(("env" = String, Path), PageQuery),
    responses((status = 200, body = Page<TokenRow>)))]
pub(crate) async fn list_tokens(
    State(reader): State<Reader>,
    scope: Scope,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<TokenRow>>, ApiError> {
    let now = reader.clock.now();
    let (rows, revision) = scope.read(&reader, |fleet| {
        let rows = fleet.tokens().iter().map(|(id, (record, _))| token_row(id, record, now)).collect();
        (rows, fleet.revision)
    })?;
    Ok(Json(page.cut(rows, revision, |row: &TokenRow| row.id.to_string())?))
}

/// Makes a join token. The response is the only place where its secret is shown.
#[utoipa::path(post, path = "/v1/envs/{env}/tokens",
    params(("env" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = CreateToken, responses((status = 200, body = CreateTokenResponse)))]
pub(crate) async fn create_token(
    writer: Writer,
    State(identities): State<Identities>,
    scope: Scope,
    author: Author,
    JsonBody(CreateToken { scope: bound, uses, seconds }): JsonBody<CreateToken>,
) -> Result<Json<CreateTokenResponse>, ApiError> {
    let pin = tls(&identities)?.trust().record.issuing().pin.parse().map_err(internal)?;
    let longest = u64::try_from(LONGEST_TOKEN_LIFE.as_secs()).unwrap_or(u64::MAX);
    if !(1..=longest).contains(&seconds) {
        return Err(ApiError::invalid(format!("a join token lives from 1 to {longest} seconds")));
    }
    let most = if matches!(bound, TokenScope::Node { .. }) { 1 } else { MOST_USES };
    if !(1..=most).contains(&uses) {
        return Err(ApiError::invalid(format!("this join token can be used from 1 to {most} times")));
    }
    let created = writer.clock.now();
    let life = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
    let expires = created.saturating_add(life).unwrap_or(Timestamp::MAX);
    let token = JoinToken::generate(pin).map_err(internal)?;
    let by = author.by(None, "").author;
    let record = TokenRecord { hash: token.hash(), scope: bound, uses, created, expires, by };
    let key = Keys::new(&scope.env).token(token.id());
    let (row, revision) = write(&writer, &scope, |fleet| {
        check_scope(fleet, &record.scope)?;
        let op = Op::put_json(key.clone(), &record).map_err(|error| ApiError::invalid(error.to_string()))?;
        let about = token_row(token.id(), &record, created);
        let seen = fleet.tokens().get(token.id()).map(|(_, at)| *at);
        Ok(PlannedWrite { seen, op: seen.is_none().then_some(op), about })
    })
    .await?;
    tracing::info!(env = %scope.env, token = %row.id, by = row.by, "a join token was made");
    if let Err(error) = delete_expired_tokens(&writer, &scope, created).await {
        tracing::warn!(detail = error.0.detail, "expired join tokens cannot be deleted");
    }
    Ok(Json(CreateTokenResponse { token: token.to_string(), row, revision }))
}

/// Deletes tokens that expired long ago. Until then `muster token list` shows them, and a machine learns that its token expired.
async fn delete_expired_tokens(writer: &Writer, scope: &Scope, now: Timestamp) -> Result<(), ApiError> {
    let keys = Keys::new(&scope.env);
    let expired = scope.read(writer, |fleet| {
        let is_old = |record: &TokenRecord| record.expires.saturating_add(KEPT_EXPIRED).is_ok_and(|end| end < now);
        let old = fleet.tokens().iter().filter(|(_, (record, _))| is_old(record)).take(MAX_OPS);
        let parts = old.map(|(id, (_, at))| {
            let key = keys.token(id);
            Txn::new().guard(Guard::observed(key.clone(), Some(*at))).op(Op::delete(key))
        });
        parts.collect::<Vec<_>>()
    })?;
    // A conflict means that another server deletes them.
    commit_all(writer, pack(expired)).await?;
    Ok(())
}

/// Deletes a join token. Machines that have joined with it stay.
#[utoipa::path(delete, path = "/v1/envs/{env}/tokens/{token}", params(("env" = String, Path), ("token" = String, Path)),
    responses((status = 204)))]
pub(crate) async fn delete_token(
    writer: Writer,
    scope: Scope,
    Path((_, id)): Path<(String, String)>,
) -> Result<StatusCode, ApiError> {
    let id = TokenId::new(id).map_err(|error| ApiError::invalid(error.to_string()))?;
    let key = Keys::new(&scope.env).token(&id);
    let ((), _) = write(&writer, &scope, |fleet| {
        let seen = fleet.tokens().get(&id).map(|(_, at)| *at);
        let unknown = || ApiError(Problem::new(ProblemCode::UnknownIdentity, format!("there is no join token {id}")));
        Ok(PlannedWrite { seen: Some(seen.ok_or_else(unknown)?), op: Some(Op::delete(key.clone())), about: () })
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists the certificates of nodes.
#[utoipa::path(get, path = "/v1/envs/{env}/certificates", params(("env" = String, Path), PageQuery),
    responses((status = 200, body = Page<CertificateRow>)))]
pub(crate) async fn list_certificates(
    State(reader): State<Reader>,
    State(identities): State<Identities>,
    scope: Scope,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<CertificateRow>>, ApiError> {
    let (now, grace) = (reader.clock.now(), tls(&identities)?.config().grace);
    let (rows, revision) = scope.read(&reader, |fleet| {
        let with = fleet.nodes().filter_map(|(name, node)| Some((name, &node.certificate.as_ref()?.0)));
        (with.map(|(name, record)| certificate_row(name, record, grace, now)).collect(), fleet.revision)
    })?;
    Ok(Json(page.cut(rows, revision, |row: &CertificateRow| row.node.to_string())?))
}

/// Revokes the identity of a node's machine, and deletes the token that it joined with. Its open connections end within a second,
/// and it needs a new token to join.
#[utoipa::path(post, path = "/v1/envs/{env}/certificates/{node}/revoke",
    params(("env" = String, Path), ("node" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = RevokeCertificate, responses((status = 200, body = RevokeResponse)))]
pub(crate) async fn revoke_certificate(
    writer: Writer,
    State(identities): State<Identities>,
    scope: Scope,
    Path((_, text)): Path<(String, String)>,
    author: Author,
    JsonBody(RevokeCertificate { reason }): JsonBody<RevokeCertificate>,
) -> Result<Json<RevokeResponse>, ApiError> {
    let (grace, now) = (tls(&identities)?.config().grace, writer.clock.now());
    let revocation = Revocation { at: now, by: author.by(None, "").author, reason: line(&reason) };
    let keys = Keys::new(&scope.env);
    // First: the machine may know the token, and could join as another node of its role.
    write(&writer, &scope, |fleet| {
        let (_, record, _) = find_certificate(fleet, &text)?;
        let seen = fleet.tokens().get(&record.token).map(|(_, at)| *at);
        Ok(PlannedWrite { seen, op: seen.map(|_| Op::delete(keys.token(&record.token))), about: () })
    })
    .await?;
    let ((row, changed), revision) = write(&writer, &scope, |fleet| {
        let (name, record, at) = find_certificate(fleet, &text)?;
        if record.revoked.is_some() {
            let about = (certificate_row(name, record, grace, now), false);
            return Ok(PlannedWrite { seen: Some(at), op: None, about });
        }
        let record = CertificateRecord { revoked: Some(revocation.clone()), ..record.clone() };
        let op = Op::put_json(keys.certificate(name), &record).map_err(|error| ApiError::invalid(error.to_string()))?;
        Ok(PlannedWrite { seen: Some(at), op: Some(op), about: (certificate_row(name, &record, grace, now), true) })
    })
    .await?;
    if changed {
        tracing::warn!(env = %scope.env, node = %row.node, by = revocation.by, reason = revocation.reason, "a certificate was revoked");
    }
    Ok(Json(RevokeResponse { row, changed, revision }))
}

/// The certificate of a node, by the name of the node, its host name, or the serial number of a certificate that may still be valid.
fn find_certificate<'a>(
    fleet: &'a Fleet,
    text: &str,
) -> Result<(&'a NodeName, &'a CertificateRecord, Revision), ApiError> {
    let of = |name: &'a NodeName| {
        fleet.get(name).and_then(|node| node.certificate.as_ref()).map(|(record, at)| (name, record, *at))
    };
    let serial = text.to_ascii_lowercase();
    let by_serial = || {
        let mut all = fleet.nodes().filter_map(|(name, _)| of(name));
        all.find(|(_, record, _)| record.has_serial(&serial))
    };
    if let Some(found) = by_serial() {
        return Ok(found);
    }
    let name = NodeName::new(text).ok();
    let named = fleet.find(text).map(|(name, _)| name).or_else(|| {
        let name = name?;
        fleet.nodes().find(|(known, _)| **known == name).map(|(known, _)| known)
    });
    let named = named
        .ok_or_else(|| if is_serial(text) { no_such_serial(text) } else { ApiError::no_such_node(fleet, text) })?;
    let nothing = || {
        let problem = Problem::new(ProblemCode::UnknownIdentity, format!("no machine has joined as {named}"));
        ApiError(problem.hint("`muster cert list` shows the nodes that have a certificate"))
    };
    of(named).ok_or_else(nothing)
}

/// The form of serial numbers: 16 bytes in hexadecimal digits.
fn is_serial(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn no_such_serial(text: &str) -> ApiError {
    let detail = format!("no certificate that may still be valid has the serial number {text}");
    let problem = Problem::new(ProblemCode::UnknownIdentity, detail);
    ApiError(problem.hint(
        "serial numbers are known until their certificate ends; `muster cert revoke NODE` revokes the key of a node's machine, with \
         all its certificates",
    ))
}

fn check_scope(fleet: &Fleet, scope: &TokenScope) -> Result<(), ApiError> {
    match scope {
        TokenScope::Node { node } if fleet.get(node).is_some_and(muster_core::fleet::Node::is_designed) => Ok(()),
        TokenScope::Node { node } => Err(ApiError::no_such_node(fleet, node.as_str())),
        TokenScope::Role { role, .. } if fleet.designed_roles().contains(role) => Ok(()),
        TokenScope::Role { role, .. } => Err(unknown_target(fleet, &LayerTarget::Role(role.as_str()))),
    }
}

fn token_row(id: &TokenId, record: &TokenRecord, now: Timestamp) -> TokenRow {
    let TokenRecord { scope, uses, expires, by, .. } = record.clone();
    TokenRow { id: id.clone(), scope, uses, expires, usable: uses > 0 && expires > now, by }
}

fn certificate_row(
    node: &NodeName,
    record: &CertificateRecord,
    grace: SignedDuration,
    now: Timestamp,
) -> CertificateRow {
    let state = if record.revoked.is_some() {
        CertificateState::Revoked
    } else if record.expires > now {
        CertificateState::Valid
    } else if record.expires.saturating_add(grace).is_ok_and(|end| end >= now) {
        CertificateState::Expired
    } else {
        CertificateState::Ended
    };
    CertificateRow { node: node.clone(), state, certificate: record.clone() }
}

fn trusted_keys(fleet: &Fleet) -> Vec<PublicKey> {
    let list = fleet.trust().and_then(|(trust, _)| trust.read().ok());
    list.map(|list| list.keys).unwrap_or_default()
}

fn response(tls: &ServerTls, issued: IssuedCertificate) -> CertificateResponse {
    CertificateResponse { certificate: issued.pem, roots: tls.trust().roots.clone(), expires: issued.expires }
}

/// One line of a client's text, without control characters.
fn line(text: &str) -> String {
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    clip(text.trim(), LONGEST_TEXT).to_owned()
}

pub(super) fn tls(identities: &Identities) -> Result<&ServerTls, ApiError> {
    identities.tls.as_deref().ok_or_else(|| {
        let problem = Problem::new(ProblemCode::NotFound, "this server has no certificate authority");
        ApiError(problem.hint("machines join a server that was started with `muster serve`"))
    })
}

fn internal(error: impl std::error::Error) -> ApiError {
    ApiError(Problem::new(ProblemCode::Internal, chain(&error)))
}

impl From<IdentityRequestError> for ApiError {
    fn from(error: IdentityRequestError) -> Self {
        let detail = error.to_string();
        match error {
            IdentityRequestError::Request(_) => Self::invalid(detail),
            IdentityRequestError::Join(refusal) => join_problem(&refusal, detail),
            IdentityRequestError::Renewal(_) => {
                let problem = Problem::new(ProblemCode::CertificateRefused, detail);
                Self(
                    problem
                        .hint("make a token with `muster token create --node NODE`, and run `muster-agent join` again"),
                )
            }
            IdentityRequestError::Issue(_) | IdentityRequestError::Encode(_) => {
                Self(Problem::new(ProblemCode::Internal, chain(&error)))
            }
            IdentityRequestError::Store(error) => error.into(),
            IdentityRequestError::StaleView(error) => error.into(),
            IdentityRequestError::NoKey { .. } => Self(Problem::new(ProblemCode::CannotTell, detail).retry_after(30)),
            IdentityRequestError::NotWritable { .. } => {
                Self(Problem::new(ProblemCode::CannotTell, detail).retry_after(5).hint("retry when it is done"))
            }
            IdentityRequestError::Contended => Self(Problem::new(ProblemCode::Busy, detail).retry_after(1)),
        }
    }
}

fn join_problem(refusal: &JoinRefusal, detail: String) -> ApiError {
    let refused = |hint: &str| ApiError(Problem::new(ProblemCode::JoinRefused, detail.clone()).hint(hint));
    match refusal {
        JoinRefusal::InvalidToken => refused("copy the whole token; `muster token list` shows those that exist"),
        JoinRefusal::Expired { .. } | JoinRefusal::UsedUp => refused("make a new one with `muster token create`"),
        JoinRefusal::RevokedKey => refused("make a new key with `muster-agent join --replace URL TOKEN`"),
        JoinRefusal::NotDesigned { .. } => refused("add the node to the design with `muster env apply`"),
        JoinRefusal::AlreadyJoined { .. } => refused(
            "if that machine was replaced or erased, make a token with `muster token create --node NODE`; else give this \
             machine another host name",
        ),
        JoinRefusal::OtherHost { .. } => refused("use a token for this host, or correct the host name"),
        JoinRefusal::NoPlace { .. } => {
            let problem = Problem::new(ProblemCode::NoPlace, detail).retry_after(NO_PLACE_RETRY);
            ApiError(problem.hint("raise the cardinality of the role with `muster env apply`; the machine waits"))
        }
    }
}
