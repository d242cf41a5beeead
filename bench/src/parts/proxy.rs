//! A TCP proxy between agents and the server that forwards at once and records requests, reports and events.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use muster_core::report::Report;
use muster_wire::sse::Decoder;
use muster_wire::sync::SyncEvent;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::http::{Messages, StreamPiece};
use super::machine::now;

/// A running proxy. It ends with all its connections when it is dropped.
#[derive(Debug)]
pub(crate) struct CountingProxy {
    pub(crate) url: String,
    traffic: Arc<Mutex<Traffic>>,
    _tasks: JoinSet<()>,
}

/// Recorded traffic.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) connections: u64,
    /// Bytes from the agents and from the server.
    pub(crate) up: u64,
    pub(crate) down: u64,
    pub(crate) requests: u64,
    /// The events of the sync streams, by name.
    pub(crate) events: BTreeMap<&'static str, u64>,
    pub(crate) reports: Vec<PassedReport>,
}

/// A forwarded report.
#[derive(Clone, Debug)]
pub(crate) struct PassedReport {
    pub(crate) report: Report,
    /// The time of its last byte from the agent, before the server has it.
    pub(crate) sent: Duration,
    /// The time of the server's response.
    pub(crate) answered: Option<Duration>,
}

impl Traffic {
    /// Number of events other than pings.
    pub(crate) fn payload_events(&self) -> u64 {
        self.events.iter().filter(|(name, _)| **name != PING).map(|(_, count)| count).sum()
    }

    pub(crate) fn pings(&self) -> u64 {
        self.events.get(PING).copied().unwrap_or(0)
    }
}

const PING: &str = "ping";

impl CountingProxy {
    /// Listens, and forwards to the server at `host:port`.
    pub(crate) async fn start(server: &str) -> anyhow::Result<Self> {
        // The server accepts requests for any loopback address, but for no other port than its own.
        let (_, port) = server.rsplit_once(':').context("the address of the server has no port")?;
        let addresses: Vec<_> = (2..=254).map(|last| format!("127.0.1.{last}:{port}")).collect();
        let mut listener = TcpListener::bind(&addresses[0]).await;
        for address in &addresses[1..] {
            if listener.is_err() {
                listener = TcpListener::bind(address).await;
            }
        }
        let listener = listener.context("the proxy cannot listen")?;
        let url = format!("http://{}", listener.local_addr()?);
        let traffic = Arc::new(Mutex::new(Traffic::default()));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, server.to_owned(), traffic.clone()));
        Ok(Self { url, traffic, _tasks: tasks })
    }

    pub(crate) fn traffic(&self) -> Traffic {
        lock(&self.traffic).clone()
    }
}

fn lock(traffic: &Mutex<Traffic>) -> MutexGuard<'_, Traffic> {
    traffic.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, server: String, traffic: Arc<Mutex<Traffic>>) {
    let mut connections = JoinSet::new();
    while let Ok((agent, _)) = listener.accept().await {
        lock(&traffic).connections += 1;
        let (server, traffic) = (server.clone(), traffic.clone());
        connections.spawn(async move {
            let Ok(server) = TcpStream::connect(server).await else { return };
            // The proxy must not delay anything.
            if agent.set_nodelay(true).and_then(|()| server.set_nodelay(true)).is_err() {
                return;
            }
            let (from_agent, to_agent) = agent.into_split();
            let (from_server, to_server) = server.into_split();
            let open = Arc::new(Mutex::new(VecDeque::new()));
            let up = RequestWatch {
                traffic: traffic.clone(),
                open: open.clone(),
                messages: Messages::default(),
                request: None,
            };
            let down = ResponseWatch { traffic, open, messages: Messages::default(), stream: None };
            // When one side ends the connection, the other half is dropped.
            tokio::select! {
                () = pass(from_agent, to_server, up) => {}
                () = pass(from_server, to_agent, down) => {}
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

trait TrafficWatch {
    fn saw(&mut self, bytes: &[u8]);
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut watch: impl TrafficWatch) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        watch.saw(&buffer[..read]);
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

/// The requests of a connection that wait for their answers: the place of the report among the traffic, if it is one.
type OpenRequests = Arc<Mutex<VecDeque<Option<usize>>>>;

/// From the agent to the server.
struct RequestWatch {
    traffic: Arc<Mutex<Traffic>>,
    open: OpenRequests,
    messages: Messages,
    /// The request that is passing: whether it is a report, and its body.
    request: Option<(bool, Vec<u8>)>,
}

impl TrafficWatch for RequestWatch {
    fn saw(&mut self, bytes: &[u8]) {
        let now = now();
        lock(&self.traffic).up += bytes.len() as u64;
        for piece in self.messages.feed(bytes) {
            match piece {
                StreamPiece::Head(head) => {
                    let mut line = head.lines().next().unwrap_or_default().split(' ');
                    let is_report =
                        line.next() == Some("POST") && line.next().is_some_and(|path| path.ends_with("/reports"));
                    self.request = Some((is_report, Vec::new()));
                }
                StreamPiece::Body(part) => {
                    if let Some((true, body)) = &mut self.request {
                        body.extend(part);
                    }
                }
                StreamPiece::End => {
                    let Some((is_report, body)) = self.request.take() else { continue };
                    let mut traffic = lock(&self.traffic);
                    traffic.requests += 1;
                    let report = is_report.then(|| serde_json::from_slice(&body).ok()).flatten();
                    let place = report.map(|report| {
                        traffic.reports.push(PassedReport { report, sent: now, answered: None });
                        traffic.reports.len() - 1
                    });
                    self.open.lock().unwrap_or_else(PoisonError::into_inner).push_back(place);
                }
            }
        }
    }
}

/// From the server to the agent.
struct ResponseWatch {
    traffic: Arc<Mutex<Traffic>>,
    open: OpenRequests,
    messages: Messages,
    /// Parses the events, if this is a sync stream.
    stream: Option<Decoder>,
}

impl TrafficWatch for ResponseWatch {
    fn saw(&mut self, bytes: &[u8]) {
        let now = now();
        let mut traffic = lock(&self.traffic);
        traffic.down += bytes.len() as u64;
        for piece in self.messages.feed(bytes) {
            match piece {
                StreamPiece::Head(head) => {
                    let of = self.open.lock().unwrap_or_else(PoisonError::into_inner).pop_front().flatten();
                    if let Some(seen) = of.and_then(|place| traffic.reports.get_mut(place)) {
                        seen.answered = Some(now);
                    }
                    self.stream = head.contains("text/event-stream").then(Decoder::default);
                }
                StreamPiece::Body(part) => {
                    let events = self.stream.as_mut().map(|stream| stream.feed(&part));
                    match events {
                        None => {}
                        Some(Ok(events)) => {
                            events.iter().for_each(|event| *traffic.events.entry(name(event)).or_default() += 1);
                        }
                        Some(Err(_)) => *traffic.events.entry("not understood").or_default() += 1,
                    }
                }
                StreamPiece::End => self.stream = None,
            }
        }
    }
}

fn name(event: &SyncEvent) -> &'static str {
    match event {
        SyncEvent::Hello { .. } => "hello",
        SyncEvent::Desired(_) => "desired",
        SyncEvent::Snapshot { .. } => "snapshot",
        SyncEvent::Pause { .. } => "pause",
        SyncEvent::Trust { .. } => "trust",
        SyncEvent::Identity { .. } => "identity",
        SyncEvent::Run(_) => "run",
        SyncEvent::Ping => PING,
        SyncEvent::Move => "move",
    }
}
