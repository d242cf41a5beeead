//! What applying a design would do to the nodes: plain data, made by `muster-design`, shown and compared by everybody.
//!
//! A plan says what it was made from: the revisions that were there, and the digest of the design that is to be. Whoever
//! carries it out later makes it anew and compares: what was shown is what is done, or nothing is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::design::DesignRevision;
use crate::names::{EnvName, NodeName, Role};

/// What applying a design would do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DesignPlan {
    pub env: EnvName,
    pub base: PlanBase,
    /// Digest of the manifest of the design that is to be: of every file of every source, and of their order.
    pub design: String,
    /// How many nodes roles have, in place of what the environment file says: as it was given, and again when the plan is
    /// carried out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, u32>)]
    pub cardinality: BTreeMap<Role, u32>,
    /// Every node that there is or is to be, in the order of the design; those that go come last.
    pub nodes: Vec<NodePlan>,
    pub roles: Vec<RolePlan>,
    pub totals: Totals,
    /// Documents whose effective values change, those of nodes too.
    pub documents: DocumentTotals,
}

/// What a plan was made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlanBase {
    /// The newest revision of the design at that moment; none if there was no design.
    pub head: Option<DesignRevision>,
    /// The revision that the nodes followed.
    pub applied: Option<DesignRevision>,
}

/// What happens to one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodePlan {
    pub node: NodeName,
    pub role: Role,
    pub action: NodeAction,
    /// The effective values that change, by path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ValueChange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeAction {
    Create,
    Change,
    Remove,
    Keep,
}

/// One effective value, before and after; absent: it was not there, or will not be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ValueChange {
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub before: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub after: Option<Value>,
}

/// How a role grows or shrinks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolePlan {
    pub role: Role,
    /// How many nodes it has, and will have.
    pub before: usize,
    pub after: usize,
    /// It shrinks, and those that go are its highest numbers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removes_highest: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Totals {
    pub create: usize,
    pub change: usize,
    pub remove: usize,
    pub keep: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DocumentTotals {
    pub added: usize,
    pub changed: usize,
    pub removed: usize,
}

impl DesignPlan {
    /// Whether there is nothing to do: every node stays, and no document says anything else than before.
    pub fn is_empty(&self) -> bool {
        let Totals { create, change, remove, keep: _ } = self.totals;
        create + change + remove == 0 && self.documents == DocumentTotals::default()
    }

    /// Whether no node would be left where there are some.
    pub fn removes_all(&self) -> bool {
        let Totals { create, change, remove, keep } = self.totals;
        create + change + keep == 0 && remove > 0
    }

    /// What is different in a plan that was made later, in words; empty if it would do the same.
    pub fn moved(&self, now: &DesignPlan) -> Vec<String> {
        let mut moved = Vec::new();
        if self.env != now.env {
            moved.push(format!("the plan is for environment {}, not for {}", self.env, now.env));
        }
        if self.cardinality != now.cardinality {
            let (then, now) = (given(&self.cardinality), given(&now.cardinality));
            moved.push(format!("the numbers of nodes that were given were {then}, and are {now}"));
        } else if self.design != now.design {
            moved.push("the files are not those that the plan was made from".to_owned());
        }
        let revision =
            |revision: Option<DesignRevision>| revision.map_or("none".to_owned(), |number| number.to_string());
        if self.base.head != now.base.head {
            let (then, now) = (revision(self.base.head), revision(now.base.head));
            moved.push(format!("the newest revision of the design was {then}, and is {now}"));
        }
        if self.base.applied != now.base.applied {
            let (then, now) = (revision(self.base.applied), revision(now.base.applied));
            moved.push(format!("the nodes followed revision {then}, and follow {now}"));
        }
        if moved.is_empty() && self.nodes != now.nodes {
            moved.extend(moved_nodes(&self.nodes, &now.nodes));
        }
        if moved.is_empty() && self != now {
            moved.push("the plan was not made by this server, or was edited".to_owned());
        }
        moved
    }
}

