//! Plans and outcomes of rollouts, stored as blobs under their digest. A cached plan is never stale.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_core::rollout::plan::{FORMAT, RolloutPlan};
use muster_core::rollout::progress::Progress;
use muster_rollout::step::IndexedPlan;
use thiserror::Error;

use crate::app::Reader;
use crate::blobs::Blobs;

/// Plans in memory: those of rollouts in progress, and a few more. A plan of 5,000 nodes takes about a megabyte.
const KEPT: usize = 16;

#[derive(Debug)]
pub struct Plans {
    blobs: Arc<Blobs>,
    /// Most recently used first.
    kept: Mutex<VecDeque<(String, Arc<IndexedPlan>)>>,
}

#[derive(Debug, Error)]
pub enum PlanUnreadable {
    #[error("its plan (blob {digest}) is missing or damaged in the blob directory")]
    Missing { digest: String },
    #[error("its plan (blob {digest}) is invalid")]
    NotUnderstood {
        digest: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("its plan (blob {digest}) has format {found}, and this server reads {FORMAT}")]
    OtherFormat { digest: String, found: u32 },
    #[error("its plan (blob {digest}) cannot be read now")]
    Unanswered {
        digest: String,
        #[source]
        source: io::Error,
    },
    #[error("the server stopped while its plan was read")]
    CutOff,
}

impl PlanUnreadable {
    /// Returns true if a retry may succeed without a repair.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Unanswered { .. } | Self::CutOff => true,
            Self::Missing { .. } | Self::NotUnderstood { .. } | Self::OtherFormat { .. } => false,
        }
    }
}

#[derive(Debug, Error)]
pub enum KeepPlanError {
    #[error("the plan cannot be written as JSON")]
    Unwritable(#[from] serde_json::Error),
    #[error("the plan cannot be stored")]
    Io(#[from] io::Error),
    #[error("the server stopped while the plan was written")]
    CutOff,
}

impl Plans {
    pub fn new(blobs: Arc<Blobs>) -> Self {
        Self { blobs, kept: Mutex::default() }
    }

    /// Digest that names a plan.
    pub(crate) fn digest(plan: &RolloutPlan) -> Result<String, serde_json::Error> {
        Ok(Blobs::digest(&serde_json::to_vec(plan)?))
    }

    /// Returns a plan by its digest.
    pub(crate) async fn get(&self, digest: &str) -> Result<Arc<IndexedPlan>, PlanUnreadable> {
        if let Some(found) = self.find(digest) {
            return Ok(found);
        }
        let (blobs, name) = (self.blobs.clone(), digest.to_owned());
        let reading = tokio::task::spawn_blocking(move || read(&blobs, &name));
        let plan = Arc::new(IndexedPlan::new(reading.await.map_err(|_| PlanUnreadable::CutOff)??));
        self.remember(digest, plan.clone());
        Ok(plan)
    }

    /// Returns a plan that is in memory.
    pub(crate) fn find(&self, digest: &str) -> Option<Arc<IndexedPlan>> {
        let mut kept = self.kept();
        let at = kept.iter().position(|(name, _)| name == digest)?;
        let found = kept.remove(at)?;
        let plan = found.1.clone();
        kept.push_front(found);
        Some(plan)
    }

    /// Stores a plan durably, before a record refers to it. Returns its digest.
    pub(crate) async fn keep(&self, plan: &RolloutPlan) -> Result<String, KeepPlanError> {
        let bytes = serde_json::to_vec(plan)?;
        let (blobs, digest) = (self.blobs.clone(), Blobs::digest(&bytes));
        let name = digest.clone();
        let writing = tokio::task::spawn_blocking(move || blobs.keep_durably([(name.as_str(), bytes.as_slice())]));
        // Indexed while the disk works.
        let plan = Arc::new(IndexedPlan::new(plan.clone()));
        writing.await.map_err(|_| KeepPlanError::CutOff)??;
        self.remember(&digest, plan);
        Ok(digest)
    }

    fn remember(&self, digest: &str, plan: Arc<IndexedPlan>) {
        let mut kept = self.kept();
        kept.retain(|(name, _)| name != digest);
        kept.push_front((digest.to_owned(), plan));
        kept.truncate(KEPT);
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<(String, Arc<IndexedPlan>)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(blobs: &Blobs, digest: &str) -> Result<RolloutPlan, PlanUnreadable> {
    let unanswered = |source| PlanUnreadable::Unanswered { digest: digest.to_owned(), source };
    let bytes = blobs.find(digest).map_err(unanswered)?;
    let bytes = bytes.ok_or_else(|| PlanUnreadable::Missing { digest: digest.to_owned() })?;
    let not_understood = |source| PlanUnreadable::NotUnderstood { digest: digest.to_owned(), source };
    let plan: RolloutPlan = serde_json::from_slice(&bytes).map_err(not_understood)?;
    if plan.format != FORMAT {
        return Err(PlanUnreadable::OtherFormat { digest: digest.to_owned(), found: plan.format });
    }
    Ok(plan)
}

/// Stores the outcome of a rollout durably. Returns its digest.
///
/// While a rollout is active its outcome follows from the keys; the grants of the next one overwrite them.
pub(crate) async fn keep_outcome(reader: &Reader, progress: &Progress) -> Result<String, KeepPlanError> {
    let bytes = serde_json::to_vec(progress)?;
    let (blobs, digest) = (reader.blobs.clone(), Blobs::digest(&bytes));
    let name = digest.clone();
    let writing = tokio::task::spawn_blocking(move || blobs.keep_durably([(name.as_str(), bytes.as_slice())]));
    writing.await.map_err(|_| KeepPlanError::CutOff)??;
    Ok(digest)
}

/// Reads the outcome of a rollout. None if it is missing or invalid: then the status is computed from the keys.
pub(crate) async fn read_outcome(reader: &Reader, digest: String) -> Option<Progress> {
    let blobs = reader.blobs.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let bytes = blobs.get(&digest)?;
        serde_json::from_slice(&bytes).ok()
    });
    reading.await.ok().flatten()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use muster_core::names::ReplicaId;

    use super::*;

    /// A blob directory that is unavailable for a moment must not pause a rollout until an operator acts.
    #[tokio::test]
    async fn unreadable_plan_differs_from_missing_plan() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Arc::new(Blobs::open(dir.path(), ReplicaId::new("one-1").unwrap()).unwrap());
        let plans = Plans::new(blobs);
        let digest = Blobs::digest(b"a plan");
        let gone = plans.get(&digest).await.unwrap_err();
        assert!(!gone.may_pass() && gone.to_string().contains("is missing or damaged"), "{gone}");
        std::fs::create_dir_all(dir.path().join(&digest[..2]).join(&digest[2..])).unwrap();
        let unanswered = plans.get(&digest).await.unwrap_err();
        assert!(unanswered.may_pass(), "{unanswered}");
    }
}
