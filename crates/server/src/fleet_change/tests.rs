#![allow(clippy::unwrap_used, clippy::expect_used)]

use muster_core::fleet::KeyChange;
use muster_core::keys;
use muster_core::names::Role;

use super::*;
use crate::transactions::OPS;

fn env() -> EnvName {
    EnvName::new("test").unwrap()
}

fn name(text: &str) -> NodeName {
    NodeName::new(text).unwrap()
}

fn record(position: u32) -> NodeRecord {
    NodeRecord {
        role: Role::new("web").unwrap(),
        profile: None,
        labels: BTreeMap::new(),
        failure_domain: "a".into(),
        position,
        flavor: None,
        leaving: None,
    }
}

fn design(nodes: &[(&str, u32)]) -> BTreeMap<NodeName, NodeRecord> {
    nodes.iter().map(|(node, position)| (name(node), record(*position))).collect()
}

fn put(fleet: &mut Fleet, key: String, value: &impl serde::Serialize, at: u64) {
    let value = serde_json::to_vec(value).unwrap();
    let (_, parsed) = keys::parse(&key).unwrap();
    let change = KeyChange { key: &key, value: Some(&value), revision: Revision(at) };
    fleet.apply(Revision(at), [(change, parsed)]);
}

fn fleet(nodes: &BTreeMap<NodeName, NodeRecord>) -> Fleet {
    let mut fleet = Fleet::new(env());
    let keys = Keys::of(&env());
    put(&mut fleet, keys.store_epoch(), &7, 1);
    for (at, (node, record)) in nodes.iter().enumerate() {
        put(&mut fleet, keys.node(node), record, at as u64 + 2);
    }
    fleet
}

fn written(txns: &[Txn]) -> Vec<String> {
    txns.iter().flat_map(|txn| txn.ops.iter().map(|op| op.key().to_owned())).collect()
}

#[test]
fn what_is_there_already_is_not_written_again() {
    let nodes = design(&[("web1", 0), ("web2", 1)]);
    let (txns, change) = plan(&fleet(&nodes), &nodes, Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!((txns, change), (Vec::new(), FleetChange::default()));
}

#[test]
fn an_environment_begins_with_its_first_nodes() {
    let (txns, change) = plan(&Fleet::new(env()), &design(&[("web1", 0)]), Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(change.added, [name("web1")]);
    assert_eq!(written(&txns), ["/muster/test/nodes/web1", "/muster/test/store_epoch"]);
}

#[test]
fn one_more_node_moves_the_others_and_changes_none_of_them() {
    let before = fleet(&design(&[("lb1", 1), ("web1", 0)]));
    let (txns, change) =
        plan(&before, &design(&[("lb1", 2), ("web1", 0), ("web2", 1)]), Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(change, FleetChange { added: vec![name("web2")], ..FleetChange::default() });
    assert_eq!(written(&txns), ["/muster/test/nodes/lb1", "/muster/test/nodes/web2"]);
}

#[test]
fn guards_stay_with_their_operations_however_many_nodes_there_are() {
    for nodes in 90..=110 {
        let role = Role::new("web").unwrap();
        let design: BTreeMap<NodeName, NodeRecord> =
            (1..=nodes).map(|number| (NodeName::build(&role, number, None).unwrap(), record(number))).collect();
        let (txns, _) = plan(&Fleet::new(env()), &design, Timestamp::UNIX_EPOCH).unwrap();
        let mut written: Vec<&str> = Vec::new();
        for txn in &txns {
            assert!(txn.ops.len() <= OPS);
            for guard in &txn.guards {
                assert!(!written.contains(&guard.key()), "{nodes} nodes: {} is guarded too late", guard.key());
                assert!(txn.ops.iter().any(|op| op.key() == guard.key()), "{nodes} nodes: {guard:?}");
            }
            written.extend(txn.ops.iter().map(Op::key));
        }
        assert_eq!(written.len(), nodes as usize + 1);
    }
}
