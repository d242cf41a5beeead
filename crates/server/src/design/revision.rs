//! Commits a new revision: blobs first, then one transaction that moves `design/head`.
//!
//! An interruption before the transaction changes nothing. Blobs that it leaves behind are swept later.

use std::sync::Arc;

use jiff::Timestamp;
use muster_core::design::{AppliedRecord, DesignRevision, DesignRevisionRecord};
use muster_core::fleet::Fleet;
use muster_core::keys::Keys;
use muster_core::names::EnvName;
use muster_core::txn::{Guard, Op, Revision, Txn};
use muster_store::{CommitOutcome, StoreError};
use thiserror::Error;

use super::compiled::{CompiledDesign, DesignRef, ReadDesignError, Texts};
use super::tree::DesignTree;
use crate::app::{Reader, Writer};
use crate::design::node_records::epoch_txn;
use crate::view::StaleView;

/// Up to this many texts are written without a check for existing blobs.
const FEW_TEXTS: usize = 64;

/// Reason why a revision was not committed.
#[derive(Debug, Error)]
pub enum RevisionError {
    #[error("environment {env} is being restored since {since}")]
    Restoring { env: EnvName, since: Timestamp },
    #[error("environment {env} is being destroyed since {since}, by {by}")]
    Destroying { env: EnvName, since: Timestamp, by: String },
    #[error("the files of the design cannot be stored")]
    Blobs(#[source] std::io::Error),
    #[error("the revision cannot be written to the store")]
    Store(#[from] StoreError),
    #[error("a record cannot be written")]
    Record(#[from] serde_json::Error),
    #[error("the view did not catch up with the write")]
    StaleView(#[from] StaleView),
    #[error("the server stopped during the work")]
    CutOff,
}

/// Base of a new revision: the newest one in the store.
#[derive(Clone, Debug)]
pub struct RevisionBase {
    pub env: EnvName,
    /// Newest revision, and the store revision of `design/head`.
    pub head: Option<(DesignRevision, Revision)>,
    /// Applied revision, and the store revision of `design/applied`.
    pub applied: Option<(AppliedRecord, Revision)>,
    /// The compiled newest revision; an empty design if there is none.
    pub compiled: Arc<CompiledDesign>,
    /// Creates the environment's epoch, if it has none.
    epoch_txn: Option<Txn>,
}

/// Author and message of a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribution {
    pub author: String,
    pub message: String,
}

/// A new revision to commit, or an existing one to apply.
#[derive(Clone, Debug)]
pub struct RevisionRequest<'a> {
    /// The new design; none: the newest revision stays.
    pub next: Option<(&'a Arc<CompiledDesign>, &'a Texts)>,
    /// True if the revision is also applied.
    pub apply: bool,
    pub by: Attribution,
}

/// Outcome of a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevisionOutcome {
    Committed {
        number: DesignRevision,
        revision: Revision,
    },
    /// Another client has committed a revision. The view shows it.
    Overtaken,
}

impl RevisionBase {
    /// Reads the base at the latest revision of the store: a stale view would lead to a conflict.
    pub async fn read(reader: &Reader, env: &EnvName) -> Result<Self, BaseError> {
        reader
            .view
            .reach(reader.latest_revision.read().await.map_err(RevisionError::Store)?)
            .await
            .map_err(RevisionError::StaleView)?;
        let (base, design_ref) = {
            let fleets = reader.view.fleets();
            let empty = Fleet::new(env.clone());
            let fleet = fleets.get(env).unwrap_or(&empty);
            check_writable(fleet)?;
            let design = fleet.design();
            let epoch = u64::try_from(reader.clock.now().as_second()).unwrap_or(1);
            let base = (design.head, design.applied.clone(), epoch_txn(fleet, epoch));
            (base, design.head().map(|_| DesignRef::find(fleet, None)).transpose()?)
        };
        let (head, applied, epoch_txn) = base;
        let compiled = match design_ref {
            Some(design_ref) => reader.designs.get(env, &design_ref).await?,
            None => Arc::new(CompiledDesign::empty(env)),
        };
        Ok(Self { env: env.clone(), head, applied, compiled, epoch_txn })
    }
}

/// Reason why there is no base.
#[derive(Debug, thiserror::Error)]
pub enum BaseError {
    #[error(transparent)]
    Read(#[from] ReadDesignError),
    #[error(transparent)]
    Revision(#[from] RevisionError),
}

/// Fails if an environment is being restored or destroyed.
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

/// Commits a revision, applies it, or both; and waits until the view shows it.
pub async fn revise(
    writer: &Writer,
    base: &RevisionBase,
    revise: RevisionRequest<'_>,
) -> Result<RevisionOutcome, RevisionError> {
    let RevisionBase { env, head, applied, epoch_txn, .. } = base;
    let keys = Keys::new(env);
    let at = writer.clock.now();
    let Attribution { author, message } = revise.by;
    let newest = head.map(|(number, _)| number);
    let mut txn = epoch_txn.clone().unwrap_or_default();
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
                // It may still be committed; the outcome stays unknown.
                Some(_) | None => return Err(error.into()),
            }
        }
        Err(error) => return Err(error.into()),
    };
    if let Some((next, _)) = revise.next {
        writer.designs.keep(env, next.clone());
    }
    // Further requests to this server must see it.
    writer.view.reach(revision).await?;
    tracing::info!(%env, design = %number, applied = revise.apply, by = follows.author, "design revision committed");
    Ok(RevisionOutcome::Committed { number, revision })
}

/// Stores the blobs of a design durably, except those of the base.
async fn keep(
    reader: &Reader,
    base: &RevisionBase,
    next: &Arc<CompiledDesign>,
    texts: &Texts,
) -> Result<(), RevisionError> {
    let before: Option<&DesignTree> = base.head.map(|_| &base.compiled.tree);
    let mut new: Vec<(String, Vec<u8>)> =
        next.tree.new_blobs(before).into_iter().map(|blob| (blob.digest, blob.bytes)).collect();
    let known = before.filter(|_| texts.len() > FEW_TEXTS).map(DesignTree::digests).unwrap_or_default();
    let missing = texts.iter().filter(|(digest, _)| !known.contains(digest.as_str()));
    new.extend(missing.map(|(digest, text)| (digest.clone(), text.as_bytes().to_vec())));
    let blobs = reader.blobs.clone();
    let keeping = tokio::task::spawn_blocking(move || {
        blobs.keep_durably(new.iter().map(|(digest, bytes)| (digest.as_str(), bytes.as_slice())))
    });
    keeping.await.map_err(|_| RevisionError::CutOff)?.map_err(RevisionError::Blobs)
}
