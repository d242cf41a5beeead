//! What goes wrong, and when: decided by a seed, or by the script of a test.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_store::StoreError;
use tokio::sync::watch;

use crate::rng::Rng;

/// What becomes of a request that writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFate {
    /// It is carried out, and the answer arrives.
    Answered,
    /// The store is not reached: [`StoreError::Unavailable`], and nothing was written.
    NotReached,
    /// [`StoreError::Full`], and nothing was written.
    Full,
    /// [`StoreError::Unknown`]: the request was lost on its way.
    RequestLost,
    /// [`StoreError::Unknown`]: it was carried out, and the answer was lost.
    AnswerLost,
    /// [`StoreError::Unknown`], and the request is still on its way: it is carried out after others, so that even who
    /// read back and found nothing cannot be sure. (A transaction that etcd had accepted when its leader died.)
    DoneLater,
}

/// How likely each fault is, from 0 to 1. `StoreFaultRates::default()` is a store that works.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StoreFaultRates {
    /// A request, its answer or an event of a watch takes some steps, so that others overtake it.
    pub delay: f64,
    pub not_reached: f64,
    pub full: f64,
    pub request_lost: f64,
    pub answer_lost: f64,
    pub done_later: f64,
    /// A watch says that the store is not available, and goes on where it was when it is polled again.
    pub watch_interrupted: f64,
    /// A watch is lost and cannot be taken up: a gap, and a snapshot.
    pub watch_lost: f64,
    /// A commit makes the store forget most of its history, under whoever lags behind.
    pub compacted: f64,
}

impl StoreFaultRates {
    /// A bad day: about a third of all requests goes wrong in some way.
    pub fn harsh() -> Self {
        Self {
            delay: 0.3,
            not_reached: 0.08,
            full: 0.04,
            request_lost: 0.06,
            answer_lost: 0.08,
            done_later: 0.06,
            watch_interrupted: 0.05,
            watch_lost: 0.03,
            compacted: 0.05,
        }
    }
}

/// The plan of faults for one client of a [`Model`](crate::Model). A clone is a handle to the same plan.
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

/// What happens to a watch before its next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchFault {
    Delivered,
    Interrupted,
    Lost,
}

impl Faults {
    /// Nothing goes wrong, unless it is scripted.
    pub fn none() -> Self {
        Self::seeded(0, StoreFaultRates::default())
    }

    /// The same requests in the same order meet the same faults.
    pub fn seeded(seed: u64, rates: StoreFaultRates) -> Self {
        let plan = Plan { rates, rng: Rng::new(seed), next_commits: VecDeque::new() };
        Self { plan: Arc::new(Mutex::new(plan)), cut_off: Arc::default() }
    }

    /// Scripts the fate of the next commit that has none yet, whatever the rates are.
    pub fn next_commit(&self, fate: RequestFate) {
        self.plan().next_commits.push_back(fate);
    }

    /// Cuts this client off, or lets it through again: while it is cut off nothing of it reaches the store, and its
    /// watches are silent, as those of a client that does not know yet.
    pub fn cut_off(&self, cut_off: bool) {
        self.cut_off.send_replace(cut_off);
    }

    /// From now on these are the rates; `StoreFaultRates::default()` ends the bad day.
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
        // The sender lives in `self`, so this cannot fail.
        let _ = self.cut_off.subscribe().wait_for(|cut_off| !cut_off).await;
    }

    pub(crate) fn of_commit(&self) -> RequestFate {
        if self.is_cut_off() {
            return RequestFate::NotReached;
        }
        let mut plan = self.plan();
        plan.next_commits.pop_front().unwrap_or_else(|| plan.draw())
    }

    /// For leases and compaction.
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

    /// How many revisions are left by a compaction that happens now, if one does.
    pub(crate) fn compaction(&self) -> Option<u64> {
        let mut plan = self.plan();
        let rates = plan.rates.compacted;
        plan.rng.chance(rates).then(|| plan.rng.below(4))
    }

    /// After how many requests one that is held back is carried out.
    pub(crate) fn held_for(&self) -> u64 {
        self.plan().rng.below(6)
    }

    /// Lets others go first, for as many steps as the rng say.
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
            (rates.done_later, RequestFate::DoneLater),
        ];
        faults.into_iter().find(|(rates, _)| self.rng.chance(*rates)).map_or(RequestFate::Answered, |(_, fate)| fate)
    }
}

/// What stands behind an error of the model.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Injected(&'static str);

pub(crate) fn unavailable() -> StoreError {
    StoreError::Unavailable { store: crate::model::NAME.into(), cause: Arc::new(Injected("the store is not reached")) }
}

pub(crate) fn full() -> StoreError {
    StoreError::Full { store: crate::model::NAME.into(), cause: Arc::new(Injected("the disk is full")) }
}

pub(crate) fn unknown() -> StoreError {
    StoreError::Unknown { store: crate::model::NAME.into(), cause: Arc::new(Injected("the connection broke")) }
}
