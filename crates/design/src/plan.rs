//! Plans the apply of a design: a pure function of the applied design, the next design, and the existing nodes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use muster_core::design::plan::{DocumentTotals, NodeAction, NodeDiff, NodePlan, RolePlan, Totals, ValueChange};
use muster_core::names::{NodeName, Role};
use muster_core::node::record::NodeRecord;

use crate::compile::{CompileOptions, Design};
use crate::diff::{DocumentChange, ValueDiff, diff};
use crate::kinds::Kind;
use crate::yaml::YamlNode;

/// Content of a plan: nodes, roles and documents. The caller adds the revisions that it is based on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanContent {
    pub nodes: Vec<NodePlan>,
    pub roles: Vec<RolePlan>,
    pub totals: Totals,
    pub documents: DocumentTotals,
}

impl From<&ValueDiff> for ValueChange {
    fn from(value: &ValueDiff) -> Self {
        // A value without JSON form, such as NaN, becomes null.
        let json = |node: &YamlNode| serde_json::to_value(node).unwrap_or_default();
        ValueChange {
            path: value.path.to_string(),
            before: value.before.as_ref().map(json),
            after: value.after.as_ref().map(json),
        }
    }
}

/// Computes a plan. `applied` is the design that the nodes follow, `fleet` the registered nodes that are not leaving. Retired
/// nodes stay out.
///
/// The fleet decides whether a node exists, so unfinished steps of an earlier apply are planned again.
pub fn plan<'f>(
    applied: Option<&Design>,
    next: &Design,
    fleet: impl IntoIterator<Item = (&'f NodeName, &'f NodeRecord)>,
    is_retired: impl Fn(&NodeName) -> bool,
) -> PlanContent {
    let fleet: BTreeMap<&NodeName, &NodeRecord> = fleet.into_iter().collect();
    let empty = Design::compile(Vec::new(), &CompileOptions::default()).design;
    let mut documents = DocumentTotals::default();
    let mut changes: HashMap<String, Vec<ValueChange>> = HashMap::new();
    for document in diff(applied.unwrap_or(&empty), next) {
        match document.what {
            DocumentChange::Added => documents.added += 1,
            DocumentChange::Removed => documents.removed += 1,
            DocumentChange::Changed { values } => {
                documents.changed += 1;
                if document.kind == Kind::Node.word() {
                    changes.insert(document.name, values.iter().map(ValueChange::from).collect());
                }
            }
        }
    }
    let difference = NodeDiff::compute(
        fleet.iter().map(|(name, record)| (*name, *record)),
        next.nodes().iter().map(|node| (&node.name, &node.record)),
    );
    let mut nodes = Vec::new();
    for node in next.nodes() {
        let (name, role) = (node.name.clone(), node.record.role.clone());
        let mut action = difference.action(&node.name);
        if is_retired(&node.name) {
            nodes.push(NodePlan { node: name, role, action: NodeAction::Retired, changes: Vec::new() });
            continue;
        }
        let changes = match fleet.get(&node.name) {
            None => Vec::new(),
            Some(known) => {
                let mut changes = changes.remove(node.name.as_str()).unwrap_or_default();
                // The record in the fleet may differ from the applied design, for example if it is older than the first
                // design.
                if changes.is_empty() {
                    changes = changes_of_record(known, &node.record);
                }
                // A document also holds values that are not in the record.
                if action == NodeAction::Keep && !changes.is_empty() {
                    action = NodeAction::Change;
                }
                changes
            }
        };
        nodes.push(NodePlan { node: name, role, action, changes });
    }
    let gone = fleet.iter().filter(|(name, _)| difference.remove.contains(**name));
    let mut gone: Vec<(&NodeName, &NodeRecord)> = gone.map(|(name, record)| (*name, *record)).collect();
    gone.sort_by_key(|(name, record)| (record.position, name.natural()));
    let remove = |(name, record): &(&NodeName, &NodeRecord)| NodePlan {
        node: (*name).clone(),
        role: record.role.clone(),
        action: NodeAction::Remove,
        changes: Vec::new(),
    };
    nodes.extend(gone.iter().map(remove));

    let mut totals = Totals::default();
    for node in &nodes {
        match node.action {
            NodeAction::Create => totals.create += 1,
            NodeAction::Change => totals.change += 1,
            NodeAction::Remove => totals.remove += 1,
            NodeAction::Keep => totals.keep += 1,
            NodeAction::Retired => {}
        }
    }
    let roles = roles(&nodes, &fleet);
    PlanContent { nodes, roles, totals, documents }
}

