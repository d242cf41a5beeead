//! The view of each replica against the store.

use muster_core::fleet::{Fleet, KeyChange};
use muster_core::keys;
use muster_core::names::{EnvName, NodeName};
use muster_core::report::history::HISTORY_LENGTH;
use muster_core::txn::Revision;
use muster_etcd_rig::Dump;
use serde_json::{Value, json};

use crate::cluster::fleet::{ClusterFleet, PREFIX};
use crate::http;
use crate::server::ENV;

/// A reader's minimum revision. A replica that cannot reach it returns an error.
const MIN_REVISION: &str = "Muster-Min-Revision";
/// Attempts, because a replica may write its own records (presence) during a comparison.
const TRIES: usize = 20;
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);

impl ClusterFleet {
    /// Compares all responses of every replica with the store. The fleet must be idle.
    pub(super) fn compare_views(&mut self) {
        for _ in 0..TRIES {
            if let Some(violations) = self.differences() {
                return violations.into_iter().for_each(|violation| self.checker.add_violation(violation));
            }
        }
        self.checker
            .add_violation(format!("the store was still changing after {TRIES} attempts, although the fleet is idle"));
    }

    /// None if the store changed meanwhile.
    fn differences(&self) -> Option<Vec<String>> {
        let dump = self.wait(self.etcd.dump(PREFIX));
        let newest = self.checker.last().to_string();
        let expected = expected(&dump);
        let mut violations = Vec::new();
        for replica in &self.replicas {
            let mut ask = |path: &str| {
                let path = format!("/v1/envs/{ENV}/{path}");
                let answer =
                    http::try_request_with("GET", &replica.api.to, &path, None, &[(MIN_REVISION, &newest)], TIMEOUT);
                match answer {
                    Ok(answer) if answer.status == 200 => Some(answer.json()),
                    Ok(answer) => {
                        violations.push(format!("{}: {path}: {} {}", replica.name, answer.status, answer.body));
                        None
                    }
                    Err(error) => {
                        violations.push(format!("{}: {path}: {error}", replica.name));
                        None
                    }
                }
            };
            let mut seen: Vec<(String, Value, Value)> = Vec::new();
            if let Some(status) = ask("status") {
                let status = json!([status["desired"], status["generation"], status["running"], status["unreadable"]]);
                seen.push(("the status".to_owned(), status, status_of(&expected)));
            }
            for node in self.agents.iter().map(|agent| &agent.node) {
                if let Some(detail) = ask(&format!("nodes/{node}")) {
                    seen.push((node.clone(), shown(&detail), stored(&expected, node)));
                }
            }
            for (what, view, store) in seen {
                if view != store {
                    let name = &replica.name;
                    violations
                        .push(format!("{name}: its view of {what} is not the store\n view: {view}\nstore: {store}"));
                }
            }
        }
        (self.wait(self.etcd.dump(PREFIX)).entries == dump.entries).then_some(violations)
    }
}

/// The environment as the store has it, built at once from all keys.
fn expected(dump: &Dump) -> Fleet {
    let env = EnvName::new(ENV).unwrap();
    let mut fleet = Fleet::new(env.clone());
    let revision = |number: i64| Revision(u64::try_from(number).unwrap_or_default());
    let changes = dump.entries.iter().filter_map(|entry| {
        let (of, key) = keys::parse(&entry.key)?;
        let change = KeyChange { key: &entry.key, value: Some(&entry.value), revision: revision(entry.mod_revision) };
        (of == env).then_some((change, key))
    });
    fleet.apply(revision(dump.revision), changes);
    fleet
}

fn status_of(fleet: &Fleet) -> Value {
    let desired = fleet.desired();
    let running: std::collections::BTreeMap<_, _> =
        fleet.running().iter().map(|(version, nodes)| (version.clone(), nodes.len())).collect();
    json!([
        desired.as_ref().map(|desired| &desired.version),
        desired.as_ref().map(|desired| desired.generation),
        running,
        fleet.unreadable()
    ])
}

/// A node as a replica shows it, without the activity, which only the replica knows, and with the ids of its runs.
fn shown(detail: &Value) -> Value {
    let fields = ["states", "incarnation", "last", "interfaces", "record", "version", "active", "desired"];
    let mut shown: Value = fields.iter().map(|field| ((*field).to_owned(), detail[field].clone())).collect();
    let runs = detail["history"].as_array().into_iter().flatten();
    shown["history"] = runs.map(|past| past["run"].clone()).collect();
    shown
}

/// The same by the store.
fn stored(fleet: &Fleet, name: &str) -> Value {
    let name = NodeName::new(name.to_owned()).ok();
    let node = name.as_ref().and_then(|name| fleet.get(name).cloned()).unwrap_or_default();
    let observed = node.observed.as_ref().map(|(observed, _)| observed.clone()).unwrap_or_default();
    let open = node.open_run().map(|open| open.run).into_iter();
    let ended = node.history.keys().iter().rev().map(|key| key.run.clone());
    json!({
        "states": node.states.keys().collect::<Vec<_>>(),
        "incarnation": observed.incarnation,
        "last": observed.last,
        "history": open.chain(ended).take(HISTORY_LENGTH).collect::<Vec<_>>(),
        "interfaces": observed.interfaces,
        "record": node.record,
        "version": node.running.first(),
        "active": node.active().is_some(),
        "desired": name.and_then(|name| fleet.desired_of(&name)).map(|desired| desired.version),
    })
}
