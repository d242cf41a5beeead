//! The fleet as it is read from the store: desired versions of nodes before, during and after a rollout, and records of
//! server replicas.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use muster_core::fleet::{DesiredVersion, Effects, Fleet, KeyChange};
use muster_core::keys::{self, Keys};
use muster_core::names::{EnvName, NodeName, ReplicaId, Version};
use muster_core::node::policy::{NodePolicy, PolicyRecord};
use muster_core::replica::{BlobsMark, ControllerName, ControllerRecord, PresenceRecord, ReplicaRecord};
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::{ActiveRollout, DesiredRecord, FromVersion};
use muster_core::txn::{Generation, Revision};

struct FleetStore {
    fleet: Fleet,
    keys: Keys,
    revision: u64,
}

impl FleetStore {
    fn new() -> Self {
        let env = EnvName::new("test").unwrap();
        let mut store = Self { keys: Keys::new(&env), fleet: Fleet::new(env), revision: 0 };
        store.put(store.keys.store_epoch(), b"7");
        store
    }

    fn put(&mut self, key: String, value: &[u8]) -> u64 {
        self.revision += 1;
        let revision = Revision(self.revision);
        let (_, parsed) = keys::parse(&key).unwrap();
        self.fleet.apply(revision, [(KeyChange { key: &key, value: Some(value), revision }, parsed)]);
        self.revision
    }

    fn current(&mut self, version: &str) -> u64 {
        self.put(self.keys.current_version(), version.as_bytes())
    }

    fn active(&mut self, active: &ActiveRollout) {
        let value = serde_json::to_vec(active).unwrap();
        self.put(self.keys.active_rollout(), &value);
    }

    fn grant(&mut self, node: &str, version: &str, rollout: u64, kept: Option<Generation>) -> u64 {
        let record = DesiredRecord {
            version: Version::new(version).unwrap(),
            rollout: RolloutId(rollout),
            granted: "2026-11-15T10:00:00Z".parse().unwrap(),
            expires: None,
            allow_older: false,
            confirm_within: None,
            kept,
        };
        self.put(self.keys.desired(&name(node)), &serde_json::to_vec(&record).unwrap())
    }

    /// The version and the generation's number.
    fn desired(&self, node: &str) -> Option<(String, u64)> {
        let DesiredVersion { version, generation, .. } = self.fleet.desired_of(&name(node))?;
        assert_eq!(generation.epoch, 7);
        Some((version.to_string(), generation.number))
    }
}

fn name(node: &str) -> NodeName {
    NodeName::new(node).unwrap()
}

fn staged(id: u64, from: Option<(&str, u64)>, to: &str) -> ActiveRollout {
    let from = from.map(|(version, number)| FromVersion {
        version: Version::new(version).unwrap(),
        generation: Generation { epoch: 7, number },
        allow_older: false,
    });
    let (to, id) = (Version::new(to).unwrap(), RolloutId(id));
    ActiveRollout { id, from, to, floor: RolloutId(0), at_once: false, completed: false }
}

#[test]
fn node_without_grant_keeps_version_and_generation() {
    let mut store = FleetStore::new();
    let first = store.current("v1");
    assert_eq!(store.desired("web1"), Some(("v1".into(), first)));
    store.current("v2");
    store.active(&staged(1, Some(("v1", first)), "v2"));
    assert_eq!(store.desired("web1"), Some(("v1".into(), first)), "the same generation: it does not run again");
    let granted = store.grant("web1", "v2", 1, None);
    assert_eq!(store.desired("web1"), Some(("v2".into(), granted)));
    assert_eq!(store.desired("web2"), Some(("v1".into(), first)));
}

#[test]
fn completed_rollout_leaves_grants_and_sets_the_base() {
    let mut store = FleetStore::new();
    let first = store.current("v1");
    let second = store.current("v2");
    let granted = store.grant("web1", "v2", 1, None);
    let left = store.grant("web2", "v1", 1, Some(Generation { epoch: 7, number: first }));
    store.active(&ActiveRollout { completed: true, ..staged(1, Some(("v1", first)), "v2") });
    assert_eq!(store.desired("web1"), Some(("v2".into(), granted)));
    assert_eq!(store.desired("web2"), Some(("v1".into(), first)), "skipped at revision {left}");
    assert_eq!(store.desired("web3"), Some(("v2".into(), second)));
}