/// Differences between two records of a node, without the position.
fn changes_of_record(known: &NodeRecord, wanted: &NodeRecord) -> Vec<ValueChange> {
    let wanted = NodeRecord { position: known.position, leaving: known.leaving, ..wanted.registered_as(known) };
    if *known == wanted {
        return Vec::new();
    }
    let fields = |record: &NodeRecord| match serde_json::to_value(record) {
        Ok(serde_json::Value::Object(fields)) => fields,
        Ok(_) | Err(_) => serde_json::Map::new(),
    };
    let (before, after) = (fields(known), fields(&wanted));
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let different = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
    let change = |name: &String| ValueChange {
        path: name.clone(),
        before: before.get(name).cloned(),
        after: after.get(name).cloned(),
    };
    different.map(change).collect()
}

/// Changes of the number of nodes of each role, in the order of the nodes.
fn roles(nodes: &[NodePlan], fleet: &BTreeMap<&NodeName, &NodeRecord>) -> Vec<RolePlan> {
    let mut order: Vec<&Role> = Vec::new();
    let mut after: BTreeMap<&Role, Vec<&NodeName>> = BTreeMap::new();
    for node in nodes {
        if !after.contains_key(&node.role) {
            order.push(&node.role);
        }
        let staying = after.entry(&node.role).or_default();
        if !matches!(node.action, NodeAction::Remove | NodeAction::Retired) {
            staying.push(&node.node);
        }
    }
    // A role whose nodes all get another one has no node in the plan.
    let left: BTreeSet<&Role> =
        fleet.values().map(|record| &record.role).filter(|role| !after.contains_key(role)).collect();
    order.extend(left);
    let role = |role: &Role| {
        let staying = after.get(role).map(Vec::as_slice).unwrap_or_default();
        let before = fleet.values().filter(|record| record.role == *role).count();
        let removed: Vec<&NodeName> = nodes
            .iter()
            .filter(|node| node.role == *role && node.action == NodeAction::Remove)
            .map(|node| &node.node)
            .collect();
        let highest = staying.iter().map(|name| name.natural().1).max();
        let removes_highest = !removed.is_empty() && removed.iter().all(|name| Some(name.natural().1) > highest);
        RolePlan { role: role.clone(), before, after: staying.len(), removes_highest }
    };
    order.into_iter().map(role).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_text::FileText;
    use crate::source::DesignSource;

    fn design(web: u32, nodes: &str) -> Design {
        let roles = format!("roles:\n  db: {{cardinality: 1, flavor: s}}\n  web: {{cardinality: {web}, flavor: s}}\n");
        let files = vec![FileText::new("environments/test.yaml", roles), FileText::new("nodes.yaml", nodes)];
        let checked = Design::compile(vec![DesignSource { name: "site".into(), files }], &CompileOptions::default());
        assert!(!checked.findings.has_errors(), "{}", checked.findings);
        checked.design
    }

    fn fleet(design: &Design) -> BTreeMap<NodeName, NodeRecord> {
        design.nodes().iter().map(|node| (node.name.clone(), node.record.clone())).collect()
    }

    fn format_plan(planned: &PlanContent) -> String {
        let node = |node: &NodePlan| format!("{}{}", node.action.sign(), node.node);
        planned.nodes.iter().map(node).collect::<Vec<_>>().join(" ")
    }

    const NODES: &str = "kind: Region\nname: r1\nspec: {}\n";

    #[test]
    fn nodes_are_added_removed_changed_and_kept() {
        let (two, three) = (design(2, NODES), design(3, NODES));
        assert_eq!(format_plan(&plan(None, &two, &BTreeMap::new(), |_| false)), "+db1 +web1 +web2");
        let same = plan(Some(&two), &two, &fleet(&two), |_| false);
        assert_eq!((format_plan(&same), same.documents), ("=db1 =web1 =web2".into(), DocumentTotals::default()));
        assert_eq!(format_plan(&plan(Some(&two), &three, &fleet(&two), |_| false)), "=db1 =web1 =web2 +web3");
        let fewer = plan(Some(&three), &design(1, NODES), &fleet(&three), |_| false);
        assert_eq!(format_plan(&fewer), "=db1 =web1 -web2 -web3");
        assert_eq!(fewer.totals, Totals { create: 0, change: 0, remove: 2, keep: 2 });
        let web = &fewer.roles[1];
        assert_eq!((web.role.as_str(), web.before, web.after, web.removes_highest), ("web", 3, 1, true));

        let moved = design(2, "kind: Node\nname: web1\nspec: {failure_domain: rack7}\n");
        let changed = plan(Some(&two), &moved, &fleet(&two), |_| false);
        assert_eq!(format_plan(&changed), "=db1 ~web1 =web2");
        let change = &changed.nodes[1].changes[0];
        assert_eq!(
            (change.path.as_str(), &change.before, &change.after),
            ("failure_domain", &None, &Some("rack7".into()))
        );
    }

    #[test]
    fn change_of_host_name_is_planned() {
        let named = |host: &str| design(1, &format!("kind: Node\nname: web1\nspec: {{host_name: {host}}}\n"));
        let (before, after) = (named("front.example.org"), named("www.example.org"));
        let planned = plan(Some(&before), &after, &fleet(&before), |_| false);
        let change = ValueChange {
            path: "host_name".into(),
            before: Some("front.example.org".into()),
            after: Some("www.example.org".into()),
        };
        assert_eq!((format_plan(&planned), &planned.nodes[1].changes), ("=db1 ~web1".into(), &vec![change.clone()]));
        // The same difference, of a fleet without the applied design.
        assert_eq!(plan(None, &after, &fleet(&before), |_| false).nodes[1].changes, [change]);
    }

    #[test]
    fn change_of_role_is_planned() {
        let (before, after) =
            ("kind: Node\nname: old1\nspec: {role: old}\n", "kind: Node\nname: old1\nspec: {role: new}\n");
        let (before, after) = (design(1, before), design(1, after));
        let roles = plan(Some(&before), &after, &fleet(&before), |_| false).roles;
        let counts: Vec<_> = roles.iter().map(|role| (role.role.as_str(), role.before, role.after)).collect();
        assert_eq!(counts, [("db", 1, 1), ("web", 1, 1), ("new", 0, 1), ("old", 1, 0)]);
    }

    #[test]
    fn existing_nodes_come_from_the_fleet() {
        let two = design(2, NODES);
        let mut there = fleet(&two);
        // An earlier apply was interrupted before it added web2.
        there.remove("web2");
        assert_eq!(format_plan(&plan(Some(&two), &two, &there, |_| false)), "=db1 =web1 +web2");
        // Nodes that were added without a design are compared by their records. The position does not count.
        for record in there.values_mut() {
            record.position += 7;
        }
        assert_eq!(format_plan(&plan(None, &two, &there, |_| false)), "=db1 =web1 +web2");
        if let Some(record) = there.get_mut("db1") {
            record.flavor = Some("large".into());
        }
        let planned = plan(None, &two, &there, |_| false);
        assert_eq!(
            (format_plan(&planned), planned.nodes[0].changes[0].path.as_str()),
            ("~db1 =web1 +web2".into(), "flavor")
        );
    }

    #[test]
    fn retired_node_stays_out() {
        let two = design(2, NODES);
        let mut there = fleet(&two);
        there.remove("web2");
        let planned = plan(Some(&two), &two, &there, |name| name.as_str() == "web2");
        assert_eq!(format_plan(&planned), "=db1 =web1 !web2");
        assert_eq!(planned.totals, Totals { keep: 2, ..Totals::default() });
        let web = planned.roles.iter().find(|role| role.role.as_str() == "web").unwrap();
        assert_eq!((web.before, web.after), (1, 1));
    }

    #[test]
    fn gap_in_the_numbers_is_not_the_highest() {
        let role = |name: &str| format!("kind: Node\nname: {name}\nspec: {{role: app, flavor: s}}\n");
        let all = design(0, &["app1", "app2", "app3"].map(role).join("---\n"));
        let planned = plan(Some(&all), &design(0, &["app1", "app3"].map(role).join("---\n")), &fleet(&all), |_| false);
        let app = planned.roles.iter().find(|role| role.role.as_str() == "app").unwrap();
        assert_eq!((format_plan(&planned), app.removes_highest), ("=db1 =app1 =app3 -app2".into(), false));
    }
}
