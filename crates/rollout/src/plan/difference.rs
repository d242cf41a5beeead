//! Differences between two plans for the same request: what changed between the review of a plan and its start.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use muster_core::names::{EnvName, NodeName, Role, Version};
use muster_core::node::status::NodeState;
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::{PlannedNode, RolloutPlan, UnhealthyNode};
use muster_core::rollout::strategy::Strategy;

/// One difference between two plans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanDifference {
    Env {
        was: EnvName,
        is: EnvName,
    },
    /// The current version has changed.
    From {
        was: Option<Version>,
        is: Option<Version>,
    },
    To {
        was: Version,
        is: Version,
    },
    /// The release has the same name and other content.
    Release {
        to: Version,
        was: String,
        is: String,
    },
    AllowOlder {
        is: bool,
    },
    AtOnce {
        is: bool,
    },
    RollsBack {
        was: Option<RolloutId>,
        is: Option<RolloutId>,
    },
    Seed {
        was: u64,
        is: u64,
    },
    /// A field of the strategy, by its name in the environment file.
    Strategy {
        field: &'static str,
    },
    /// The roles that a role comes after.
    After {
        role: Role,
        was: BTreeSet<Role>,
        is: BTreeSet<Role>,
    },
    Joined {
        node: NodeName,
    },
    Left {
        node: NodeName,
    },
    Role {
        node: NodeName,
        was: Role,
        is: Role,
    },
    /// The node's value of the label that has a budget.
    Domain {
        node: NodeName,
        was: Option<String>,
        is: Option<String>,
    },
    /// It runs the target by now.
    ReachedTarget {
        node: NodeName,
    },
    /// It ran the target, and no longer does.
    LeftTarget {
        node: NodeName,
    },
    BecameUnhealthy {
        node: NodeName,
        is: NodeState,
        why: String,
    },
    BecameHealthy {
        node: NodeName,
        was: NodeState,
    },
    /// Unhealthy for another reason.
    UnhealthyReason {
        node: NodeName,
        was: NodeState,
        is: NodeState,
        why: String,
    },
    /// True if the rollout can repair it.
    Repaired {
        node: NodeName,
        is: bool,
        why: String,
    },
    Cordoned {
        node: NodeName,
        why: String,
    },
    Uncordoned {
        node: NodeName,
    },
    /// Nodes of a role that may be unavailable.
    RoleBudget {
        role: Role,
        was: u32,
        is: u32,
    },
    /// Nodes with this label value that may be unavailable; none if no node has the value.
    DomainBudget {
        domain: String,
        was: Option<u32>,
        is: Option<u32>,
    },
    /// The order or the waves differ, for no other listed reason.
    Order,
}

/// All differences; empty if and only if both plans do the same. Predicted durations, and the text why a node is
/// unhealthy, do not count.
pub fn plan_differences(old: &RolloutPlan, new: &RolloutPlan) -> Vec<PlanDifference> {
    let mut differences = Vec::new();
    request_differences(old, new, &mut differences);
    nodes(old, new, &mut differences);
    conditions(old, new, &mut differences);
    cordons(old, new, &mut differences);
    budgets(old, new, &mut differences);
    if differences.is_empty() && !is_equivalent(old, new) {
        differences.push(PlanDifference::Order);
    }
    differences
}

