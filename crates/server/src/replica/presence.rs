//! Publishes the agents that are connected to this replica: `presence/<node>`.
//!
//! Level-triggered: the view is compared with the sessions, and the difference is written, many nodes in one transaction and
//! at most four times a second. A fleet that stays connected causes no writes. [`muster_core::replica::presence`] decides
//! what is written.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use muster_core::names::EnvName;
use muster_core::replica::presence::{BATCH, LocalSession, PresencePlan, plan, txn};
use muster_core::txn::Txn;
use muster_store::{CommitOutcome, Store};
use tokio::time::{Instant, sleep, sleep_until};

use super::membership::Membership;
use crate::agents::{EnvNode, Hub};
use crate::view::View;

/// Transactions in flight: a whole fleet that connects is written in one or two seconds.
const MAX_IN_FLIGHT: usize = 4;
/// Minimum interval of two rounds.
const ROUND_INTERVAL: Duration = Duration::from_millis(250);
/// Delay before a failed write is retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Publishes the presence of this replica's agents.
#[derive(Debug)]
pub struct Presence {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) view: Arc<View>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) membership: Arc<Membership>,
}

/// Result of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    Unchanged,
    Written,
    Failed,
}

impl Presence {
    /// Keeps the presence records of this replica's agents up to date, forever.
    pub async fn run(&self) {
        let mut connections = self.hub.subscribe();
        let mut servers = self.view.subscribe_servers();
        let mut members = self.membership.subscribe();
        loop {
            connections.mark_unchanged();
            servers.mark_unchanged();
            members.mark_unchanged();
            let began = Instant::now();
            match self.round().await {
                Round::Unchanged => {
                    tokio::select! {
                        _ = connections.changed() => {}
                        _ = servers.changed() => {}
                        _ = members.changed() => {}
                    }
                }
                Round::Written => {}
                Round::Failed => sleep(RETRY_DELAY).await,
            }
            // A single change is written at once, a burst at most four times a second.
            sleep_until(began + ROUND_INTERVAL).await;
        }
    }

    async fn round(&self) -> Round {
        if self.membership.current().is_none() {
            return Round::Unchanged;
        }
        let envs: Vec<EnvName> = self.view.fleets().keys().cloned().collect();
        let mut contested: HashSet<EnvNode> = HashSet::new();
        let mut txns = Vec::new();
        for env in envs {
            let plan = self.plan(&env);
            self.hub.end_duplicates(&env, &plan.duplicates);
            contested.extend(plan.contested.into_iter().map(|node| (env.clone(), node)));
            for writes in plan.writes.chunks(BATCH) {
                match txn(&env, writes) {
                    Ok(txn) => txns.push(txn),
                    Err(error) => tracing::error!(%error, "a presence record cannot be encoded"),
                }
            }
        }
        self.hub.set_contested(contested);
        if txns.is_empty() {
            return Round::Unchanged;
        }
        let commits = stream::iter(txns).map(|txn| self.commit(txn)).buffer_unordered(MAX_IN_FLIGHT);
        let committed: Vec<bool> = commits.collect().await;
        if committed.into_iter().all(|committed| committed) { Round::Written } else { Round::Failed }
    }

    fn plan(&self, env: &EnvName) -> PresencePlan {
        let sessions = self.hub.sessions(env);
        let here = sessions.iter().map(|session| {
            let (since, heard_at) = (session.since, session.last_message_at());
            let (holder, agent) = (session.holder.clone(), session.agent.clone());
            (session.node.clone(), LocalSession { since, heard_at, holder, agent })
        });
        let here = here.collect();
        let fleets = self.view.fleets();
        let Some(fleet) = fleets.get(env) else { return PresencePlan::default() };
        plan(fleet, self.membership.id(), &here, |node| self.hub.silent_since(env, node), &self.hub.ended_calls(env))
    }

    /// Commits one batch. Returns whether the view has caught up with the result.
    async fn commit(&self, txn: Txn) -> bool {
        match self.store.commit(txn).await {
            // The next round decides on the result. A batch is refused when another replica has claimed one of its nodes.
            Ok(CommitOutcome::Committed { revision } | CommitOutcome::Conflict { revision, .. }) => {
                self.view.reach(revision).await.is_ok()
            }
            Err(error) => {
                tracing::debug!(%error, "the presence of agents cannot be written");
                false
            }
        }
    }
}
