//! Plan of applying a design: the nodes and documents that change.
//!
//! A plan records what it was made from: the design revisions and the digest of the new design. On apply the server
//! makes the plan again and compares. It applies exactly the plan that was shown, or refuses.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::design::DesignRevision;
use crate::names::{EnvName, NodeName, Role};
use crate::node::record::NodeRecord;

/// Plan of applying a design.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DesignPlan {
    pub env: EnvName,
    pub base: PlanBase,
    /// Digest of the manifest of the new design: all files of all sources, in their order.
    pub design: String,
    /// Number of nodes per role, replacing the environment file. The same numbers are used when the plan is applied.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, u32>)]
    pub cardinality: BTreeMap<Role, u32>,
    /// All nodes, present and planned, in the order of the design. Removed nodes come last.
    pub nodes: Vec<NodePlan>,
    pub roles: Vec<RolePlan>,
    pub totals: Totals,
    /// Documents whose effective values change, including those of nodes.
    pub documents: DocumentTotals,
}

/// Revisions that a plan was made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlanBase {
    /// Newest design revision. None if there was no design.
    pub head: Option<DesignRevision>,
    /// Applied design revision.
    pub applied: Option<DesignRevision>,
}

/// Planned action for one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodePlan {
    pub node: NodeName,
    pub role: Role,
    pub action: NodeAction,
    /// Effective values that change, by path.
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
    /// An operator has retired it: it stays out of the fleet although the design has it.
    Retired,
}

/// Nodes that a design adds to a fleet, changes and removes. Computed here for both `env plan`, which shows it, and
/// `env apply`, which executes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeDiff {
    /// Not in the fleet, or leaving it.
    pub create: BTreeSet<NodeName>,
    /// Another role, host name, flavor, profile, failure domain, or other labels. The position in the design does not count.
    pub change: BTreeSet<NodeName>,
    /// In the fleet, not leaving it yet, and not in the design.
    pub remove: BTreeSet<NodeName>,
}

impl NodeDiff {
    /// Compares the nodes of a fleet with those of a design.
    pub fn compute<'a>(
        fleet: impl IntoIterator<Item = (&'a NodeName, &'a NodeRecord)>,
        design: impl IntoIterator<Item = (&'a NodeName, &'a NodeRecord)>,
    ) -> Self {
        let staying = fleet.into_iter().filter(|(_, record)| !record.is_leaving());
        let mut staying: BTreeMap<&NodeName, &NodeRecord> = staying.collect();
        let mut diff = Self::default();
        for (name, wanted) in design {
            match staying.remove(name) {
                None => diff.create.insert(name.clone()),
                Some(known) if *known == (NodeRecord { position: known.position, ..wanted.registered_as(known) }) => {
                    false
                }
                Some(_) => diff.change.insert(name.clone()),
            };
        }
        diff.remove = staying.into_keys().cloned().collect();
        diff
    }

    /// Action on one node of the fleet or the design.
    pub fn action(&self, node: &NodeName) -> NodeAction {
        if self.create.contains(node) {
            NodeAction::Create
        } else if self.change.contains(node) {
            NodeAction::Change
        } else if self.remove.contains(node) {
            NodeAction::Remove
        } else {
            NodeAction::Keep
        }
    }
}

/// One effective value before and after. Absent means not set.
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

/// Change in the size of a role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolePlan {
    pub role: Role,
    /// Number of nodes.
    pub before: usize,
    pub after: usize,
    /// The role shrinks by its highest numbers.
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
    /// Returns whether there is nothing to do: all nodes stay and no document changes.
    pub fn is_empty(&self) -> bool {
        let Totals { create, change, remove, keep: _ } = self.totals;
        create + change + remove == 0 && self.documents == DocumentTotals::default()
    }

    /// Returns whether the plan removes all nodes of a non-empty environment.
    pub fn removes_all(&self) -> bool {
        let Totals { create, change, remove, keep } = self.totals;
        create + change + keep == 0 && remove > 0
    }

    /// Differences to a plan made later, as messages. Empty if both do the same.
    pub fn differences(&self, now: &DesignPlan) -> Vec<String> {
        let mut differences = Vec::new();
        if self.env != now.env {
            differences.push(format!("the plan is for environment {}, not {}", self.env, now.env));
        }
        if self.cardinality != now.cardinality {
            let (then, now) = (given(&self.cardinality), given(&now.cardinality));
            differences.push(format!("the given numbers of nodes were {then} and are now {now}"));
        } else if self.design != now.design {
            differences.push("the files changed since the plan was made".to_owned());
        }
        let revision =
            |revision: Option<DesignRevision>| revision.map_or("none".to_owned(), |number| number.to_string());
        if self.base.head != now.base.head {
            let (then, now) = (revision(self.base.head), revision(now.base.head));
            differences.push(format!("the newest design revision was {then} and is now {now}"));
        }
        if self.base.applied != now.base.applied {
            let (then, now) = (revision(self.base.applied), revision(now.base.applied));
            differences.push(format!("the applied design revision was {then} and is now {now}"));
        }
        if differences.is_empty() && self.nodes != now.nodes {
            differences.extend(node_differences(&self.nodes, &now.nodes));
        }
        if differences.is_empty() && self != now {
            differences.push("the plan was not made by this server, or was edited".to_owned());
        }
        differences
    }
}

