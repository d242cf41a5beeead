//! Lends the rollout engine hands: what it needs is asked of the store, read and written, each with its delays; and a server
//! may die in between. It decides nothing.

use std::sync::Arc;
use std::time::Duration;

use muster_core::txn::Revision;
use muster_rollout::executor::{Got, Need, Way, Wrote};
use muster_rollout::step::Indexed;

use super::calls::{Answer, Call, Failure, Request};
use crate::simulation::event::{Event, ReplicaEvent, ReplicaNumber};
use crate::simulation::operator::WishKind;
use crate::simulation::world::World;

/// So long is the view waited for: as the server has it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who needs something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needy {
    /// A look of the controller. What was meant for one that was given up reaches nobody.
    Look(u64),
    /// What a person asked for.
    Errand(u64),
}

impl World {
    /// What is needed, if this server has it already.
    pub(super) fn at_hand(&self, replica: ReplicaNumber, view: Revision, need: &Need) -> Option<Got> {
        match need {
            Need::View(revision) => (view >= *revision).then_some(Got::Viewed),
            Need::Plan(digest) => {
                let was_read = self.replicas[replica].plans.contains(digest);
                self.blobs.get(digest).filter(|_| was_read).map(|plan| Got::Plan(Ok(plan.clone())))
            }
            Need::Newest | Need::Way { .. } | Need::Keep(_) | Need::KeepOutcome(_) => None,
        }
    }

    /// Has what is needed brought, some time later.
    pub(super) fn have_brought(&mut self, replica: ReplicaNumber, who: Needy, need: Need) {
        let life = self.replicas[replica].life;
        match need {
            Need::Newest => self.call(replica, Call::Newest { who }, Request::Read { keys: Vec::new() }),
            Need::View(revision) => {
                self.replicas[replica].awaited.push((revision, who));
                let what = ReplicaEvent::StopsWaiting { who, revision };
                self.agenda.put(self.now + PATIENCE, Event::Replica { replica, life, what });
            }
            Need::Plan(_) | Need::Way { .. } | Need::Keep(_) | Need::KeepOutcome(_) => {
                let takes = self.between(1, 40);
                let what = ReplicaEvent::Brings { who, need: Box::new(need) };
                self.agenda.put(self.now + takes, Event::Replica { replica, life, what });
            }
        }
    }

    /// What is read is what is there now; what is written is there from now on, whatever becomes of the server.
    pub(super) fn brings(&mut self, replica: ReplicaNumber, who: Needy, need: Need) {
        let got = match need {
            Need::Plan(digest) => match self.blobs.get(&digest).filter(|_| !self.plans_gone).cloned() {
                Some(plan) => {
                    self.replicas[replica].plans.insert(digest);
                    Got::Plan(Ok(plan))
                }
                None => Got::Plan(Err(format!("its plan (blob {digest}) is missing or damaged"))),
            },
            Need::Way { .. } => Got::Way(Box::new(self.way_of(replica, who))),
            Need::Keep(plan) => match serde_json::to_vec(&*plan) {
                Ok(text) => {
                    let name = name_of("plan", &text);
                    self.blobs.insert(name.clone(), Arc::new(Indexed::new((*plan).clone())));
                    self.replicas[replica].plans.insert(name.clone());
                    Got::Kept(name)
                }
                Err(_) => return self.lacks(replica, who),
            },
            Need::KeepOutcome(stood) => {
                let name = serde_json::to_vec(&stood).ok().map(|text| name_of("outcome", &text));
                self.outcomes.extend(name.clone());
                Got::OutcomeKept(name)
            }
            Need::Newest | Need::View(_) => return self.have_brought(replica, who, need),
        };
        self.go_on(replica, who, got);
    }

    /// What the environment's file says: whoever starts a rollout has applied it before.
    fn way_of(&self, replica: ReplicaNumber, who: Needy) -> Way {
        let wish = match who {
            Needy::Errand(number) => self.replicas[replica].errands.get(&number).map(|(wish, _)| &wish.kind),
            Needy::Look(_) => None,
        };
        let strategy = match wish {
            Some(WishKind::Start { strategy, .. }) => Some((**strategy).clone()),
            Some(WishKind::StartPlan(plan)) => Some(plan.strategy.clone()),
            Some(WishKind::Operate(_) | WishKind::RollBack | WishKind::Write(_)) | None => None,
        };
        Way { strategy, after: self.design.after.clone(), design: None }
    }

    /// Goes on with what was brought.
    pub(super) fn go_on(&mut self, replica: ReplicaNumber, who: Needy, got: Got) {
        match who {
            Needy::Look(look) => self.look_on(replica, look, got),
            Needy::Errand(number) => self.run_on(replica, number, got),
        }
    }

    /// What is needed cannot be had.
    pub(super) fn lacks(&mut self, replica: ReplicaNumber, who: Needy) {
        match who {
            Needy::Look(look) => self.look_fails(replica, look),
            Needy::Errand(number) => self.errand_fails(replica, number),
        }
    }

    pub(super) fn newest_read(&mut self, replica: ReplicaNumber, who: Needy, answer: &Answer) {
        match answer {
            Answer::Read { revision, .. } => self.go_on(replica, who, Got::Newest(*revision)),
            Answer::Failed(_)
            | Answer::Committed { .. }
            | Answer::Refused { .. }
            | Answer::Joined { .. }
            | Answer::Kept => self.lacks(replica, who),
        }
    }

    /// The view has moved: whoever waits for that goes on.
    pub(super) fn view_reached(&mut self, replica: ReplicaNumber, view: Revision) {
        let awaited = std::mem::take(&mut self.replicas[replica].awaited);
        let (reached, rest) = awaited.into_iter().partition(|(revision, _)| *revision <= view);
        self.replicas[replica].awaited = rest;
        let reached: Vec<(Revision, Needy)> = reached;
        for (_, who) in reached {
            self.go_on(replica, who, Got::Viewed);
        }
    }

    pub(super) fn stops_waiting(&mut self, replica: ReplicaNumber, who: Needy, revision: Revision) {
        let awaited = &mut self.replicas[replica].awaited;
        if let Some(place) = awaited.iter().position(|waiting| *waiting == (revision, who)) {
            awaited.remove(place);
            self.lacks(replica, who);
        }
    }
}

/// What an answer says of a write; none if it was not carried out, and is not going to be.
pub(super) fn wrote(answer: &Answer) -> Option<Wrote> {
    match answer {
        Answer::Committed { revision } => Some(Wrote::Committed(*revision)),
        Answer::Refused { revision, .. } => Some(Wrote::Refused(*revision)),
        Answer::Failed(Failure::Unknown) => Some(Wrote::Unknown),
        Answer::Failed(Failure::Unavailable | Failure::Full | Failure::LeaseEnded)
        | Answer::Read { .. }
        | Answer::Joined { .. }
        | Answer::Kept => None,
    }
}

/// The name of a blob.
fn name_of(kind: &str, text: &[u8]) -> String {
    let hash = text
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{kind}-{hash:016x}")
}
