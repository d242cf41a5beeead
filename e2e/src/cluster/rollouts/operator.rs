//! Plans, starts and steers a rollout through any replica, and reads it from the store.

use std::time::Duration;

use muster_core::keys::{Key, parse};
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::RolloutPlan;
use muster_core::rollout::record::{ActiveRollout, RolloutPhase, RolloutRecord};
use muster_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::cluster::fleet::{ClusterFleet, PREFIX};
use crate::http;
use crate::server::ENV;

/// Timeout for a stopped replica.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for the next grants, during faults: a lease expires, another replica takes over, and agents reconnect.
const GRANT_TIMEOUT: Duration = Duration::from_secs(150);

/// A started rollout.
#[derive(Clone, Debug)]
pub struct SentRollout {
    pub id: RolloutId,
    pub plan: RolloutPlan,
    pub command: SentCommand,
}

/// An acknowledged operator command. It is in the store after `after`, and at `until` at the latest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentCommand {
    pub word: String,
    pub after: i64,
    pub until: i64,
}

impl ClusterFleet {
    /// Plans a rollout and starts exactly that plan.
    pub fn start_rollout(&self, to: &str) -> SentRollout {
        let after = self.wait(self.etcd.revision());
        let planned = self.post("rollouts/plan", &json!({"to": to, "seed": 1, "allow_older": true}));
        let plan: RolloutPlan = serde_json::from_value(planned["plan"].clone()).unwrap();
        let request = format!("{to} after {after}");
        let started =
            self.post("rollouts", &json!({"what": {"plan": planned["plan"]}, "request": request, "by": "ann"}));
        let id = serde_json::from_value(started["id"].clone()).unwrap();
        let command = SentCommand { word: format!("start {to}"), after, until: started["revision"].as_i64().unwrap() };
        assert_eq!(self.record(id).plan, planned["digest"], "the started plan is the shown one");
        SentRollout { id, plan, command }
    }

    /// Starts a rollout that supersedes another.
    pub fn supersede(&self, to: &str) -> SentCommand {
        let after = self.wait(self.etcd.revision());
        let what = json!({"now": {"to": to, "seed": 2, "allow_older": true}});
        let request = format!("{to} instead after {after}");
        let started = self.post("rollouts", &json!({"what": what, "request": request, "supersede": true, "by": "ann"}));
        SentCommand { word: format!("supersede {to}"), after, until: started["revision"].as_i64().unwrap() }
    }

    /// Rolls back a rollout, also a finished one.
    pub fn roll_back(&self, id: RolloutId) -> SentCommand {
        let after = self.wait(self.etcd.revision());
        let request = json!({"by": "bob", "request": format!("back after {after}")});
        let started = self.post(&format!("rollouts/{id}/rollback"), &request);
        SentCommand { word: "rollback".to_owned(), after, until: started["revision"].as_i64().unwrap() }
    }

    /// Sends an operator command. None if the rollout had finished before.
    pub fn command(&self, id: RolloutId, word: &str) -> Option<SentCommand> {
        let after = self.wait(self.etcd.revision());
        let path = format!("rollouts/{id}/{word}");
        let mut turn = 0;
        let said = eventually(&format!("a replica accepts the command {word}"), GRANT_TIMEOUT, || {
            turn += 1;
            match self.try_post(turn, &path, &json!({"by": "bob"})) {
                Ok(said) => Ok(Some(said)),
                Err(_) if !self.record(id).phase.is_open() => Ok(None),
                Err(error) => Err(error),
            }
        })?;
        // A command whose response was lost is in the store as well.
        Some(SentCommand { word: word.to_owned(), after, until: said["revision"].as_i64().unwrap() })
    }

    /// The record of a rollout in the store.
    pub fn record(&self, id: RolloutId) -> RolloutRecord {
        let dump = self.wait(self.etcd.dump(PREFIX));
        let is_it = |key: &str| matches!(parse(key), Some((_, Key::Rollout { id: of })) if of == id);
        let entry = dump.entries.iter().find(|entry| is_it(&entry.key)).unwrap();
        serde_json::from_slice(&entry.value).unwrap()
    }

    /// The active rollout in the store.
    pub fn active(&self) -> RolloutRecord {
        let dump = self.wait(self.etcd.dump(PREFIX));
        let is_it = |key: &str| matches!(parse(key), Some((_, Key::ActiveRollout)));
        let entry = dump.entries.iter().find(|entry| is_it(&entry.key)).unwrap();
        let active: ActiveRollout = serde_json::from_slice(&entry.value).unwrap();
        self.record(active.id)
    }

    /// Waits until it has granted this many nodes, or is completed.
    pub fn wait_for_grants(&self, id: RolloutId, grants: u64) {
        eventually(&format!("rollout {id} has granted {grants} times"), GRANT_TIMEOUT, || {
            let record = self.record(id);
            let is_completed = record.phase == RolloutPhase::Completed;
            assert!(record.phase == RolloutPhase::Running || is_completed, "{record:#?}");
            if record.steps.grants >= grants || is_completed { Ok(()) } else { Err(format!("{record:#?}")) }
        });
    }

    pub fn wait_completed(&self, id: RolloutId) {
        eventually(&format!("rollout {id} is completed"), GRANT_TIMEOUT, || {
            let record = self.record(id);
            assert!(matches!(record.phase, RolloutPhase::Running | RolloutPhase::Completed), "{record:#?}");
            if record.phase == RolloutPhase::Completed { Ok(()) } else { Err(format!("{record:#?}")) }
        });
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let mut turn = 0;
        eventually(&format!("a replica answers POST {path}"), GRANT_TIMEOUT, || {
            turn += 1;
            self.try_post(turn, path, body)
        })
    }

    /// Calls one of the replicas, in turn.
    fn try_post(&self, turn: usize, path: &str, body: &Value) -> Result<Value, String> {
        let api = &self.replicas[turn % self.replicas.len()].api;
        let path = format!("/v1/envs/{ENV}/{path}");
        match http::try_request_with("POST", &api.to, &path, Some(body), &[], TIMEOUT) {
            Ok(answer) if answer.status == 200 => Ok(answer.json()),
            Ok(answer) => Err(format!("{answer:?}")),
            Err(error) => Err(error.to_string()),
        }
    }
}
