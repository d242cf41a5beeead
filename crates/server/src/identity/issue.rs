//! Joining and renewal: decided on the view, and committed with guards on everything that the decision rests on.

use jiff::{SignedDuration, Timestamp};
use muster_core::fleet::Fleet;
use muster_core::identity::{
    AdmittedJoin, CertificateRecord, JoinAttempt, JoinRefusal, KeyDigest, RenewalRefusal, decide_join, decide_renewal,
};
use muster_core::keys::{Keys, ServerKey};
use muster_core::names::{EnvName, NodeName, Role, TokenId};
use muster_core::txn::{Guard, Op, Revision, Txn};
use muster_identity::authority::{Authority, IssueError, IssuedCertificate};
use muster_identity::certificate::CertificateName;
use muster_identity::request::{RefusedRequest, check_request};
use muster_identity::token;
use muster_store::StoreError;
use muster_wire::identity::{JoinRequest, RenewRequest};
use thiserror::Error;

use super::tls::{ClientCertificate, ServerTls, Trust};
use crate::app::{Reader, Writer};
use crate::transactions::{ConflictRetry, commit_all};
use crate::view::StaleView;

/// Attempts of one request. Machines that join with the same token at the same time conflict with each other.
const ATTEMPTS: usize = 32;

#[derive(Debug, Error)]
pub(crate) enum IdentityRequestError {
    #[error(transparent)]
    Request(#[from] RefusedRequest),
    #[error(transparent)]
    Join(#[from] JoinRefusal),
    #[error(transparent)]
    Renewal(#[from] RenewalRefusal),
    #[error(transparent)]
    Issue(#[from] IssueError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    StaleView(#[from] StaleView),
    #[error("the record cannot be encoded")]
    Encode(#[from] serde_json::Error),
    #[error("{env} is being restored or destroyed")]
    NotWritable { env: EnvName },
    #[error(
        "this server lacks the key of the certificate authority {pin}: copy its ca.crt and ca.key to a directory in {directory}"
    )]
    NoKey { pin: String, directory: String },
    #[error("too many machines join with this token at the same time")]
    Contended,
}

/// A machine that has joined.
#[derive(Debug)]
pub(crate) struct JoinedMachine {
    pub(crate) env: EnvName,
    pub(crate) node: NodeName,
    pub(crate) role: Role,
    pub(crate) certificate: IssuedCertificate,
}

/// Decision about a join, with the environment and the role of the node.
struct PlannedJoin {
    env: EnvName,
    role: Role,
    admitted: AdmittedJoin,
}

/// Compares the token of a request with the view alone. None if the view does not have the token.
pub(crate) fn token_is_valid(reader: &Reader, request: &JoinRequest) -> Option<bool> {
    let fleets = reader.view.fleets();
    let (record, _) = fleets.values().find_map(|fleet| fleet.tokens().get(&request.token))?;
    Some(record.hash == token::hash(&request.secret))
}

/// Exchanges a token for a certificate. The use of the token and the record are one transaction.
pub(crate) async fn join(
    writer: &Writer,
    tls: &ServerTls,
    request: &JoinRequest,
) -> Result<JoinedMachine, IdentityRequestError> {
    let checked = check_request(&request.request)?;
    let hash = token::hash(&request.secret);
    let attempt = JoinAttempt { token: &request.token, hash: &hash, key: &checked.key, host: &request.host };
    let mut retry = ConflictRetry::new(ATTEMPTS);
    let mut reach = writer.latest_revision.read().await?;
    while retry.begin_attempt() {
        writer.view.reach(reach).await?;
        let now = writer.clock.now();
        let PlannedJoin { env, role, admitted } = plan_join(writer, &attempt, now)?;
        let name = CertificateName::Node { env: env.clone(), node: admitted.node.clone() };
        let trust = tls.trust();
        let certificate = issuing(tls, &trust)?.issue_node(&checked, &name, now)?;
        let record = CertificateRecord {
            key: checked.key.clone(),
            serial: certificate.serial.clone(),
            issued: certificate.issued,
            expires: certificate.expires,
            joined: admitted.joined,
            host: request.host.clone(),
            token: request.token.clone(),
            authority: Some(trust.record.issuing().pin.clone()),
            roots: trust.record.trusted().map(|authority| authority.pin.clone()).collect(),
            earlier: admitted.earlier.clone(),
            revoked: None,
        };
        let committed =
            commit_all(writer, vec![unrotated(&trust, join_txn(&env, &request.token, &admitted, &record)?)]).await?;
        if committed.complete {
            writer.view.reach(committed.revision).await?;
            return Ok(JoinedMachine { env, node: admitted.node, role, certificate });
        }
        reach = committed.revision;
    }
    Err(IdentityRequestError::Contended)
}

fn plan_join(writer: &Writer, attempt: &JoinAttempt<'_>, now: Timestamp) -> Result<PlannedJoin, IdentityRequestError> {
    let fleets = writer.view.fleets();
    let fleet = fleets.values().find(|fleet| fleet.tokens().contains_key(attempt.token));
    let fleet = fleet.ok_or(JoinRefusal::InvalidToken)?;
    if fleet.restoring().is_some() || fleet.destroying().is_some() {
        return Err(IdentityRequestError::NotWritable { env: fleet.env.clone() });
    }
    let admitted = decide_join(fleet, attempt, now)?;
    let role = role_of(fleet, &admitted.node).ok_or(JoinRefusal::NotDesigned { node: admitted.node.clone() })?;
    Ok(PlannedJoin { env: fleet.env.clone(), role, admitted })
}

fn role_of(fleet: &Fleet, node: &NodeName) -> Option<Role> {
    Some(fleet.get(node)?.record.as_ref()?.role.clone())
}

fn join_txn(
    env: &EnvName,
    token: &TokenId,
    admitted: &AdmittedJoin,
    record: &CertificateRecord,
) -> Result<Txn, serde_json::Error> {
    let keys = Keys::new(env);
    let (token, certificate, node) = (keys.token(token), keys.certificate(&admitted.node), keys.node(&admitted.node));
    let mut txn = Txn::new()
        .guard(Guard::observed(token.clone(), Some(admitted.token_at)))
        .guard(Guard::observed(certificate.clone(), admitted.certificate_at))
        .guard(Guard::observed(node, admitted.record_at))
        .op(Op::put_json(token, &admitted.token)?)
        .op(Op::put_json(certificate, record)?);
    txn.guards.extend([keys.destroying(), keys.restoring()].map(|key| Guard::Absent { key }));
    Ok(txn)
}

/// The authority that issues certificates.
fn issuing<'a>(tls: &ServerTls, trust: &'a Trust) -> Result<&'a Authority, IdentityRequestError> {
    let lacking = || IdentityRequestError::NoKey {
        pin: trust.record.issuing().pin.clone(),
        directory: tls.config().files.directory().display().to_string(),
    };
    trust.authority.as_deref().ok_or_else(lacking)
}

/// Compares the record of the authority too: no certificate of a replaced authority is recorded after its end.
fn unrotated(trust: &Trust, txn: Txn) -> Txn {
    txn.guard(Guard::observed(ServerKey::Authority.text(), trust.at))
}

/// The handshake of the connection has proved that the client has the key of a certificate. The request itself is no proof: it is
/// the same text for ever, and who has seen it can send it again. The clock of the client is not needed.
fn check_possession(
    presented: Option<&ClientCertificate>,
    request: &RenewRequest,
    key: &KeyDigest,
    grace: SignedDuration,
    now: Timestamp,
) -> Result<(), RenewalRefusal> {
    let ClientCertificate { certificate, .. } = presented.ok_or(RenewalRefusal::NoCertificate)?;
    let name = CertificateName::Node { env: request.env.clone(), node: request.node.clone() };
    if certificate.name != name || certificate.key != *key {
        return Err(RenewalRefusal::OtherCertificate { node: request.node.clone() });
    }
    if certificate.expires.saturating_add(grace).is_ok_and(|end| end < now) {
        return Err(RenewalRefusal::TooLate { node: request.node.clone(), expires: certificate.expires });
    }
    Ok(())
}

/// Issues a further certificate for the key of a node, to a machine that presents an earlier one.
pub(crate) async fn renew(
    writer: &Writer,
    tls: &ServerTls,
    presented: Option<&ClientCertificate>,
    request: &RenewRequest,
) -> Result<IssuedCertificate, IdentityRequestError> {
    let checked = check_request(&request.request)?;
    let (env, node) = (&request.env, &request.node);
    check_possession(presented, request, &checked.key, tls.config().grace, writer.clock.now())?;
    let mut retry = ConflictRetry::new(ATTEMPTS);
    let mut reach: Option<Revision> = None;
    while retry.begin_attempt() {
        if let Some(revision) = reach {
            writer.view.reach(revision).await?;
        }
        let now = writer.clock.now();
        let (record, at) = {
            let fleets = writer.view.fleets();
            let unknown = || RenewalRefusal::UnknownKey { node: node.clone() };
            let fleet = fleets.get(env).ok_or_else(unknown)?;
            decide_renewal(fleet, node, &checked.key, tls.config().grace, now)?.clone()
        };
        let name = CertificateName::Node { env: env.clone(), node: node.clone() };
        let trust = tls.trust();
        let certificate = issuing(tls, &trust)?.issue_node(&checked, &name, now)?;
        let (issued, expires) = (certificate.issued, certificate.expires);
        let authority = Some(trust.record.issuing().pin.clone());
        let trusted = trust.record.trusted().map(|authority| authority.pin.clone());
        let roots = trusted.filter(|pin| request.roots.contains(pin)).collect();
        let (serial, earlier) = (certificate.serial.clone(), record.superseded(now));
        let record = CertificateRecord { serial, issued, expires, authority, roots, earlier, ..record };
        let key = Keys::new(env).certificate(node);
        let txn = Txn::new().guard(Guard::observed(key.clone(), Some(at))).op(Op::put_json(key, &record)?);
        let committed = commit_all(writer, vec![unrotated(&trust, txn)]).await?;
        if committed.complete {
            return Ok(certificate);
        }
        reach = Some(committed.revision);
    }
    Err(IdentityRequestError::Contended)
}
