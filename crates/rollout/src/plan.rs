//! What is going to happen, from the environment as it is, the strategy and a seed.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use muster_core::names::{NodeName, Role, Version};
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::{FORMAT, PlannedWave, Prediction, RolloutPlan, UnhealthyNode};
use muster_core::rollout::strategy::{Amount, FailureLimits, Gate, OnFailure, Promote, Reach, Strategy, Wave};

use crate::budget::{budgets, domain_of};
use crate::order::{Domains, Ticket, draw};
use crate::predict::predict;
use crate::sight::Sight;
use crate::stages::stages;
use crate::unwell::preflight;
use crate::waves::{Mover, Place, waves};

pub use crate::refusal::PlanError;

/// Where a fleet is to go, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub to: Version,
    pub strategy: Strategy,
    /// Which roles each role comes after.
    pub after: BTreeMap<Role, BTreeSet<Role>>,
    /// Decides the order among equals.
    pub seed: u64,
    /// Everybody in one transaction, without waves and budgets. The first version of an environment always goes so: nothing
    /// runs that could break.
    pub at_once: bool,
    /// Whether nodes may go back to an earlier release.
    pub allow_older: bool,
    /// Goes back from what this rollout has done.
    pub rolls_back: Option<RolloutId>,
}

impl Request {
    /// The one that a plan was made for: asked again, it says what has changed since.
    pub fn of(plan: &RolloutPlan) -> Self {
        Self {
            to: plan.to.clone(),
            strategy: plan.strategy.clone(),
            after: plan.after.clone(),
            seed: plan.seed,
            at_once: plan.at_once,
            allow_older: plan.allow_older,
            rolls_back: plan.rolls_back,
        }
    }

    /// How it is carried out. What is known to be good needs no canary, and what goes back must not go back in turn. Nor does
    /// it wait until a window opens, or until checks pass that may fail because of what it takes away, and one node that
    /// cannot go back keeps no other from it: all that would make an outage longer. Budgets hold as ever.
    fn strategy(&self) -> Strategy {
        if self.rolls_back.is_none() {
            return self.strategy.clone();
        }
        let wave = Wave { reach: Reach::Percent(100), soak: Some(SignedDuration::ZERO), promote: Promote::Auto };
        let gate = Gate { checks: Vec::new(), ..self.strategy.gate.clone() };
        let all = Amount::Percent(100);
        let failures = FailureLimits { canary: all, wave: all, total: all };
        let (waves, windows, on_failure) = (vec![wave], Vec::new(), OnFailure::Pause);
        // A node that cannot report must not go back to what is being taken away.
        let confirm_within = None;
        Strategy { waves, windows, gate, failures, on_failure, confirm_within, ..self.strategy.clone() }
    }
}

/// So many waves may a plan have, over all stages: each that has begun is in the rollout's record, which stays small.
pub const MOST_PLANNED_WAVES: usize = 60;

/// Plans a rollout. The same environment and request give the same plan, wherever and whenever.
pub fn plan(sight: &Sight<'_>, request: &Request) -> Result<RolloutPlan, PlanError> {
    let fleet = sight.fleet;
    let digest = crate::refusal::check(sight, request)?;
    let strategy = request.strategy();
    let seen = survey(sight, request, &strategy);
    let with_nodes: BTreeSet<&Role> = fleet.designed().map(|(_, _, record)| &record.role).collect();
    let stages = stages(&request.after, &with_nodes)?;
    // After a rollout that was ended half-way, the environment's version is not where most nodes are; but it is what is
    // gone back from.
    let from = match request.rolls_back {
        Some(_) => fleet.current_version().map(|(version, _)| version.clone()),
        None => fleet.base().map(|base| base.version),
    };
    let at_once = request.at_once || from.is_none();

    let mut staged: BTreeMap<u32, Vec<Mover<'_>>> = BTreeMap::new();
    for mover in seen.movers {
        staged.entry(stages.get(mover.role).copied().unwrap_or(1)).or_default().push(mover);
    }
    let cut = |(stage, movers): (u32, Vec<Mover<'_>>)| waves(stage, &movers, &strategy);
    let mut waves: Vec<PlannedWave> = staged.into_iter().flat_map(cut).collect();
    if at_once {
        waves = everybody(waves);
    }
    // Who goes back has one wave in each stage, and is refused nothing.
    if waves.len() > MOST_PLANNED_WAVES && request.rolls_back.is_none() {
        return Err(PlanError::TooManyWaves { waves: waves.len(), most: MOST_PLANNED_WAVES });
    }
    end_of_all(&mut waves, &strategy);

    let mut plan = RolloutPlan {
        format: FORMAT,
        env: fleet.env.clone(),
        from,
        to: request.to.clone(),
        digest,
        allow_older: request.allow_older,
        rolls_back: request.rolls_back,
        at_once,
        seed: request.seed,
        budgets: budgets(fleet.designed(), &strategy.max_unavailable),
        strategy,
        after: request.after.clone(),
        waves,
        already: seen.already,
        unwell: seen.unwell,
        predicted: Prediction::default(),
    };
    plan.predicted = predict(fleet, &plan);
    Ok(plan)
}

/// What is there to be planned with.
struct Survey<'a> {
    movers: Vec<Mover<'a>>,
    already: BTreeSet<NodeName>,
    unwell: Vec<UnhealthyNode>,
}

