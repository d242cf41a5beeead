//! A rollout is planned and begun, or a plan is begun that still holds.

use std::sync::Arc;

use muster_core::fleet::Fleet;
use muster_core::names::{EnvName, Version};
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::RolloutPlan;
use muster_core::rollout::request::{PlanRequest, StartTarget};
use muster_core::txn::Revision;
use thiserror::Error;

use super::errand::{Decided, Wish};
use super::need::{Got, Need};
use super::way::{Way, own_commands};
use super::way_back::NoWayBack;
use crate::compare::moved;
use crate::order::draw;
use crate::plan::{PlanError, Request, plan};
use crate::sight::Sight;
use crate::start::{StartRefused, Starting, may_take_over, of_request, start};

#[derive(Debug, Error)]
pub enum BeginRefused {
    #[error(transparent)]
    NoPlan(#[from] PlanError),
    #[error(
        "the check {check:?} runs a program, and is not in the environment file: a command of a gate must stand in the \
         environment file"
    )]
    ForeignCommand { check: String },
    #[error("the plan is for the environment {0}")]
    OfAnother(EnvName),
    #[error("the world has moved since the plan was made: {}", .0.join("; "))]
    Outdated(Vec<String>),
    #[error(transparent)]
    Refused(#[from] StartRefused),
    #[error(transparent)]
    NoWayBack(#[from] NoWayBack),
    #[error("others start rollouts of {0} again and again at the same moment")]
    Contended(EnvName),
}

/// A rollout that has begun, now or by the same request before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    pub id: RolloutId,
    pub from: Option<Version>,
    pub to: Version,
    pub at_once: bool,
    pub changed: bool,
    pub superseded: Option<RolloutId>,
    pub revision: Revision,
}

/// StartTarget became of a wish for a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outset {
    Begun(Begun),
    Nothing(AlreadyThere),
}

/// Every node runs the version already, and proved it: a rollout would move nobody, and would be the last one all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlreadyThere {
    pub to: Version,
    pub nodes: usize,
    /// Which rollout decides, if there was one.
    pub by: Option<RolloutId>,
    pub revision: Revision,
}

/// Fills in what a request leaves open from the configuration of the environment.
pub fn resolve_request(request: PlanRequest, way: Way, fleet: &Fleet) -> Request {
    // Each rollout has its own seed, or the same node would always go first. The seed stays the same until the next rollout
    // starts: the plan that was shown is the plan that is started.
    let last = fleet.rollouts().keys().next_back().copied().unwrap_or_default();
    let seed = request.seed.unwrap_or_else(|| draw(last.next().0, request.to.as_str()));
    Request {
        to: request.to,
        strategy: request.strategy.or(way.strategy).unwrap_or_default(),
        after: way.after,
        seed,
        at_once: request.at_once,
        allow_older: request.allow_older,
        rolls_back: None,
    }
}

/// Begins a rollout.
#[derive(Clone, Debug)]
pub struct Begin {
    pub what: StartTarget,
    pub who: Starting,
    /// The plan that is being kept, and which rollout decided when it was made.
    plan: Option<(Arc<RolloutPlan>, Option<Revision>)>,
}

/// Which rollout decides, and since when.
fn deciding(fleet: &Fleet) -> Option<Revision> {
    fleet.active_rollout().map(|(_, at)| at)
}

impl Begin {
    pub fn new(what: StartTarget, who: Starting) -> Self {
        Self { what, who, plan: None }
    }
}

impl Wish for Begin {
    type Done = Outset;
    type Refused = BeginRefused;
    /// Two who start, and a fleet that grows meanwhile.
    const TRIES: usize = 8;

    fn decide(&mut self, sight: &Sight<'_>, got: Got, unsure: bool) -> Result<Decided<Outset>, BeginRefused> {
        match (self.plan.take(), got) {
            (_, Got::Way(way)) => {
                let plan = Arc::new(planned(sight, &self.what, *way)?);
                if let Some(there) = already_there(sight.fleet, &plan) {
                    return Ok(Decided::Already(Outset::Nothing(there)));
                }
                self.plan = Some((plan.clone(), deciding(sight.fleet)));
                Ok(Decided::Needs(Need::Keep(plan)))
            }
            // Another rollout has begun while the plan was being kept: what was planned before is not what would happen now.
            (Some((_, on)), Got::Kept(_)) if on != deciding(sight.fleet) => Ok(Decided::Anew),
            (Some((plan, _)), Got::Kept(digest)) => {
                let open = sight.fleet.deciding_rollout().filter(|(record, _)| record.phase.is_open());
                let superseded = open.map(|(record, _)| record.id);
                let started = start(sight, &plan, &digest, self.who.clone())?;
                // By the same request, a moment ago.
                let Some(txn) = started.txn else { return Ok(Decided::Anew) };
                Ok(Decided::Write(txn, Outset::Begun(begun(started.id, &plan, superseded))))
            }
            (_, _) => {
                if let Some(begun) = begun_by(sight.fleet, &self.who.request, unsure) {
                    return Ok(Decided::Already(Outset::Begun(begun)));
                }
                // Before anything is said of the plan: who asks for an older version than the one under way is told of that one.
                may_take_over(sight.fleet, self.who.supersede)?;
                Ok(Decided::Needs(Need::Way { required: true }))
            }
        }
    }

