//! Compiled designs in memory: of each environment the few that were used last.
//!
//! A design is named by the digest of its manifest, so an entry is never stale. A missing design is compiled from the most
//! recent one of the environment, file by file where they differ: a replica follows a change at the cost of the change.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_core::design::DesignRevision;
use muster_core::fleet::Fleet;
use muster_core::names::EnvName;
use tokio::sync::Semaphore;

use super::compiled::Compiled;
use super::error::ReadDesignError;
use super::tree::TreeError;
use crate::blobs::Blobs;

/// The newest revision, the applied one, and two that are compared.
const KEPT: usize = 4;
/// Designs that are compiled at the same time. Each takes one processor, and memory.
const AT_ONCE: usize = 1;

#[derive(Debug)]
pub struct Designs {
    blobs: Arc<Blobs>,
    /// Most recently used first.
    kept: Mutex<BTreeMap<EnvName, VecDeque<Arc<Compiled>>>>,
    making: Semaphore,
}

/// Reference to a revision of a design: its number, and the digest of its manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesignRef {
    pub number: DesignRevision,
    pub manifest: String,
}

impl DesignRef {
    /// Finds a revision by its number; without a number, the newest.
    pub fn of(fleet: &Fleet, number: Option<DesignRevision>) -> Result<Self, ReadDesignError> {
        let design = fleet.design();
        let Some(newest) = design.head() else { return Err(ReadDesignError::None { env: fleet.env.clone() }) };
        let number = number.unwrap_or(newest);
        match design.revisions.get(&number) {
            Some(record) => Ok(Self { number, manifest: record.manifest.clone() }),
            None => Err(ReadDesignError::Unknown { env: fleet.env.clone(), number, newest: Some(newest) }),
        }
    }
}

impl Designs {
    pub fn new(blobs: Arc<Blobs>) -> Self {
        Self { blobs, kept: Mutex::default(), making: Semaphore::new(AT_ONCE) }
    }

    /// Returns a revision of an environment's design.
    pub async fn get(&self, env: &EnvName, meant: &DesignRef) -> Result<Arc<Compiled>, ReadDesignError> {
        if let Some(found) = self.find(env, &meant.manifest) {
            return Ok(found);
        }
        let _turn = self.making.acquire().await.map_err(|_| ReadDesignError::CutOff)?;
        // The task before this one may have compiled it.
        if let Some(found) = self.find(env, &meant.manifest) {
            return Ok(found);
        }
        let near = self.kept().get(env).and_then(|kept| kept.front().cloned());
        let (blobs, manifest, of) = (self.blobs.clone(), meant.manifest.clone(), env.clone());
        let making = tokio::task::spawn_blocking(move || Compiled::read(&blobs, &of, &manifest, near.as_deref()));
        let made: Result<Compiled, TreeError> = making.await.map_err(|_| ReadDesignError::CutOff)?;
        let unreadable = |source| ReadDesignError::Tree { env: env.clone(), number: meant.number, source };
        let made = Arc::new(made.map_err(unreadable)?);
        self.keep(env, made.clone());
        Ok(made)
    }

    /// Adds a design that was compiled elsewhere and is about to be used.
    pub fn keep(&self, env: &EnvName, design: Arc<Compiled>) {
        let mut kept = self.kept();
        let kept = kept.entry(env.clone()).or_default();
        kept.retain(|other| other.manifest != design.manifest);
        kept.push_front(design);
        kept.truncate(KEPT);
    }

    /// Removes the designs of an environment that is gone.
    pub fn forget(&self, env: &EnvName) {
        self.kept().remove(env);
    }

    fn find(&self, env: &EnvName, manifest: &str) -> Option<Arc<Compiled>> {
        let mut kept = self.kept();
        let kept = kept.get_mut(env)?;
        let at = kept.iter().position(|design| design.manifest == manifest)?;
        let found = kept.remove(at)?;
        kept.push_front(found.clone());
        Some(found)
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<EnvName, VecDeque<Arc<Compiled>>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
