//! Records of server replicas in the fleet: they are applied and shown, and wake no node.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use muster_core::fleet::{Effects, Fleet, KeyChange};
use muster_core::keys::{self, Keys};
use muster_core::names::{EnvName, NodeName, ReplicaId};
use muster_core::replica::{BlobsMark, ControllerName, ControllerRecord, PresenceRecord, ReplicaRecord};
use muster_core::txn::Revision;

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
    };
    let controller = ControllerRecord { replica: id.clone(), since };
    let presence = PresenceRecord { replica: Some(id.clone()), since };
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