fn request_differences(old: &RolloutPlan, new: &RolloutPlan, differences: &mut Vec<PlanDifference>) {
    let mut differs = |differs: bool, what: &dyn Fn() -> PlanDifference| {
        if differs {
            differences.push(what());
        }
    };
    differs(old.env != new.env, &|| PlanDifference::Env { was: old.env.clone(), is: new.env.clone() });
    differs(old.from != new.from, &|| PlanDifference::From { was: old.from.clone(), is: new.from.clone() });
    differs(old.to != new.to, &|| PlanDifference::To { was: old.to.clone(), is: new.to.clone() });
    differs(old.to == new.to && old.digest != new.digest, &|| {
        let (was, is) = (old.digest.clone(), new.digest.clone());
        PlanDifference::Release { to: new.to.clone(), was, is }
    });
    differs(old.allow_older != new.allow_older, &|| PlanDifference::AllowOlder { is: new.allow_older });
    differs(old.at_once != new.at_once, &|| PlanDifference::AtOnce { is: new.at_once });
    differs(old.rolls_back != new.rolls_back, &|| PlanDifference::RollsBack {
        was: old.rolls_back,
        is: new.rolls_back,
    });
    differs(old.seed != new.seed, &|| PlanDifference::Seed { was: old.seed, is: new.seed });
    for (field, is_same) in fields(&old.strategy, &new.strategy) {
        differs(!is_same, &|| PlanDifference::Strategy { field });
    }
    let roles: BTreeSet<&Role> = old.after.keys().chain(new.after.keys()).collect();
    for role in roles {
        // A role that is not in `after` waits for no other role.
        let parents = |plan: &RolloutPlan| plan.after.get(role).cloned().unwrap_or_default();
        let (was, is) = (parents(old), parents(new));
        differs(was != is, &|| PlanDifference::After { role: role.clone(), was: was.clone(), is: is.clone() });
    }
}

