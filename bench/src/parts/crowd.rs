//! Thousands of agents in this process: each holds one stream open, answers pings, and reconnects to another server when it breaks.
//!
//! Each has an address of its own in the loopback network, as agents on machines of their own have.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use muster_core::lookup::{Lookups, Tag};
use muster_core::names::NodeName;
use muster_core::node::status::Activity;
use muster_core::txn::Generation;
use muster_wire::sync::{SyncEvent, SyncOpen, UPGRADE};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::fan_out_sample::Countdown;
use super::listeners::server_state;
use super::project::{self, ENV};
use super::reports::lookups;
use super::server::client;
use crate::bench::TOKEN;

/// Real agents spread their reconnects over seconds; a shorter time is harder for the server.
pub(crate) const SPREAD: Duration = Duration::from_secs(1);
/// Pause of an agent that was refused.
const RETRY: Duration = Duration::from_millis(200);
/// Timeout for all of them.
const TIMEOUT: Duration = Duration::from_secs(60);
const DESIRED: &[u8] = b"event: desired";

#[derive(Debug)]
pub(crate) struct Crowd {
    shared: Arc<CrowdState>,
    connected: watch::Receiver<Vec<usize>>,
    _agents: JoinSet<()>,
}

/// One agent of a crowd.
#[derive(Debug)]
pub(crate) struct CrowdAgent {
    pub(crate) node: NodeName,
    pub(crate) lookups: Lookups,
    /// Its identity. None: it presents the token of the server, without TLS.
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

#[derive(Debug)]
struct CrowdState {
    addresses: Vec<String>,
    /// Within this time agents connect.
    spread: Duration,
    /// Index of the address that agents use.
    target: AtomicUsize,
    /// Number of agents connected to each address.
    connected: watch::Sender<Vec<usize>>,
    /// Number of retries.
    retries: AtomicUsize,
    /// Times of received snapshots.
    snapshots: watch::Sender<Vec<Instant>>,
    /// Counts the agents that have received a desired state.
    desired: watch::Sender<DesiredRound>,
    ended: AtomicBool,
}

#[derive(Clone, Debug, Default)]
struct DesiredRound {
    number: u64,
    countdown: Option<Countdown>,
}

/// State that the agents of a crowd have when they connect.
#[derive(Clone, Debug)]
struct AgentState {
    generation: Option<Generation>,
    /// Tag of the snapshot. None: an older one.
    snapshot: Option<Tag>,
}

impl Crowd {
    /// Connects all nodes to the first address. They have a desired state and a snapshot, as agents that lose their
    /// server have.
    pub(crate) async fn connect(addresses: &[&str], nodes: &[NodeName]) -> anyhow::Result<Self> {
        let agent = |node: &NodeName| CrowdAgent { node: node.clone(), lookups: lookups(), tls: None };
        Self::connect_within(addresses, nodes.iter().map(agent).collect(), SPREAD).await
    }

    /// Connects agents within a time.
    pub(crate) async fn connect_within(
        addresses: &[&str],
        members: Vec<CrowdAgent>,
        spread: Duration,
    ) -> anyhow::Result<Self> {
        let first = addresses.first().context("no server was named")?;
        let generation = generation(first, &members.first().context("no nodes were named")?.node).await?;
        let state = AgentState { generation: Some(generation), snapshot: None };
        Self::connect_as(state, addresses, members, spread).await
    }

    /// Connects all nodes within a time. They have the newest snapshot and no lookups, so that a new desired state is all
    /// that they receive.
    pub(crate) async fn connect_up_to_date(
        address: &str,
        nodes: &[NodeName],
        spread: Duration,
    ) -> anyhow::Result<Self> {
        let (generation, snapshot, _) = server_state(address, nodes.first().context("no nodes were named")?).await?;
        let agent = |node: &NodeName| CrowdAgent { node: node.clone(), lookups: Lookups::default(), tls: None };
        let state = AgentState { generation, snapshot };
        Self::connect_as(state, &[address], nodes.iter().map(agent).collect(), spread).await
    }

