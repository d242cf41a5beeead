//! Asks the other replicas what only they know: what the agents do that are connected to them, and what their runs say.
//!
//! Asked for people's questions and never for an agent's, all at the same time, and with little patience: a replica that
//! does not answer costs half a second, and the rest of the answer comes without it.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use futures::future::join_all;
use muster_core::fleet::Fleet;
use muster_core::names::{EnvName, NodeName, ReplicaId, RunId};
use muster_wire::client::{Client, ClientError, Download};
use muster_wire::run_log::LogQuery;
use tokio::time::timeout;

use crate::agents::{AgentLocation, Links};
use crate::view::View;
use crate::view::node_rows::RemoteActivities;

const PATIENCE: Duration = Duration::from_millis(500);

/// Keeps a client for each replica that was asked: its connections are used again.
#[derive(Debug, Default)]
pub struct Peers {
    clients: Mutex<Vec<(String, Client)>>,
}

/// A replica is asked through one of the last so many clients; there are never that many replicas.
const CLIENTS: usize = 16;

impl Peers {
    /// What agents do that are connected to other replicas; of one node, or of all.
    pub async fn activities(
        &self,
        view: &View,
        links: &Links,
        env: &EnvName,
        node: Option<&NodeName>,
    ) -> RemoteActivities {
        let urls = {
            let fleets = view.fleets();
            let Some(fleet) = fleets.get(env) else { return RemoteActivities::default() };
            urls(fleet, links, node)
        };
        let asked = urls.into_iter().map(|(replica, url)| async move {
            let client = self.client(&url)?;
            match client.activities(env, node, PATIENCE).await {
                Ok(page) => Some(page.items),
                Err(error) => {
                    tracing::debug!(%replica, %url, %error, "a replica does not say what its agents do");
                    None
                }
            }
        });
        let told = join_all(asked).await.into_iter().flatten().flatten();
        told.map(|told| (told.node.clone(), told)).collect()
    }

    /// The log of a run that goes on at another replica. None if its agent is not connected to another one.
    pub async fn log(
        &self,
        view: &View,
        links: &Links,
        env: &EnvName,
        node: &NodeName,
        run: &RunId,
        query: LogQuery,
    ) -> Option<Result<Download, ClientError>> {
        let (_, url) = {
            let fleets = view.fleets();
            urls(fleets.get(env)?, links, Some(node)).pop()?
        };
        let client = self.client(&url)?;
        let query = LogQuery { here: true, ..query };
        // The answer begins at once; how long it takes is the run's business.
        timeout(PATIENCE * 4, client.log_to_pass_on(env, node, run, query)).await.ok()
    }

    fn client(&self, url: &str) -> Option<Client> {
        let mut clients = self.clients.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((_, client)) = clients.iter().find(|(known, _)| known == url) {
            return Some(client.clone());
        }
        let client = Client::new(url).ok()?;
        if clients.len() >= CLIENTS {
            clients.remove(0);
        }
        clients.push((url.to_owned(), client.clone()));
        Some(client)
    }
}

/// The replicas that nodes in question are connected to, other than this one.
fn urls(fleet: &Fleet, links: &Links, node: Option<&NodeName>) -> Vec<(ReplicaId, String)> {
    if fleet.replicas().len() < 2 {
        return Vec::new();
    }
    let at = |name: &NodeName| match links.of(fleet, name).at {
        AgentLocation::Remote(replica) => Some(replica),
        AgentLocation::Local(_) | AgentLocation::Disconnected => None,
    };
    let named: BTreeSet<ReplicaId> = match node {
        Some(node) => at(node).into_iter().collect(),
        None => fleet.recorded().filter_map(|(name, ..)| at(name)).collect(),
    };
    let url = |id: ReplicaId| fleet.replicas().get(&id).map(|(record, _)| record.url.clone()).map(|url| (id, url));
    named.into_iter().filter_map(url).collect()
}
