//! Carries out what the rollout engine says, if this server holds its controller. It decides nothing: it brings a view, who is
//! connected and the time; commits; makes the checks of gates; and looks again when something has changed or is due.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use muster_core::liveness::Link;
use muster_core::names::NodeName;
use muster_core::replicas::ControllerName;
use muster_core::rollout::RolloutId;
use muster_core::rollout::progress::Progress;
use muster_core::rollout::record::{GateVerdict, Halt, RolloutRecord};
use muster_core::rollout::strategy::Strategy;
use muster_core::txn::{Revision, Txn};
use muster_rollout::plan::{Request as PlanRequest, plan};
use muster_rollout::progress::progress;
use muster_rollout::sight::Sight;
use muster_rollout::start::{Starting, roll_back, stable_version};
use muster_rollout::step::{Indexed, judged, step};

use super::calls::{Answer, Call, Request};
use super::chore::Chore;
use super::tenures::Fenced;
use crate::simulation::event::{Event, ReplicaEvent, ReplicaNumber};
use crate::simulation::world::World;

/// An agent whose connection broke is looked for this long: as the server has it.
pub(crate) const PATIENCE: SignedDuration = SignedDuration::from_secs(30);
const AGAIN: Duration = Duration::from_millis(500);

#[derive(Clone, Debug, Default)]
pub(crate) struct Executor {
    /// A transaction is on its way.
    under_way: bool,
    /// Nothing is decided on a view that does not show what this server has written, or why it was refused.
    wait_for: Revision,
    /// The checks that are being made, and what they said.
    checking: Option<(RolloutId, usize)>,
    verdict: Option<(RolloutId, usize, GateVerdict)>,
}

/// What is to be done, decided on one view.
enum Todo {
    Nothing,
    Commit(Txn),
    Check { id: RolloutId, wave: usize },
    RollBack { id: RolloutId, why: Halt },
}

impl World {
    /// Does something with what a server sees now.
    pub(crate) fn in_sight<T>(
        &mut self,
        replica: ReplicaNumber,
        look: impl FnOnce(&Sight<'_>, &Self) -> T,
    ) -> Option<T> {
        let now = self.clock_of(replica);
        let links = self.replicas[replica].links(now);
        let link = |name: &NodeName| links.get(name).copied().unwrap_or(Link::Silent { since: now });
        let fleet = self.replicas[replica].view.take()?;
        let sight = Sight { fleet: &fleet, link: &link, patience: PATIENCE, now };
        let seen = look(&sight, self);
        self.replicas[replica].view = Some(fleet);
        Some(seen)
    }

    /// The server that looks after rollouts and may act, if there is one now.
    pub(crate) fn acting(&self) -> Option<ReplicaNumber> {
        let acts = |number: &ReplicaNumber| {
            let server = &self.replicas[*number];
            server.up && server.held(ControllerName::Rollout, self.now).is_some()
        };
        (0..self.replicas.len()).find(acts)
    }

    /// How the rollout that decides stands, as the acting server sees it; none while it has yet to hear of
    /// the last change, or is about to make one.
    pub(crate) fn progress(&mut self) -> Option<Progress> {
        let acting = self.acting()?;
        let server = &self.replicas[acting];
        let is_up_to_date = server.view.as_ref().map(|fleet| fleet.revision) == Some(self.depot.history.head());
        if !is_up_to_date || server.executor.under_way {
            return None;
        }
        let look = |sight: &Sight<'_>, world: &Self| {
            let (record, _) = sight.fleet.deciding_rollout()?;
            Some(progress(world.blobs.get(&record.plan)?, record, sight))
        };
        self.in_sight(acting, look).flatten()
    }

    pub(super) fn look_after_rollout(&mut self, replica: ReplicaNumber) {
        let server = &self.replicas[replica];
        let reached = server.view.as_ref().is_some_and(|fleet| fleet.revision >= server.executor.wait_for);
        if server.held(ControllerName::Rollout, self.now).is_none() || server.executor.under_way || !reached {
            return;
        }
        let verdict = self.replicas[replica].executor.verdict.take();
        let decided = self.in_sight(replica, |sight, world| {
            let Some((record, at)) = sight.fleet.deciding_rollout() else { return (Todo::Nothing, None) };
            let Some(plan) = world.blobs.get(&record.plan) else { return (Todo::Nothing, None) };
            if let Some((id, wave, verdict)) = verdict
                && id == record.id
                && let Some(change) = judged(record, wave, verdict, sight)
            {
                return (change.txn(sight.fleet, at).map_or(Todo::Nothing, Todo::Commit), None);
            }
            let step = step(plan, record, sight);
            let again = step.recheck.map(|at| Duration::try_from(at.duration_since(sight.now)).unwrap_or_default());
            let todo = match (step.roll_back, step.change, step.checks) {
                (Some(why), _, _) => Todo::RollBack { id: record.id, why },
                (None, Some(change), _) => change.txn(sight.fleet, at).map_or(Todo::Nothing, Todo::Commit),
                (None, None, Some(wave)) => Todo::Check { id: record.id, wave },
                (None, None, None) => Todo::Nothing,
            };
            (todo, again)
        });
        let Some((todo, again)) = decided else { return };
        if let Some(again) = again {
            self.due(replica, Chore::Rollout, self.now + again.max(Duration::from_millis(1)));
        }
        match todo {
            Todo::Nothing => {}
            Todo::Commit(txn) => self.commit_step(replica, txn),
            Todo::Check { id, wave } => self.begin_checks(replica, id, wave),
            Todo::RollBack { id, why } => self.begin_rollback(replica, id, &why),
        }
    }

