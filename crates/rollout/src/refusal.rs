//! Why there is no plan.

use std::collections::BTreeSet;

use muster_core::names::{Role, Version};
use muster_core::rollout::strategy_check::StrategyError;
use muster_core::spelling::nearest;
use thiserror::Error;

use crate::plan::Request;
use crate::sight::Sight;
use crate::stages::Cycle;

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PlanError {
    #[error("there is no release {to}{}", did_you_mean(nearest))]
    UnknownRelease { to: Version, nearest: Option<Version> },
    #[error(
        "release {to} (serial {serial}) is older than {newest} (serial {newest_serial}), which nodes should run now: say \
         --allow-older if they are to go back"
    )]
    OlderRelease { to: Version, serial: u64, newest: Version, newest_serial: u64 },
    #[error(
        "no order of the roles is possible, since they wait for each other: take one `after` out of the environment file"
    )]
    Cycle(
        #[from]
        #[source]
        Cycle,
    ),
    #[error(
        "max_unavailable names the role {role}, which this environment does not have: correct the strategy{}",
        did_you_mean(nearest)
    )]
    UnknownRole { role: Role, nearest: Option<Role> },
    #[error(transparent)]
    Strategy(#[from] StrategyError),
    #[error(
        "the plan has {waves} waves over all stages, and {most} are the most: take waves out of the strategy, or let more roles \
         go together"
    )]
    TooManyWaves { waves: usize, most: usize },
    #[error(
        "nobody can say what the nodes should run: rollouts/active in the store cannot be read; put it right (muster status \
         says what is wrong with it), then plan again"
    )]
    Unreadable,
    #[error("the environment has no nodes: apply a design first, with `muster env apply`")]
    NoNodes,
    #[error("the environment is being restored by {by}: wait until that is done, or do it again if it was cut off")]
    BeingRestored { by: String },
    #[error("the environment is being destroyed by {by}: nothing is rolled out any more")]
    BeingDestroyed { by: String },
}

fn did_you_mean(nearest: &Option<impl std::fmt::Display>) -> String {
    nearest.as_ref().map(|nearest| format!("; did you mean {nearest}?")).unwrap_or_default()
}

/// Whether there can be a plan. Gives the digest of the release.
pub(crate) fn check(sight: &Sight<'_>, request: &Request) -> Result<String, PlanError> {
    let fleet = sight.fleet;
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
    // At once is for whoever comes: a version may be chosen before there are nodes.
    if !request.at_once && fleet.designed().next().is_none() {
        return Err(PlanError::NoNodes);
    }
    if !request.allow_older
        && let Some((newest, newest_serial)) = newest(sight)
        && release.serial < newest_serial
    {
        let (to, serial) = (request.to.clone(), release.serial);
        return Err(PlanError::OlderRelease { to, serial, newest, newest_serial });
    }
    // A strategy that was good when the rollout began is good enough for going back: a role may have left since.
    if request.rolls_back.is_none() {
        check_strategy(sight, request)?;
    }
    Ok(release.digest.clone())
}

/// The newest release that a node, or the environment, should run.
fn newest(sight: &Sight<'_>) -> Option<(Version, u64)> {
    let fleet = sight.fleet;
    let floor = fleet.active_rollout().map(|(active, _)| active.floor).unwrap_or_default();
    let granted = fleet.designed().filter_map(|(_, node, _)| Some(&node.desired.as_ref()?.0));
    let granted = granted.filter(|granted| granted.rollout >= floor).map(|granted| &granted.version);
    // While the fleet goes back, those whose turn has not come are told the newer one still.
    let base = fleet.base().map(|base| base.version);
    let current = fleet.current_version().map(|(version, _)| version);
    let versions: BTreeSet<&Version> = granted.chain(current).chain(base.as_ref()).collect();
    let serials = versions.into_iter().filter_map(|version| Some((version, fleet.releases().get(version)?.serial)));
    serials.max_by_key(|(_, serial)| *serial).map(|(version, serial)| (version.clone(), serial))
}

fn check_strategy(sight: &Sight<'_>, request: &Request) -> Result<(), PlanError> {
    // A role may be in the order and have no node, and one whose last node is leaving is known still.
    let ordered = request.after.iter().flat_map(|(role, parents)| parents.iter().chain([role]));
    let known: BTreeSet<&Role> = sight.fleet.recorded().map(|(_, _, record)| &record.role).chain(ordered).collect();
    if let Some(role) = request.strategy.max_unavailable.roles.keys().find(|role| !known.contains(role)) {
        let nearest = nearest(role.as_str(), known.into_iter().map(Role::as_str));
        let nearest = nearest.and_then(|nearest| Role::new(nearest).ok());
        return Err(PlanError::UnknownRole { role: role.clone(), nearest });
    }
    Ok(request.strategy.check()?)
}