/// Each field of a strategy, and whether it is equal. Destructured, which makes a missing field a compile error.
fn fields(old: &Strategy, new: &Strategy) -> [(&'static str, bool); 10] {
    let Strategy { waves, max_unavailable, ramp, soak, gate, failures, on_failure, deadlines, windows, confirm_within } =
        old;
    [
        ("waves", *waves == new.waves),
        ("max_unavailable", *max_unavailable == new.max_unavailable),
        ("ramp", *ramp == new.ramp),
        ("soak", *soak == new.soak),
        ("gate", *gate == new.gate),
        ("failures", *failures == new.failures),
        ("on_failure", *on_failure == new.on_failure),
        ("deadlines", *deadlines == new.deadlines),
        ("windows", *windows == new.windows),
        ("confirm_within", *confirm_within == new.confirm_within),
    ]
}

fn nodes(old: &RolloutPlan, new: &RolloutPlan, differences: &mut Vec<PlanDifference>) {
    // None for a node that runs the target already.
    let members = |plan| -> BTreeMap<&NodeName, Option<&PlannedNode>> { all(plan).collect() };
    let (before, after) = (members(old), members(new));
    for (name, was) in &before {
        let node = (*name).clone();
        match (was, after.get(*name)) {
            (_, None) => differences.push(PlanDifference::Left { node }),
            (None, Some(None)) => {}
            (Some(_), Some(None)) => differences.push(PlanDifference::ReachedTarget { node }),
            (None, Some(Some(_))) => differences.push(PlanDifference::LeftTarget { node }),
            (Some(was), Some(Some(is))) => {
                if was.role != is.role {
                    differences.push(PlanDifference::Role {
                        node: node.clone(),
                        was: was.role.clone(),
                        is: is.role.clone(),
                    });
                }
                if was.domain != is.domain {
                    differences.push(PlanDifference::Domain { node, was: was.domain.clone(), is: is.domain.clone() });
                }
            }
        }
    }
    let joined = after.keys().filter(|name| !before.contains_key(**name));
    differences.extend(joined.map(|name| PlanDifference::Joined { node: (*name).clone() }));
}

fn all(plan: &RolloutPlan) -> impl Iterator<Item = (&NodeName, Option<&PlannedNode>)> {
    plan.nodes().map(|planned| (&planned.node, Some(planned))).chain(plan.already.iter().map(|name| (name, None)))
}

fn conditions(old: &RolloutPlan, new: &RolloutPlan, differences: &mut Vec<PlanDifference>) {
    let unhealthy = |plan| -> BTreeMap<&NodeName, &UnhealthyNode> { by_name(plan).collect() };
    let (before, after) = (unhealthy(old), unhealthy(new));
    let names: BTreeSet<&NodeName> = before.keys().chain(after.keys()).copied().collect();
    let planned_names: BTreeSet<&NodeName> = all(new).map(|(name, _)| name).collect();
    for name in names {
        let node = name.clone();
        match (before.get(name), after.get(name)) {
            (None, None) => {}
            (None, Some(is)) => {
                differences.push(PlanDifference::BecameUnhealthy { node, is: is.state, why: is.why.clone() })
            }
            (Some(was), None) if planned_names.contains(name) => {
                differences.push(PlanDifference::BecameHealthy { node, was: was.state })
            }
            // Reported as a node that left.
            (Some(_), None) => {}
            (Some(was), Some(is)) if was.state != is.state => {
                differences.push(PlanDifference::UnhealthyReason {
                    node,
                    was: was.state,
                    is: is.state,
                    why: is.why.clone(),
                });
            }
            (Some(was), Some(is)) if was.repaired != is.repaired => {
                differences.push(PlanDifference::Repaired { node, is: is.repaired, why: is.why.clone() });
            }
            (Some(_), Some(_)) => {}
        }
    }
}

fn cordons(old: &RolloutPlan, new: &RolloutPlan, differences: &mut Vec<PlanDifference>) {
    let added = new.cordoned.iter().filter(|(name, _)| !old.cordoned.contains_key(*name));
    differences.extend(added.map(|(node, why)| PlanDifference::Cordoned { node: node.clone(), why: why.clone() }));
    let ended = old.cordoned.keys().filter(|name| !new.cordoned.contains_key(*name));
    differences.extend(ended.map(|node| PlanDifference::Uncordoned { node: node.clone() }));
}

fn by_name(plan: &RolloutPlan) -> impl Iterator<Item = (&NodeName, &UnhealthyNode)> {
    plan.unhealthy.iter().map(|unhealthy| (&unhealthy.node, unhealthy))
}

fn budgets(old: &RolloutPlan, new: &RolloutPlan, differences: &mut Vec<PlanDifference>) {
    // A role that appeared or disappeared is reported with its nodes.
    for (role, was) in &old.budgets.roles {
        let is = new.budgets.roles.get(role).filter(|is| is.max_unavailable != was.max_unavailable);
        differences.extend(is.map(|is| PlanDifference::RoleBudget {
            role: role.clone(),
            was: was.max_unavailable,
            is: is.max_unavailable,
        }));
    }
    let (before, after) = (&old.budgets.domains, &new.budgets.domains);
    let domains: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for domain in domains {
        let (was, is) = (before.get(domain).copied(), after.get(domain).copied());
        if was != is {
            differences.push(PlanDifference::DomainBudget { domain: domain.clone(), was, is });
        }
    }
}

/// True if both plans do the same. Destructured, which makes a missing field a compile error.
fn is_equivalent(old: &RolloutPlan, new: &RolloutPlan) -> bool {
    let RolloutPlan {
        format,
        env,
        from,
        to,
        digest,
        allow_older,
        rolls_back,
        at_once,
        seed,
        strategy,
        after,
        waves,
        budgets,
        already,
        unhealthy,
        cordoned,
        predicted: _,
    } = old;
    let same_condition = |(was, is): (&UnhealthyNode, &UnhealthyNode)| {
        let UnhealthyNode { node, state, why: _, repaired } = was;
        (node, state, repaired) == (&is.node, &is.state, &is.repaired)
    };
    (format, env, from, to, digest, allow_older)
        == (&new.format, &new.env, &new.from, &new.to, &new.digest, &new.allow_older)
        && (rolls_back, at_once, seed, strategy) == (&new.rolls_back, &new.at_once, &new.seed, &new.strategy)
        && ordered(after).eq(ordered(&new.after))
        && (waves, budgets, already) == (&new.waves, &new.budgets, &new.already)
        && cordoned.keys().eq(new.cordoned.keys())
        && unhealthy.len() == new.unhealthy.len()
        && unhealthy.iter().zip(&new.unhealthy).all(same_condition)
}

/// The roles that wait for another role.
fn ordered(after: &BTreeMap<Role, BTreeSet<Role>>) -> impl Iterator<Item = (&Role, &BTreeSet<Role>)> {
    after.iter().filter(|(_, parents)| !parents.is_empty())
}

impl fmt::Display for PlanDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanDifference::Env { was, is } => write!(f, "the plan is for environment {was}, and this is {is}"),
            PlanDifference::From { was, is } => {
                let version = |version: &Option<Version>| version.as_ref().map_or("nothing".into(), Version::to_string);
                write!(f, "nodes should run {} now; it was {}", version(is), version(was))
            }
            PlanDifference::To { was, is } => write!(f, "the target is {is} now; it was {was}"),
            PlanDifference::Release { to, .. } => {
                write!(f, "release {to} has other content now")
            }
            PlanDifference::AllowOlder { is: true } => f.write_str("nodes may move to an older release now"),
            PlanDifference::AllowOlder { is: false } => f.write_str("nodes may no longer move to an older release"),
            PlanDifference::AtOnce { is: true } => f.write_str("all nodes move at once now"),
            PlanDifference::AtOnce { is: false } => f.write_str("nodes no longer move all at once"),
            PlanDifference::RollsBack { is: Some(id), .. } => write!(f, "it rolls rollout {id} back now"),
            PlanDifference::RollsBack { is: None, .. } => f.write_str("it no longer rolls another rollout back"),
            PlanDifference::Seed { was, is } => write!(f, "the seed is {is} now; it was {was}"),
            PlanDifference::Strategy { field } => write!(f, "the strategy has changed: {field}"),
            PlanDifference::After { role, is, .. } if is.is_empty() => {
                write!(f, "role {role} waits for no other role now")
            }
            PlanDifference::After { role, was, is } => {
                write!(f, "role {role} comes after {} now; ", join_roles(is))?;
                if was.is_empty() {
                    f.write_str("it waited for no role")
                } else {
                    write!(f, "it was {}", join_roles(was))
                }
            }
            PlanDifference::Joined { node } => write!(f, "{node} has joined"),
            PlanDifference::Left { node } => write!(f, "{node} has left"),
            PlanDifference::Role { node, was, is } => write!(f, "{node} has the role {is} now; it was {was}"),
            PlanDifference::Domain { node, was, is } => {
                let domain = |domain: &Option<String>| match domain.as_deref() {
                    None | Some("") => "in no domain".to_owned(),
                    Some(domain) => format!("in {domain:?}"),
                };
                write!(f, "{node} is {} now; it was {}", domain(is), domain(was))
            }
            PlanDifference::ReachedTarget { node } => write!(f, "{node} runs the target already"),
            PlanDifference::LeftTarget { node } => write!(f, "{node} no longer runs the target"),
            PlanDifference::BecameUnhealthy { node, is, why } => {
                write!(f, "the state of {node} is {} now: {why}", is.label())
            }
            PlanDifference::BecameHealthy { node, was } => {
                write!(f, "{node} is healthy now; its state was {}", was.label())
            }
            PlanDifference::UnhealthyReason { node, was, is, why } => {
                write!(f, "the state of {node} is {} now, and no longer {}: {why}", is.label(), was.label())
            }
            PlanDifference::Repaired { node, is: true, .. } => write!(f, "{node} can be repaired now"),
            PlanDifference::Repaired { node, is: false, why } => write!(f, "{node} can no longer be repaired: {why}"),
            PlanDifference::Cordoned { node, why } => write!(f, "{node} is {why}"),
            PlanDifference::Uncordoned { node } => write!(f, "{node} is no longer cordoned"),
            PlanDifference::RoleBudget { role, was, is } => {
                write!(f, "{is} of role {role} may be unavailable now; it was {was}")
            }
            PlanDifference::DomainBudget { domain, was, is } => match (was, is) {
                (_, None) => write!(f, "no node is in {domain:?} now"),
                (None, Some(is)) => write!(f, "there are nodes in {domain:?} now, and {is} may be unavailable"),
                (Some(was), Some(is)) => write!(f, "{is} in {domain:?} may be unavailable now; it was {was}"),
            },
            PlanDifference::Order => {
                f.write_str("nodes move in another order: the design has given them other roles or failure domains")
            }
        }
    }
}

fn join_roles(roles: &BTreeSet<Role>) -> String {
    roles.iter().map(Role::as_str).collect::<Vec<_>>().join(", ")
}
