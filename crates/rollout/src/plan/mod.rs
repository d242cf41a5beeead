//! Plans a rollout from the environment, the strategy and a seed: its waves, and its budgets.

mod difference;
mod error;
pub mod order;
pub mod stages;
#[cfg(test)]
mod tests;
pub(crate) mod waves;

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use muster_core::fleet::Node;
use muster_core::names::{NodeName, Role, Version};
use muster_core::node::record::NodeRecord;
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::{Budgets, FORMAT, PlannedWave, Prediction, RoleBudget, RolloutPlan, UnhealthyNode};
use muster_core::rollout::strategy::{
    Amount, FailureLimits, Gate, MaxUnavailable, OnFailure, PerLabel, Promote, Reach, Strategy, Wave,
};

use crate::decision::DecisionInput;
use crate::plan::order::{OrderKey, SpreadGroups, draw};
use crate::plan::stages::stages;
use crate::plan::waves::{PlannedMove, WavePlacement, waves};
use crate::predict::predict;
use crate::preflight::{is_unprovisioned, preflight};

pub use difference::{PlanDifference, plan_differences};
pub use error::PlanError;

/// The target version of a fleet, and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub to: Version,
    pub strategy: Strategy,
    /// The roles that each role comes after.
    pub after: BTreeMap<Role, BTreeSet<Role>>,
    /// Decides the order of nodes that are equal otherwise.
    pub seed: u64,
    /// Moves all nodes in one transaction, without waves and budgets. The first version of an environment always does:
    /// nothing runs that could break.
    pub at_once: bool,
    /// Nodes may move to an older release.
    pub allow_older: bool,
    /// Rolls this rollout back.
    pub rolls_back: Option<RolloutId>,
}

impl Request {
    /// The request that a plan was made for. Planned again, it shows what has changed since.
    pub fn from_plan(plan: &RolloutPlan) -> Self {
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

    /// The strategy that is carried out. A rollback goes to a version that is known to be good: it has no canary and is
    /// not rolled back in turn. It does not wait for windows or gates, which may fail because of the version that it
    /// removes, and no failed node stops it, since all of that would make an outage longer. Budgets apply unchanged.
    fn strategy(&self) -> Strategy {
        if self.rolls_back.is_none() {
            return self.strategy.clone();
        }
        let wave = Wave { reach: Reach::Percent(100), soak: Some(SignedDuration::ZERO), promote: Promote::Auto };
        let gate = Gate { checks: Vec::new(), ..self.strategy.gate.clone() };
        let all = Amount::Percent(100);
        let failures = FailureLimits { canary: all, wave: all, total: all };
        let (waves, windows, on_failure) = (vec![wave], Vec::new(), OnFailure::Pause);
        // A node that cannot report must not return to the version that is being removed.
        let confirm_within = None;
        Strategy { waves, windows, gate, failures, on_failure, confirm_within, ..self.strategy.clone() }
    }
}

/// Waves of a plan over all stages. Each wave that has started is in the rollout record, which must stay small.
pub const MAX_PLANNED_WAVES: usize = 60;

/// Plans a rollout. The same environment and request always give the same plan.
pub fn plan(input: &DecisionInput<'_>, request: &Request) -> Result<RolloutPlan, PlanError> {
    let fleet = input.fleet;
    let digest = crate::plan::error::check(input, request)?;
    let strategy = request.strategy();
    let seen = survey_nodes(input, request, &strategy);
    let with_nodes: BTreeSet<&Role> = fleet.designed().map(|(_, _, record)| &record.role).collect();
    let stages = stages(&request.after, &with_nodes)?;
    // After an aborted rollout most nodes may not run the current version, but a rollback still starts from it.
    let from = match request.rolls_back {
        Some(_) => fleet.current_version().map(|(version, _)| version.clone()),
        None => fleet.base().map(|base| base.version),
    };
    let at_once = request.at_once || from.is_none();

    let mut staged: BTreeMap<u32, Vec<PlannedMove<'_>>> = BTreeMap::new();
    for mover in seen.movers {
        staged.entry(stages.get(mover.role).copied().unwrap_or(1)).or_default().push(mover);
    }
    let cut = |(stage, movers): (u32, Vec<PlannedMove<'_>>)| waves(stage, &movers, &strategy);
    let mut waves: Vec<PlannedWave> = staged.into_iter().flat_map(cut).collect();
    if at_once {
        waves = merge_waves(waves);
    }
    // A rollback has one wave per stage, and is never refused.
    if waves.len() > MAX_PLANNED_WAVES && request.rolls_back.is_none() {
        return Err(PlanError::TooManyWaves { waves: waves.len(), most: MAX_PLANNED_WAVES });
    }
    finish_last_wave(&mut waves, &strategy);

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
        unhealthy: seen.unhealthy,
        cordoned: seen.cordoned,
        predicted: Prediction::default(),
    };
    plan.predicted = predict(fleet, &plan);
    Ok(plan)
}

/// The nodes of the design, sorted by what the plan does with them.
struct PlanSurvey<'a> {
    movers: Vec<PlannedMove<'a>>,
    already: BTreeSet<NodeName>,
    unhealthy: Vec<UnhealthyNode>,
    cordoned: BTreeMap<NodeName, String>,
}

