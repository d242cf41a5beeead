//! Injected faults of the model, drawn from a seed or scripted by a test.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_store::StoreError;
use tokio::sync::watch;

use crate::rng::Rng;

/// The fate of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFate {
    /// It commits, and is answered.
    Answered,
    /// [`StoreError::Unavailable`]: nothing is written.
    NotReached,
    /// [`StoreError::Full`]: nothing is written.
    Full,
    /// [`StoreError::Unknown`]: the request is lost.
    RequestLost,
    /// [`StoreError::Unknown`]: it commits, and the answer is lost.
    AnswerLost,
    /// [`StoreError::Unknown`]: it commits after later requests. A client that reads back and finds nothing
    /// cannot be sure either. This is a transaction that etcd had accepted when its leader died.
    CommittedLate,
}

/// Probabilities of the faults, from 0 to 1. `StoreFaultRates::default()` has none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StoreFaultRates {
    /// A request, an answer or an event of a watch takes extra steps, in which it may be overtaken.
    pub delay: f64,
    pub not_reached: f64,
    pub full: f64,
    pub request_lost: f64,
    pub answer_lost: f64,
    pub committed_late: f64,
    /// A watch reports that the store is unavailable, and continues when it is polled again.
    pub watch_interrupted: f64,
    /// A watch is lost: a gap and a snapshot follow.
    pub watch_lost: f64,
    /// A commit compacts most of the history.
    pub compacted: f64,
}

impl StoreFaultRates {
    /// Frequent faults: about a third of all requests.
    pub fn harsh() -> Self {
        Self {
            delay: 0.3,
            not_reached: 0.08,
            full: 0.04,
            request_lost: 0.06,
            answer_lost: 0.08,
            committed_late: 0.06,
            watch_interrupted: 0.05,
            watch_lost: 0.03,
            compacted: 0.05,
        }
    }
}

/// The faults of one client of a [`Model`](crate::Model). A clone shares the same plan.
#[derive(Clone, Debug)]
pub struct Faults {
    plan: Arc<Mutex<Plan>>,
    cut_off: Arc<watch::Sender<bool>>,
}

#[derive(Debug)]
struct Plan {
    rates: StoreFaultRates,
    rng: Rng,
    next_commits: VecDeque<RequestFate>,
}

/// A fault of a watch before its next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchFault {
    Delivered,
    Interrupted,
    Lost,
}

impl Faults {
    /// No faults, except scripted ones.
    pub fn none() -> Self {
        Self::seeded(0, StoreFaultRates::default())
    }

    /// The same requests in the same order meet the same faults.
    pub fn seeded(seed: u64, rates: StoreFaultRates) -> Self {
        let plan = Plan { rates, rng: Rng::new(seed), next_commits: VecDeque::new() };
        Self { plan: Arc::new(Mutex::new(plan)), cut_off: Arc::default() }
    }

    /// Scripts the fate of the next commit that has none yet.
    pub fn next_commit(&self, fate: RequestFate) {
        self.plan().next_commits.push_back(fate);
    }

    /// Cuts this client off, or reconnects it. While it is cut off no request reaches the store, and its watches are
    /// silent without an error.
    pub fn cut_off(&self, cut_off: bool) {
        self.cut_off.send_replace(cut_off);
    }

    /// Changes the rates.
    pub fn set(&self, rates: StoreFaultRates) {
        self.plan().rates = rates;
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_cut_off(&self) -> bool {
        *self.cut_off.borrow()
    }

    /// Resolves when this client is not cut off.
    pub(crate) async fn let_through(&self) {
        // The sender lives in `self`, and this cannot fail.
        let _ = self.cut_off.subscribe().wait_for(|cut_off| !cut_off).await;
    }

    pub(crate) fn of_commit(&self) -> RequestFate {
        if self.is_cut_off() {
            return RequestFate::NotReached;
        }
        let mut plan = self.plan();
        plan.next_commits.pop_front().unwrap_or_else(|| plan.draw())
    }

    /// The fate of a write to leases, or of a compaction.
    pub(crate) fn of_other_write(&self) -> RequestFate {
        if self.is_cut_off() { RequestFate::NotReached } else { self.plan().draw() }
    }

    pub(crate) fn of_read(&self) -> RequestFate {
        let mut plan = self.plan();
        let rates = plan.rates.not_reached;
        if plan.rng.chance(rates) || self.is_cut_off() { RequestFate::NotReached } else { RequestFate::Answered }
    }

    pub(crate) fn of_watch(&self) -> WatchFault {
        let mut plan = self.plan();
        let StoreFaultRates { watch_interrupted, watch_lost, .. } = plan.rates;
        if plan.rng.chance(watch_interrupted) {
            WatchFault::Interrupted
        } else if plan.rng.chance(watch_lost) {
            WatchFault::Lost
        } else {
            WatchFault::Delivered
        }
    }

    /// The number of revisions that a compaction leaves, if one happens now.
    pub(crate) fn compaction(&self) -> Option<u64> {
        let mut plan = self.plan();
        let rates = plan.rates.compacted;
        plan.rng.chance(rates).then(|| plan.rng.below(4))
    }

    /// The number of requests before a delayed one commits.
    pub(crate) fn held_for(&self) -> u64 {
        self.plan().rng.below(6)
    }

    /// Yields a random number of steps.
    pub(crate) async fn delay(&self) {
        let steps = {
            let mut plan = self.plan();
            let rates = plan.rates.delay;
            if plan.rng.chance(rates) { 1 + plan.rng.below(16) } else { 0 }
        };
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
    }
}

impl Plan {
    fn draw(&mut self) -> RequestFate {
        let rates = self.rates;
        let faults = [
            (rates.not_reached, RequestFate::NotReached),
            (rates.full, RequestFate::Full),
            (rates.request_lost, RequestFate::RequestLost),
            (rates.answer_lost, RequestFate::AnswerLost),
            (rates.committed_late, RequestFate::CommittedLate),
        ];
        faults.into_iter().find(|(rates, _)| self.rng.chance(*rates)).map_or(RequestFate::Answered, |(_, fate)| fate)
    }
}

/// The source of an injected error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Injected(&'static str);

pub(crate) fn unavailable() -> StoreError {
    StoreError::Unavailable { store: crate::model::NAME.into(), cause: Arc::new(Injected("the store is unreachable")) }
}

pub(crate) fn full() -> StoreError {
    StoreError::Full { store: crate::model::NAME.into(), cause: Arc::new(Injected("the disk is full")) }
}

pub(crate) fn unknown() -> StoreError {
    StoreError::Unknown { store: crate::model::NAME.into(), cause: Arc::new(Injected("the connection broke")) }
}