    fn commit_step(&mut self, replica: ReplicaNumber, txn: Txn) {
        let Some((held, txn)) = self.fenced(replica, ControllerName::Rollout, txn) else { return };
        self.replicas[replica].executor.under_way = true;
        self.call(replica, Call::Step { held }, Request::Commit(txn));
    }

    pub(super) fn stepped(&mut self, replica: ReplicaNumber, held: Revision, answer: Answer) {
        self.replicas[replica].executor.under_way = false;
        if let Answer::Committed { revision } | Answer::Refused { revision, .. } = &answer {
            let executor = &mut self.replicas[replica].executor;
            executor.wait_for = executor.wait_for.max(*revision);
        }
        match self.outcome(replica, ControllerName::Rollout, held, &answer) {
            Fenced::Committed | Fenced::Refused => self.due(replica, Chore::Rollout, self.now),
            Fenced::Deposed => {}
            Fenced::Failed => self.due(replica, Chore::Rollout, self.now + AGAIN),
        }
    }

    fn begin_checks(&mut self, replica: ReplicaNumber, id: RolloutId, wave: usize) {
        let executor = &mut self.replicas[replica].executor;
        if executor.checking == Some((id, wave)) {
            return;
        }
        executor.checking = Some((id, wave));
        let life = self.replicas[replica].life;
        let takes = self.between(200, 5_000);
        let what = ReplicaEvent::Checked { id, wave };
        self.agenda.put(self.now + takes, Event::Replica { replica, life, what });
    }

    pub(super) fn checked(&mut self, replica: ReplicaNumber, id: RolloutId, wave: usize) {
        let at = self.clock_of(replica);
        let verdict = self.gate_says(id, wave, at);
        self.server_says(replica, format_args!("the gate of wave {} says {}", wave + 1, word(&verdict)));
        let executor = &mut self.replicas[replica].executor;
        if executor.checking == Some((id, wave)) {
            executor.checking = None;
            executor.verdict = Some((id, wave, verdict));
        }
        self.due(replica, Chore::Rollout, self.now);
    }

    /// The engine says that a rollout is to be rolled back.
    fn begin_rollback(&mut self, replica: ReplicaNumber, id: RolloutId, why: &Halt) {
        let request = format!("automatic-{id}");
        let seed = self.dice.roll();
        let made = self.in_sight(replica, |sight, world| {
            let record = sight.fleet.deciding_rollout().filter(|(record, _)| record.id == id)?;
            rollback_of(sight, world, record, why, request, seed)
        });
        let Some((digest, plan, txn)) = made.flatten() else { return };
        self.blobs.insert(digest, plan);
        self.commit_step(replica, txn);
    }
}

fn word(verdict: &GateVerdict) -> &'static str {
    match verdict {
        GateVerdict::Passed { .. } => "yes",
        GateVerdict::Failed { .. } => "no",
        GateVerdict::Inconclusive { .. } => "nothing",
    }
}

/// The plan of going back, under its name, and the transaction that begins it.
pub(super) fn rollback_of(
    sight: &Sight<'_>,
    world: &World,
    back_from: (&RolloutRecord, Revision),
    why: &Halt,
    request: String,
    seed: u64,
) -> Option<(String, Arc<Indexed>, Txn)> {
    let (record, _) = back_from;
    let old = world.blobs.get(&record.plan)?;
    let asked = PlanRequest {
        to: stable_version(sight.fleet, record.id)?,
        strategy: Strategy { ..old.plan().strategy.clone() },
        after: old.plan().after.clone(),
        seed,
        at_once: false,
        allow_older: true,
        rolls_back: Some(record.id),
    };
    let plan = plan(sight, &asked).ok()?;
    let digest = digest_of(&plan)?;
    let starting = Starting { request, by: "the rollout itself".into(), supersede: false };
    let started = roll_back(sight, &plan, &digest, starting, back_from, why).ok()?;
    Some((digest, Arc::new(Indexed::new(plan)), started.txn?))
}

/// The name of the blob that holds a plan.
pub(super) fn digest_of(plan: &muster_core::rollout::plan::Plan) -> Option<String> {
    let text = serde_json::to_vec(plan).ok()?;
    let hash = text
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    Some(format!("plan-{hash:016x}"))
}
