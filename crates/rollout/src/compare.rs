//! How the world has moved between two plans for the same request: what somebody who has looked at the first has to know
//! before the second is carried out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use muster_core::names::{EnvName, NodeName, Role, Version};
use muster_core::node::status::NodeState;
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::{PlannedNode, RolloutPlan, UnhealthyNode};
use muster_core::rollout::strategy::Strategy;

/// One thing that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moved {
    Env {
        was: EnvName,
        is: EnvName,
    },
    /// Nodes should run another version meanwhile.
    From {
        was: Option<Version>,
        is: Option<Version>,
    },
    To {
        was: Version,
        is: Version,
    },
    /// The release of the same name is another one.
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
    /// One field of the strategy, by its name in the environment file.
    Strategy {
        field: &'static str,
    },
    /// What a role comes after.
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
    /// The value of the label that has a budget of its own.
    Domain {
        node: NodeName,
        was: Option<String>,
        is: Option<String>,
    },
    /// It runs the target meanwhile.
    Arrived {
        node: NodeName,
    },
    /// It did run the target, and does no longer.
    Strayed {
        node: NodeName,
    },
    BecameUnwell {
        node: NodeName,
        is: NodeState,
        why: String,
    },
    BecameWell {
        node: NodeName,
        was: NodeState,
    },
    /// It is not well in another way.
    Unwell {
        node: NodeName,
        was: NodeState,
        is: NodeState,
        why: String,
    },
    /// Whether the rollout may repair it.
    Repaired {
        node: NodeName,
        is: bool,
        why: String,
    },
    /// How many nodes of a role may be unavailable.
    RoleBudget {
        role: Role,
        was: u32,
        is: u32,
    },
    /// How many nodes may be unavailable that have this value of the label; none where no node has it.
    DomainBudget {
        domain: String,
        was: Option<u32>,
        is: Option<u32>,
    },
    /// Nodes come in another order or in other waves, and nothing else says why.
    Order,
}

/// All that has moved; empty if, and only if, the same would happen. How long that takes, and in which words a node says why
/// it is not well, makes no difference.
pub fn moved(old: &RolloutPlan, new: &RolloutPlan) -> Vec<Moved> {
    let mut moved = Vec::new();
    what_was_asked(old, new, &mut moved);
    nodes(old, new, &mut moved);
    conditions(old, new, &mut moved);
    budgets(old, new, &mut moved);
    if moved.is_empty() && !alike(old, new) {
        moved.push(Moved::Order);
    }
    moved
}

fn what_was_asked(old: &RolloutPlan, new: &RolloutPlan, moved: &mut Vec<Moved>) {
    let mut differs = |differs: bool, what: &dyn Fn() -> Moved| {
        if differs {
            moved.push(what());
        }
    };
    differs(old.env != new.env, &|| Moved::Env { was: old.env.clone(), is: new.env.clone() });
    differs(old.from != new.from, &|| Moved::From { was: old.from.clone(), is: new.from.clone() });
    differs(old.to != new.to, &|| Moved::To { was: old.to.clone(), is: new.to.clone() });
    differs(old.to == new.to && old.digest != new.digest, &|| {
        let (was, is) = (old.digest.clone(), new.digest.clone());
        Moved::Release { to: new.to.clone(), was, is }
    });
    differs(old.allow_older != new.allow_older, &|| Moved::AllowOlder { is: new.allow_older });
    differs(old.at_once != new.at_once, &|| Moved::AtOnce { is: new.at_once });
    differs(old.rolls_back != new.rolls_back, &|| Moved::RollsBack { was: old.rolls_back, is: new.rolls_back });
    differs(old.seed != new.seed, &|| Moved::Seed { was: old.seed, is: new.seed });
    for (field, is_same) in fields(&old.strategy, &new.strategy) {
        differs(!is_same, &|| Moved::Strategy { field });
    }
    let roles: BTreeSet<&Role> = old.after.keys().chain(new.after.keys()).collect();
    for role in roles {
        // A role that is not spoken of waits for nobody, like one that comes after none.
        let parents = |plan: &RolloutPlan| plan.after.get(role).cloned().unwrap_or_default();
        let (was, is) = (parents(old), parents(new));
        differs(was != is, &|| Moved::After { role: role.clone(), was: was.clone(), is: is.clone() });
    }
}