fn survey<'a>(sight: &Sight<'a>, request: &Request, strategy: &Strategy) -> Survey<'a> {
    let mut survey = Survey { movers: Vec::new(), already: BTreeSet::new(), unwell: Vec::new() };
    let base = sight.fleet.base();
    let mut domains = Domains::new(request.seed);
    // Who is leaving is not among them.
    for (name, node, record) in sight.fleet.designed() {
        let granted = node.desired.as_ref().and_then(|_| sight.fleet.desired_of(name));
        let desired = granted.as_ref().or(base.as_ref());
        let is_told = desired.is_some_and(|desired| desired.version == request.to);
        let (place, unwell) = preflight(sight, name, node, record, desired);
        // One that runs the target, and cannot be reached just now, is where it should be: to tell it again would change
        // nothing. And whoever goes back leaves alone who never went, well or not.
        let runs_it = || {
            let answered = desired.is_some_and(|desired| node.has_answered(desired.generation));
            let state = node.state().filter(|(state, _)| state.is_validated() && *state.version() == request.to);
            answered && state.is_some() && place != Place::First
        };
        // Nor does it fetch who was set aside, or was told something by another rollout.
        let stays = |back_from: RolloutId| {
            let granted = sight.fleet.granted(name);
            granted.is_some_and(|(granted, _)| granted.rollout != back_from || granted.kept.is_some())
        };
        let is_there = match request.rolls_back {
            Some(back_from) => is_told || stays(back_from),
            None => is_told && runs_it(),
        };
        survey.unwell.extend(unwell.map(|unwell| UnhealthyNode { repaired: unwell.repaired && !is_there, ..unwell }));
        if is_there {
            survey.already.insert(name.clone());
            continue;
        }
        let domain = domain_of(record, strategy.max_unavailable.per.as_ref());
        let taking_turns = domains.of(domain.unwrap_or(&record.failure_domain));
        let ticket = Ticket { domain: taking_turns, draw: draw(request.seed, name.as_str()) };
        survey.movers.push(Mover { name, role: &record.role, place, ticket, domain });
    }
    survey
}

/// All waves as one.
fn everybody(waves: Vec<PlannedWave>) -> Vec<PlannedWave> {
    let nodes: Vec<_> = waves.into_iter().flat_map(|wave| wave.nodes).collect();
    if nodes.is_empty() {
        return Vec::new();
    }
    let (soak, promote) = (SignedDuration::ZERO, Promote::Auto);
    vec![PlannedWave { stage: 1, wave: 1, canary: true, nodes, soak, promote }]
}

/// After the last wave of all nothing begins, so nobody is asked whether it may, and nothing is waited for unless the
/// strategy says so.
fn end_of_all(waves: &mut [PlannedWave], strategy: &Strategy) {
    let Some(last) = waves.last_mut() else { return };
    last.promote = Promote::Auto;
    // It may stand for others that had nobody left to move: whatever one of them wants to wait is waited.
    let index = usize::try_from(last.wave.saturating_sub(1)).unwrap_or(usize::MAX);
    let soaks = strategy.waves.iter().skip(index).map(|wave| strategy.soak_of(wave, last.canary, true));
    last.soak = soaks.max().unwrap_or(last.soak);
}

#[cfg(test)]
mod tests;
