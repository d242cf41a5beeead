//! Thousands of agents in this process: each holds one stream open, and reconnects to another server when it breaks.
//!
//! They answer no pings, so a server considers them dead after 25 s: a benchmark ends before that, or sees them
//! reconnect.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use muster_core::lookup::Lookups;
use muster_core::names::NodeName;
use muster_core::txn::Generation;
use muster_wire::sync::{SyncEvent, SyncOpen};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::project::{self, ENV};
use super::reports::lookups;
use super::server::client;
use crate::bench::TOKEN;

/// Real agents spread their reconnects over seconds; a shorter time is harder for the server.
const SPREAD: Duration = Duration::from_secs(1);
/// Timeout for all of them.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Crowd {
    shared: Arc<CrowdState>,
    connected: watch::Receiver<Vec<usize>>,
    _agents: JoinSet<()>,
}

#[derive(Debug)]
struct CrowdState {
    addresses: Vec<String>,
    /// Index of the address that agents use.
    target: AtomicUsize,
    /// Number of agents connected to each address.
    connected: watch::Sender<Vec<usize>>,
    /// Number of retries.
    retries: AtomicUsize,
    /// Times of received snapshots.
    snapshots: watch::Sender<Vec<Instant>>,
    ended: AtomicBool,
}

impl Crowd {
    /// Connects all nodes to the first address. They have a desired state and a snapshot, as agents that lose their
    /// server have.
    pub(crate) async fn connect(addresses: &[&str], nodes: &[NodeName]) -> anyhow::Result<Self> {
        Self::connect_as(addresses, nodes, |_| lookups()).await
    }

