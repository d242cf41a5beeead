//! The servers that this agent may talk to, one of them at a time.
//!
//! Each agent has an order of its own among them (rendezvous hashing): it begins with the first, and takes the first
//! that answers when it has to leave one. So a fleet spreads over its servers evenly without anybody who deals it out,
//! and when one of them is lost, its agents spread over all that are left instead of falling on one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio::time::Instant;

use muster_core::names::{EnvName, NodeName};
use muster_wire::client::{Client, ClientError};

#[derive(Clone, Debug)]
pub struct Servers {
    /// In this agent's order.
    clients: Arc<[Client]>,
    current: Arc<AtomicUsize>,
    /// When the oldest question was asked that the current server has left without an answer.
    doubt: watch::Sender<Option<Instant>>,
}

impl Servers {
    pub fn new(env: &EnvName, node: &NodeName, urls: &[String]) -> Result<Self, ClientError> {
        let clients = urls.iter().map(|url| Client::new(url)).collect::<Result<Vec<_>, _>>()?;
        let clients = order(env, node, clients, Client::base).into();
        Ok(Self { clients, current: Arc::default(), doubt: watch::Sender::new(None) })
    }

    pub fn count(&self) -> usize {
        self.clients.len()
    }

    /// All of them, in this agent's order.
    pub fn all(&self) -> &[Client] {
        &self.clients
    }

    /// The one that everything is sent to.
    pub fn current(&self) -> &Client {
        &self.clients[self.current.load(Ordering::Relaxed) % self.clients.len()]
    }

    /// Whether the current one is not the first of this agent's order.
    pub fn is_away(&self) -> bool {
        self.current.load(Ordering::Relaxed) != 0
    }

    /// Another one from now on, by its place. Only the stream decides this, so that all follow.
    pub fn take(&self, place: usize) {
        self.current.store(place, Ordering::Relaxed);
        self.doubt.send_replace(None);
    }

    /// The current one left a question without an answer that was asked then.
    pub fn doubt(&self, asked: Instant) {
        self.doubt.send_replace(Some(asked));
    }

    /// For the stream: hears of every doubt.
    pub fn doubts(&self) -> watch::Receiver<Option<Instant>> {
        self.doubt.subscribe()
    }
}

/// Puts servers into the order of a node. The same on every machine and in every version: it depends on the names alone,
/// and not on the order in which they are written. Who is named twice counts once.
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

    fn counts(of: impl Iterator<Item = &'static str>) -> BTreeMap<&'static str, usize> {
        of.fold(BTreeMap::new(), |mut counts, url| {
            *counts.entry(url).or_default() += 1;
            counts
        })
    }

    #[test]
    fn a_fleet_spreads_evenly_over_its_servers() {
        let first = counts((1..=5000).map(|node| ordered(node, &URLS)[0]));
        assert_eq!(first.len(), 3);
        assert!(first.values().all(|count| (1567..=1767).contains(count)), "{first:?}");
    }

    #[test]
    fn when_one_is_lost_its_agents_spread_over_the_others_and_nobody_else_moves() {
        let orders: Vec<_> = (1..=5000).map(|node| ordered(node, &URLS)).collect();
        let lost = URLS[1];
        let next = counts(orders.iter().filter(|order| order[0] == lost).map(|order| order[1]));
        assert_eq!(next.keys().copied().collect::<Vec<_>>(), [URLS[0], URLS[2]]);
        let (some, others) = (next[URLS[0]], next[URLS[2]]);
        assert!(some.abs_diff(others) < 150, "{next:?}");
        // The order among those that are left is what it was.
        for (node, order) in (1..).zip(&orders) {
            let left: Vec<_> = order.iter().copied().filter(|url| *url != lost).collect();
            assert_eq!(ordered(node, &[URLS[0], URLS[2]]), left);
        }
    }

    #[test]
    fn the_order_depends_on_the_names_alone() {
        assert_eq!(ordered(7, &[URLS[2], URLS[0], URLS[1], URLS[0]]), ordered(7, &URLS));
        // Fixed for ever: an agent that is upgraded stays where it is.
        assert_eq!([1, 2, 3, 4].map(|node| ordered(node, &URLS)[0]), [URLS[2], URLS[0], URLS[0], URLS[1]]);
    }
}
