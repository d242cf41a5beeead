//! Thousands of agents that wait for another version: each reads its stream with as little work as possible.
//!
//! As agents do, they take the connection over from HTTP. They share the machine with the measured server. A task reads
//! into the stack of its thread and searches for one word; it keeps only the end of what it has read.

use std::io::ErrorKind;
use std::time::Duration;

use anyhow::Context;
use etcd_client::{Client as EtcdClient, ConnectOptions};
use muster_core::lookup::Tag;
use muster_core::names::NodeName;
use muster_core::txn::Generation;
use muster_wire::sync::{SyncEvent, SyncOpen, UPGRADE};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::etcd::Etcd;
use super::fan_out_sample::Countdown;
use super::project;
use super::project::ENV;
use super::server::client;
use crate::bench::TOKEN;

/// They connect within this time: a server limits concurrent opens.
const SPREAD: Duration = Duration::from_secs(1);
/// Pause before the retry of a refused agent.
const AGAIN: Duration = Duration::from_millis(200);

/// Snapshot that the agents have.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Holding {
    /// The one that is there now, as agents have when nothing has changed that can be looked up.
    Newest,
    /// An older one: each of them gets the newest with its desired state.
    Older,
}

/// They answer no pings: a server considers them dead after 25 s, and a benchmark ends before that.
#[derive(Debug)]
pub(crate) struct Listeners {
    received: Countdown,
    snapshot_bytes: usize,
    _agents: JoinSet<()>,
}

impl Listeners {
    /// Connects all nodes. Their last run has no lookups, and they have the present desired state: the next one is
    /// another.
    pub(crate) async fn connect(address: &str, nodes: &[NodeName], holding: Holding) -> anyhow::Result<Self> {
        let listening = Countdown::from(nodes.len(), "connected");
        let received = Countdown::from(nodes.len(), "given a desired state");
        let mut agents = JoinSet::new();
        let (generation, _, bytes) = server_state(address, nodes.first().context("no nodes were named")?).await?;
        let open = SyncOpen { incarnation: Some(1), generation, has_snapshot: true, ..SyncOpen::default() };
        for (number, node) in nodes.iter().enumerate() {
            let (node, mut open) = (node.clone(), open.clone());
            let wait = SPREAD * u32::try_from(number * 7919 % nodes.len())? / u32::try_from(nodes.len())?;
            let (address, listening, received) = (address.to_owned(), listening.clone(), received.clone());
            agents.spawn(async move {
                tokio::time::sleep(wait).await;
                while open.snapshot.is_none() && matches!(holding, Holding::Newest) {
                    let request = request(&address, &node, &SyncOpen { has_snapshot: false, ..open.clone() });
                    match newest_snapshot(&address, &request).await {
                        Some(tag) => open.snapshot = Some(tag),
                        None => tokio::time::sleep(AGAIN).await,
                    }
                }
                let request = request(&address, &node, &open);
                let mut is_first = true;
                loop {
                    if let Some(stream) = accepted(&address, &request).await {
                        if std::mem::take(&mut is_first) {
                            listening.count();
                        }
                        if until(&stream, b"event: desired").await.is_some() {
                            received.count();
                            // No connection ends before all have received the event.
                            std::future::pending::<()>().await;
                        }
                    }
                    tokio::time::sleep(AGAIN).await;
                }
            });
        }
        listening.last().await?;
        Ok(Self { received, snapshot_bytes: bytes, _agents: agents })
    }

    /// Size of a snapshot in bytes.
    pub(crate) fn snapshot_bytes(&self) -> usize {
        self.snapshot_bytes
    }

    /// The time of the last desired state.
    pub(crate) fn received(&self) -> &Countdown {
        &self.received
    }
}

/// Generation, snapshot tag and snapshot size of the server for a node, from a stream without state.
pub(super) async fn server_state(
    address: &str,
    node: &NodeName,
) -> anyhow::Result<(Option<Generation>, Option<Tag>, usize)> {
    let client = client(address)?;
    let open = SyncOpen { incarnation: Some(1), ..SyncOpen::default() };
    let mut stream = client.sync(&project::env()?, node, &open).await?;
    let (mut tag, mut bytes) = (None, 0);
    loop {
        match stream.next().await?.context("the stream has ended without a desired state")? {
            SyncEvent::Desired(desired) => {
                // If a rollout has granted each node, none of its grants is newer than the present revision.
                let now = client.status(&project::env()?).await?.revision;
                let generation = Generation { number: now.0.max(desired.generation.number), ..desired.generation };
                return Ok((Some(generation), tag, bytes));
            }
            SyncEvent::Snapshot { snapshot, .. } => {
                bytes = serde_json::to_string(&snapshot)?.len();
                tag = snapshot.tag;
            }
            SyncEvent::Hello { .. }
            | SyncEvent::Pause { .. }
            | SyncEvent::Trust { .. }
            | SyncEvent::Identity { .. }
            | SyncEvent::Run(_)
            | SyncEvent::Move
            | SyncEvent::Ping => {}
        }
    }
}