    /// The same, with what the last run of each has looked up.
    pub(crate) async fn connect_as(
        addresses: &[&str],
        nodes: &[NodeName],
        looked_up: impl Fn(usize) -> Lookups,
    ) -> anyhow::Result<Self> {
        let first = addresses.first().context("no server was named")?;
        let generation = generation(first, nodes.first().context("no nodes were named")?).await?;
        let (sender, connected) = watch::channel(vec![0; addresses.len()]);
        let shared = Arc::new(CrowdState {
            addresses: addresses.iter().map(|address| (*address).to_owned()).collect(),
            target: AtomicUsize::new(0),
            connected: sender,
            retries: AtomicUsize::new(0),
            snapshots: watch::Sender::new(Vec::new()),
            ended: AtomicBool::new(false),
        });
        let mut agents = JoinSet::new();
        for (number, node) in nodes.iter().enumerate() {
            let open = SyncOpen {
                incarnation: Some(1),
                generation: Some(generation),
                lookups: looked_up(number),
                has_snapshot: true,
                ..SyncOpen::default()
            };
            let body = serde_json::to_string(&open)?;
            let path = format!("/v1/envs/{ENV}/nodes/{node}/sync");
            let head = format!("POST {path} HTTP/1.1");
            let request = format!(
                "authorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            let wait = SPREAD.mul_f64(f64::from(u32::try_from(number * 7919 % nodes.len())?) / nodes.len() as f64);
            agents.spawn(agent(shared.clone(), head, request, wait));
        }
        let mut crowd = Self { shared, connected, _agents: agents };
        crowd.all(0, nodes.len()).await?;
        Ok(crowd)
    }

    /// Uses this address from now on.
    pub(crate) fn go_to(&self, index: usize) {
        self.shared.target.store(index, Ordering::Relaxed);
    }

    /// Number of agents connected to an address.
    pub(crate) fn connected(&self, index: usize) -> usize {
        self.connected.borrow().get(index).copied().unwrap_or(0)
    }

    /// Number of refused streams that were retried.
    pub(crate) fn retries(&self) -> usize {
        self.shared.retries.load(Ordering::Relaxed)
    }

    /// Times of received snapshots.
    pub(crate) fn snapshots(&self) -> Vec<Instant> {
        self.shared.snapshots.borrow().clone()
    }

    /// Waits for this many snapshots.
    pub(crate) async fn wait_for_snapshots(&self, count: usize) -> anyhow::Result<()> {
        let mut snapshots = self.shared.snapshots.subscribe();
        let all = tokio::time::timeout(TIMEOUT, snapshots.wait_for(|snapshots| snapshots.len() >= count)).await.is_ok();
        anyhow::ensure!(all, "only {} of {count} agents were snapshots after {TIMEOUT:?}", self.snapshots().len());
        Ok(())
    }

    /// Waits until this many agents are connected to an address.
    pub(crate) async fn all(&mut self, index: usize, count: usize) -> anyhow::Result<()> {
        let there = |connected: &Vec<usize>| connected.get(index).is_some_and(|connected| *connected >= count);
        let all = tokio::time::timeout(TIMEOUT, self.connected.wait_for(there)).await.is_ok();
        anyhow::ensure!(all, "only {} of {count} agents are connected after {TIMEOUT:?}", self.connected(index));
        Ok(())
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
    }
}

async fn agent(shared: Arc<CrowdState>, head: String, request: String, wait: Duration) {
    while !shared.ended.load(Ordering::Relaxed) {
        tokio::time::sleep(wait).await;
        let target = shared.target.load(Ordering::Relaxed);
        let Some(address) = shared.addresses.get(target) else { return };
        let request = format!("{head}\r\nhost: {address}\r\n{request}");
        if stream(&shared, address, target, &request).await.is_none() {
            shared.retries.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// One stream, from its hello to its end. None if there was no hello.
async fn stream(shared: &CrowdState, address: &str, index: usize, request: &str) -> Option<()> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut read = Vec::with_capacity(512);
    while !read.windows(12).any(|bytes| bytes == b"event: hello") {
        if stream.read_buf(&mut read).await.ok()? == 0 || read.starts_with(b"HTTP/1.1 503") {
            return None;
        }
    }
    drop(read);
    let count = |step: fn(usize) -> usize| {
        shared.connected.send_modify(|all| all.iter_mut().skip(index).take(1).for_each(|one| *one = step(*one)));
    };
    count(|connected| connected + 1);
    read_events(shared, &mut stream).await;
    count(|connected| connected - 1);
    Some(())
}

/// Reads to the end and records the start of each snapshot. The buffer is small, because there are thousands.
async fn read_events(shared: &CrowdState, stream: &mut TcpStream) {
    const NAME: &[u8] = b"event: snapshot";
    let mut buffer = [0; 256];
    let mut kept = 0;
    while let Ok(bytes @ 1..) = stream.read(&mut buffer[kept..]).await {
        let filled = kept + bytes;
        let found = buffer[..filled].windows(NAME.len()).filter(|bytes| *bytes == NAME).count();
        if found > 0 {
            shared.snapshots.send_modify(|snapshots| snapshots.extend(std::iter::repeat_n(Instant::now(), found)));
        }
        // A name may be split between two reads.
        kept = filled.min(NAME.len() - 1);
        buffer.copy_within(filled - kept..filled, 0);
    }
}

/// The server's desired generation, for an agent without state.
async fn generation(address: &str, node: &NodeName) -> anyhow::Result<Generation> {
    let client = client(address)?;
    let open = SyncOpen { incarnation: Some(1), has_snapshot: true, ..SyncOpen::default() };
    let mut stream = client.sync(&project::env()?, node, &open).await?;
    loop {
        match stream.next().await?.context("the stream has ended without a desired state")? {
            SyncEvent::Desired(desired) => return Ok(desired.generation),
            SyncEvent::Hello { .. }
            | SyncEvent::Snapshot { .. }
            | SyncEvent::Pause { .. }
            | SyncEvent::Trust { .. }
            | SyncEvent::Identity { .. }
            | SyncEvent::Run(_)
            | SyncEvent::Move
            | SyncEvent::Ping => {}
        }
    }
}
