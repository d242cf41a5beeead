//! What a server does when a person asks it for something: [`muster_rollout::executor`] decides.

use muster_core::names::EnvName;
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::PauseReason;
use muster_core::rollout::request::{PlanRequest, StartTarget};
use muster_core::txn::{Revision, Txn};
use muster_rollout::executor::{Begin, Begun, Decided, Errand, Got, Next, Outset, RollBack, Said, Say};
use muster_rollout::sight::Sight;
use muster_rollout::start::Starting;

use super::calls::{Answer, Call, Request};
use super::hands::{Needy, wrote};
use crate::simulation::event::ReplicaNumber;
use crate::simulation::operator::{Wish, WishKind};
use crate::simulation::world::World;

/// A wish on its way.
#[derive(Clone, Debug)]
pub(crate) enum Doing {
    Begin(Box<Errand<Begin>>),
    RollBack(Box<Errand<RollBack>>),
    Say(Box<Errand<Say>>),
    Write(Errand<Write>),
}

/// What concerns no rollout.
#[derive(Clone, Debug)]
pub(crate) struct Write(Txn);

impl muster_rollout::executor::Wish for Write {
    type Done = Revision;
    type Refused = String;
    const TRIES: usize = 6;

    fn decide(&mut self, sight: &Sight<'_>, _: Got, _: bool) -> Result<Decided<Revision>, String> {
        Ok(Decided::Write(self.0.clone(), sight.fleet.revision))
    }

    fn done_at(_: Revision, revision: Revision) -> Revision {
        revision
    }

    fn contended(&self, _: &EnvName) -> String {
        "others are faster again and again".into()
    }
}

impl Doing {
    fn next(&mut self, sight: &Sight<'_>, got: Got) -> Result<Next<Txn, String>, String> {
        match self {
            Doing::Begin(errand) => told(errand.next(sight, got), |outset| match outset {
                Outset::Begun(it) => begun(it),
                Outset::Nothing(there) => answer(false, there.revision),
            }),
            Doing::RollBack(errand) => told(errand.next(sight, got), begun),
            Doing::Say(errand) => {
                told(errand.next(sight, got), |Said { changed, revision, .. }| answer(changed, revision))
            }
            Doing::Write(errand) => told(errand.next(sight, got), |revision| answer(true, revision)),
        }
    }
}

/// In the words of the answer that the person gets.
fn told<D, E: ToString>(
    next: Result<Next<Txn, D>, E>,
    done: impl FnOnce(D) -> String,
) -> Result<Next<Txn, String>, String> {
    match next {
        Ok(Next::Needs(need)) => Ok(Next::Needs(need)),
        Ok(Next::Commit(txn)) => Ok(Next::Commit(txn)),
        Ok(Next::Done(what)) => Ok(Next::Done(done(what))),
        Err(why) => Err(why.to_string()),
    }
}

fn begun(Begun { changed, revision, .. }: Begun) -> String {
    answer(changed, revision)
}

fn answer(changed: bool, revision: Revision) -> String {
    if changed { format!("done at revision {revision}") } else { "it is so already".into() }
}

impl World {
    pub(super) fn wish_arrives(&mut self, replica: ReplicaNumber, wish: Wish) {
        let fleet = self.replicas[replica].view.as_ref();
        let active = fleet.and_then(|fleet| fleet.active_rollout()).map(|(active, _)| active.id);
        let Some((doing, first)) = doing(&wish, active) else {
            self.server_says(replica, format_args!("{wish}: refused: there is no rollout"));
            return;
        };
        let number = wish.number;
        self.replicas[replica].errands.insert(number, (wish, doing));
        self.have_brought(replica, Needy::Errand(number), first);
    }

    pub(super) fn run_on(&mut self, replica: ReplicaNumber, number: u64, got: Got) {
        let Some((wish, mut doing)) = self.replicas[replica].errands.remove(&number) else { return };
        let next = self.in_sight(replica, |sight, world| {
            let mut next = doing.next(sight, got);
            while let Ok(Next::Needs(need)) = &next
                && let Some(got) = world.at_hand(replica, sight.fleet.revision, need)
            {
                next = doing.next(sight, got);
            }
            next
        });
        match next {
            None => {}
            Some(Ok(Next::Done(answer))) => self.server_says(replica, format_args!("{wish}: {answer}")),
            Some(Err(why)) => self.server_says(replica, format_args!("{wish}: refused: {why}")),
            Some(Ok(Next::Commit(txn))) => {
                self.replicas[replica].errands.insert(number, (wish, doing));
                self.call(replica, Call::Errand { number }, Request::Commit(txn));
            }
            Some(Ok(Next::Needs(need))) => {
                self.replicas[replica].errands.insert(number, (wish, doing));
                self.have_brought(replica, Needy::Errand(number), need);
            }
        }
    }

    pub(super) fn errand_written(&mut self, replica: ReplicaNumber, number: u64, answer: &Answer) {
        match wrote(answer) {
            Some(wrote) => self.run_on(replica, number, Got::Wrote(wrote)),
            None => self.errand_fails(replica, number),
        }
    }

    pub(super) fn errand_fails(&mut self, replica: ReplicaNumber, number: u64) {
        if let Some((wish, _)) = self.replicas[replica].errands.remove(&number) {
            self.server_says(replica, format_args!("{wish}: the store does not answer"));
        }
    }
}

/// A wish, begun, with what it needs first. Words are said to the rollout that decides.
fn doing(wish: &Wish, active: Option<RolloutId>) -> Option<(Doing, muster_rollout::executor::Need)> {
    let who = |supersede| Starting { request: wish.request(), by: wish.by.clone(), supersede };
    Some(match &wish.kind {
        WishKind::Start { to, at_once, supersede, .. } => {
            let wanted = PlanRequest { at_once: *at_once, ..PlanRequest::to(to.clone()) };
            let (errand, first) = Errand::new(Begin::new(StartTarget::Now(wanted), who(*supersede)));
            (Doing::Begin(Box::new(errand)), first)
        }
        WishKind::StartPlan(plan) => {
            let (errand, first) = Errand::new(Begin::new(StartTarget::Plan(plan.clone()), who(false)));
            (Doing::Begin(Box::new(errand)), first)
        }
        WishKind::Operate(command) => {
            let (errand, first) = Errand::new(Say {
                id: active?,
                command: command.clone(),
                by: wish.by.clone(),
                request: wish.request(),
            });
            (Doing::Say(Box::new(errand)), first)
        }
        WishKind::RollBack => {
            let why = PauseReason::by_operator(wish.by.clone(), "");
            // Ways back from ways back must keep every promise too.
            let (errand, first) = Errand::new(RollBack::new(active?, who(false), why).undoing(true));
            (Doing::RollBack(Box::new(errand)), first)
        }
        WishKind::Write(txn) => {
            let (errand, first) = Errand::new(Write(txn.clone()));
            (Doing::Write(errand), first)
        }
    })
}