fn request(address: &str, node: &NodeName, open: &SyncOpen) -> String {
    let body = serde_json::to_string(open).unwrap_or_default();
    format!(
        "POST /v1/envs/{ENV}/nodes/{node}/sync HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {TOKEN}\r\n\
         connection: upgrade\r\nupgrade: {UPGRADE}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Tag of the newest snapshot of a node, which has the node's own values. It is at the begin of the snapshot.
async fn newest_snapshot(address: &str, request: &str) -> Option<Tag> {
    const NAME: &[u8] = b"\"tag\":\"";
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut text = Vec::new();
    while text.len() < 64 * 1024 && !text.starts_with(b"HTTP/1.1 503") {
        stream.readable().await.ok()?;
        match stream.try_read_buf(&mut text) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(_) => return None,
        }
        let value = text.windows(NAME.len()).position(|bytes| bytes == NAME).map(|at| &text[at + NAME.len()..]);
        if let Some(value) = value
            && let Some(end) = value.iter().position(|byte| *byte == b'"')
        {
            return serde_json::from_slice(&[b"\"", &value[..=end]].concat()).ok();
        }
    }
    None
}

/// An accepted stream.
async fn accepted(address: &str, request: &str) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream.write_all(request.as_bytes()).await.ok()?;
    until(&stream, b"event: hello").await?;
    Some(stream)
}

/// Reads until a word has come. None if the stream ends before, or was refused.
async fn until<const LENGTH: usize>(stream: &TcpStream, word: &[u8; LENGTH]) -> Option<()> {
    let mut tail = StreamTail { bytes: [0; LENGTH], length: 0 };
    loop {
        stream.readable().await.ok()?;
        match read(stream, word, &mut tail) {
            Read::Found => return Some(()),
            Read::More => {}
            Read::Ended => return None,
        }
    }
}

enum Read {
    Found,
    More,
    Ended,
}

/// The end of what was read, which may be the beginning of the word.
struct StreamTail<const LENGTH: usize> {
    bytes: [u8; LENGTH],
    length: usize,
}

/// Reads the available bytes. Not async, so that its buffer is not part of a task.
fn read<const LENGTH: usize>(stream: &TcpStream, word: &[u8; LENGTH], tail: &mut StreamTail<LENGTH>) -> Read {
    let mut buffer = [0; 16 * 1024];
    buffer[..tail.length].copy_from_slice(&tail.bytes[..tail.length]);
    let filled = match stream.try_read(&mut buffer[tail.length..]) {
        Ok(0) => return Read::Ended,
        Ok(bytes) => tail.length + bytes,
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Read::More,
        Err(_) => return Read::Ended,
    };
    let all = &buffer[..filled];
    if all.windows(LENGTH).any(|bytes| bytes == word) {
        return Read::Found;
    }
    if all.starts_with(b"HTTP/1.1 503") {
        return Read::Ended;
    }
    tail.length = filled.min(LENGTH - 1);
    tail.bytes[..tail.length].copy_from_slice(&all[filled - tail.length..]);
    Read::More
}

#[derive(Debug)]
pub(crate) struct Watchers {
    received: Countdown,
    _watchers: JoinSet<()>,
}

impl Watchers {
    /// Watches of their keys, on this many connections.
    pub(crate) async fn connect(
        etcd: &Etcd,
        key: impl Fn(usize) -> String,
        count: usize,
        connections: usize,
    ) -> anyhow::Result<Self> {
        let mut clients = Vec::with_capacity(connections);
        for _ in 0..connections {
            clients.push(EtcdClient::connect([&etcd.address], Some(ConnectOptions::new())).await?);
        }
        let watching = Countdown::from(count, "watching");
        let received = Countdown::from(count, "given the put");
        let mut watchers = JoinSet::new();
        for (number, client) in clients.iter().cycle().take(count).enumerate() {
            let (mut client, key) = (client.watch_client(), key(number));
            let (watching, received) = (watching.clone(), received.clone());
            watchers.spawn(async move {
                let Ok(mut stream) = client.watch(key, None).await else { return };
                while let Ok(Some(message)) = stream.message().await {
                    if message.created() {
                        watching.count();
                    }
                    if !message.events().is_empty() {
                        received.count();
                        break;
                    }
                }
                // No connection ends before all have received the event.
                std::future::pending::<()>().await;
            });
        }
        watching.last().await?;
        Ok(Self { received, _watchers: watchers })
    }

    /// The time of the last event.
    pub(crate) fn received(&self) -> &Countdown {
        &self.received
    }
}
