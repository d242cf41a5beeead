//! Replaces the list of keys whose signatures count in an environment.

use std::collections::BTreeSet;

use muster_core::fleet::Fleet;
use muster_core::keys::Keys;
use muster_core::names::{EnvName, Version};
use muster_core::release::manifest::{KeyId, PayloadError, SignedTrust, TrustList};
use muster_core::txn::{Guard, Op, Revision, Txn};
use muster_release::manifest::authenticate;
use muster_release::trust::SignatureError;
use muster_release::trust::{TrustError, verify_list};
use muster_store::StoreError;
use thiserror::Error;

use super::push::trusted_keys;
use crate::app::Writer;
use crate::design::error::RevisionError;
use crate::design::revision::check_writable;
use crate::transactions::commit_all;
use crate::view::StaleView;

const TRIES: usize = 8;

#[derive(Debug, Error)]
pub enum ReplaceTrustError {
    #[error("the list cannot be read")]
    Payload(#[source] PayloadError),
    #[error("no agent would take the list")]
    Refused(#[source] TrustError),
    #[error("the list has serial {found}, and the one that is there has {known}: a new one has a higher one")]
    NotNewer { known: u64, found: u64 },
    #[error(
        "{env} runs release {version}, and no key of the new list has signed it: every node would refuse to run it from then on"
    )]
    UntrustsCurrent { env: EnvName, version: Version },
    #[error(transparent)]
    NotAccepting(Box<RevisionError>),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    StaleView(#[from] StaleView),
    #[error("the list cannot be written")]
    Record(#[source] serde_json::Error),
    #[error("others change the list of trusted keys of {env} at the same time")]
    Contended { env: EnvName },
}

/// A list that is in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplacedTrust {
    pub list: TrustList,
    /// Whether a key of the list before it stands for it. There was none before the first: whether that counts, agents
    /// know alone.
    pub verified: bool,
    /// False if it was there already.
    pub changed: bool,
    pub revision: Revision,
}

/// Puts a list in place. Agents that trust one of its signers go by it from then on.
///
/// `force`: even if no node could run the current release any more.
pub async fn replace(
    writer: &Writer,
    env: &EnvName,
    trust: SignedTrust,
    force: bool,
) -> Result<ReplacedTrust, ReplaceTrustError> {
    let list = trust.read().map_err(ReplaceTrustError::Payload)?;
    let keys = Keys::new(env);
    let put = Op::put_json(keys.trust(), &trust).map_err(ReplaceTrustError::Record)?;
    for _ in 0..TRIES {
        writer.view.reach(writer.latest_revision.read().await?).await?;
        let (before, current, untrusted) = {
            let fleets = writer.view.fleets();
            let fleet = fleets.get(env);
            fleet.map_or(Ok(()), check_writable).map_err(|error| ReplaceTrustError::NotAccepting(Box::new(error)))?;
            let before = fleet.and_then(|fleet| fleet.trust()).map(|(trust, at)| (trust.clone(), *at));
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
        let verified = stands_for(before.as_ref().map(|(before, _)| before), &trust, &list)?;
        if let Some(version) = untrusted {
            return Err(ReplaceTrustError::UntrustsCurrent { env: env.clone(), version });
        }
        let mut guards = vec![
            Guard::Absent { key: keys.restoring() },
            Guard::Absent { key: keys.destroying() },
            Guard::observed(keys.trust(), at),
        ];
        // Whoever sends the environment elsewhere at this moment is looked at again.
        guards.extend(current.map(|since| Guard::Unchanged { key: keys.current_version(), since }));
        let summary = commit_all(writer, vec![Txn { guards, ops: vec![put.clone()] }]).await?;
        writer.view.reach(summary.reached).await?;
        if summary.done {
            tracing::warn!(%env, serial = list.serial, keys = list.keys.len(), "the trusted keys were replaced");
            return Ok(ReplacedTrust { list, verified, changed: true, revision: summary.reached });
        }
    }
    Err(ReplaceTrustError::Contended { env: env.clone() })
}

/// Whether somebody who may do so stands for a list; an error if it is certain that nobody does.
fn stands_for(before: Option<&SignedTrust>, trust: &SignedTrust, list: &TrustList) -> Result<bool, ReplaceTrustError> {
    let Some(before) = before else {
        // Signed by one of its own keys, usually; or by one that only agents know.
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

/// Nobody here knows the keys that agents were given. But a fleet that runs releases was given a key of somebody who signed one:
/// a first list of anybody else would be refused by every agent, and would keep out the lists and releases of those who count.
fn has_signed_before(fleet: &Fleet, trust: &SignedTrust) -> Result<(), ReplaceTrustError> {
    let signers: BTreeSet<&KeyId> = fleet
        .releases()
        .values()
        .flat_map(|release| &release.signed.signatures)
        .map(|signature| &signature.key)
        .collect();
    if signers.is_empty() || trust.signatures.iter().any(|signature| signers.contains(&signature.key)) {
        return Ok(());
    }
    let ids = trust.signatures.iter().map(|signature| signature.key.clone()).collect();
    Err(ReplaceTrustError::Refused(TrustError::Signature(SignatureError::UnknownKey { ids })))
}

/// The release that the environment should run, if a list takes away the last key that stands for it.
///
/// One that counts for nobody as it is does not stand in the way of a list that mends that.
fn untrusts_current<'a>(fleet: &'a Fleet, list: &TrustList) -> Option<&'a Version> {
    let (version, _) = fleet.current_version()?;
    let signed = &fleet.releases().get(version)?.signed;
    let counted = match trusted_keys(fleet) {
        Some(before) => authenticate(signed, &before).is_ok(),
        // Before the first list agents alone know; whoever let them run it has seen to it that it counts.
        None => !signed.signatures.is_empty(),
    };
    (counted && authenticate(signed, &list.keys).is_err()).then_some(version)
}
