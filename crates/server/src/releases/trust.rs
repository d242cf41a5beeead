//! Replaces the list of trusted keys of an environment.

use std::collections::BTreeSet;

use muster_core::fleet::Fleet;
use muster_core::keys::Keys;
use muster_core::names::{EnvName, Version};
use muster_core::release::manifest::{KeyId, PayloadError, SignedTrust, TrustList};
use muster_core::txn::{Guard, Op, Revision, Txn};
use muster_release::manifest::{SignatureError, TrustError, authenticate, verify_list};
use muster_store::StoreError;
use thiserror::Error;

use super::push::trusted_keys;
use crate::agents::Hub;
use crate::app::Writer;
use crate::design::revision::RevisionError;
use crate::design::revision::check_writable;
use crate::transactions::{ConflictRetry, commit_all};
use crate::view::StaleView;

const ATTEMPTS: usize = 8;

#[derive(Debug, Error)]
pub enum ReplaceTrustError {
    #[error("the list cannot be read")]
    Payload(#[source] PayloadError),
    #[error("agents would refuse the list")]
    Refused(#[source] TrustError),
    #[error("the list has serial {found}, and must have one above {known}")]
    NotNewer { known: u64, found: u64 },
    #[error(
        "{env} runs release {version}, and no key of the new list has signed it: every node would refuse to run it from then on"
    )]
    UntrustsCurrent { env: EnvName, version: Version },
    #[error(
        "no agent would accept the list: it is signed by {}, and {source_of_trust} {}",
        join(signers),
        join(trusted)
    )]
    NotTrusted { signers: Vec<KeyId>, source_of_trust: &'static str, trusted: Vec<KeyId> },
    #[error(transparent)]
    NotAccepting(Box<RevisionError>),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    StaleView(#[from] StaleView),
    #[error("the list cannot be written")]
    Record(#[source] serde_json::Error),
    #[error("conflict: other clients kept changing the trusted keys of {env}")]
    Contended { env: EnvName },
}

fn join(ids: &[KeyId]) -> String {
    ids.iter().map(KeyId::to_string).collect::<Vec<_>>().join(", ")
}

/// A list that is in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplacedTrust {
    pub list: TrustList,
    /// True if a key of the previous list signed it. False for the first list: only agents know whether they trust it.
    pub verified: bool,
    /// False if it was in place before.
    pub changed: bool,
    pub revision: Revision,
}

/// Replaces the list. Agents that trust one of its signers use it from then on.
///
/// `force`: even if no node could run the current release any more, or no connected agent accepts the list.
pub async fn replace(
    writer: &Writer,
    hub: &Hub,
    env: &EnvName,
    trust: SignedTrust,
    force: bool,
) -> Result<ReplacedTrust, ReplaceTrustError> {
    let list = trust.read().map_err(ReplaceTrustError::Payload)?;
    let keys = Keys::new(env);
    let put = Op::put_json(keys.trust(), &trust).map_err(ReplaceTrustError::Record)?;
    let mut retry = ConflictRetry::new(ATTEMPTS);
    while retry.begin_attempt() {
        writer.view.reach(writer.latest_revision.read().await?).await?;
        let (before, current, untrusted) = {
            let fleets = writer.view.fleets();
            let fleet = fleets.get(env);
            fleet.map_or(Ok(()), check_writable).map_err(|error| ReplaceTrustError::NotAccepting(Box::new(error)))?;
            let before = fleet.and_then(|fleet| fleet.trust()).map(|(trust, at)| (trust.clone(), *at));
            if before.is_none() && !force {
                check_agents(hub, env, &trust)?;
            }
            if let Some(fleet) = fleet.filter(|_| before.is_none()) {
                has_signed_before(fleet, &trust)?;
            }
            let untrusted = fleet.filter(|_| !force).and_then(|fleet| untrusts_current(fleet, &list)).cloned();
            let current = fleet.and_then(|fleet| fleet.current_version()).map(|(_, at)| at);
            (before, current, untrusted)
        };
        let at = before.as_ref().map(|(_, at)| *at);
        if before.as_ref().is_some_and(|(before, _)| *before == trust) {
            return Ok(ReplacedTrust { list, verified: true, changed: false, revision: at.unwrap_or_default() });
        }
        let verified = verify_replacement(before.as_ref().map(|(before, _)| before), &trust, &list)?;
        if let Some(version) = untrusted {
            return Err(ReplaceTrustError::UntrustsCurrent { env: env.clone(), version });
        }
        let mut guards = vec![
            Guard::Absent { key: keys.restoring() },
            Guard::Absent { key: keys.destroying() },
            Guard::observed(keys.trust(), at),
        ];
        // A change of the current version at the same time is a conflict.
        guards.extend(current.map(|since| Guard::Unchanged { key: keys.current_version(), since }));
        let committed = commit_all(writer, vec![Txn { guards, ops: vec![put.clone()] }]).await?;
        writer.view.reach(committed.revision).await?;
        if committed.complete {
            tracing::warn!(%env, serial = list.serial, keys = list.keys.len(), "trusted keys replaced");
            return Ok(ReplacedTrust { list, verified, changed: true, revision: committed.revision });
        }
    }
    Err(ReplaceTrustError::Contended { env: env.clone() })
}

/// Returns true if a key of the previous list signed this list, and false for a first list. Fails if the list is not valid.
fn verify_replacement(
    before: Option<&SignedTrust>,
    trust: &SignedTrust,
    list: &TrustList,
) -> Result<bool, ReplaceTrustError> {
    let Some(before) = before else {
        // Usually signed by one of its own keys; or by a key that only agents know.
        return match verify_list(trust, &list.keys, None) {
            Ok(_) | Err(TrustError::Signature(SignatureError::UnknownKey { .. })) => Ok(false),
            Err(error) => Err(ReplaceTrustError::Refused(error)),
        };
    };
    let known = before.read().map_err(ReplaceTrustError::Payload)?;
    match verify_list(trust, &known.keys, Some(known.serial)) {
        Ok(_) => Ok(true),
        Err(TrustError::NotNewer { known, found }) => Err(ReplaceTrustError::NotNewer { known, found }),
        Err(error) => Err(ReplaceTrustError::Refused(error)),
    }
}

/// Checks that an agent of this replica accepts a first list: it trusts one of the signers. Agents that accept no list cannot
/// be given another one. Without a connected agent, or with agents that do not report their keys, nothing is known.
fn check_agents(hub: &Hub, env: &EnvName, trust: &SignedTrust) -> Result<(), ReplaceTrustError> {
    let trusted: BTreeSet<KeyId> = hub.sessions(env).iter().flat_map(|session| session.trusted.clone()).collect();
    check_signers(trust, trusted, "the connected agents trust")
}

/// Checks the signer of a first list. The server does not know the keys that agents were given, but agents that run releases
/// were given a key that signed one. Agents would refuse a first list of any other signer, and it would block further ones.
fn has_signed_before(fleet: &Fleet, trust: &SignedTrust) -> Result<(), ReplaceTrustError> {
    let signed = fleet.releases().values().flat_map(|release| &release.signed.signatures);
    check_signers(trust, signed.map(|signature| signature.key.clone()).collect(), "the releases here are signed by")
}

fn check_signers(
    trust: &SignedTrust,
    trusted: BTreeSet<KeyId>,
    source_of_trust: &'static str,
) -> Result<(), ReplaceTrustError> {
    let signers: Vec<KeyId> = trust.signatures.iter().map(|signature| signature.key.clone()).collect();
    if trusted.is_empty() || signers.iter().any(|signer| trusted.contains(signer)) {
        return Ok(());
    }
    Err(ReplaceTrustError::NotTrusted { signers, source_of_trust, trusted: trusted.into_iter().collect() })
}

/// Current release of the environment, if the list removes the last key that signed it.
///
/// A release that no agent trusts does not block a list that repairs this.
fn untrusts_current<'a>(fleet: &'a Fleet, list: &TrustList) -> Option<&'a Version> {
    let (version, _) = fleet.current_version()?;
    let signed = &fleet.releases().get(version)?.signed;
    let counted = match trusted_keys(fleet) {
        Some(before) => authenticate(signed, &before).is_ok(),
        // Before the first list only agents know: a signed release counts as trusted.
        None => !signed.signatures.is_empty(),
    };
    (counted && authenticate(signed, &list.keys).is_err()).then_some(version)
}