/// Cardinality as given on the command line: `web=3, db=1`.
fn given(cardinality: &BTreeMap<Role, u32>) -> String {
    let all: Vec<String> = cardinality.iter().map(|(role, nodes)| format!("{role}={nodes}")).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

/// Differences between nodes, at most five.
fn node_differences(then: &[NodePlan], now: &[NodePlan]) -> Vec<String> {
    const SHOWN: usize = 5;
    let by_name = |plans: &[NodePlan]| -> BTreeMap<NodeName, NodePlan> {
        plans.iter().map(|plan| (plan.node.clone(), plan.clone())).collect()
    };
    let (then, now) = (by_name(then), by_name(now));
    let names = then.keys().chain(now.keys().filter(|name| !then.contains_key(*name)));
    let different: Vec<&NodeName> = names.filter(|name| then.get(*name) != now.get(*name)).collect();
    let word = |plan: Option<&NodePlan>| plan.map_or("nothing", |plan| plan.action.word());
    let shown = different.iter().take(SHOWN);
    let mut messages: Vec<String> = shown
        .map(|name| format!("{name}: planned to {}, now {}", word(then.get(*name)), word(now.get(*name))))
        .collect();
    match different.len().saturating_sub(SHOWN) {
        0 if different.is_empty() => messages.push("the order of the nodes changed".to_owned()),
        0 => {}
        more => messages.push(format!("and {more} more nodes")),
    }
    messages
}

impl NodeAction {
    pub fn word(self) -> &'static str {
        match self {
            NodeAction::Create => "create",
            NodeAction::Change => "change",
            NodeAction::Remove => "remove",
            NodeAction::Keep => "keep",
            NodeAction::Retired => "retired",
        }
    }

    /// Sign shown before the action in a list.
    pub fn sign(self) -> char {
        match self {
            NodeAction::Create => '+',
            NodeAction::Change => '~',
            NodeAction::Remove => '-',
            NodeAction::Keep => '=',
            NodeAction::Retired => '!',
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
    fn node_diff_ignores_positions_and_leaving_nodes() {
        let record = |role: &str, position| NodeRecord {
            role: Role::new(role).unwrap(),
            profile: None,
            labels: BTreeMap::new(),
            failure_domain: "a".into(),
            position,
            flavor: None,
            host_name: None,
            leaving: None,
            created: None,
        };
        let leaving = |position| NodeRecord {
            leaving: Some(crate::node::decommission::begin(jiff::Timestamp::UNIX_EPOCH)),
            ..record("web", position)
        };
        let name = |text: &str| NodeName::new(text).unwrap();
        let fleet = BTreeMap::from([
            (name("web1"), NodeRecord { created: Some(jiff::Timestamp::UNIX_EPOCH), ..record("web", 0) }),
            (name("web2"), record("web", 1)),
            (name("web3"), leaving(2)),
            (name("web4"), leaving(3)),
            (name("web5"), record("web", 4)),
        ]);
        let design = BTreeMap::from([
            (name("web1"), record("web", 7)),
            (name("web2"), record("lb", 1)),
            (name("web3"), record("web", 2)),
            (name("web6"), record("web", 5)),
        ]);
        let diff = NodeDiff::compute(&fleet, &design);
        let actions: Vec<NodeAction> = (1..=6).map(|number| diff.action(&name(&format!("web{number}")))).collect();
        use NodeAction::{Change, Create, Keep, Remove};
        assert_eq!(actions, [Keep, Change, Create, Keep, Remove, Create]);
    }

    #[test]
    fn plan_differences_are_described() {
        let then = plan();
        assert_eq!(then.differences(&then), Vec::<String>::new());
        let mut now = then.clone();
        now.base.head = Some(DesignRevision(4));
        assert_eq!(then.differences(&now), ["the newest design revision was 3 and is now 4"]);
        now.base = PlanBase { head: then.base.head, applied: None };
        assert_eq!(then.differences(&now), ["the applied design revision was 3 and is now none"]);
        let mut now = then.clone();
        now.nodes[0].action = NodeAction::Keep;
        assert_eq!(then.differences(&now), ["web1: planned to create, now keep"]);
        // The digest covers the cardinality too, so the files need not differ.
        let mut now = then.clone();
        (now.design, now.cardinality) = ("cd".into(), BTreeMap::from([(Role::new("web").unwrap(), 3)]));
        assert_eq!(then.differences(&now), ["the given numbers of nodes were none and are now web=3"]);
        let mut edited = then.clone();
        edited.totals.create = 0;
        assert_eq!(edited.differences(&then), ["the plan was not made by this server, or was edited"]);
    }

    #[test]
    fn removes_all_only_with_nodes_to_remove() {
        let with =
            |create, change, remove, keep| DesignPlan { totals: Totals { create, change, remove, keep }, ..plan() };
        assert!(with(0, 0, 2, 0).removes_all());
        for left in [with(0, 0, 0, 0), with(1, 0, 2, 0), with(0, 1, 2, 0), with(0, 0, 2, 1)] {
            assert!(!left.removes_all(), "{:?}", left.totals);
        }
    }

    #[test]
    fn plan_survives_json() {
        let mut plan = plan();
        plan.nodes[0].changes.push(ValueChange { path: "mtu".into(), before: None, after: Some(9000.into()) });
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<DesignPlan>(&text).unwrap(), plan);
    }
}