fn survey_nodes<'a>(input: &DecisionInput<'a>, request: &Request, strategy: &Strategy) -> PlanSurvey<'a> {
    let mut survey =
        PlanSurvey { movers: Vec::new(), already: BTreeSet::new(), unhealthy: Vec::new(), cordoned: BTreeMap::new() };
    let base = input.fleet.base();
    let mut domains = SpreadGroups::new(request.seed);
    // Nodes that are leaving are not included.
    for (name, node, record) in input.fleet.designed() {
        let has_own = node.desired.is_some() || node.policy.is_some();
        let own = has_own.then(|| input.fleet.desired_of(name)).flatten();
        let desired = own.as_ref().or(base.as_ref());
        let has_target = desired.is_some_and(|desired| desired.version == request.to);
        let (placement, unhealthy) = preflight(input, name, node, record, desired);
        // A node that runs the target and is disconnected needs nothing. A rollback leaves alone the nodes that never
        // moved, healthy or not.
        let runs_target = || {
            let answered = desired.is_some_and(|desired| node.has_answered(desired.generation));
            let state = node.state().filter(|(state, _)| state.is_validated() && *state.version() == request.to);
            answered && state.is_some() && !matches!(placement, WavePlacement::First | WavePlacement::ComingUp)
        };
        // It also leaves alone skipped nodes, and those granted by another rollout.
        let is_kept = |back_from: RolloutId| {
            let granted = input.fleet.granted(name);
            granted.is_some_and(|(granted, _)| granted.rollout != back_from || granted.kept.is_some())
        };
        let is_at_target = match request.rolls_back {
            Some(back_from) => has_target || is_kept(back_from),
            None => has_target && runs_target(),
        };
        survey.unhealthy.extend(
            unhealthy.map(|unhealthy| UnhealthyNode { repaired: unhealthy.repaired && !is_at_target, ..unhealthy }),
        );
        if is_at_target {
            survey.already.insert(name.clone());
            continue;
        }
        if let Some(cordon) = node.cordon() {
            survey.cordoned.insert(name.clone(), cordon.to_string());
        }
        let domain = domain_of(record, strategy.max_unavailable.per.as_ref());
        let turn_domain = domains.number(domain.unwrap_or(&record.failure_domain));
        let order_key = OrderKey { domain: turn_domain, draw: draw(request.seed, name.as_str()) };
        survey.movers.push(PlannedMove { name, role: &record.role, placement, order_key, domain });
    }
    survey
}

/// Merges all waves into one.
fn merge_waves(waves: Vec<PlannedWave>) -> Vec<PlannedWave> {
    let nodes: Vec<_> = waves.into_iter().flat_map(|wave| wave.nodes).collect();
    if nodes.is_empty() {
        return Vec::new();
    }
    let (soak, promote) = (SignedDuration::ZERO, Promote::Auto);
    vec![PlannedWave { stage: 1, wave: 1, canary: true, nodes, soak, promote }]
}

/// No wave follows the last one: it needs no promotion, and soaks only if the strategy says so.
fn finish_last_wave(waves: &mut [PlannedWave], strategy: &Strategy) {
    let Some(last) = waves.last_mut() else { return };
    last.promote = Promote::Auto;
    // It may stand for later waves that had no nodes left: the longest of their soaks counts.
    let index = usize::try_from(last.wave.saturating_sub(1)).unwrap_or(usize::MAX);
    let soaks = strategy.waves.iter().skip(index).map(|wave| strategy.soak_of(wave, last.canary, true));
    last.soak = soaks.max().unwrap_or(last.soak);
}

/// The label name that stands for a node's failure domain.
pub const FAILURE_DOMAIN: &str = "failure_domain";

/// The node's value of the label that has a budget of its own. Nodes without the label share the empty value. None if
/// the strategy names no label.
pub fn domain_of<'a>(record: &'a NodeRecord, per: Option<&PerLabel>) -> Option<&'a str> {
    let per = per?;
    if per.label == FAILURE_DOMAIN {
        return Some(&record.failure_domain);
    }
    Some(record.labels.get(&per.label).map_or("", String::as_str))
}

/// The budgets of all roles and label values that have nodes.
///
/// A percentage counts the nodes that have, or had, a machine. Nodes that are still being provisioned serve nothing,
/// and counting them would allow a larger share of the serving nodes to be down.
pub(crate) fn budgets<'a>(
    designed: impl Iterator<Item = (&'a NodeName, &'a Node, &'a NodeRecord)>,
    max: &MaxUnavailable,
) -> Budgets {
    #[derive(Default)]
    struct Members {
        all: usize,
        made: usize,
    }
    let mut roles: BTreeMap<&Role, Members> = BTreeMap::new();
    let mut domains: BTreeMap<&str, u32> = BTreeMap::new();
    for (_, node, record) in designed {
        let members = roles.entry(&record.role).or_default();
        members.all += 1;
        members.made += usize::from(!is_unprovisioned(node));
        if let (Some(domain), Some(per)) = (domain_of(record, max.per.as_ref()), &max.per) {
            domains.insert(domain, per.count.max(1));
        }
    }
    let budget = |(role, members): (&Role, Members)| {
        let max_unavailable = number(max.for_role(role).at_least_one_of(members.made));
        (role.clone(), RoleBudget { nodes: number(members.all), max_unavailable })
    };
    Budgets {
        roles: roles.into_iter().map(budget).collect(),
        domains: domains.into_iter().map(|(domain, count)| (domain.to_owned(), count)).collect(),
    }
}

pub(crate) fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