#[test]
fn end_of_a_rollback_sends_no_version_again() {
    let mut store = FleetStore::new();
    let first = store.current("v1");
    store.current("v2");
    let went = store.grant("web1", "v2", 1, None);
    let again = store.current("v1");
    let back = store.grant("web1", "v1", 2, None);
    store.active(&ActiveRollout { completed: true, ..staged(2, Some(("v1", first)), "v1") });
    assert!(went < again && again < back);
    assert_eq!(store.desired("web1"), Some(("v1".into(), back)));
    assert_eq!(store.desired("web2"), Some(("v1".into(), first)), "it never went: it does not run again");
}

#[test]
fn rollout_at_once_invalidates_earlier_grants() {
    let mut store = FleetStore::new();
    store.grant("web1", "v2", 1, None);
    let third = store.current("v3");
    let at_once = ActiveRollout { at_once: true, floor: RolloutId(2), ..staged(2, None, "v3") };
    store.active(&at_once);
    assert_eq!(store.desired("web1"), Some(("v3".into(), third)));
    // The next rollout starts from that, not from the grants of the first.
    store.current("v4");
    store.active(&ActiveRollout { floor: RolloutId(2), ..staged(3, Some(("v3", third)), "v4") });
    assert_eq!(store.desired("web1"), Some(("v3".into(), third)));
}

#[test]
fn no_version_before_the_first_choice() {
    let mut store = FleetStore::new();
    store.current("v1");
    store.active(&staged(1, None, "v1"));
    assert_eq!(store.desired("web1"), None);
}

#[test]
fn new_epoch_sends_versions_again() {
    let mut store = FleetStore::new();
    store.current("v2");
    let mut active = staged(1, Some(("v1", 5_000)), "v2");
    active.from.as_mut().unwrap().generation.epoch = 6;
    store.active(&active);
    assert_eq!(store.desired("web1"), Some(("v1".into(), 1)), "as of when this life began");
    let kept = store.grant("web2", "v1", 1, Some(Generation { epoch: 6, number: 5_000 }));
    assert_eq!(store.desired("web2"), Some(("v1".into(), kept)));
}

#[test]
fn cordoned_node_keeps_its_version() {
    let mut store = FleetStore::new();
    let first = store.current("v1");
    let keeps = FromVersion {
        version: Version::new("v1").unwrap(),
        generation: Generation { epoch: 7, number: first },
        allow_older: false,
    };
    let since = "2026-11-15T10:00:00Z".parse().unwrap();
    let (policy, by, reason) = (NodePolicy::Cordoned, "ada".into(), "disk".into());
    let record = PolicyRecord { policy, by, reason, since, keeps: Some(keeps) };
    store.put(store.keys.policy(&name("web1")), &serde_json::to_vec(&record).unwrap());
    // All nodes are given v2 at once.
    let second = store.current("v2");
    store.active(&ActiveRollout { at_once: true, floor: RolloutId(1), ..staged(1, Some(("v1", first)), "v2") });
    assert_eq!(store.desired("web1"), Some(("v1".into(), first)));
    assert_eq!(store.desired("web2"), Some(("v2".into(), second)));
    assert!(store.fleet.policies().map(|row| row.node).eq([name("web1")]));
    // A grant takes precedence: the node was granted before the cordon, or skipped.
    let granted = store.grant("web1", "v2", 1, None);
    assert_eq!(store.desired("web1"), Some(("v2".into(), granted)));

    // The store begins a new epoch: generations of the old one do not count.
    store.put(store.keys.store_epoch(), b"8");
    store.grant("web1", "v2", 0, None);
    let generation = store.fleet.desired_of(&name("web1")).unwrap().generation;
    assert_eq!((generation.epoch, generation.number), (8, store.fleet.epoch_at().unwrap().0));
}