    async fn connect_as(
        state: AgentState,
        addresses: &[&str],
        members: Vec<CrowdAgent>,
        spread: Duration,
    ) -> anyhow::Result<Self> {
        let (sender, connected) = watch::channel(vec![0; addresses.len()]);
        let shared = Arc::new(CrowdState {
            addresses: addresses.iter().map(|address| (*address).to_owned()).collect(),
            spread,
            target: AtomicUsize::new(0),
            connected: sender,
            retries: AtomicUsize::new(0),
            snapshots: watch::Sender::new(Vec::new()),
            desired: watch::Sender::new(DesiredRound::default()),
            ended: AtomicBool::new(false),
        });
        let mut agents = JoinSet::new();
        let count = members.len();
        for (number, CrowdAgent { node, lookups, tls }) in members.into_iter().enumerate() {
            let open = SyncOpen {
                incarnation: Some(1),
                generation: state.generation,
                lookups,
                has_snapshot: true,
                snapshot: state.snapshot.clone(),
                ..SyncOpen::default()
            };
            let body = serde_json::to_string(&open)?;
            let token = if tls.is_none() { format!("authorization: Bearer {TOKEN}\r\n") } else { String::new() };
            let head = format!("POST /v1/envs/{ENV}/nodes/{node}/sync HTTP/1.1");
            let rest = format!(
                "{token}connection: upgrade\r\nupgrade: {UPGRADE}\r\ncontent-type: application/json\r\n\
                 content-length: {}\r\n\r\n{body}",
                body.len()
            );
            let wait = shared.spread.mul_f64(f64::from(u32::try_from(number * 7919 % count)?) / count as f64);
            let agent = Agent { source: source(number)?, tls, head, rest, desired_round: 0 };
            agents.spawn(agent.run(shared.clone(), wait));
        }
        let mut crowd = Self { shared, connected, _agents: agents };
        crowd.all(0, count).await?;
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

    /// Counts the agents that receive a desired state from now on: each that is connected to an address, once.
    pub(crate) fn count_desired(&self, index: usize) -> Countdown {
        let countdown = Countdown::from(self.connected(index), "given a desired state");
        self.shared.desired.send_modify(|round| {
            *round = DesiredRound { number: round.number + 1, countdown: Some(countdown.clone()) };
        });
        countdown
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

/// Address of an agent: `127.78.0.0/16`.
fn source(number: usize) -> anyhow::Result<SocketAddr> {
    let [.., high, low] = u32::try_from(number)?.to_be_bytes();
    Ok(SocketAddr::from(([127, 78, high, low], 0)))
}

struct Agent {
    source: SocketAddr,
    tls: Option<Arc<ClientConfig>>,
    /// First line of the request.
    head: String,
    /// The request after the host.
    rest: String,
    /// The last round in which it has received a desired state.
    desired_round: u64,
}

/// A connection with or without TLS.
trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

impl Agent {
    async fn run(mut self, shared: Arc<CrowdState>, wait: Duration) {
        while !shared.ended.load(Ordering::Relaxed) {
            tokio::time::sleep(wait).await;
            let target = shared.target.load(Ordering::Relaxed);
            let Some(address) = shared.addresses.get(target) else { return };
            if self.stream(&shared, address, target).await.is_none() {
                shared.retries.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    async fn connect(&self, address: &str) -> Option<Box<dyn Connection>> {
        let address: SocketAddr = address.parse().ok()?;
        let socket = TcpSocket::new_v4().ok()?;
        socket.bind(self.source).ok()?;
        let stream = socket.connect(address).await.ok()?;
        let Some(tls) = &self.tls else { return Some(Box::new(stream)) };
        let name = ServerName::IpAddress(address.ip().into());
        Some(Box::new(TlsConnector::from(tls.clone()).connect(name, stream).await.ok()?))
    }

    /// One stream, from its hello to its end. None if there was no hello.
    async fn stream(&mut self, shared: &CrowdState, address: &str, index: usize) -> Option<()> {
        let mut stream = self.connect(address).await?;
        let request = format!("{}\r\nhost: {address}\r\n{}", self.head, self.rest);
        stream.write_all(request.as_bytes()).await.ok()?;
        stream.flush().await.ok()?;
        let mut read = Vec::with_capacity(512);
        while !read.windows(12).any(|bytes| bytes == b"event: hello") {
            if stream.read_buf(&mut read).await.ok()? == 0 || read.starts_with(b"HTTP/1.1 503") {
                return None;
            }
        }
        // After a broken connection the desired state may come at once.
        if read.windows(DESIRED.len()).any(|bytes| bytes == DESIRED) {
            self.count_desired(shared);
        }
        drop(read);
        let count = |step: fn(usize) -> usize| {
            shared.connected.send_modify(|all| all.iter_mut().skip(index).take(1).for_each(|one| *one = step(*one)));
        };
        count(|connected| connected + 1);
        self.read_events(shared, &mut stream).await;
        count(|connected| connected - 1);
        Some(())
    }

    fn count_desired(&mut self, shared: &CrowdState) {
        let round = shared.desired.borrow();
        if let Some(countdown) = round.countdown.as_ref().filter(|_| self.desired_round != round.number) {
            self.desired_round = round.number;
            countdown.count();
        }
    }

    /// Reads to the end, answers pings, counts desired states, and records the start of each snapshot. The buffer is
    /// small, because there are thousands.
    async fn read_events(&mut self, shared: &CrowdState, stream: &mut Box<dyn Connection>) {
        const SNAPSHOT: &[u8] = b"event: snapshot";
        const PING: &[u8] = b"event: ping";
        let mut buffer = [0; 256];
        let mut kept = 0;
        while let Ok(bytes @ 1..) = stream.read(&mut buffer[kept..]).await {
            let filled = kept + bytes;
            let count =
                |name: &[u8], end: usize| buffer[..end].windows(name.len()).filter(|bytes| *bytes == name).count();
            let found = count(SNAPSHOT, filled);
            if found > 0 {
                shared.snapshots.send_modify(|snapshots| snapshots.extend(std::iter::repeat_n(Instant::now(), found)));
            }
            // A desired state or a ping in the kept part was counted before.
            if count(DESIRED, filled) > count(DESIRED, kept) {
                self.count_desired(shared);
            }
            if count(PING, filled) > count(PING, kept) {
                let answer = muster_wire::sse::encode_activity(&Activity::Idle).unwrap_or_default();
                if stream.write_all(answer.as_bytes()).await.is_err() || stream.flush().await.is_err() {
                    return;
                }
            }
            // A name may be split between two reads.
            kept = filled.min(SNAPSHOT.len() - 1);
            buffer.copy_within(filled - kept..filled, 0);
        }
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