/// "web=3, db=1": as it is given.
fn given(cardinality: &BTreeMap<Role, u32>) -> String {
    let all: Vec<String> = cardinality.iter().map(|(role, nodes)| format!("{role}={nodes}")).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

/// The first few nodes of which the two plans say different things.
fn moved_nodes(then: &[NodePlan], now: &[NodePlan]) -> Vec<String> {
    const SHOWN: usize = 5;
    let by_name = |plans: &[NodePlan]| -> BTreeMap<NodeName, NodePlan> {
        plans.iter().map(|plan| (plan.node.clone(), plan.clone())).collect()
    };
    let (then, now) = (by_name(then), by_name(now));
    let names = then.keys().chain(now.keys().filter(|name| !then.contains_key(*name)));
    let different: Vec<&NodeName> = names.filter(|name| then.get(*name) != now.get(*name)).collect();
    let word = |plan: Option<&NodePlan>| plan.map_or("nothing", |plan| plan.action.word());
    let told = different.iter().take(SHOWN);
    let mut told: Vec<String> = told
        .map(|name| format!("{name}: was to {}, and now {}", word(then.get(*name)), word(now.get(*name))))
        .collect();
    match different.len().saturating_sub(SHOWN) {
        0 if different.is_empty() => told.push("the order of the nodes is another one".to_owned()),
        0 => {}
        more => told.push(format!("and {more} more nodes")),
    }
    told
}

impl NodeAction {
    pub fn word(self) -> &'static str {
        match self {
            NodeAction::Create => "create",
            NodeAction::Change => "change",
            NodeAction::Remove => "remove",
            NodeAction::Keep => "keep",
        }
    }

    /// The sign before it in a list.
    pub fn sign(self) -> char {
        match self {
            NodeAction::Create => '+',
            NodeAction::Change => '~',
            NodeAction::Remove => '-',
            NodeAction::Keep => '=',
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> DesignPlan {
        let node = NodePlan {
            node: NodeName::new("web1").unwrap(),
            role: Role::new("web").unwrap(),
            action: NodeAction::Create,
            changes: Vec::new(),
        };
        DesignPlan {
            env: EnvName::new("prod").unwrap(),
            base: PlanBase { head: Some(DesignRevision(3)), applied: Some(DesignRevision(3)) },
            design: "ab".into(),
            cardinality: BTreeMap::new(),
            nodes: vec![node],
            roles: Vec::new(),
            totals: Totals { create: 1, ..Totals::default() },
            documents: DocumentTotals::default(),
        }
    }

    #[test]
    fn what_moved_is_said() {
        let then = plan();
        assert_eq!(then.moved(&then), Vec::<String>::new());
        let mut now = then.clone();
        now.base.head = Some(DesignRevision(4));
        assert_eq!(then.moved(&now), ["the newest revision of the design was 3, and is 4"]);
        now.base = PlanBase { head: then.base.head, applied: None };
        assert_eq!(then.moved(&now), ["the nodes followed revision 3, and follow none"]);
        let mut now = then.clone();
        now.nodes[0].action = NodeAction::Keep;
        assert_eq!(then.moved(&now), ["web1: was to create, and now keep"]);
        // The digest is of these as well, and the files need not be others.
        let mut now = then.clone();
        (now.design, now.cardinality) = ("cd".into(), BTreeMap::from([(Role::new("web").unwrap(), 3)]));
        assert_eq!(then.moved(&now), ["the numbers of nodes that were given were none, and are web=3"]);
        let mut edited = then.clone();
        edited.totals.create = 0;
        assert_eq!(edited.moved(&then), ["the plan was not made by this server, or was edited"]);
    }

    #[test]
    fn a_plan_that_leaves_no_node_is_told_from_one_that_has_none() {
        let with =
            |create, change, remove, keep| DesignPlan { totals: Totals { create, change, remove, keep }, ..plan() };
        assert!(with(0, 0, 2, 0).removes_all());
        for left in [with(0, 0, 0, 0), with(1, 0, 2, 0), with(0, 1, 2, 0), with(0, 0, 2, 1)] {
            assert!(!left.removes_all(), "{:?}", left.totals);
        }
    }

    #[test]
    fn a_plan_reads_back_as_it_was_written() {
        let mut plan = plan();
        plan.nodes[0].changes.push(ValueChange { path: "mtu".into(), before: None, after: Some(9000.into()) });
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<DesignPlan>(&text).unwrap(), plan);
    }
}
