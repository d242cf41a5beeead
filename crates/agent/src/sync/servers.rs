//! The servers, of which the agent uses one at a time: those of the configuration, and those that the servers name. The agent
//! stores them, so that a restarted agent finds a server though all configured ones are gone.
//!
//! Each agent has its own order of them (rendezvous hashing). It starts with the first, and on a failure takes the first
//! that answers. A fleet spreads evenly over its servers without a coordinator. The agents of a lost server spread over
//! all remaining ones.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use sha2::{Digest, Sha256};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::Instant;

use muster_core::names::{EnvName, NodeName};
use muster_core::node::agent::PROTOCOL;
use muster_wire::client::{Client, ClientError, Credentials};
use muster_wire::token::{ReadTokenError, Token};

use crate::config::ConfigFile;
use crate::identity::{IdentityFiles, LoadIdentityError, NodeIdentity};
use crate::state::durable::StateWriteError;

#[derive(Debug, Error)]
pub enum ServersError {
    #[error("`server` in the configuration cannot be used")]
    Address(#[from] ClientError),
    #[error("`token_file` in the configuration cannot be used")]
    Token(#[from] ReadTokenError),
    #[error(transparent)]
    Identity(#[from] LoadIdentityError),
}

/// Reason why the list of servers is not replaced.
#[derive(Debug, Error)]
pub enum LearnServersError {
    #[error(transparent)]
    Write(#[from] StateWriteError),
    #[error("a server cannot be used")]
    Address(#[from] ClientError),
}

/// Servers that the agent has learned and keeps, besides those of its configuration.
const MOST_LEARNED: usize = 8;

#[derive(Clone, Debug)]
pub struct ServerClients {
    env: EnvName,
    node: NodeName,
    /// URLs of the configuration.
    configured: Arc<[String]>,
    credentials: Credentials,
    /// Id of the agent, sent with each request.
    holder: Option<String>,
    list: Arc<RwLock<ClientList>>,
    /// Time of the last request that the current server did not answer.
    unanswered: watch::Sender<Option<Instant>>,
    /// Identity of the node; none without TLS.
    identity: Option<Arc<NodeIdentity>>,
}

#[derive(Debug)]
struct ClientList {
    /// In this agent's order.
    clients: Arc<[Client]>,
    current: usize,
}

impl ServerClients {
    /// The servers of a configuration, and those that the agent has learned.
    pub fn from_config(config: &ConfigFile) -> Result<Self, ServersError> {
        let token = config.token_file.as_deref().map(Token::read).transpose()?;
        let urls = config.server.urls();
        let identity = match urls.iter().any(|url| url.starts_with("https:")) {
            true => Some(Arc::new(NodeIdentity::load(IdentityFiles::at(&config.state_dir))?)),
            false => None,
        };
        let tls = identity.as_ref().map(|identity| identity.credentials()).transpose()?.and_then(|it| it.tls);
        let servers = Self::new(&config.env, &config.node, urls, &Credentials { token, tls })?;
        if let Some(identity) = &identity {
            servers.set_learned(&identity.files().learned_servers())?;
        }
        Ok(Self { identity, ..servers })
    }

    pub fn new(
        env: &EnvName,
        node: &NodeName,
        urls: &[String],
        credentials: &Credentials,
    ) -> Result<Self, ClientError> {
        let list = ClientList { clients: Arc::default(), current: 0 };
        let servers = Self {
            env: env.clone(),
            node: node.clone(),
            configured: urls.into(),
            credentials: credentials.clone(),
            holder: None,
            list: Arc::new(RwLock::new(list)),
            unanswered: watch::Sender::new(None),
            identity: None,
        };
        servers.set_learned(&[])?;
        Ok(servers)
    }

    pub fn identity(&self) -> Option<&Arc<NodeIdentity>> {
        self.identity.as_ref()
    }

    /// Sends the id of this agent with each request.
    #[must_use]
    pub fn for_agent(self, holder: Option<&str>) -> Self {
        let holder = holder.map(str::to_owned);
        {
            let mut list = self.write();
            list.clients = list.clients.iter().map(|client| client.clone().for_agent(holder.clone())).collect();
        }
        Self { holder, ..self }
    }

    /// Learns the servers that are running now, and stores them. Earlier ones are kept up to a limit: they may be restarting.
    /// Returns the place of the current server if the list has changed.
    pub fn learn(&self, running: &[String]) -> Result<Option<usize>, LearnServersError> {
        let Some(identity) = &self.identity else { return Ok(None) };
        let known = identity.files().learned_servers();
        let running = running.iter().filter(|url| url.starts_with("https:"));
        let mut learned: Vec<String> = running.cloned().collect();
        learned.extend(known.iter().filter(|url| !learned.contains(url)).cloned().collect::<Vec<_>>());
        learned.truncate(MOST_LEARNED);
        if learned == known {
            return Ok(None);
        }
        identity.files().write_servers(&learned)?;
        Ok(self.set_learned(&learned)?)
    }

    fn set_learned(&self, learned: &[String]) -> Result<Option<usize>, ClientError> {
        let mut list = self.write();
        let urls = self.configured.iter().chain(learned);
        let clients = urls.map(|url| match list.clients.iter().find(|client| client.base() == url) {
            Some(client) => Ok(client.clone()),
            None => self.client(url),
        });
        let clients = clients.collect::<Result<Vec<_>, ClientError>>()?;
        let clients: Arc<[Client]> = order(&self.env, &self.node, clients, Client::base).into();
        let urls = |clients: &[Client]| clients.iter().map(|client| client.base().to_owned()).collect::<Vec<_>>();
        if urls(&clients) == urls(&list.clients) {
            return Ok(None);
        }
        let current = list.clients.get(list.current).map(|client| client.base().to_owned());
        let place = clients.iter().position(|client| current.as_deref() == Some(client.base())).unwrap_or(0);
        *list = ClientList { clients, current: place };
        Ok(Some(place))
    }

    fn client(&self, url: &str) -> Result<Client, ClientError> {
        let client = Client::with_credentials(url, &self.credentials)?;
        Ok(client.with_protocol(PROTOCOL).for_agent(self.holder.clone()))
    }

    pub fn count(&self) -> usize {
        self.read().clients.len()
    }

    /// All of them, in this agent's order.
    pub fn all(&self) -> Arc<[Client]> {
        self.read().clients.clone()
    }

    /// The server that all tasks use.
    pub fn current(&self) -> Client {
        let list = self.read();
        list.clients[list.current % list.clients.len()].clone()
    }

    /// True if the current server is not the first in this agent's order.
    pub fn is_away(&self) -> bool {
        self.read().current != 0
    }

    /// Selects the server at `place`. Only the sync task calls this; all other tasks follow.
    pub fn select(&self, place: usize) {
        self.write().current = place;
        self.unanswered.send_replace(None);
    }

    /// Reports that the current server did not answer a request sent at `sent`.
    pub fn report_unanswered(&self, sent: Instant) {
        self.unanswered.send_replace(Some(sent));
    }

    /// Unanswered requests, for the sync task.
    pub fn unanswered(&self) -> watch::Receiver<Option<Instant>> {
        self.unanswered.subscribe()
    }

    fn read(&self) -> RwLockReadGuard<'_, ClientList> {
        self.list.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, ClientList> {
        self.list.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The order of the servers for a node. It depends on the names only, not on the order in the configuration, and is the
/// same in every version of the agent. Duplicates are removed.
fn order<T>(env: &EnvName, node: &NodeName, servers: Vec<T>, url: impl Fn(&T) -> &str) -> Vec<T> {
    let mut ranked: Vec<_> = servers
        .into_iter()
        .map(|server| {
            let text = format!("{env}\n{node}\n{}", url(&server));
            (Sha256::digest(text), server)
        })
        .collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.dedup_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, server)| server).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::collections::BTreeMap;

    const URLS: [&str; 3] = ["http://10.0.0.1:7300", "http://10.0.0.2:7300", "http://10.0.0.3:7300"];

    fn ordered(node: u32, urls: &[&'static str]) -> Vec<&'static str> {
        let (env, node) = (EnvName::new("prod").unwrap(), NodeName::new(format!("web{node}")).unwrap());
        order(&env, &node, urls.to_vec(), |url| url)
    }

    fn counts(urls: impl Iterator<Item = &'static str>) -> BTreeMap<&'static str, usize> {
        urls.fold(BTreeMap::new(), |mut counts, url| {
            *counts.entry(url).or_default() += 1;
            counts
        })
    }

    #[test]
    fn fleet_spreads_evenly_over_its_servers() {
        let first = counts((1..=5000).map(|node| ordered(node, &URLS)[0]));
        assert_eq!(first.len(), 3);
        assert!(first.values().all(|count| (1567..=1767).contains(count)), "{first:?}");
    }

    #[test]
    fn agents_of_a_lost_server_spread_and_no_other_agent_moves() {
        let orders: Vec<_> = (1..=5000).map(|node| ordered(node, &URLS)).collect();
        let lost = URLS[1];
        let next = counts(orders.iter().filter(|order| order[0] == lost).map(|order| order[1]));
        assert_eq!(next.keys().copied().collect::<Vec<_>>(), [URLS[0], URLS[2]]);
        assert!(next[URLS[0]].abs_diff(next[URLS[2]]) < 150, "{next:?}");
        // The order of the remaining servers is unchanged.
        for (node, order) in (1..).zip(&orders) {
            let left: Vec<_> = order.iter().copied().filter(|url| *url != lost).collect();
            assert_eq!(ordered(node, &[URLS[0], URLS[2]]), left);
        }
    }

    #[test]
    fn order_depends_only_on_the_names() {
        assert_eq!(ordered(7, &[URLS[2], URLS[0], URLS[1], URLS[0]]), ordered(7, &URLS));
        // Must never change: an upgraded agent stays on its server.
        assert_eq!([1, 2, 3, 4].map(|node| ordered(node, &URLS)[0]), [URLS[2], URLS[0], URLS[0], URLS[1]]);
    }
}