#[test]
fn unreadable_policy_cordons_the_node() {
    let mut store = FleetStore::new();
    store.put(store.keys.policy(&name("web1")), b"{");
    assert!(store.fleet.get(&name("web1")).unwrap().cordon().is_some());
    assert!(store.fleet.unreadable().contains_key(&store.keys.policy(&name("web1"))));
}

#[test]
fn unreadable_active_rollout_holds_all_nodes() {
    // As it was watched, and as it is read by a server that has just started.
    for was_seen in [true, false] {
        let mut store = FleetStore::new();
        let first = store.current("v1");
        store.current("v2");
        if was_seen {
            store.active(&staged(1, Some(("v1", first)), "v2"));
        }
        let granted = store.grant("web1", "v2", 1, None);
        store.put(store.keys.active_rollout(), b"{\"id\":");
        assert_eq!((store.desired("web1"), store.desired("web2"), store.fleet.base()), (None, None, None));
        assert!(store.fleet.rollouts_unreadable() && store.fleet.active_rollout_record().is_none());
        assert!(store.fleet.unreadable().contains_key(&store.keys.active_rollout()));
        store.active(&staged(1, Some(("v1", first)), "v2"));
        assert!(!store.fleet.rollouts_unreadable() && store.fleet.unreadable().is_empty());
        assert_eq!(store.desired("web1"), Some(("v2".into(), granted)));
        assert_eq!(store.desired("web2"), Some(("v1".into(), first)));
    }
}

#[test]
fn unreadable_grant_keeps_the_node() {
    let mut store = FleetStore::new();
    let first = store.current("v1");
    store.grant("web1", "v2", 1, None);
    store.put(store.keys.desired(&name("web1")), b"what?");
    assert_eq!((store.desired("web1"), store.desired("web2")), (None, Some(("v1".into(), first))));
    assert!(store.fleet.unreadable().contains_key(&store.keys.desired(&name("web1"))));
    let granted = store.grant("web1", "v2", 1, None);
    assert_eq!(store.desired("web1"), Some(("v2".into(), granted)));
}

#[test]
fn unreadable_rollout_is_dropped() {
    let mut store = FleetStore::new();
    store.current("v1");
    store.active(&staged(1, None, "v1"));
    let at: jiff::Timestamp = "2026-11-15T10:00:00Z".parse().unwrap();
    let record = serde_json::json!({
        "id": 1, "request": "r", "to": "v1", "plan": "sha256:0", "by": "ann", "started": at, "phase": "running",
        "phase_since": at, "waves": [], "progress": at,
    });
    store.put(store.keys.rollout(RolloutId(1)), record.to_string().as_bytes());
    assert!(store.fleet.active_rollout_record().is_some());
    store.put(store.keys.rollout(RolloutId(1)), b"what?");
    assert!(store.fleet.active_rollout_record().is_none() && store.fleet.rollouts().is_empty());
}

fn apply(fleet: &mut Fleet, revision: u64, key: &str, value: Option<&[u8]>) -> Effects {
    let revision = Revision(revision);
    let (_, parsed) = keys::parse(key).unwrap();
    fleet.apply(revision, [(KeyChange { key, value, revision }, parsed)])
}

