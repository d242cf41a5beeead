//! Carries rollouts out, at whichever replica holds the controller.
//!
//! [`muster_rollout::step`] decides. This reads, commits, has the checks of a gate asked, and sleeps until something changes
//! or is due. It remembers nothing that matters: whoever takes over looks at the same keys and decides the same. Whatever
//! becomes of a write, done, refused or unknown, the next look sees it.
//!
//! While no rollout goes on, nothing is done at all.

mod ended;
mod gates;
mod outgrown;
mod tell;

use std::time::Duration;

use jiff::Timestamp;
use muster_core::fleet::Fleet;
use muster_core::names::EnvName;
use muster_core::replicas::ControllerName;
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::{Halt, Phase, RolloutRecord};
use muster_core::txn::{Revision, Txn};
use muster_rollout::start::Starting;
use muster_rollout::step::{Change, Indexed, judged, paused, step};
use muster_store::StoreError;
use muster_store::limits::Invalid;

use crate::App;
use crate::api::chain;
use crate::replica::{Fenced, Held};
use crate::rollouts::begin::{BeginError, plan_back};
use crate::rollouts::gate::Mark;
use crate::rollouts::sight::with_sight;
use gates::{Asked, Gates};

/// What happens together is looked at together: nodes of a wave report in bursts.
const PACE: Duration = Duration::from_millis(25);
/// After the store did not take something, the next try comes this soon.
const AGAIN: Duration = Duration::from_secs(1);
/// So many steps follow each other before other environments have their turn. A wave of 5,000 nodes that may all move is
/// granted in 84.
const STEPS: usize = 100;
/// Who goes back by itself.
const MUSTER: &str = "muster";

#[derive(Debug)]
pub struct RolloutController {
    pub app: App,
}

/// What a look at an environment came to.
enum Looked {
    /// Nothing goes on there.
    Quiet,
    /// Nothing is to be done before this, unless something changes.
    Waits(Option<Timestamp>),
    /// The store did not take something.
    Failed,
    /// There is more to do at once.
    More,
}

/// What one step says is to be done.
enum Todo {
    Nothing,
    Wait(Option<Timestamp>),
    Commit(Box<Write>),
    GoBack { on: DecidedOn, why: Halt },
}

impl Todo {
    /// Whether it must not be done on an old view: what the nodes have said since, through other replicas, may speak
    /// against it. What only writes down how things stand, or stops, may.
    fn needs_a_fresh_view(&self) -> bool {
        match self {
            Todo::Nothing | Todo::Wait(_) => false,
            Todo::GoBack { .. } => true,
            Todo::Commit(write) => write.moves_something(),
        }
    }
}

/// A rollout that goes on, as it was when something was decided about it. Whoever has waited for something since looks
/// whether that still holds: an operator may have paused or ended it, and was told so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DecidedOn {
    id: RolloutId,
    at: Revision,
}

impl DecidedOn {
    /// The record, if nobody has written it since.
    fn still(self, fleet: &Fleet) -> Option<(&RolloutRecord, Revision)> {
        let deciding = fleet.deciding_rollout();
        deciding.filter(|(record, at)| record.id == self.id && *at == self.at && record.phase == Phase::Running)
    }
}

/// A change of the record, and how it was before.
struct Write {
    txn: Txn,
    change: Change,
    before: RolloutRecord,
    at: Revision,
}

impl Write {
    /// Whether a node may move by it, or a wave or the whole rollout is over.
    fn moves_something(&self) -> bool {
        let Change { record, grants, completes } = &self.change;
        let said = |record: &RolloutRecord| {
            let waves = record.waves.iter();
            waves.map(|wave| (wave.gate.is_some(), wave.passed.is_some())).collect::<Vec<_>>()
        };
        !grants.is_empty() || *completes || said(record) != said(&self.before)
    }
}

impl RolloutController {
    /// Looks after the rollouts of all environments, for ever.
    pub async fn run(&self) {
        let mut connections = self.app.hub.subscribe();
        let mut rollouts = self.app.view.subscribe_rollouts();
        let mut tenures = self.app.tenures.subscribe();
        let mark = Mark::of(self.app.membership.record());
        mark.end_leftovers().await;
        let mut gates = Gates::new(mark);
        loop {
            connections.mark_unchanged();
            rollouts.mark_unchanged();
            tenures.mark_unchanged();
            let (is_busy, wait) = self.look(&mut gates).await;
            // A rollout, a node of one that goes on, or a pause; an agent that comes or goes here; a controller that is
            // taken; what a gate says; or a moment at which something is due. Nothing in between.
            tokio::select! {
                _ = connections.changed(), if is_busy => {}
                _ = rollouts.changed() => {}
                _ = tenures.changed() => {}
                () = gates.answered() => {}
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
            }
            tokio::time::sleep(PACE).await;
        }
    }

