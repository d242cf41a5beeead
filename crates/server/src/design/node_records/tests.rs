//! Transactions that make a fleet follow a design, computed without a store.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use muster_core::fleet::KeyChange;
use muster_core::keys;
use muster_core::lookup::Tag;
use muster_core::names::Role;
use muster_core::node::decommission::{RoleLookups, begin};
use muster_core::node::record::{MachinePhase, MachineRecord};
use muster_core::report::record::{ActiveRole, ObservedRecord};

use super::*;
use crate::transactions::MAX_OPS;

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
        host_name: None,
        leaving: None,
        created: None,
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
    let keys = Keys::new(&env());
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
fn unchanged_nodes_are_not_written() {
    let nodes = design(&[("web1", 0), ("web2", 1)]);
    let (txns, change) = plan(&fleet(&nodes), &nodes, Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!((txns, change), (Vec::new(), FleetChange::default()));
}

#[test]
fn first_nodes_create_the_epoch() {
    let (txns, change) = plan(&Fleet::new(env()), &design(&[("web1", 0)]), Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(change.added, [name("web1")]);
    assert_eq!(written(&txns), ["/muster/test/nodes/web1", "/muster/test/store_epoch"]);
}

#[test]
fn moved_position_is_written_but_is_no_change() {
    let before = fleet(&design(&[("lb1", 1), ("web1", 0)]));
    let (txns, change) =
        plan(&before, &design(&[("lb1", 2), ("web1", 0), ("web2", 1)]), Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(change, FleetChange { added: vec![name("web2")], ..FleetChange::default() });
    assert_eq!(written(&txns), ["/muster/test/nodes/lb1", "/muster/test/nodes/web2"]);
}

#[test]
fn guards_and_operations_share_a_transaction() {
    for nodes in 90..=110 {
        let role = Role::new("web").unwrap();
        let design: BTreeMap<NodeName, NodeRecord> =
            (1..=nodes).map(|number| (NodeName::build(&role, number, None).unwrap(), record(number))).collect();
        let (txns, _) = plan(&Fleet::new(env()), &design, Timestamp::UNIX_EPOCH).unwrap();
        let mut written: Vec<&str> = Vec::new();
        for txn in &txns {
            assert!(txn.ops.len() <= MAX_OPS);
            for guard in &txn.guards {
                assert!(!written.contains(&guard.key()), "{nodes} nodes: {} is guarded too late", guard.key());
                assert!(txn.ops.iter().any(|op| op.key() == guard.key()), "{nodes} nodes: {guard:?}");
            }
            written.extend(txn.ops.iter().map(Op::key));
        }
        assert_eq!(written.len(), nodes as usize + 1);
    }
}

/// A node with a machine, in service at v1 if `active`. Its last report validated v1.
fn in_service(fleet: &mut Fleet, node: &str, active: bool) {
    let (keys, version) = (Keys::new(&env()), "v1".parse().unwrap());
    let machine = MachineRecord {
        driver: "local".into(),
        phase: MachinePhase::Provisioned,
        attempt: 1,
        since: Timestamp::UNIX_EPOCH,
    };
    put(fleet, keys.machine(&name(node)), &machine, 50);
    let observed = ObservedRecord { passed: Some("v1".parse().unwrap()), ..ObservedRecord::default() };
    put(fleet, keys.observed(&name(node)), &observed, 51);
    if active {
        let role = ActiveRole {
            role: Role::new("web").unwrap(),
            interfaces: Default::default(),
            services: Default::default(),
        };
        put(fleet, keys.active_role(&version, &name(node)), &role, 51);
    }
}

#[test]
fn removed_node_with_machine_leaves_its_role_at_once() {
    // Whether or not the view shows it in its role: liveness may just have added it.
    for active in [true, false] {
        let mut before = fleet(&design(&[("web1", 0), ("web2", 1)]));
        in_service(&mut before, "web2", active);
        let (txns, change) = plan(&before, &design(&[("web1", 0)]), Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(change, FleetChange { leaving: vec![name("web2")], ..FleetChange::default() });
        let [txn] = &txns[..] else { panic!("{txns:?}") };
        assert_eq!(
            txn.guards,
            [
                Guard::Unchanged { key: "/muster/test/nodes/web2".into(), since: Revision(3) },
                Guard::Unchanged { key: "/muster/test/observed/web2".into(), since: Revision(51) },
            ]
        );
        assert_eq!(txn.ops[0], Op::delete("/muster/test/active_roles/v1/web2/address"));
        let Op::Put { value, .. } = &txn.ops[1] else { panic!("{txn:?}") };
        let marked: NodeRecord = serde_json::from_slice(value).unwrap();
        assert_eq!(marked, NodeRecord { leaving: Some(begin(Timestamp::UNIX_EPOCH)), ..record(1) });
    }
}

#[test]
fn removed_node_leaves_no_history() {
    let mut before = fleet(&design(&[("web1", 0), ("web2", 1)]));
    let (keys, run) = (Keys::new(&env()), "r1".parse().unwrap());
    let past = serde_json::json!({"ended": Timestamp::UNIX_EPOCH});
    put(&mut before, keys.past_run(&name("web2"), &run), &past, 60);
    let (txns, _) = plan(&before, &design(&[("web1", 0)]), Timestamp::UNIX_EPOCH).unwrap();
    let ops: Vec<&Op> = txns.iter().flat_map(|txn| &txn.ops).collect();
    for key in [keys.past_run(&name("web2"), &run), keys.run_list(&name("web2"))] {
        assert!(ops.contains(&&Op::delete(key.clone())), "{key} stays: {ops:?}");
    }
    assert!(txns[0].guards.iter().any(|guard| guard.key() == keys.observed(&name("web2"))), "no report adds a run");
}

#[test]
fn leaving_node_keeps_its_deadline_or_returns() {
    let mut nodes = design(&[("web1", 0), ("web2", 1)]);
    let marked = NodeRecord { leaving: Some(begin(Timestamp::UNIX_EPOCH)), ..record(1) };
    nodes.insert(name("web2"), marked);
    let mut before = fleet(&nodes);
    in_service(&mut before, "web2", false);
    let later = Timestamp::from_second(60).unwrap();

    let (txns, change) = plan(&before, &design(&[("web1", 0)]), later).unwrap();
    assert_eq!((txns, change), (Vec::new(), FleetChange::default()), "its time began when it was first marked");
    let (txns, change) = plan(&before, &design(&[("web1", 0), ("web2", 1)]), later).unwrap();
    assert_eq!(change, FleetChange { returned: vec![name("web2")], ..FleetChange::default() });
    assert_eq!(txns[0].ops, [Op::put_json("/muster/test/nodes/web2", &record(1)).unwrap()]);
}

#[test]
fn removed_node_without_machine_is_deleted_at_once() {
    let before = fleet(&design(&[("web1", 0), ("web2", 1)]));
    let (txns, change) = plan(&before, &design(&[("web1", 0)]), Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(change, FleetChange { removed: vec![name("web2")], ..FleetChange::default() });
    let machine = Guard::Absent { key: "/muster/test/machines/web2".into() };
    assert!(txns[0].guards.contains(&machine), "no machine was begun meanwhile: {txns:?}");
    assert!(written(&txns).contains(&"/muster/test/nodes/web2".to_owned()));
}

#[test]
fn removal_deletes_node_keys_but_not_operator_keys() {
    let mut fleet = fleet(&design(&[("web1", 0)]));
    let keys = Keys::new(&env());
    put(&mut fleet, keys.published(&name("web1")), &serde_json::json!({"k": 1}), 10);
    let asked = serde_json::json!({"id": "a", "by": "ann", "at": "2026-11-15T10:00:00Z"});
    put(&mut fleet, keys.requested_run(&name("web1")), &asked, 11);
    let (txns, _) = plan(&fleet, &design(&[]), Timestamp::UNIX_EPOCH).unwrap();
    let gone = written(&txns);
    for key in [keys.published(&name("web1")), keys.requested_run(&name("web1")), keys.node(&name("web1"))] {
        assert!(gone.contains(&key), "{key} stays: {gone:?}");
    }
    assert!(!gone.iter().any(|key| key.contains("/data/") || key.contains("/pauses/")));
}

#[test]
fn leaving_machine_that_joined_is_removed_at_its_deadline() {
    let marked = NodeRecord { leaving: Some(begin(Timestamp::UNIX_EPOCH)), ..record(1) };
    let mut nodes = design(&[("web1", 0)]);
    nodes.insert(name("web2"), marked);
    let mut before = fleet(&nodes);
    let keys = Keys::new(&env());
    // web1 has looked up a list with web2, and has not run since.
    let lookups = RoleLookups::new(&[("active_roles::web".to_owned(), Tag::absent())].into());
    let reader =
        ObservedRecord { looked_up: lookups, passed: Some("v1".parse().unwrap()), ..ObservedRecord::default() };
    for node in ["web1", "web2"] {
        put(&mut before, keys.observed(&name(node)), &reader, 20);
    }
    let role =
        ActiveRole { role: Role::new("web").unwrap(), interfaces: Default::default(), services: Default::default() };
    put(&mut before, keys.active_role(&"v1".parse().unwrap(), &name("web1")), &role, 21);
    let until = begin(Timestamp::UNIX_EPOCH).until;
    let early = drain(&before, Timestamp::UNIX_EPOCH);
    assert_eq!((early.removals.len(), early.next), (0, Some(until)));
    let late = drain(&before, until);
    assert_eq!((late.removals.len(), late.next), (1, None));
    assert!(written(&late.removals).contains(&keys.certificate(&name("web2"))));
    in_service(&mut before, "web2", false);
    assert!(drain(&before, until).removals.is_empty(), "the provision controller releases its machine");
}
