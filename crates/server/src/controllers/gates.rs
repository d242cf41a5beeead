//! Runs the checks of gates, one task for each environment. The engine says which; a task ends when its checks are no longer
//! needed.

use std::collections::BTreeMap;

use muster_core::names::EnvName;
use muster_core::rollout::record::GateVerdict;
use muster_rollout::executor::GateRequest;
use tokio::task::{AbortHandle, JoinSet};

use crate::clock::Clock;
use crate::rollouts::gate::{self, Mark, Subject};

#[derive(Debug)]
pub(super) struct Gates {
    mark: Mark,
    tasks: JoinSet<(EnvName, GateRequest, GateVerdict)>,
    asking: BTreeMap<EnvName, (GateRequest, AbortHandle)>,
}

impl Gates {
    /// Checks started by the server with this mark.
    pub(super) fn new(mark: Mark) -> Self {
        Self { mark, tasks: JoinSet::new(), asking: BTreeMap::new() }
    }

    /// Runs only these checks for an environment.
    pub(super) fn ask(&mut self, env: &EnvName, question: Option<&GateRequest>, clock: &Clock) {
        if self.asking.get(env).map(|(asked, _)| asked) == question {
            return;
        }
        if let Some((_, task)) = self.asking.remove(env) {
            task.abort();
        }
        let Some(question) = question.cloned() else { return };
        let GateRequest { rollout, from, to, stage, wave, .. } = question.clone();
        tracing::info!(%env, %rollout, stage, wave, "checks started");
        let subject = Subject { env: env.clone(), rollout, from, to, stage, wave };
        let (asked, mark, clock) = (question.clone(), self.mark.clone(), clock.clone());
        let task = self.tasks.spawn(async move {
            let verdict = gate::ask(&asked.checks, &subject, &mark, &clock).await;
            (subject.env, asked, verdict)
        });
        self.asking.insert(env.clone(), (question, task));
    }

    /// Waits for the verdict of some checks; forever while none run.
    pub(super) async fn answered(&mut self) -> (EnvName, GateRequest, GateVerdict) {
        loop {
            match self.tasks.join_next().await {
                None => std::future::pending().await,
                Some(Ok((env, question, verdict))) => {
                    // A task that was aborted may have finished before.
                    let is_asked = self.asking.get(&env).is_some_and(|(asked, _)| *asked == question);
                    if is_asked {
                        self.asking.remove(&env);
                        return (env, question, verdict);
                    }
                }
                // It was aborted.
                Some(Err(_)) => {}
            }
        }
    }
}