/// Each field of a strategy, and whether it is the same in both. Takes it apart, so that none is forgotten.
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

fn nodes(old: &RolloutPlan, new: &RolloutPlan, moved: &mut Vec<Moved>) {
    // None for one that is there already.
    let members = |plan| -> BTreeMap<&NodeName, Option<&PlannedNode>> { all(plan).collect() };
    let (before, after) = (members(old), members(new));
    for (name, was) in &before {
        let node = (*name).clone();
        match (was, after.get(*name)) {
            (_, None) => moved.push(Moved::Left { node }),
            (None, Some(None)) => {}
            (Some(_), Some(None)) => moved.push(Moved::Arrived { node }),
            (None, Some(Some(_))) => moved.push(Moved::Strayed { node }),
            (Some(was), Some(Some(is))) => {
                if was.role != is.role {
                    moved.push(Moved::Role { node: node.clone(), was: was.role.clone(), is: is.role.clone() });
                }
                if was.domain != is.domain {
                    moved.push(Moved::Domain { node, was: was.domain.clone(), is: is.domain.clone() });
                }
            }
        }
    }
    let joined = after.keys().filter(|name| !before.contains_key(**name));
    moved.extend(joined.map(|name| Moved::Joined { node: (*name).clone() }));
}

fn all(plan: &RolloutPlan) -> impl Iterator<Item = (&NodeName, Option<&PlannedNode>)> {
    plan.nodes().map(|planned| (&planned.node, Some(planned))).chain(plan.already.iter().map(|name| (name, None)))
}

fn conditions(old: &RolloutPlan, new: &RolloutPlan, moved: &mut Vec<Moved>) {
    let unwell = |plan| -> BTreeMap<&NodeName, &UnhealthyNode> { by_name(plan).collect() };
    let (before, after) = (unwell(old), unwell(new));
    let names: BTreeSet<&NodeName> = before.keys().chain(after.keys()).copied().collect();
    let there: BTreeSet<&NodeName> = all(new).map(|(name, _)| name).collect();
    for name in names {
        let node = name.clone();
        match (before.get(name), after.get(name)) {
            (None, None) => {}
            (None, Some(is)) => moved.push(Moved::BecameUnwell { node, is: is.word, why: is.why.clone() }),
            (Some(was), None) if there.contains(name) => moved.push(Moved::BecameWell { node, was: was.word }),
            // It has left, which says enough.
            (Some(_), None) => {}
            (Some(was), Some(is)) if was.word != is.word => {
                moved.push(Moved::Unwell { node, was: was.word, is: is.word, why: is.why.clone() });
            }
            (Some(was), Some(is)) if was.repaired != is.repaired => {
                moved.push(Moved::Repaired { node, is: is.repaired, why: is.why.clone() });
            }
            (Some(_), Some(_)) => {}
        }
    }
}

fn by_name(plan: &RolloutPlan) -> impl Iterator<Item = (&NodeName, &UnhealthyNode)> {
    plan.unwell.iter().map(|unwell| (&unwell.node, unwell))
}

