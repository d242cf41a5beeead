//! Thousands of agents that wait for another version: each reads its stream with as little work as there can be.
//!
//! They share the machine with the server that is measured. So a task reads what is there into the stack of its thread
//! and looks for one word; it keeps nothing but the end of what it has read.

use std::io::ErrorKind;
use std::time::Duration;

use anyhow::Context;
use muster_core::lookup::Tag;
use muster_core::names::NodeName;
use muster_core::txn::Generation;
use muster_wire::client::Client;
use muster_wire::sync::{SyncEvent, SyncOpen};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::countdown::Countdown;
use super::project::{self, ENV};

/// They come within this time, not all in one moment: a server lets in so many at once.
const SPREAD: Duration = Duration::from_secs(1);
/// An agent that was not let in tries again.
const AGAIN: Duration = Duration::from_millis(200);

/// Which snapshot they have.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Holding {
    /// The one that is there now, as agents have when nothing has changed that can be looked up.
    Newest,
    /// One that is older: each of them is sent the newest with its desired state.
    Older,
}

/// They answer no pings: a server takes them for dead after 25 s. Whoever uses them is done by then.
#[derive(Debug)]
pub(crate) struct Listeners {
    heard: Countdown,
    snapshot_bytes: usize,
    _agents: JoinSet<()>,
}

impl Listeners {
    /// All these nodes connect. Their last run has looked nothing up, and they know what they should run now: the next
    /// desired state that comes is another one.
    pub(crate) async fn connect(address: &str, nodes: &[NodeName], holding: Holding) -> anyhow::Result<Self> {
        let listening = Countdown::from(nodes.len(), "connected");
        let heard = Countdown::from(nodes.len(), "told what to run");
        let mut agents = JoinSet::new();
        let (generation, tag, bytes) = standing(address, nodes.first().context("no nodes were named")?).await?;
        let snapshot = match holding {
            Holding::Newest => tag,
            Holding::Older => None,
        };
        let incarnation = Some(1);
        let open = SyncOpen { incarnation, generation, snapshot, has_snapshot: true, ..SyncOpen::default() };
        let body = serde_json::to_string(&open)?;
        for (number, node) in nodes.iter().enumerate() {
            let request = format!(
                "POST /v1/envs/{ENV}/nodes/{node}/sync HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n\
                 content-length: {}\r\n\r\n{body}",
                body.len()
            );
            let wait = SPREAD * u32::try_from(number * 7919 % nodes.len())? / u32::try_from(nodes.len())?;
            let (address, listening, heard) = (address.to_owned(), listening.clone(), heard.clone());
            agents.spawn(async move {
                tokio::time::sleep(wait).await;
                let mut is_first = true;
                loop {
                    if let Some(stream) = greeted(&address, &request).await {
                        if std::mem::take(&mut is_first) {
                            listening.count();
                        }
                        if until(&stream, b"event: desired").await.is_some() {
                            heard.count();
                            // Nobody goes before all have heard.
                            std::future::pending::<()>().await;
                        }
                    }
                    tokio::time::sleep(AGAIN).await;
                }
            });
        }
        listening.last().await?;
        Ok(Self { heard, snapshot_bytes: bytes, _agents: agents })
    }

    /// How large a snapshot is as text.
    pub(crate) fn snapshot_bytes(&self) -> usize {
        self.snapshot_bytes
    }

    /// When the last of them was told what to run.
    pub(crate) fn heard(&self) -> &Countdown {
        &self.heard
    }
}

/// What all nodes have been told up to now and may look up, with the size of that: asked for by one that has nothing. No node
/// has data of its own here.
async fn standing(address: &str, node: &NodeName) -> anyhow::Result<(Option<Generation>, Option<Tag>, usize)> {
    let client = Client::new(&format!("http://{address}"))?;
    let open = SyncOpen { incarnation: Some(1), ..SyncOpen::default() };
    let mut stream = client.sync(&project::env()?, node, &open).await?;
    let (mut tag, mut bytes) = (None, 0);
    loop {
        match stream.next().await?.context("the stream has ended without a desired state")? {
            SyncEvent::Desired(desired) => {
                // Where a rollout has granted each of them its own, none of that is newer than what is there now.
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
            | SyncEvent::Run { .. }
            | SyncEvent::Move
            | SyncEvent::Ping => {}
        }
    }
}

/// A stream that has been let in.
async fn greeted(address: &str, request: &str) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream.write_all(request.as_bytes()).await.ok()?;
    until(&stream, b"event: hello").await?;
    Some(stream)
}

/// Reads until a word has come. None if the stream ends before, or is not one.
async fn until<const LENGTH: usize>(stream: &TcpStream, word: &[u8; LENGTH]) -> Option<()> {
    let mut tail = Tail { bytes: [0; LENGTH], length: 0 };
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
struct Tail<const LENGTH: usize> {
    bytes: [u8; LENGTH],
    length: usize,
}

/// Reads what is there. Not async, so that its buffer is no part of a task.
fn read<const LENGTH: usize>(stream: &TcpStream, word: &[u8; LENGTH], tail: &mut Tail<LENGTH>) -> Read {
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
