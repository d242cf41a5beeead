//! Plans a rollout, starts it, and looks at it: through whichever replica answers, and by the store.

use std::time::Duration;

use muster_core::keys::{Key, parse};
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::Plan;
use muster_core::rollout::record::{Phase, RolloutRecord};
use serde_json::{Value, json};

use crate::cluster::fleet::{Fleet, PREFIX};
use crate::eventually::eventually;
use crate::http;
use crate::server::ENV;

/// A replica that is there and says nothing is stopped.
const PATIENCE: Duration = Duration::from_secs(5);
/// For the next grants, whatever has happened: a lease ends, another replica takes over, agents find it.
const GOES_ON: Duration = Duration::from_secs(150);

/// A rollout that was started.
#[derive(Clone, Debug)]
pub struct Carried {
    pub id: RolloutId,
    pub plan: Plan,
    /// What its record calls the plan.
    pub digest: String,
    /// What an operator has written: the start, and each word since.
    pub words: Vec<i64>,
}

impl Fleet {
    /// Plans a rollout, and starts exactly that.
    pub fn start_rollout(&self, to: &str) -> Carried {
        let planned = self.post("rollouts/plan", &json!({"to": to, "seed": 1}));
        let plan: Plan = serde_json::from_value(planned["plan"].clone()).unwrap();
        let started = self.post("rollouts", &json!({"what": {"plan": planned["plan"]}, "request": to, "by": "ann"}));
        let id = serde_json::from_value(started["id"].clone()).unwrap();
        let digest = planned["digest"].as_str().unwrap().to_owned();
        assert_eq!(self.record(id).plan, digest, "what was shown is what is carried out");
        Carried { id, plan, digest, words: vec![started["revision"].as_i64().unwrap()] }
    }

    /// Says something to a rollout.
    pub fn say(&self, carried: &mut Carried, word: &str) {
        let said = self.post(&format!("rollouts/{}/{word}", carried.id), &json!({"by": "bob"}));
        carried.words.push(said["revision"].as_i64().unwrap());
    }

    /// How a rollout stands, by the store.
    pub fn record(&self, id: RolloutId) -> RolloutRecord {
        let dump = self.wait(self.etcd.dump(PREFIX));
        let is_it = |key: &str| matches!(parse(key), Some((_, Key::Rollout { id: of })) if of == id);
        let entry = dump.entries.iter().find(|entry| is_it(&entry.key)).unwrap();
        serde_json::from_slice(&entry.value).unwrap()
    }

    /// Waits until it has granted something to so many nodes.
    pub fn until_granted(&self, carried: &Carried, grants: u64) {
        let what = format!("rollout {} has granted {grants} times", carried.id);
        eventually(&what, GOES_ON, || {
            let record = self.record(carried.id);
            assert!(record.phase == Phase::Running, "{record:#?}");
            if record.grants >= grants { Ok(()) } else { Err(format!("{record:#?}")) }
        });
    }

    pub fn until_completed(&self, carried: &Carried) {
        eventually(&format!("rollout {} is completed", carried.id), GOES_ON, || {
            let record = self.record(carried.id);
            assert!(matches!(record.phase, Phase::Running | Phase::Completed), "{record:#?}");
            if record.phase == Phase::Completed { Ok(()) } else { Err(format!("{record:#?}")) }
        });
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let path = format!("/v1/envs/{ENV}/{path}");
        let mut turn = 0;
        eventually(&format!("a replica answers POST {path}"), GOES_ON, || {
            turn += 1;
            let api = &self.replicas[turn % self.replicas.len()].api;
            match http::try_with("POST", &api.to, &path, Some(body), &[], PATIENCE) {
                Ok(answer) if answer.status == 200 => Ok(answer.json()),
                Ok(answer) => Err(format!("{answer:?}")),
                Err(error) => Err(error.to_string()),
            }
        })
    }
}