fn budgets(old: &RolloutPlan, new: &RolloutPlan, moved: &mut Vec<Moved>) {
    // A role that has come or gone has done so with its nodes.
    for (role, was) in &old.budgets.roles {
        let is = new.budgets.roles.get(role).filter(|is| is.max_unavailable != was.max_unavailable);
        moved.extend(is.map(|is| Moved::RoleBudget {
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
            moved.push(Moved::DomainBudget { domain: domain.clone(), was, is });
        }
    }
}

/// Whether the same would happen. Takes the plans apart, so that no field is forgotten.
fn alike(old: &RolloutPlan, new: &RolloutPlan) -> bool {
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
        unwell,
        predicted: _,
    } = old;
    let same_condition = |(was, is): (&UnhealthyNode, &UnhealthyNode)| {
        let UnhealthyNode { node, word, why: _, repaired } = was;
        (node, word, repaired) == (&is.node, &is.word, &is.repaired)
    };
    (format, env, from, to, digest, allow_older)
        == (&new.format, &new.env, &new.from, &new.to, &new.digest, &new.allow_older)
        && (rolls_back, at_once, seed, strategy) == (&new.rolls_back, &new.at_once, &new.seed, &new.strategy)
        && ordered(after).eq(ordered(&new.after))
        && (waves, budgets, already) == (&new.waves, &new.budgets, &new.already)
        && unwell.len() == new.unwell.len()
        && unwell.iter().zip(&new.unwell).all(same_condition)
}

/// The roles that wait for somebody.
fn ordered(after: &BTreeMap<Role, BTreeSet<Role>>) -> impl Iterator<Item = (&Role, &BTreeSet<Role>)> {
    after.iter().filter(|(_, parents)| !parents.is_empty())
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Moved::Env { was, is } => write!(f, "the plan is for the environment {was}, and this is {is}"),
            Moved::From { was, is } => {
                let version = |version: &Option<Version>| version.as_ref().map_or("nothing".into(), Version::to_string);
                write!(f, "nodes should run {} now; it was {}", version(is), version(was))
            }
            Moved::To { was, is } => write!(f, "it goes to {is} now; it was {was}"),
            Moved::Release { to, .. } => write!(f, "release {to} is not the one that it was: its content is another"),
            Moved::AllowOlder { is: true } => f.write_str("nodes may go back to an earlier release now"),
            Moved::AllowOlder { is: false } => f.write_str("nodes may no longer go back to an earlier release"),
            Moved::AtOnce { is: true } => f.write_str("all nodes go at once now"),
            Moved::AtOnce { is: false } => f.write_str("nodes no longer go all at once"),
            Moved::RollsBack { is: Some(id), .. } => write!(f, "it rolls rollout {id} back now"),
            Moved::RollsBack { is: None, .. } => f.write_str("it no longer rolls another rollout back"),
            Moved::Seed { was, is } => write!(f, "the seed is {is} now; it was {was}"),
            Moved::Strategy { field } => write!(f, "the strategy has changed: {field}"),
            Moved::After { role, is, .. } if is.is_empty() => write!(f, "role {role} waits for no other role any more"),
            Moved::After { role, was, is } => {
                write!(f, "role {role} comes after {} now; ", named(is))?;
                if was.is_empty() { f.write_str("it waited for nobody") } else { write!(f, "it was {}", named(was)) }
            }
            Moved::Joined { node } => write!(f, "{node} has joined"),
            Moved::Left { node } => write!(f, "{node} has left"),
            Moved::Role { node, was, is } => write!(f, "{node} has the role {is} now; it was {was}"),
            Moved::Domain { node, was, is } => {
                let domain = |domain: &Option<String>| match domain.as_deref() {
                    None | Some("") => "in no domain".to_owned(),
                    Some(domain) => format!("in {domain:?}"),
                };
                write!(f, "{node} is {} now; it was {}", domain(is), domain(was))
            }
            Moved::Arrived { node } => write!(f, "{node} runs the target already"),
            Moved::Strayed { node } => write!(f, "{node} no longer runs the target"),
            Moved::BecameUnwell { node, is, why } => write!(f, "{node} is {} now: {why}", is.as_str()),
            Moved::BecameWell { node, was } => write!(f, "{node} is well now; it was {}", was.as_str()),
            Moved::Unwell { node, was, is, why } => {
                write!(f, "{node} is {} now, and no longer {}: {why}", is.as_str(), was.as_str())
            }
            Moved::Repaired { node, is: true, .. } => write!(f, "{node} can be repaired now"),
            Moved::Repaired { node, is: false, why } => write!(f, "{node} can no longer be repaired: {why}"),
            Moved::RoleBudget { role, was, is } => {
                write!(f, "{is} of role {role} may be unavailable now; it was {was}")
            }
            Moved::DomainBudget { domain, was, is } => match (was, is) {
                (_, None) => write!(f, "no node is in {domain:?} any more"),
                (None, Some(is)) => write!(f, "there are nodes in {domain:?} now, and {is} may be unavailable"),
                (Some(was), Some(is)) => write!(f, "{is} in {domain:?} may be unavailable now; it was {was}"),
            },
            Moved::Order => {
                f.write_str("nodes come in another order: the design has given them other roles or failure domains")
            }
        }
    }
}

fn named(roles: &BTreeSet<Role>) -> String {
    roles.iter().map(Role::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