    /// Decides and acts once. Whether any rollout goes on here, and when to look again at the latest.
    async fn look(&self, gates: &mut Gates) -> (bool, Option<Duration>) {
        let seen = self.app.view.revision();
        let envs: Vec<EnvName> = self.app.view.fleets().keys().cloned().collect();
        gates.keep(&envs);
        let (mut is_busy, mut wait) = (false, None::<Duration>);
        let mut sooner = |at: Duration| wait = Some(wait.map_or(at, |before| before.min(at)));
        for env in envs {
            let looked = match self.app.tenures.held(&env, ControllerName::Rollout) {
                Some(held) => self.look_at(&held, gates).await,
                None => Looked::Quiet,
            };
            is_busy |= !matches!(looked, Looked::Quiet);
            match looked {
                Looked::Quiet => gates.cancel(&env),
                Looked::Waits(None) => {}
                Looked::Waits(Some(at)) => {
                    sooner(Duration::try_from(at.duration_since(self.app.clock.now())).unwrap_or_default());
                }
                Looked::Failed => sooner(AGAIN),
                Looked::More => sooner(Duration::ZERO),
            }
        }
        self.app.rollouts_looked_at.send_replace(seen);
        (is_busy, wait)
    }

    /// Takes as many steps as there are to take.
    async fn look_at(&self, held: &Held, gates: &mut Gates) -> Looked {
        // Once for all steps that follow each other: each of them waits until the view shows the one before.
        let mut is_fresh = false;
        if let Some(Reached::Done(revision) | Reached::Outrun(revision)) = self.keep_outcome(held).await
            && self.app.view.reach(revision).await.is_err()
        {
            return Looked::Failed;
        }
        for _ in 0..STEPS {
            let Some((on, digest)) = self.running(&held.env) else {
                // It is over, perhaps by the last step.
                let _ = self.keep_outcome(held).await;
                return Looked::Quiet;
            };
            let todo = match self.app.plans.get(&digest).await {
                Ok(plan) => self.decide(&held.env, on.id, &digest, &plan, gates),
                Err(error) => self.blocked(&held.env, on, &error),
            };
            if !is_fresh && todo.needs_a_fresh_view() {
                let Ok(newest) = self.app.newest.revision().await else { return Looked::Failed };
                if self.app.view.reach(newest).await.is_err() {
                    return Looked::Failed;
                }
                is_fresh = true;
                continue;
            }
            let reached = match todo {
                Todo::Nothing => return Looked::Quiet,
                Todo::Wait(recheck) => return Looked::Waits(recheck),
                Todo::Commit(write) => self.carry_out(held, *write, "a step of a rollout cannot be written").await,
                Todo::GoBack { on, why } => self.go_back(held, on, why).await,
            };
            let revision = match reached {
                Reached::Done(revision) | Reached::Outrun(revision) => revision,
                Reached::Deposed => return Looked::Quiet,
                Reached::Failed | Reached::Unwritable(_) => return Looked::Failed,
            };
            // What was decided on is older than what is there now.
            if self.app.view.reach(revision).await.is_err() {
                return Looked::Failed;
            }
        }
        Looked::More
    }

    /// The rollout that goes on, and its plan.
    fn running(&self, env: &EnvName) -> Option<(DecidedOn, String)> {
        let fleets = self.app.view.fleets();
        let (record, at) = fleets.get(env)?.deciding_rollout()?;
        (record.phase == Phase::Running).then(|| (DecidedOn { id: record.id, at }, record.plan.clone()))
    }

    fn decide(&self, env: &EnvName, id: RolloutId, digest: &str, plan: &Indexed, gates: &mut Gates) -> Todo {
        let fleets = self.app.view.fleets();
        let Some(fleet) = fleets.get(env) else { return Todo::Nothing };
        // Another one may decide since its plan was read.
        let deciding = fleet.deciding_rollout().filter(|(record, _)| record.id == id && record.plan == digest);
        let Some((record, at)) = deciding else { return Todo::Wait(Some(self.app.clock.now())) };
        with_sight(&self.app, fleet, |sight| {
            let decided = step(plan, record, sight);
            let asked = decided.checks.and_then(|wave| Asked::of(plan, record, wave));
            let verdict = gates.settle(env, asked, plan, record, &self.app.clock);
            if let Some(why) = decided.roll_back {
                return Todo::GoBack { on: DecidedOn { id, at }, why };
            }
            let judged = verdict.and_then(|(wave, verdict)| judged(record, wave, verdict, sight));
            match judged.or(decided.change) {
                Some(change) => self.write(fleet, change, record, at),
                None => Todo::Wait(decided.recheck),
            }
        })
    }

    /// Without its plan a rollout cannot go on, and somebody has to bring it back.
    fn blocked(&self, env: &EnvName, on: DecidedOn, error: &dyn std::error::Error) -> Todo {
        let fleets = self.app.view.fleets();
        let Some(fleet) = fleets.get(env) else { return Todo::Nothing };
        let Some((record, at)) = on.still(fleet) else { return Todo::Wait(Some(self.app.clock.now())) };
        let hint = "bring the blob back and say `muster rollout resume`, or start another rollout with --supersede";
        let why = Halt::Blocked { problem: format!("{}; {hint}", chain(error)) };
        let change = with_sight(&self.app, fleet, |sight| paused(record.clone(), why, sight));
        self.write(fleet, change, record, at)
    }

