//! Looks after rollouts, if this server holds their controller: [`muster_rollout::executor`] decides. Here is when it looks,
//! how its writes are fenced, and who makes the checks of gates.

use std::time::Duration;

use jiff::SignedDuration;
use muster_core::names::NodeName;
use muster_core::node::liveness::Link;
use muster_core::replica::ControllerName;
use muster_core::rollout::progress::Progress;
use muster_core::rollout::record::GateVerdict;
use muster_core::txn::Revision;
use muster_rollout::executor::{AGAIN, Executor, Got, Looked, Next, PACE, Question, Wrote};
use muster_rollout::progress::progress;
use muster_rollout::sight::Sight;

use super::calls::{Answer, Call, Request};
use super::chore::Chore;
use super::hands::{Needy, wrote};
use super::tenures::Fenced;
use crate::simulation::event::{Event, ReplicaEvent, ReplicaNumber};
use crate::simulation::world::World;

/// An agent whose connection broke is looked for this long: as the server has it.
pub(crate) const PATIENCE: SignedDuration = SignedDuration::from_secs(30);

#[derive(Clone, Debug, Default)]
pub(crate) struct Rollouts {
    executor: Executor,
    looks: u64,
    /// The look that goes on, and the tenure in whose name it writes.
    look: Option<(u64, Revision)>,
    /// Something has happened since it began.
    again: bool,
    /// What the checks are being asked.
    asking: Option<Question>,
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
        let (arrivals, since) = (&self.replicas[replica].arrivals, self.now);
        let known_for = |revision| arrivals.known_for(revision, since);
        let sight = Sight { fleet: &fleet, link: &link, patience: PATIENCE, now, known_for: &known_for };
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
        let is_about_to = server.rollouts.look.is_some() || server.chores.is_due(Chore::Rollout, self.now + PACE);
        if !is_up_to_date || is_about_to {
            return None;
        }
        let look = |sight: &Sight<'_>, world: &Self| {
            let (record, _) = sight.fleet.deciding_rollout()?;
            Some(progress(world.blobs.get(&record.plan)?, record, sight))
        };
        self.in_sight(acting, look).flatten()
    }

    /// Something has happened that rollouts may wait for. What happens together is looked at together.
    pub(super) fn look_soon(&mut self, replica: ReplicaNumber) {
        self.due(replica, Chore::Rollout, self.now + PACE);
    }

    pub(super) fn look_after_rollouts(&mut self, replica: ReplicaNumber) {
        let held = self.replicas[replica].held(ControllerName::Rollout, self.now).map(|held| held.revision);
        let rollouts = &mut self.replicas[replica].rollouts;
        let Some(held) = held else {
            *rollouts = Rollouts { looks: rollouts.looks, ..Rollouts::default() };
            return;
        };
        if rollouts.look.is_some() {
            rollouts.again = true;
            return;
        }
        rollouts.looks += 1;
        let look = rollouts.looks;
        rollouts.look = Some((look, held));
        self.look_on(replica, look, Got::Nothing);
    }

    /// Goes on with a look, if it was not given up.
    pub(super) fn look_on(&mut self, replica: ReplicaNumber, look: u64, got: Got) {
        let rollouts = &mut self.replicas[replica].rollouts;
        let Some((_, held)) = rollouts.look.filter(|(number, _)| *number == look) else { return };
        let mut executor = std::mem::take(&mut rollouts.executor);
        let next = self.in_sight(replica, |sight, world| {
            let mut next = executor.next(sight, got);
            while let Next::Needs(need) = &next
                && let Some(got) = world.at_hand(replica, sight.fleet.revision, need)
            {
                next = executor.next(sight, got);
            }
            next
        });
        self.replicas[replica].rollouts.executor = executor;
        match next {
            None => self.looked(replica, Looked::Quiet),
            Some(Next::Done(looked)) => self.looked(replica, looked),
            Some(Next::Needs(need)) => self.have_brought(replica, Needy::Look(look), need),
            Some(Next::Commit(write)) => match self.fenced(replica, ControllerName::Rollout, write.txn) {
                Some((tenure, txn)) if tenure == held => {
                    self.call(replica, Call::Step { held, look }, Request::Commit(txn));
                }
                // It holds it no longer, or anew.
                Some(_) | None => self.look_on(replica, look, Got::Wrote(Wrote::Deposed)),
            },
        }
    }

    pub(super) fn look_fails(&mut self, replica: ReplicaNumber, look: u64) {
        if self.replicas[replica].rollouts.look.is_some_and(|(number, _)| number == look) {
            self.looked(replica, Looked::Failed);
        }
    }

    /// A look has come to an end.
    fn looked(&mut self, replica: ReplicaNumber, looked: Looked) {
        let clock = self.clock_of(replica);
        self.replicas[replica].rollouts.look = None;
        self.have_checked(replica);
        let wait = match looked {
            Looked::Quiet | Looked::Waits(None) | Looked::Stuck { .. } => None,
            Looked::Waits(Some(at)) => Some(Duration::try_from(at.duration_since(clock)).unwrap_or_default()),
            Looked::Failed => Some(AGAIN),
            Looked::More => Some(Duration::ZERO),
        };
        if let Some(wait) = wait {
            self.due(replica, Chore::Rollout, self.now + wait + PACE);
        }
        if std::mem::take(&mut self.replicas[replica].rollouts.again) {
            self.look_soon(replica);
        }
    }

    pub(super) fn stepped(&mut self, replica: ReplicaNumber, held: Revision, look: u64, answer: &Answer) {
        let wrote = match self.outcome(replica, ControllerName::Rollout, held, answer) {
            Fenced::Deposed => Wrote::Deposed,
            Fenced::Committed | Fenced::Refused | Fenced::Failed => wrote(answer).unwrap_or(Wrote::Unknown),
        };
        self.look_on(replica, look, Got::Wrote(wrote));
    }

    /// Sees to it that the checks are asked what the engine wants to know, and nothing else.
    fn have_checked(&mut self, replica: ReplicaNumber) {
        let rollouts = &mut self.replicas[replica].rollouts;
        let question = rollouts.executor.asks().cloned();
        if rollouts.asking == question {
            return;
        }
        rollouts.asking.clone_from(&question);
        let Some(question) = question else { return };
        let life = self.replicas[replica].life;
        let takes = self.between(200, 5_000);
        let what = ReplicaEvent::Checked(Box::new(question));
        self.agenda.put(self.now + takes, Event::Replica { replica, life, what });
    }

    pub(super) fn checked(&mut self, replica: ReplicaNumber, question: Question) {
        if self.replicas[replica].rollouts.asking.as_ref() != Some(&question) {
            return;
        }
        let at = self.clock_of(replica);
        let verdict = self.gate_says(question.rollout, question.place, at);
        self.server_says(replica, format_args!("the gate of wave {} says {}", question.place + 1, word(&verdict)));
        let rollouts = &mut self.replicas[replica].rollouts;
        rollouts.asking = None;
        rollouts.executor.answered(question, verdict);
        self.look_soon(replica);
    }
}

fn word(verdict: &GateVerdict) -> &'static str {
    match verdict {
        GateVerdict::Passed { .. } => "yes",
        GateVerdict::Failed { .. } => "no",
        GateVerdict::Inconclusive { .. } => "nothing",
    }
}
