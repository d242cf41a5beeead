//! Making a new revision: blobs first, then one transaction that moves `design/head` from what it was.
//!
//! Whoever was cut off before the transaction has changed nothing; the blobs that it left behind are swept some day.

use std::sync::Arc;

use muster_core::design::{AppliedRecord, DesignRevision, DesignRevisionRecord};
use muster_core::fleet::Fleet;
use muster_core::keys::Keys;
use muster_core::names::EnvName;
use muster_core::txn::{Guard, Op, Revision, Txn};
use muster_store::{CommitOutcome, StoreError};

use super::cache::DesignRef;
use super::compiled::{Compiled, Texts};
use super::error::{ReadDesignError, RevisionError};
use super::tree::Tree;
use crate::app::{Reader, Writer};
use crate::fleet_change::beginning;

/// Up to so many texts are written without a look at what is there already.
const FEW_TEXTS: usize = 64;

/// What a new revision is made from: the newest one, as the store has it now.
#[derive(Clone, Debug)]
pub struct RevisionBase {
    pub env: EnvName,
    /// The newest revision, and when `design/head` was put.
    pub head: Option<(DesignRevision, Revision)>,
    /// The revision that the nodes follow, and when `design/applied` was put.
    pub applied: Option<(AppliedRecord, Revision)>,
    /// The newest revision itself; an empty design if there is none.
    pub compiled: Arc<Compiled>,
    /// Gives the environment its epoch, if it has none.
    beginning: Option<Txn>,
}

/// Who makes a revision, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribution {
    pub author: String,
    pub message: String,
}

/// What is to become of the design.
#[derive(Clone, Debug)]
pub struct RevisionRequest<'a> {
    /// The design that is to be; none: the newest one stays.
    pub next: Option<(&'a Arc<Compiled>, &'a Texts)>,
    /// Whether the nodes are to follow it.
    pub apply: bool,
    pub by: Attribution,
}

/// What became of a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevisionOutcome {
    Committed {
        number: DesignRevision,
        revision: Revision,
    },
    /// Somebody else was quicker. The view shows what they did.
    Overtaken,
}

impl RevisionBase {
    /// Looks at what the store has acknowledged: a view that lags by a moment would give a wrong answer, not only an old one.
    pub async fn look(reader: &Reader, env: &EnvName) -> Result<Self, BaseError> {
        reader
            .view
            .reach(reader.latest_revision.read().await.map_err(RevisionError::Store)?)
            .await
            .map_err(RevisionError::StaleView)?;
        let (base, meant) = {
            let fleets = reader.view.fleets();
            let empty = Fleet::new(env.clone());
            let fleet = fleets.get(env).unwrap_or(&empty);
            check_writable(fleet)?;
            let design = fleet.design();
            let epoch = u64::try_from(reader.clock.now().as_second()).unwrap_or(1);
            let base = (design.head, design.applied.clone(), beginning(fleet, epoch));
            (base, design.head().map(|_| DesignRef::of(fleet, None)).transpose()?)
        };
        let (head, applied, beginning) = base;
        let compiled = match meant {
            Some(meant) => reader.designs.get(env, &meant).await?,
            None => Arc::new(Compiled::empty(env)),
        };
        Ok(Self { env: env.clone(), head, applied, compiled, beginning })
    }
}

