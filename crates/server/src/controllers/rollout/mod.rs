//! Carries rollouts out, at whichever replica holds the controller.
//!
//! [`muster_rollout::executor`] decides, and says what it needs for that. This brings it, commits, has the checks of a gate
//! asked, and sleeps until something changes or is due. While no rollout goes on, nothing is done at all.

mod gates;
mod tell;

use std::collections::BTreeMap;
use std::time::Duration;

use muster_core::names::EnvName;
use muster_core::replicas::ControllerName;
use muster_rollout::executor::{AGAIN, Executor, Got, Looked, Next, PACE, Write, Wrote};
use muster_store::StoreError;

use crate::App;
use crate::api::chain;
use crate::replica::{FencedOutcome, Held};
use crate::rollouts::bring::{bring, look};
use crate::rollouts::gate::Mark;
use gates::Gates;

#[derive(Debug)]
pub struct RolloutController {
    pub app: App,
}

impl RolloutController {
    /// Looks after the rollouts of all environments, for ever.
    pub async fn run(&self) {
        let mut connections = self.app.hub.subscribe();
        let mut rollouts = self.app.view.subscribe_rollouts();
        let mut controller_locks = self.app.controller_locks.subscribe();
        let mark = Mark::of(self.app.membership.record());
        mark.end_leftovers().await;
        let (mut executors, mut gates) = (BTreeMap::new(), Gates::new(mark));
        loop {
            connections.mark_unchanged();
            rollouts.mark_unchanged();
            controller_locks.mark_unchanged();
            let (is_busy, wait) = self.look(&mut executors, &mut gates).await;
            // A rollout, a node of one that goes on, or a pause; an agent that comes or goes here; a controller that is
            // taken; what a gate says; or a moment at which something is due. Nothing in between.
            tokio::select! {
                _ = connections.changed(), if is_busy => {}
                _ = rollouts.changed() => {}
                _ = controller_locks.changed() => {}
                (env, question, verdict) = gates.answered() => {
                    if let Some(executor) = executors.get_mut(&env) {
                        executor.answered(question, verdict);
                    }
                }
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
            }
            tokio::time::sleep(PACE).await;
        }
    }

    /// Decides and acts once. Whether any rollout goes on here, and when to look again at the latest.
    async fn look(&self, executors: &mut BTreeMap<EnvName, Executor>, gates: &mut Gates) -> (bool, Option<Duration>) {
        let seen = self.app.view.revision();
        let envs: Vec<EnvName> = self.app.view.fleets().keys().cloned().collect();
        for env in executors.keys().filter(|env| !envs.contains(env)) {
            gates.ask(env, None, &self.app.clock);
        }
        executors.retain(|env, _| envs.contains(env));
        let (mut is_busy, mut wait) = (false, None::<Duration>);
        let mut sooner = |at: Duration| wait = Some(wait.map_or(at, |before| before.min(at)));
        for env in envs {
            let executor = executors.entry(env.clone()).or_default();
            let looked = match self.app.controller_locks.held(&env, ControllerName::Rollout) {
                Some(held) => self.look_at(&held, executor).await,
                None => {
                    *executor = Executor::default();
                    Looked::Quiet
                }
            };
            gates.ask(&env, executor.asks(), &self.app.clock);
            is_busy |= looked != Looked::Quiet;
            match looked {
                Looked::Quiet | Looked::Waits(None) => {}
                Looked::Waits(Some(at)) => {
                    sooner(Duration::try_from(at.duration_since(self.app.clock.now())).unwrap_or_default());
                }
                Looked::Failed => sooner(AGAIN),
                Looked::Stuck { problem } => {
                    tracing::error!(%env, error = problem, "the record of a rollout cannot be written");
                }
                Looked::More => sooner(Duration::ZERO),
            }
        }
        self.app.rollouts_checked_at.send_replace(seen);
        (is_busy, wait)
    }

    /// Takes as many steps as there are to take.
    async fn look_at(&self, held: &Held, executor: &mut Executor) -> Looked {
        let env = &held.env;
        let mut got = Got::Nothing;
        loop {
            let next = match look(&self.app, env, |sight| executor.next(sight, got)) {
                Ok(Next::Done(looked)) => return looked,
                Ok(Next::Commit(write)) => Ok(Got::Wrote(self.commit(held, *write).await)),
                Ok(Next::Needs(need)) => bring(&self.app, env, need).await,
                // It is gone.
                Err(_) => return Looked::Quiet,
            };
            got = match next {
                Ok(got) => got,
                Err(error) => {
                    tracing::warn!(%env, error = chain(&error), "a rollout cannot go on; it is looked at again in a moment");
                    return Looked::Failed;
                }
            };
        }
    }

    async fn commit(&self, held: &Held, Write { txn, what }: Write) -> Wrote {
        let env = &held.env;
        match self.app.controller_locks.commit(held, txn).await {
            Ok(FencedOutcome::Committed { revision }) => {
                tell::written(env, &what);
                Wrote::Committed(revision)
            }
            Ok(FencedOutcome::Refused { revision }) => Wrote::Refused(revision),
            Ok(FencedOutcome::Deposed) => Wrote::Deposed,
            // No store takes it, however often it is asked.
            Err(StoreError::Invalid(error)) => {
                tracing::error!(%env, error = chain(&error), "{}", tell::failed(&what));
                Wrote::Unwritable(error.to_string())
            }
            Err(error) => {
                let failed = tell::failed(&what);
                tracing::warn!(%env, error = chain(&error), "{failed}; it is decided anew in a moment");
                Wrote::Unknown
            }
        }
    }
}
