//! What goes wrong, and when: decided by a seed, or by the script of a test.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_store::StoreError;
use tokio::sync::watch;

use crate::dice::Dice;

/// What becomes of a request that writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
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

/// How likely each fault is, from 0 to 1. `Odds::default()` is a store that works.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Odds {
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

impl Odds {
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
    odds: Odds,
    dice: Dice,
    next_commits: VecDeque<Fate>,
}

/// What happens to a watch before its next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchFate {
    Told,
    Interrupted,
    Lost,
}

impl Faults {
    /// Nothing goes wrong, unless it is scripted.
    pub fn none() -> Self {
        Self::seeded(0, Odds::default())
    }

    /// The same requests in the same order meet the same faults.
    pub fn seeded(seed: u64, odds: Odds) -> Self {
        let plan = Plan { odds, dice: Dice::new(seed), next_commits: VecDeque::new() };
        Self { plan: Arc::new(Mutex::new(plan)), cut_off: Arc::default() }
    }

    /// Scripts the fate of the next commit that has none yet, whatever the odds are.
    pub fn next_commit(&self, fate: Fate) {
        self.plan().next_commits.push_back(fate);
    }

    /// Cuts this client off, or lets it through again: while it is cut off nothing of it reaches the store, and its
    /// watches are silent, as those of a client that does not know yet.
    pub fn cut_off(&self, cut_off: bool) {
        self.cut_off.send_replace(cut_off);
    }

    /// From now on these are the odds; `Odds::default()` ends the bad day.
    pub fn set(&self, odds: Odds) {
        self.plan().odds = odds;
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

    pub(crate) fn of_commit(&self) -> Fate {
        if self.is_cut_off() {
            return Fate::NotReached;
        }
        let mut plan = self.plan();
        plan.next_commits.pop_front().unwrap_or_else(|| plan.draw())
    }

    /// For leases and compaction.
    pub(crate) fn of_other_write(&self) -> Fate {
        if self.is_cut_off() { Fate::NotReached } else { self.plan().draw() }
    }

    pub(crate) fn of_read(&self) -> Fate {
        let mut plan = self.plan();
        let odds = plan.odds.not_reached;
        if plan.dice.chance(odds) || self.is_cut_off() { Fate::NotReached } else { Fate::Answered }
    }

    pub(crate) fn of_watch(&self) -> WatchFate {
        let mut plan = self.plan();
        let Odds { watch_interrupted, watch_lost, .. } = plan.odds;
        if plan.dice.chance(watch_interrupted) {
            WatchFate::Interrupted
        } else if plan.dice.chance(watch_lost) {
            WatchFate::Lost
        } else {
            WatchFate::Told
        }
    }

    /// How many revisions are left by a compaction that happens now, if one does.
    pub(crate) fn compaction(&self) -> Option<u64> {
        let mut plan = self.plan();
        let odds = plan.odds.compacted;
        plan.dice.chance(odds).then(|| plan.dice.below(4))
    }

    /// After how many requests one that is held back is carried out.
    pub(crate) fn held_for(&self) -> u64 {
        self.plan().dice.below(6)
    }

    /// Lets others go first, for as many steps as the dice say.
    pub(crate) async fn delay(&self) {
        let steps = {
            let mut plan = self.plan();
            let odds = plan.odds.delay;
            if plan.dice.chance(odds) { 1 + plan.dice.below(16) } else { 0 }
        };
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
    }
}

impl Plan {
    fn draw(&mut self) -> Fate {
        let odds = self.odds;
        let faults = [
            (odds.not_reached, Fate::NotReached),
            (odds.full, Fate::Full),
            (odds.request_lost, Fate::RequestLost),
            (odds.answer_lost, Fate::AnswerLost),
            (odds.done_later, Fate::DoneLater),
        ];
        faults.into_iter().find(|(odds, _)| self.dice.chance(*odds)).map_or(Fate::Answered, |(_, fate)| fate)
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
