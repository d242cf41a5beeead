//! The checks that are being asked, each environment's in a task of its own. They are asked for one wave as it stood when it
//! was whole: when that is no longer so, or the controller is lost, they end.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::names::EnvName;
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::{GateVerdict, RolloutRecord};
use muster_rollout::step::Indexed;
use tokio::task::{AbortHandle, JoinSet};

use crate::clock::Clock;
use crate::rollouts::gate::{self, Mark, Subject};

/// For what the checks are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    rollout: RolloutId,
    /// By its place in the plan, from 0.
    wave: usize,
    /// When it became whole. If it was not in between, it is another question.
    settled: Timestamp,
}

impl Asked {
    pub(super) fn of(plan: &Indexed, record: &RolloutRecord, wave: usize) -> Option<Self> {
        plan.plan().waves.get(wave)?;
        let settled = record.waves.get(wave)?.settled?;
        Some(Self { rollout: record.id, wave, settled })
    }
}

#[derive(Debug)]
enum Gate {
    Asking(Asked, AbortHandle),
    /// Kept until it is in the store.
    Answered(Asked, GateVerdict),
}

impl Gate {
    fn asked(&self) -> Asked {
        match self {
            Gate::Asking(asked, _) | Gate::Answered(asked, _) => *asked,
        }
    }
}

#[derive(Debug)]
pub(super) struct Gates {
    mark: Mark,
    tasks: JoinSet<(EnvName, Asked, GateVerdict)>,
    by_env: BTreeMap<EnvName, Gate>,
}

impl Gates {
    /// Of the server that has this mark.
    pub(super) fn new(mark: Mark) -> Self {
        Self { mark, tasks: JoinSet::new(), by_env: BTreeMap::new() }
    }

    /// Sees to it that what is asked is being asked, and nothing else. Gives the verdict once it is there, and the wave.
    pub(super) fn settle(
        &mut self,
        env: &EnvName,
        asked: Option<Asked>,
        plan: &Indexed,
        record: &RolloutRecord,
        clock: &Clock,
    ) -> Option<(usize, GateVerdict)> {
        let Some(asked) = asked else {
            self.cancel(env);
            return None;
        };
        match self.by_env.get(env) {
            Some(Gate::Answered(of, verdict)) if *of == asked => return Some((asked.wave, verdict.clone())),
            Some(Gate::Asking(of, _)) if *of == asked => return None,
            Some(_) => self.cancel(env),
            None => {}
        }
        let planned = plan.plan().waves.get(asked.wave)?;
        let subject = Subject {
            env: env.clone(),
            rollout: record.id,
            from: record.from.clone(),
            to: record.to.clone(),
            stage: planned.stage,
            wave: planned.wave,
        };
        tracing::info!(%env, rollout = %record.id, stage = planned.stage, wave = planned.wave, "the checks are asked");
        let (checks, clock, of) = (plan.plan().strategy.gate.checks.clone(), clock.clone(), env.clone());
        let mark = self.mark.clone();
        let task = self.tasks.spawn(async move { (of, asked, gate::ask(&checks, &subject, &mark, &clock).await) });
        self.by_env.insert(env.clone(), Gate::Asking(asked, task));
        None
    }

    /// Waits until some checks have come to a verdict; for ever while none are asked.
    pub(super) async fn answered(&mut self) {
        loop {
            match self.tasks.join_next().await {
                None => std::future::pending().await,
                Some(Ok((env, asked, verdict))) => {
                    let is_awaited = self.by_env.get(&env).is_some_and(|gate| gate.asked() == asked);
                    if is_awaited {
                        self.by_env.insert(env, Gate::Answered(asked, verdict));
                        return;
                    }
                }
                // It was ended.
                Some(Err(_)) => {}
            }
        }
    }

    /// Nobody wants to know any more.
    pub(super) fn cancel(&mut self, env: &EnvName) {
        if let Some(Gate::Asking(_, task)) = self.by_env.remove(env) {
            task.abort();
        }
    }

    /// Only these environments are there.
    pub(super) fn keep(&mut self, there: &[EnvName]) {
        let gone: Vec<EnvName> = self.by_env.keys().filter(|env| !there.contains(env)).cloned().collect();
        gone.iter().for_each(|env| self.cancel(env));
    }
}
