//! Requests to other replicas: the activities of their agents, and the logs of their runs.
//!
//! Made only for operators' requests, never for an agent's, and to all replicas at the same time. A replica that does not
//! answer within half a second is left out of the response.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use futures::future::join_all;
use muster_core::fleet::Fleet;
use muster_core::names::{EnvName, NodeName, ReplicaId, RunId};
use muster_wire::client::{Client, ClientError, Credentials, Download};
use muster_wire::runs::LogQuery;
use tokio::time::timeout;

use crate::agents::{AgentConnection, Links};
use crate::view::View;
use crate::view::node_rows::RemoteActivities;

const REQUEST_TIMEOUT: Duration = Duration::from_millis(500);

/// HTTP clients for the other replicas, with connections that are reused.
#[derive(Debug)]
pub struct Peers {
    /// The certificate of this replica, and the token of all replicas for those on the loopback interface.
    credentials: Credentials,
    clients: Mutex<Vec<(String, Client)>>,
}

/// Clients that are cached: more than there are replicas.
const MAX_CLIENTS: usize = 16;

impl Peers {
    pub(crate) fn new(credentials: Credentials) -> Self {
        Self { credentials, clients: Mutex::default() }
    }

    /// Activities of the agents of other replicas, for one node or for all.
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
        let requests = urls.into_iter().map(|(replica, url)| async move {
            let client = self.client(&url).ok()?;
            match client.activities(env, node, REQUEST_TIMEOUT).await {
                Ok(page) => Some(page.items),
                Err(error) => {
                    tracing::debug!(%replica, %url, %error, "a replica does not answer the request for activities");
                    None
                }
            }
        });
        let agents = join_all(requests).await.into_iter().flatten().flatten();
        agents.map(|agent| (agent.node.clone(), agent)).collect()
    }

    /// The log of a run in progress, from the replica of its agent. None if the agent is not connected to another replica.
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
        let client = self.client(&url).ok()?;
        let query = LogQuery { here: true, ..query };
        // The timeout is for the begin of the response; its body lasts as long as the run.
        timeout(REQUEST_TIMEOUT * 4, client.forward_log(env, node, run, query)).await.ok()
    }

    /// Client for the replica at a URL.
    pub(crate) fn client(&self, url: &str) -> Result<Client, ClientError> {
        let mut clients = self.clients.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((_, client)) = clients.iter().find(|(known, _)| known == url) {
            return Ok(client.clone());
        }
        // A replica with TLS recognises this one by its certificate. The token opens every route, and is not sent to it.
        let token = self.credentials.token.clone().filter(|_| !url.starts_with("https:"));
        let client = Client::with_credentials(url, &Credentials { token, tls: self.credentials.tls.clone() })?;
        if clients.len() >= MAX_CLIENTS {
            clients.remove(0);
        }
        clients.push((url.to_owned(), client.clone()));
        Ok(client)
    }
}

/// The other replicas that the nodes are connected to.
fn urls(fleet: &Fleet, links: &Links, node: Option<&NodeName>) -> Vec<(ReplicaId, String)> {
    if fleet.replicas().len() < 2 {
        return Vec::new();
    }
    let at = |name: &NodeName| match links.agent(fleet, name).at {
        AgentConnection::Remote(replica) => Some(replica),
        AgentConnection::Local(_) | AgentConnection::Disconnected => None,
    };
    let named: BTreeSet<ReplicaId> = match node {
        Some(node) => at(node).into_iter().collect(),
        None => fleet.recorded().filter_map(|(name, ..)| at(name)).collect(),
    };
    let url = |id: ReplicaId| fleet.replicas().get(&id).map(|(record, _)| record.url.clone()).map(|url| (id, url));
    named.into_iter().filter_map(url).collect()
}