#[test]
fn server_changes_wake_no_node() {
    let env = EnvName::new("prod").unwrap();
    let (keys, mut fleet) = (Keys::new(&env), Fleet::new(env));
    let since = "2026-11-15T10:00:00Z".parse().unwrap();
    let id = ReplicaId::new("ctl1-0a1b2c").unwrap();
    let node = NodeName::new("web1").unwrap();
    let replica = ReplicaRecord {
        url: "http://127.0.0.1:7300".into(),
        host: "ctl1".into(),
        pid: 7,
        version: "0.1.0".into(),
        since,
        blobs: BlobsMark { directory: "/blobs".into(), nonce: "n".into() },
        secret_keys: Vec::new(),
        authorities: vec!["0a1b".into()],
    };
    let controller = ControllerRecord { replica: id.clone(), since };
    let presence = PresenceRecord { replica: Some(id.clone()), since, ..PresenceRecord::default() };
    let values = [
        (keys.replica(&id), serde_json::to_vec(&replica).unwrap()),
        (keys.controller(ControllerName::Liveness), serde_json::to_vec(&controller).unwrap()),
        (keys.presence(&node), serde_json::to_vec(&presence).unwrap()),
    ];
    let before = fleet.snapshot();
    for (number, (key, value)) in (1..).zip(&values) {
        let effects = apply(&mut fleet, number, key, Some(value));
        assert!(effects.servers, "{key}");
        assert!(effects.lookups.is_empty() && effects.roles.is_empty() && !effects.desired, "{key}: {effects:?}");
    }
    assert_eq!(fleet.replicas()[&id], (replica, Revision(1)));
    assert_eq!(fleet.controllers()[&ControllerName::Liveness], (controller, Revision(2)));
    assert_eq!(fleet.get(&node).unwrap().presence, Some((presence, Revision(3))));
    assert_eq!(fleet.snapshot().active_roles, before.active_roles, "nothing of it can be looked up");
    assert_eq!(
        (fleet.designed().count(), fleet.is_founded()),
        (0, false),
        "it makes neither a node nor an environment"
    );

    for (number, (key, _)) in (4..).zip(&values) {
        apply(&mut fleet, number, key, None);
    }
    assert_eq!((fleet.replicas().len(), fleet.controllers().len(), fleet.nodes().count()), (0, 0, 0));
}

#[test]
fn node_is_found_by_its_host_name() {
    let mut store = FleetStore::new();
    let record = |host: Option<&str>| {
        let mut record = serde_json::json!({"role": "web", "failure_domain": "rack1"});
        if let Some(host) = host {
            record["host_name"] = host.into();
        }
        serde_json::to_vec(&record).unwrap()
    };
    for (node, host) in [("web1_blue", None), ("web2_blue", Some("www.example.org")), ("web3", Some("front"))] {
        store.put(store.keys.node(&name(node)), &record(host));
    }
    let found = |store: &FleetStore, host: &str| store.fleet.find(host).map(|(name, _)| name.to_string());
    for (host, node) in [
        ("web1_blue", Some("web1_blue")),
        ("web1-blue", Some("web1_blue")),
        ("web2_blue", Some("web2_blue")),
        ("www.example.org", Some("web2_blue")),
        ("web2-blue", None),
        ("front", Some("web3")),
        ("rear", None),
    ] {
        assert_eq!(found(&store, host).as_deref(), node, "{host}");
    }
    assert_eq!(store.fleet.host_of(&name("web1_blue")), "web1-blue");
    assert_eq!(store.fleet.host_of(&name("web2_blue")), "www.example.org");

    // The name moves to another node. While two nodes have it, it names neither.
    store.put(store.keys.node(&name("web1_blue")), &record(Some("front")));
    assert_eq!((found(&store, "front"), found(&store, "web1-blue")), (None, None));
    store.put(store.keys.node(&name("web3")), &record(None));
    assert_eq!(found(&store, "front").as_deref(), Some("web1_blue"));
}

#[test]
fn agent_is_woken_by_another_host_name() {
    let mut store = FleetStore::new();
    let leader = serde_json::json!({"node": "db1", "epoch": 3, "since": "2026-11-15T10:00:00Z"});
    store.put(store.keys.leader(&"db".parse().unwrap()), leader.to_string().as_bytes());
    let key = store.keys.node(&name("db1"));
    let mut put = |record: &str| {
        store.revision += 1;
        let (revision, value) = (Revision(store.revision), Some(record.as_bytes()));
        let (_, parsed) = keys::parse(&key).unwrap();
        let effects = store.fleet.apply(revision, [(KeyChange { key: &key, value, revision }, parsed)]);
        (effects.addressed_nodes.len(), effects.lookups.iter().any(|key| key == "leader::db"))
    };
    put(r#"{"role": "db", "failure_domain": "rack1"}"#);
    assert_eq!(put(r#"{"role": "db", "failure_domain": "rack2"}"#), (0, false));
    assert_eq!(put(r#"{"role": "db", "failure_domain": "rack2", "host_name": "oracle"}"#), (1, true));
    assert_eq!(store.fleet.leader("db").unwrap().host, "oracle");
}