    fn done_at(done: Outset, revision: Revision) -> Outset {
        match done {
            Outset::Begun(begun) => Outset::Begun(Begun { revision, ..begun }),
            there @ Outset::Nothing(_) => there,
        }
    }

    fn contended(&self, env: &EnvName) -> BeginRefused {
        BeginRefused::Contended(env.clone())
    }
}

fn planned(sight: &Sight<'_>, what: &StartTarget, way: Way) -> Result<RolloutPlan, BeginRefused> {
    let sent_along = match what {
        StartTarget::Now(request) => request.strategy.as_ref(),
        StartTarget::Plan(given) => Some(&given.strategy),
    };
    sent_along.map_or(Ok(()), |sent| own_commands(sent, &way))?;
    let (request, given) = match what {
        StartTarget::Now(request) => (resolve_request(request.clone(), way, sight.fleet), None),
        StartTarget::Plan(given) if given.env != sight.fleet.env => {
            return Err(BeginRefused::OfAnother(given.env.clone()));
        }
        // The order is the design's, whatever it was when the plan was made.
        StartTarget::Plan(given) => (Request { after: way.after, ..Request::of(given) }, Some(given)),
    };
    let plan = plan(sight, &request)?;
    let moved: Vec<String> =
        given.map(|given| moved(given, &plan)).into_iter().flatten().map(|m| m.to_string()).collect();
    if moved.is_empty() { Ok(plan) } else { Err(BeginRefused::Outdated(moved)) }
}

/// Whether a plan changes nothing at all: nobody moves, no rollout ends by it, and those who come later are told the same.
fn already_there(fleet: &Fleet, plan: &RolloutPlan) -> Option<AlreadyThere> {
    let chosen = fleet.desired().filter(|chosen| chosen.version == plan.to)?;
    let base = fleet.base().filter(|base| base.version == plan.to)?;
    // Who asks with the permission to go back adds it.
    let is_allowed = !plan.allow_older || chosen.allow_older && base.allow_older;
    let deciding = fleet.deciding_rollout().map(|(record, _)| record);
    let is_over = deciding.is_none_or(|record| !record.phase.is_open());
    // At once, those are told anew that were set aside.
    let is_for_others = plan.at_once && deciding.is_some_and(|record| !record.skipped.is_empty());
    let is_so = plan.waves.is_empty() && is_allowed && is_over && !is_for_others;
    is_so.then(|| AlreadyThere {
        to: plan.to.clone(),
        nodes: plan.already.len(),
        by: deciding.map(|record| record.id),
        revision: fleet.revision,
    })
}

/// One that begins with the transaction that is being committed.
pub(super) fn begun(id: RolloutId, plan: &RolloutPlan, superseded: Option<RolloutId>) -> Begun {
    let RolloutPlan { from, to, at_once, .. } = plan;
    let (from, to, at_once) = (from.clone(), to.clone(), *at_once);
    Begun { id, from, to, at_once, changed: true, superseded, revision: Revision::default() }
}

/// The rollout that a request has begun.
pub(super) fn begun_by(fleet: &Fleet, request: &str, unsure: bool) -> Option<Begun> {
    let record = of_request(fleet, request)?;
    // The transaction that began it is the last that chose a version, as long as no other rollout was begun since. StartTarget nodes
    // are told at once is counted from there.
    let is_last = fleet.active_rollout().is_some_and(|(active, _)| active.id == record.id);
    let chosen = fleet.current_version().map(|(_, at)| at).filter(|_| is_last);
    Some(Begun {
        id: record.id,
        from: record.from.clone(),
        to: record.to.clone(),
        at_once: record.at_once,
        // A try whose answer was lost was carried out.
        changed: unsure,
        superseded: None,
        revision: chosen.unwrap_or(fleet.revision),
    })
}
