//! Simulated agents that report success or failure at once.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use muster_core::names::{RunId, Version};
use muster_core::report::{Outcome, Report, ResourceError, RunResult};
use muster_core::txn::Generation;
use muster_wire::sync::{SyncEvent, SyncOpen};
use tokio::task::JoinSet;

use crate::fixture::{CHANGED, Fixture, PASSED, version};

type Broken = Arc<Mutex<BTreeSet<(String, Version)>>>;

pub(super) struct Robots {
    broken: Broken,
    _tasks: JoinSet<()>,
}

impl Robots {
    /// Connects an agent for each node.
    pub(super) async fn start(fixture: &Fixture, nodes: &[(&str, &str)]) -> Self {
        let (broken, mut tasks) = (Broken::default(), JoinSet::new());
        for (name, _) in nodes {
            let mut stream = fixture.open(name, &SyncOpen::default()).await;
            let (client, env) = (fixture.client.clone(), fixture.env.clone());
            let (template, name, broken) = (fixture.report(name, 1, 1, PASSED), (*name).to_owned(), broken.clone());
            tasks.spawn(async move {
                let mut next = Numbers { incarnation: 0, seq: 0 };
                while let Ok(Some(event)) = stream.next().await {
                    match event {
                        SyncEvent::Hello { incarnation, .. } => next.incarnation = incarnation,
                        SyncEvent::Desired(desired) => {
                            let fails = broken.lock().unwrap().contains(&(name.clone(), desired.version.clone()));
                            for report in next.answers(&template, &desired.version, desired.generation, fails) {
                                client.report(&env, &report).await.unwrap();
                            }
                        }
                        _ => {}
                    }
                }
            });
        }
        Self { broken, _tasks: tasks }
    }

    /// Makes a node fail at a version.
    pub(super) fn break_at(&self, name: &str, at: &str) {
        self.broken.lock().unwrap().insert((name.to_owned(), version(at)));
    }

    pub(super) fn repair(&self, name: &str, at: &str) {
        self.broken.lock().unwrap().remove(&(name.to_owned(), version(at)));
    }
}

struct Numbers {
    incarnation: u64,
    seq: u64,
}

impl Numbers {
    fn answers(&mut self, template: &Report, to: &Version, generation: Generation, fails: bool) -> Vec<Report> {
        let outcomes: &[Outcome] = if fails { &[Outcome::Configured(RunResult::Failed)] } else { &[CHANGED, PASSED] };
        let run = RunId::new(format!("r{}", self.seq)).unwrap();
        let error = ResourceError {
            resource: Some("Package[nova]".into()),
            file: Some("manifests/site.pp".into()),
            line: Some(12),
            message: "no such version".into(),
        };
        outcomes
            .iter()
            .map(|outcome| {
                self.seq += 1;
                let now = Timestamp::now();
                Report {
                    incarnation: self.incarnation,
                    seq: self.seq,
                    run: run.clone(),
                    outcome: *outcome,
                    version: to.clone(),
                    generation,
                    started: now,
                    ended: now,
                    errors: if fails { vec![error.clone()] } else { Vec::new() },
                    ..template.clone()
                }
            })
            .collect()
    }
}
