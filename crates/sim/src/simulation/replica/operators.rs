//! What a server does when a person asks it for something: it decides on its view, commits, and decides anew when that has
//! changed meanwhile, or nobody knows.

use std::sync::Arc;

use muster_core::rollout::record::Halt;
use muster_core::txn::Txn;
use muster_rollout::operate::operate;
use muster_rollout::plan::{Request as PlanRequest, plan};
use muster_rollout::start::{Starting, start};
use muster_rollout::step::Indexed;

use super::calls::{Answer, Call, Failure, Request};
use super::rollouts::{digest_of, rollback_of};
use crate::simulation::event::ReplicaNumber;
use crate::simulation::operator::{Wish, WishKind};
use crate::simulation::world::World;

const TRIES: u32 = 6;
/// How often a server looks whether its view has caught up.
const LOOKS: u32 = 60;

/// What a wish comes to.
enum Granted {
    /// It is so already.
    Already,
    Refused(String),
    Commit(Txn, Option<(String, Arc<Indexed>)>),
}

impl World {
    pub(super) fn wish_arrives(&mut self, replica: ReplicaNumber, wish: Wish, tries: u32) {
        if tries > TRIES {
            self.server_says(replica, format_args!("gives up on {wish}"));
            return;
        }
        let granted = self.in_sight(replica, |sight, world| match &wish.kind {
            WishKind::Start { to, strategy, at_once, supersede } => {
                let asked = PlanRequest {
                    to: to.clone(),
                    strategy: (**strategy).clone(),
                    after: world.design.after.clone(),
                    seed: wish.number,
                    at_once: *at_once,
                    allow_older: false,
                    rolls_back: None,
                };
                let plan = match plan(sight, &asked) {
                    Ok(plan) => plan,
                    Err(error) => return Granted::Refused(error.to_string()),
                };
                let Some(digest) = digest_of(&plan) else {
                    return Granted::Refused("the plan cannot be written".into());
                };
                let starting = Starting { request: wish.request(), by: wish.by.clone(), supersede: *supersede };
                match start(sight, &plan, &digest, starting) {
                    Ok(started) => match started.txn {
                        Some(txn) => Granted::Commit(txn, Some((digest, Arc::new(Indexed::new(plan))))),
                        None => Granted::Already,
                    },
                    Err(error) => Granted::Refused(error.to_string()),
                }
            }
            WishKind::Operate(command) => {
                let Some((record, at)) = sight.fleet.deciding_rollout() else {
                    return Granted::Refused("there is no rollout".into());
                };
                match operate(record, command, &wish.by, sight) {
                    Ok(Some(operated)) => match operated.txn(sight.fleet, at) {
                        Ok(txn) => Granted::Commit(txn, None),
                        Err(error) => Granted::Refused(error.to_string()),
                    },
                    Ok(None) => Granted::Already,
                    Err(error) => Granted::Refused(error.to_string()),
                }
            }
            WishKind::RollBack => {
                let Some(record) = sight.fleet.deciding_rollout() else {
                    return Granted::Refused("there is no rollout".into());
                };
                let why = Halt::by_operator(wish.by.clone(), "");
                match rollback_of(sight, world, record, &why, wish.request(), wish.number) {
                    Some((digest, plan, txn)) => Granted::Commit(txn, Some((digest, plan))),
                    None => Granted::Refused("there is nothing to go back from, or to".into()),
                }
            }
            WishKind::Write(txn) => Granted::Commit(txn.clone(), None),
        });
        match granted {
            None => {}
            Some(Granted::Already) => self.server_says(replica, format_args!("{wish}: it is so already")),
            Some(Granted::Refused(why)) => {
                self.server_says(replica, format_args!("{wish}: refused: {why}"));
            }
            Some(Granted::Commit(txn, plan)) => {
                if let Some((digest, plan)) = plan {
                    self.blobs.insert(digest, plan);
                }
                self.call(replica, Call::Wish { wish, tries }, Request::Commit(txn));
            }
        }
    }

    pub(super) fn wish_committed(&mut self, replica: ReplicaNumber, wish: Wish, tries: u32, answer: Answer) {
        match answer {
            Answer::Committed { revision } => {
                self.server_says(replica, format_args!("{wish}: done at revision {revision}"));
            }
            Answer::Refused { .. } | Answer::Failed(Failure::Unknown) => {
                self.call(
                    replica,
                    Call::WishAgain { wish, tries: tries + 1, looks: 0 },
                    Request::Read { keys: Vec::new() },
                );
            }
            Answer::Failed(Failure::Unavailable | Failure::Full | Failure::LeaseEnded)
            | Answer::Read { .. }
            | Answer::Joined { .. }
            | Answer::Kept => {
                self.server_says(replica, format_args!("{wish}: the store does not answer"));
            }
        }
    }

    pub(super) fn wish_read(&mut self, replica: ReplicaNumber, wish: Wish, tries: u32, looks: u32, answer: Answer) {
        let view = self.replicas[replica].view.as_ref().map(|fleet| fleet.revision).unwrap_or_default();
        match answer {
            Answer::Read { revision, .. } if view >= revision => self.wish_arrives(replica, wish, tries),
            Answer::Read { .. } | Answer::Failed(_) if looks < LOOKS => {
                let call = Call::WishAgain { wish, tries, looks: looks + 1 };
                self.call(replica, call, Request::Read { keys: Vec::new() });
            }
            Answer::Read { .. }
            | Answer::Failed(_)
            | Answer::Committed { .. }
            | Answer::Refused { .. }
            | Answer::Joined { .. }
            | Answer::Kept => {}
        }
    }
}