    fn write(&self, fleet: &Fleet, change: Change, before: &RolloutRecord, at: Revision) -> Todo {
        match change.txn(fleet, at) {
            Ok(txn) => Todo::Commit(Box::new(Write { txn, change, before: before.clone(), at })),
            Err(error) => {
                tracing::error!(env = %fleet.env, %error, "the record of a rollout cannot be written");
                Todo::Wait(None)
            }
        }
    }

    /// Begins the way back: the plan first, then the transaction that ends the one and starts the other. Only if nobody
    /// has said anything to the rollout meanwhile.
    async fn go_back(&self, held: &Held, on: DecidedOn, why: Halt) -> Reached {
        let (env, id) = (&held.env, on.id);
        let back = match plan_back(&self.app, env, id).await {
            Ok(back) => back,
            Err(BeginError::Store(_) | BeginError::Behind(_) | BeginError::Keep(_)) => return Reached::Failed,
            Err(error) => {
                let problem = format!("{why}; and the way back cannot be planned: {}", chain(&error));
                return self.stop(held, on, Halt::Blocked { problem }).await;
            }
        };
        let begun = {
            let fleets = self.app.view.fleets();
            let Some(fleet) = fleets.get(env) else { return Reached::Deposed };
            let Some(of) = on.still(fleet) else { return Reached::Outrun(fleet.revision) };
            let who = Starting { request: format!("back from {id}"), by: MUSTER.to_owned(), supersede: false };
            (back.txn(&self.app, fleet, of, who, &why), fleet.revision)
        };
        match begun {
            (Ok((back_id, Some(txn))), _) => {
                let reached = self.commit(held, txn, "the way back from a rollout cannot be begun").await;
                if let Reached::Done(_) = reached {
                    tell::goes_back(env, id, back_id, &back.plan().to, &why);
                }
                reached
            }
            (Ok((_, None)), revision) => Reached::Outrun(revision),
            (Err(error), _) => {
                let problem = format!("{why}; and the way back cannot be begun: {}", chain(&error));
                self.stop(held, on, Halt::Blocked { problem }).await
            }
        }
    }

    /// Pauses a rollout for a reason that is not its own.
    async fn stop(&self, held: &Held, on: DecidedOn, why: Halt) -> Reached {
        let todo = {
            let fleets = self.app.view.fleets();
            let Some(fleet) = fleets.get(&held.env) else { return Reached::Deposed };
            let Some((record, at)) = on.still(fleet) else { return Reached::Outrun(fleet.revision) };
            let mut change = with_sight(&self.app, fleet, |sight| paused(record.clone(), why, sight));
            outgrown::fit(&mut change.record);
            self.write(fleet, change, record, at)
        };
        let Todo::Commit(write) = todo else { return Reached::Failed };
        self.carry_out(held, *write, "a rollout cannot be paused").await
    }

    async fn carry_out(&self, held: &Held, write: Write, failed: &str) -> Reached {
        let Write { txn, change, before, at } = write;
        let reached = self.commit(held, txn, failed).await;
        match &reached {
            Reached::Done(_) => tell::change(&held.env, &before, &change),
            // What stops it could not be written either: it was made as short as it can be.
            Reached::Unwritable(_) if change.record.phase != Phase::Running => return Reached::Failed,
            Reached::Unwritable(error) => {
                let why = Halt::Blocked { problem: outgrown::problem(error) };
                let on = DecidedOn { id: before.id, at };
                return Box::pin(self.stop(held, on, why)).await;
            }
            Reached::Outrun(_) | Reached::Deposed | Reached::Failed => {}
        }
        reached
    }

    async fn commit(&self, held: &Held, txn: Txn, failed: &str) -> Reached {
        match self.app.tenures.commit(held, txn).await {
            Ok(Fenced::Committed { revision }) => Reached::Done(revision),
            Ok(Fenced::Refused { revision }) => Reached::Outrun(revision),
            Ok(Fenced::Deposed) => Reached::Deposed,
            // No store takes it, however often it is asked.
            Err(StoreError::Invalid(error)) => {
                tracing::error!(env = %held.env, error = chain(&error), "{failed}");
                Reached::Unwritable(error)
            }
            Err(error) => {
                tracing::warn!(env = %held.env, error = chain(&error), "{failed}; it is decided anew in a moment");
                // Whether it was carried out, the newest view shows.
                Reached::Failed
            }
        }
    }
}

/// What became of a write, and how far the view must be to see it.
enum Reached {
    Done(Revision),
    /// What it was decided on has changed: it is decided anew.
    Outrun(Revision),
    Deposed,
    /// It breaks a limit of the store.
    Unwritable(Invalid),
    /// Nobody knows what became of it: it is decided anew in a while.
    Failed,
}

#[cfg(test)]
mod tests;
