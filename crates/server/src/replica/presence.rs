//! Writes down which agents are connected to this replica, for the others: `presence/<node>`.
//!
//! Level-triggered: what the view shows is compared with the sessions that are here, and the difference is written, many
//! nodes in one transaction and a few times a second at most. A fleet that stays connected writes nothing.
//! What is to be written, [`muster_core::replica::presence`] says.

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
use crate::agents::{Hub, Place};
use crate::view::View;

/// How many transactions are under way at once: a whole fleet that comes is written in a second or two.
const AT_ONCE: usize = 4;
/// One round takes in all that came and went within this.
const PACE: Duration = Duration::from_millis(250);
/// When the store does not take it, it is tried again after this.
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Presence {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) view: Arc<View>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) membership: Arc<Membership>,
}

/// What a round has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    Quiet,
    Wrote,
    Failed,
}

impl Presence {
    /// Keeps the store's word on this replica's agents true, for ever.
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
                Round::Quiet => {
                    tokio::select! {
                        _ = connections.changed() => {}
                        _ = servers.changed() => {}
                        _ = members.changed() => {}
                    }
                }
                Round::Wrote => {}
                Round::Failed => sleep(AGAIN).await,
            }
            // What comes alone is written at once; what comes in a crowd, a few times a second.
            sleep_until(began + PACE).await;
        }
    }

    async fn round(&self) -> Round {
        if self.membership.current().is_none() {
            return Round::Quiet;
        }
        let envs: Vec<EnvName> = self.view.fleets().keys().cloned().collect();
        let mut contested: HashSet<Place> = HashSet::new();
        let mut txns = Vec::new();
        for env in envs {
            let plan = self.plan(&env);
            contested.extend(plan.contested.into_iter().map(|node| (env.clone(), node)));
            for writes in plan.writes.chunks(BATCH) {
                match txn(&env, writes) {
                    Ok(txn) => txns.push(txn),
                    Err(error) => tracing::error!(%error, "who is connected here cannot be put into words"),
                }
            }
        }
        self.hub.contest(contested);
        if txns.is_empty() {
            return Round::Quiet;
        }
        let commits = stream::iter(txns).map(|txn| self.commit(txn)).buffer_unordered(AT_ONCE);
        let taken: Vec<bool> = commits.collect().await;
        if taken.into_iter().all(|taken| taken) { Round::Wrote } else { Round::Failed }
    }

    fn plan(&self, env: &EnvName) -> PresencePlan {
        let sessions = self.hub.sessions(env);
        let here = sessions
            .iter()
            .map(|session| (session.node.clone(), LocalSession { since: session.since, heard_at: session.heard_at() }));
        let here = here.collect();
        let fleets = self.view.fleets();
        let Some(fleet) = fleets.get(env) else { return PresencePlan::default() };
        plan(fleet, self.membership.id(), &here, |node| self.hub.silent_since(env, node))
    }

    /// Commits one batch; whether the store has taken it or has said why not.
    async fn commit(&self, txn: Txn) -> bool {
        match self.store.commit(txn).await {
            // The next round decides on what this has written.
            Ok(CommitOutcome::Committed { revision }) => self.view.reach(revision).await.is_ok(),
            // One of the nodes was claimed elsewhere: the next round decides on what the view shows then.
            Ok(CommitOutcome::Conflict { revision, .. }) => self.view.reach(revision).await.is_ok(),
            Err(error) => {
                tracing::debug!(%error, "who is connected here cannot be written down");
                false
            }
        }
    }
}