/// Why there is nothing to begin from.
#[derive(Debug, thiserror::Error)]
pub enum BaseError {
    #[error(transparent)]
    Read(#[from] ReadDesignError),
    #[error(transparent)]
    Revision(#[from] RevisionError),
}

/// Whether an environment takes changes.
pub fn check_writable(fleet: &Fleet) -> Result<(), RevisionError> {
    let env = || fleet.env.clone();
    if let Some(restoring) = fleet.restoring() {
        return Err(RevisionError::Restoring { env: env(), since: restoring.since });
    }
    match fleet.destroying() {
        Some((destroying, _)) => {
            Err(RevisionError::Destroying { env: env(), since: destroying.since, by: destroying.by.clone() })
        }
        None => Ok(()),
    }
}

/// Makes a revision, has the nodes follow it, or both; and waits until the view shows it.
pub async fn revise(
    writer: &Writer,
    base: &RevisionBase,
    revise: RevisionRequest<'_>,
) -> Result<RevisionOutcome, RevisionError> {
    let RevisionBase { env, head, applied, beginning, .. } = base;
    let keys = Keys::new(env);
    let at = writer.clock.now();
    let Attribution { author, message } = revise.by;
    let newest = head.map(|(number, _)| number);
    let mut txn = beginning.clone().unwrap_or_default();
    txn.guards.extend([keys.restoring(), keys.destroying()].map(|key| Guard::Absent { key }));
    txn.guards.push(Guard::observed(keys.design_head(), head.map(|(_, at)| at)));
    let mut number = newest.unwrap_or_default();
    let mut record = None;
    if let Some((next, texts)) = revise.next {
        keep(writer, base, next, texts).await?;
        number = number.next();
        let manifest = next.manifest.clone();
        let made = DesignRevisionRecord { author: author.clone(), message, at, manifest, parent: newest };
        let key = keys.design_revision(number);
        txn.guards.push(Guard::Absent { key: key.clone() });
        txn.ops.push(Op::put_json(key, &made)?);
        txn.ops.push(Op::put_json(keys.design_head(), &number)?);
        record = Some(made);
    }
    let follows = AppliedRecord { revision: number, author, at };
    if revise.apply {
        txn.guards.push(Guard::observed(keys.design_applied(), applied.as_ref().map(|(_, at)| *at)));
        txn.ops.push(Op::put_json(keys.design_applied(), &follows)?);
    }
    let revision = match writer.store.commit(txn).await {
        Ok(CommitOutcome::Committed { revision }) => revision,
        Ok(CommitOutcome::Conflict { revision, .. }) => {
            writer.view.reach(revision).await?;
            return Ok(RevisionOutcome::Overtaken);
        }
        Err(error @ StoreError::Unknown { .. }) => {
            let newest = writer.latest_revision.read().await?;
            writer.view.reach(newest).await?;
            let fleets = writer.view.fleets();
            let design = fleets.get(env).map(Fleet::design);
            let made = |record| design.is_some_and(|design| design.revisions.get(&number) == Some(record));
            let followed = design.and_then(|design| design.applied.as_ref()).is_some_and(|(seen, _)| *seen == follows);
            match &record {
                Some(record) if made(record) => newest,
                None if followed => newest,
                // It may still be on its way, and nobody can say more.
                Some(_) | None => return Err(error.into()),
            }
        }
        Err(error) => return Err(error.into()),
    };
    if let Some((next, _)) = revise.next {
        writer.designs.keep(env, next.clone());
    }
    // Whoever asks this server next sees it.
    writer.view.reach(revision).await?;
    tracing::info!(%env, design = %number, applied = revise.apply, by = follows.author, "the design has a new revision");
    Ok(RevisionOutcome::Committed { number, revision })
}

/// Keeps the blobs of a design for good, those that the one before does not have.
async fn keep(reader: &Reader, base: &RevisionBase, next: &Arc<Compiled>, texts: &Texts) -> Result<(), RevisionError> {
    let before: Option<&Tree> = base.head.map(|_| &base.compiled.tree);
    let mut new: Vec<(String, Vec<u8>)> =
        next.tree.new_blobs(before).into_iter().map(|blob| (blob.digest, blob.bytes)).collect();
    let known = before.filter(|_| texts.len() > FEW_TEXTS).map(Tree::digests).unwrap_or_default();
    let missing = texts.iter().filter(|(digest, _)| !known.contains(digest.as_str()));
    new.extend(missing.map(|(digest, text)| (digest.clone(), text.as_bytes().to_vec())));
    let blobs = reader.blobs.clone();
    let keeping = tokio::task::spawn_blocking(move || {
        blobs.keep_for_good(new.iter().map(|(digest, bytes)| (digest.as_str(), bytes.as_slice())))
    });
    keeping.await.map_err(|_| RevisionError::CutOff)?.map_err(RevisionError::Blobs)
}
