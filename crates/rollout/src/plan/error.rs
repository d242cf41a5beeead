//! Reasons to refuse a plan, and the checks for them.

use std::collections::BTreeSet;

use muster_core::names::{Role, Version};
use muster_core::rollout::strategy_check::StrategyError;
use muster_core::spelling::nearest;
use thiserror::Error;

use crate::decision::DecisionInput;
use crate::plan::Request;
use crate::plan::stages::Cycle;

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PlanError {
    #[error("there is no release {to}{}", did_you_mean(nearest))]
    UnknownRelease { to: Version, nearest: Option<Version> },
    #[error(
        "release {to} (serial {serial}) is older than {newest} (serial {newest_serial}), which nodes should run now: \
         use --allow-older to move nodes to an older release"
    )]
    OlderRelease { to: Version, serial: u64, newest: Version, newest_serial: u64 },
    #[error("the roles depend on each other in a cycle: remove one `after` from the environment file")]
    Cycle(
        #[from]
        #[source]
        Cycle,
    ),
    #[error(
        "max_unavailable names role {role}, which is not in this environment: correct the strategy{}",
        did_you_mean(nearest)
    )]
    UnknownRole { role: Role, nearest: Option<Role> },
    #[error(transparent)]
    Strategy(#[from] StrategyError),
    #[error(
        "the plan has {waves} waves over all stages, and at most {most} are allowed: remove waves from the strategy, or let \
         more roles move together"
    )]
    TooManyWaves { waves: usize, most: usize },
    #[error(
        "the desired version of the nodes is unknown, since rollouts/active in the store cannot be read; repair it \
         (`muster status` shows the problem), then plan again"
    )]
    Unreadable,
    #[error("the environment has no nodes: apply a design first, with `muster env apply`")]
    NoNodes,
    #[error(
        "the environment is being restored by {by}: wait until the restore has finished, or run it again if it was interrupted"
    )]
    BeingRestored { by: String },
    #[error("the environment is being destroyed by {by}: no rollout can start")]
    BeingDestroyed { by: String },
}

fn did_you_mean(nearest: &Option<impl std::fmt::Display>) -> String {
    nearest.as_ref().map(|nearest| format!("; did you mean {nearest}?")).unwrap_or_default()
}

/// Checks whether a plan can be made. Returns the digest of the release.
pub(crate) fn check(input: &DecisionInput<'_>, request: &Request) -> Result<String, PlanError> {
    let fleet = input.fleet;
    if let Some(restoring) = fleet.restoring() {
        return Err(PlanError::BeingRestored { by: restoring.by.clone() });
    }
    if let Some((destroying, _)) = fleet.destroying() {
        return Err(PlanError::BeingDestroyed { by: destroying.by.clone() });
    }
    if fleet.rollouts_unreadable() {
        return Err(PlanError::Unreadable);
    }
    let Some(release) = fleet.releases().get(&request.to) else {
        let nearest = nearest(request.to.as_str(), fleet.releases().keys().map(Version::as_str));
        let nearest = nearest.and_then(|nearest| Version::new(nearest).ok());
        return Err(PlanError::UnknownRelease { to: request.to.clone(), nearest });
    };
    // An at-once version may be chosen before there are nodes.
    if !request.at_once && fleet.designed().next().is_none() {
        return Err(PlanError::NoNodes);
    }
    if !request.allow_older
        && let Some((newest, newest_serial)) = newest(input)
        && release.serial < newest_serial
    {
        let (to, serial) = (request.to.clone(), release.serial);
        return Err(PlanError::OlderRelease { to, serial, newest, newest_serial });
    }
    // A rollback keeps the strategy of its rollout, which was valid then: a role may have left since.
    if request.rolls_back.is_none() {
        check_strategy(input, request)?;
    }
    Ok(release.digest.clone())
}

/// The newest release that a node, or the environment, should run.
fn newest(input: &DecisionInput<'_>) -> Option<(Version, u64)> {
    let fleet = input.fleet;
    let floor = fleet.active_rollout_pointer().map(|(active, _)| active.floor).unwrap_or_default();
    let granted = fleet.designed().filter_map(|(_, node, _)| Some(&node.desired.as_ref()?.0));
    let granted = granted.filter(|granted| granted.rollout >= floor).map(|granted| &granted.version);
    // During a rollback the remaining nodes still have the newer version.
    let base = fleet.base().map(|base| base.version);
    let current = fleet.current_version().map(|(version, _)| version);
    let versions: BTreeSet<&Version> = granted.chain(current).chain(base.as_ref()).collect();
    let serials = versions.into_iter().filter_map(|version| Some((version, fleet.releases().get(version)?.serial)));
    serials.max_by_key(|(_, serial)| *serial).map(|(version, serial)| (version.clone(), serial))
}

fn check_strategy(input: &DecisionInput<'_>, request: &Request) -> Result<(), PlanError> {
    // A role may be in the order without a node, or lose its last node.
    let ordered = request.after.iter().flat_map(|(role, parents)| parents.iter().chain([role]));
    let known: BTreeSet<&Role> = input.fleet.recorded().map(|(_, _, record)| &record.role).chain(ordered).collect();
    if let Some(role) = request.strategy.max_unavailable.roles.keys().find(|role| !known.contains(role)) {
        let nearest = nearest(role.as_str(), known.into_iter().map(Role::as_str));
        let nearest = nearest.and_then(|nearest| Role::new(nearest).ok());
        return Err(PlanError::UnknownRole { role: role.clone(), nearest });
    }
    Ok(request.strategy.check()?)
}
