//! Plans a rollout, starts it, steers it and looks at it: through whichever replica answers, and by the store.

use std::time::Duration;

use muster_core::keys::{Key, parse};
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::RolloutPlan;
use muster_core::rollout::record::{ActiveRollout, RolloutPhase, RolloutRecord};
use muster_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::cluster::fleet::{Fleet, PREFIX};
use crate::http;
use crate::server::ENV;

/// A replica that is there and says nothing is stopped.
const TIMEOUT: Duration = Duration::from_secs(5);
/// For the next grants, whatever has happened: a lease ends, another replica takes over, agents find it.
const GOES_ON: Duration = Duration::from_secs(150);

/// A rollout that was started.
#[derive(Clone, Debug)]
pub struct Carried {
    pub id: RolloutId,
    pub plan: RolloutPlan,
    pub spoken: Spoken,
}

/// Something that an operator said, and that was acknowledged: it is in the store after the one revision, and at the other at
/// the latest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spoken {
    pub word: String,
    pub after: i64,
    pub until: i64,
}

impl Fleet {
    /// Plans a rollout, and starts exactly that.
    pub fn start_rollout(&self, to: &str) -> Carried {
        let after = self.wait(self.etcd.revision());
        let planned = self.post("rollouts/plan", &json!({"to": to, "seed": 1, "allow_older": true}));
        let plan: RolloutPlan = serde_json::from_value(planned["plan"].clone()).unwrap();
        let request = format!("{to} after {after}");
        let started =
            self.post("rollouts", &json!({"what": {"plan": planned["plan"]}, "request": request, "by": "ann"}));
        let id = serde_json::from_value(started["id"].clone()).unwrap();
        let spoken = Spoken { word: format!("start {to}"), after, until: started["revision"].as_i64().unwrap() };
        assert_eq!(self.record(id).plan, planned["digest"], "what was shown is what is carried out");
        Carried { id, plan, spoken }
    }

    /// Starts one in place of another, planned at that moment.
    pub fn supersede(&self, to: &str) -> Spoken {
        let after = self.wait(self.etcd.revision());
        let what = json!({"now": {"to": to, "seed": 2, "allow_older": true}});
        let request = format!("{to} instead after {after}");
        let started = self.post("rollouts", &json!({"what": what, "request": request, "supersede": true, "by": "ann"}));
        Spoken { word: format!("supersede {to}"), after, until: started["revision"].as_i64().unwrap() }
    }

    /// Goes back from a rollout, also from one that is over.
    pub fn roll_back(&self, id: RolloutId) -> Spoken {
        let after = self.wait(self.etcd.revision());
        let request = json!({"by": "bob", "request": format!("back after {after}")});
        let started = self.post(&format!("rollouts/{id}/rollback"), &request);
        Spoken { word: "rollback".to_owned(), after, until: started["revision"].as_i64().unwrap() }
    }

    /// Says something to a rollout. None: it was over before anybody could.
    pub fn say(&self, id: RolloutId, word: &str) -> Option<Spoken> {
        let after = self.wait(self.etcd.revision());
        let path = format!("rollouts/{id}/{word}");
        let mut turn = 0;
        let said = eventually(&format!("a replica takes the word {word}"), GOES_ON, || {
            turn += 1;
            match self.try_post(turn, &path, &json!({"by": "bob"})) {
                Ok(said) => Ok(Some(said)),
                Err(_) if !self.record(id).phase.is_open() => Ok(None),
                Err(error) => Err(error),
            }
        })?;
        // What was carried out, and whose answer was lost, is in the store as well.
        Some(Spoken { word: word.to_owned(), after, until: said["revision"].as_i64().unwrap() })
    }

    /// How a rollout stands, by the store.
    pub fn record(&self, id: RolloutId) -> RolloutRecord {
        let dump = self.wait(self.etcd.dump(PREFIX));
        let is_it = |key: &str| matches!(parse(key), Some((_, Key::Rollout { id: of })) if of == id);
        let entry = dump.entries.iter().find(|entry| is_it(&entry.key)).unwrap();
        serde_json::from_slice(&entry.value).unwrap()
    }

    /// How the rollout stands that decides what nodes run, by the store.
    pub fn active(&self) -> RolloutRecord {
        let dump = self.wait(self.etcd.dump(PREFIX));
        let is_it = |key: &str| matches!(parse(key), Some((_, Key::ActiveRollout)));
        let entry = dump.entries.iter().find(|entry| is_it(&entry.key)).unwrap();
        let active: ActiveRollout = serde_json::from_slice(&entry.value).unwrap();
        self.record(active.id)
    }

    /// Waits until it has granted something to so many nodes.
    pub fn until_granted(&self, id: RolloutId, grants: u64) {
        eventually(&format!("rollout {id} has granted {grants} times"), GOES_ON, || {
            let record = self.record(id);
            assert!(record.phase == RolloutPhase::Running, "{record:#?}");
            if record.grants >= grants { Ok(()) } else { Err(format!("{record:#?}")) }
        });
    }

    pub fn until_completed(&self, id: RolloutId) {
        eventually(&format!("rollout {id} is completed"), GOES_ON, || {
            let record = self.record(id);
            assert!(matches!(record.phase, RolloutPhase::Running | RolloutPhase::Completed), "{record:#?}");
            if record.phase == RolloutPhase::Completed { Ok(()) } else { Err(format!("{record:#?}")) }
        });
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let mut turn = 0;
        eventually(&format!("a replica answers POST {path}"), GOES_ON, || {
            turn += 1;
            self.try_post(turn, path, body)
        })
    }

    /// Asks one of the replicas, in turn.
    fn try_post(&self, turn: usize, path: &str, body: &Value) -> Result<Value, String> {
        let api = &self.replicas[turn % self.replicas.len()].api;
        let path = format!("/v1/envs/{ENV}/{path}");
        match http::try_with("POST", &api.to, &path, Some(body), &[], TIMEOUT) {
            Ok(answer) if answer.status == 200 => Ok(answer.json()),
            Ok(answer) => Err(format!("{answer:?}")),
            Err(error) => Err(error.to_string()),
        }
    }
}
