//! Fake agents that report the desired version at once, or fail at chosen versions.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use muster_core::names::{RunId, Version};
use muster_core::report::{Outcome, Report, ResourceError, RunResult};
use muster_core::txn::Generation;
use muster_wire::sync::{SyncEvent, SyncOpen};
use tokio::task::JoinSet;

use crate::fixture::{Fleet, PASSED, node, version};

type Broken = Arc<Mutex<BTreeSet<(String, Version)>>>;

pub(crate) struct FakeAgents {
    broken: Broken,
    _tasks: JoinSet<()>,
}

impl FakeAgents {
    /// Connects one agent per node.
    pub(crate) async fn start(fleet: &Fleet, nodes: &[(&str, &str)]) -> Self {
        let (broken, mut tasks) = (Broken::default(), JoinSet::new());
        for (name, _) in nodes {
            let mut stream = fleet.client.sync(&fleet.env, &node(name), &SyncOpen::default()).await.unwrap();
            let (client, env) = (fleet.client.clone(), fleet.env.clone());
            let (template, name, broken) = (fleet.report(name, 1, PASSED), (*name).to_owned(), broken.clone());
            tasks.spawn(async move {
                let (mut incarnation, mut seq) = (0, 0);
                while let Ok(Some(event)) = stream.next().await {
                    if let SyncEvent::Hello { incarnation: given, .. } = &event {
                        incarnation = *given;
                    }
                    let SyncEvent::Desired(desired) = event else { continue };
                    seq += 1;
                    let fails = broken.lock().unwrap().contains(&(name.clone(), desired.version.clone()));
                    let report = report(&template, desired.version, desired.generation, fails);
                    let run = RunId::new(format!("r{seq}")).unwrap();
                    client.report(&env, &Report { incarnation, seq, run, ..report }).await.unwrap();
                }
            });
        }
        Self { broken, _tasks: tasks }
    }

    /// From now on a node fails at a version.
    pub(crate) fn break_at(&self, name: &str, at: &str) {
        self.broken.lock().unwrap().insert((name.to_owned(), version(at)));
    }

    pub(crate) fn repair(&self, name: &str, at: &str) {
        self.broken.lock().unwrap().remove(&(name.to_owned(), version(at)));
    }
}

fn report(template: &Report, to: Version, generation: Generation, fails: bool) -> Report {
    let error = ResourceError {
        resource: Some("Package[nova]".into()),
        file: Some("manifests/site.pp".into()),
        line: Some(12),
        message: "no such version".into(),
    };
    Report {
        outcome: if fails { Outcome::Configured(RunResult::Failed) } else { PASSED },
        version: to,
        generation,
        errors: if fails { vec![error] } else { Vec::new() },
        ..template.clone()
    }
}
