//! The sync stream of one agent: compares the agent's state with the view, and sends the difference as events.
//!
//! The events are the body of a response, or are sent on a connection that was taken over from HTTP; then the agent sends its
//! activity on it too.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::error::Error;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use muster_core::fleet::{Fleet, Node};
use muster_core::lookup::Tag;
use muster_core::names::{HostName, NodeName, Role};
use muster_core::node::agent::PROTOCOL;
use muster_core::node::pause::NodePause;
use muster_core::node::record::{NodeRecord, RunRequest};
use muster_core::release::manifest::SignedTrust;
use muster_core::txn::{Generation, Revision};
use muster_wire::sse::{self, ActivityDecoder, DecodeError};
use muster_wire::sync::{DesiredState, RequestedRun, SyncEvent};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout};

use crate::agents::admission::AdmissionPermit;
use crate::agents::{AgentSession, SessionGuard};
use crate::app::Clock;
use crate::identity::server_urls;
use crate::identity::tls::ServerTls;
use crate::view::View;

/// Interval of pings. An agent answers each with its activity, and reconnects when it misses two.
pub const PING: Duration = Duration::from_secs(10);
/// Silence after which an agent counts as gone, though its connection is open: its machine lost power, or is frozen.
const SILENCE_LIMIT: Duration = Duration::from_secs(25);

/// State of the agent when it connects.
#[derive(Debug)]
pub(crate) struct StreamInit {
    pub incarnation: u64,
    pub role: Role,
    pub host_name: Option<HostName>,
    pub generation: Option<Generation>,
    pub has_snapshot: bool,
    pub snapshot: Option<Tag>,
    pub pause: Option<NodePause>,
    pub asked: Option<String>,
    pub trust: u64,
    /// Of an agent with a certificate.
    pub identity: Option<IdentityNews>,
    pub permit: AdmissionPermit,
}

/// Source of the roots and the URLs of servers, for an agent with a certificate.
#[derive(Debug)]
pub(crate) struct IdentityNews {
    tls: Arc<ServerTls>,
    /// URL of this server.
    url: String,
    /// Hash of what was sent.
    sent: Option<u64>,
}

/// Machines that renew their certificates in a second during a rotation. Each is a write to the store.
const RENEWALS_PER_SECOND: usize = 50;

impl IdentityNews {
    pub(crate) fn new(tls: Arc<ServerTls>, url: String) -> Self {
        Self { tls, url, sent: None }
    }

    /// The event, if its content has changed.
    fn event(&mut self, fleet: &Fleet, node: Option<&Node>) -> Option<SyncEvent> {
        let trust = self.tls.trust();
        let servers: Vec<String> =
            server_urls(fleet, &self.url).into_iter().filter(|url| url.starts_with("https:")).collect();
        let mut hasher = DefaultHasher::new();
        (&trust.roots, &trust.record.issuing().pin, &servers).hash(&mut hasher);
        let content = hasher.finish();
        if self.sent.replace(content) == Some(content) {
            return None;
        }
        let (record, _) = node?.certificate.as_ref()?;
        let is_current = record.authority.as_ref() == Some(&trust.record.issuing().pin)
            && trust.record.trusted().all(|authority| record.roots.contains(&authority.pin));
        let spread = fleet.nodes().count() * 1000 / RENEWALS_PER_SECOND;
        let renew_within_ms = (!is_current).then(|| u32::try_from(spread).unwrap_or(u32::MAX));
        Some(SyncEvent::Identity { roots: trust.roots.clone(), servers, renew_within_ms })
    }
}

/// Reason why a connection with a stream has failed.
#[derive(Debug, Error)]
enum ExchangeError {
    #[error("the connection is lost")]
    Disconnected(#[from] io::Error),
    #[error("the agent's message is not valid")]
    Message(#[from] DecodeError),
}

/// The events of a stream. Dropping them ends the session.
#[derive(Debug)]
pub(crate) struct SyncEvents {
    view: Arc<View>,
    guard: SessionGuard,
    ping: Interval,
    ready: VecDeque<Bytes>,
    incarnation: u64,
    role: Role,
    host_name: Option<HostName>,
    generation: Option<Generation>,
    has_snapshot: bool,
    /// Tag of the agent's snapshot, if it is known.
    snapshot: Option<Tag>,
    pause: Option<NodePause>,
    asked: Option<String>,
    trust: u64,
    identity: Option<IdentityNews>,
    /// Revision of the last trust list that was compared.
    trust_at: Option<Revision>,
    clock: Clock,
    /// Held until the agent has read the first events.
    permit: Option<AdmissionPermit>,
    compared: bool,
}

/// Time to close a connection whose stream has ended.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Size of the buffer for an agent's messages, which is a part of each stream's task.
const BUFFER: usize = 256;

impl SyncEvents {
    pub(crate) fn new(view: Arc<View>, session: SessionGuard, init: StreamInit, clock: Clock) -> Self {
        let mut ping = interval_at(Instant::now() + PING, PING);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let StreamInit {
            incarnation,
            role,
            host_name,
            generation,
            has_snapshot,
            snapshot,
            pause,
            asked,
            trust,
            identity,
            permit,
        } = init;
        let mut events = Self {
            view,
            guard: session,
            ping,
            ready: VecDeque::new(),
            incarnation,
            role,
            host_name,
            generation,
            has_snapshot,
            snapshot,
            pause,
            asked,
            trust,
            identity,
            trust_at: None,
            clock,
            permit: Some(permit),
            compared: false,
        };
        events.send_hello();
        // Changes from before the connection are found by comparison, not by a wake-up.
        events.guard.session.wake.notify_one();
        events
    }

    /// The events as the body of a response.
    pub(crate) fn into_body(self) -> impl Stream<Item = Result<Bytes, Infallible>> {
        futures::stream::unfold(self, |mut events| async {
            let event = events.next().await?;
            Some((Ok(event), events))
        })
    }

    /// Sends the events on a connection and reads the agent's activities from it, until the stream or the connection ends.
    /// `received` was read from the connection before.
    pub(crate) async fn run(mut self, mut io: impl AsyncRead + AsyncWrite + Unpin, received: Bytes) {
        if let Err(error) = self.exchange(&mut io, &received).await {
            tracing::debug!(node = %self.guard.session.node, error = &error as &dyn Error, "the stream of an agent has failed");
        }
        // The session ends before the connection: the agent may return at once.
        drop(self);
        let _ = timeout(CLOSE_TIMEOUT, io.shutdown()).await;
    }

    async fn exchange(
        &mut self,
        io: &mut (impl AsyncRead + AsyncWrite + Unpin),
        received: &[u8],
    ) -> Result<(), ExchangeError> {
        let mut activities = ActivityDecoder::default();
        self.receive(&mut activities, received)?;
        let mut buffer = [0; BUFFER];
        loop {
            tokio::select! {
                event = self.next() => {
                    let Some(event) = event else { return Ok(()) };
                    io.write_all(&event).await?;
                    io.flush().await?;
                }
                length = io.read(&mut buffer) => match length? {
                    0 => return Ok(()),
                    length => self.receive(&mut activities, &buffer[..length])?,
                },
            }
        }
    }

    fn receive(&self, activities: &mut ActivityDecoder, piece: &[u8]) -> Result<(), DecodeError> {
        for activity in activities.feed(piece)? {
            self.guard.set_activity(activity);
        }
        Ok(())
    }

    /// Next event. Safe to cancel: an event that was not returned is returned by the next call.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.compared {
                self.permit = None;
            }
            let session: &AgentSession = &self.guard.session;
            tokio::select! {
                biased;
                () = session.ended.cancelled() => return None,
                () = session.wake.notified() => {
                    if let ControlFlow::Break(()) = self.compare() {
                        return None;
                    }
                    self.compared = true;
                }
                () = session.move_away.notified() => self.send(&SyncEvent::Move),
                _ = self.ping.tick() => {
                    if session.silent_for() > SILENCE_LIMIT {
                        tracing::warn!(node = %session.node, "the agent does not answer pings: its stream ends");
                        return None;
                    }
                    self.send(&SyncEvent::Ping);
                }
            }
        }
    }

    /// Sends everything that the agent does not have; or ends its stream.
    fn compare(&mut self) -> ControlFlow<()> {
        let view = self.view.clone();
        let fleets = view.fleets();
        let session = self.guard.session.clone();
        let Some(fleet) = fleets.get(&session.env) else { return ControlFlow::Continue(()) };
        // The view mixes keys from before and after the restore: the agent keeps its state, and reconnects later.
        if fleet.restoring().is_some() {
            tracing::info!(node = %session.node, "its environment is being restored: its stream ends");
            return ControlFlow::Break(());
        }
        // Looked up once: when a whole fleet changes version, thousands of streams compare at the same time.
        let node = fleet.get(&session.node);
        let Some((seen, diff)) = self.guard.compare(fleet, node) else { return ControlFlow::Continue(()) };
        let desired = self.newer_desired(fleet, node);
        let has_identity = |record: &&NodeRecord| (&record.role, &record.host_name) == (&self.role, &self.host_name);
        let renamed = node.and_then(|node| node.record.as_ref()).filter(|record| !has_identity(record)).cloned();
        let pause = self.changed_pause(fleet, node);
        let trust = self.newer_trust(fleet);
        let identity = self.identity.as_mut().and_then(|news| news.event(fleet, node));
        let request = node.and_then(|node| node.run_request.as_ref()).map(|(request, _)| request);
        let request = request.filter(|request| self.asked.as_ref() != Some(&request.id));
        let request = request.and_then(|request| requested_run(fleet, &session.node, request));

        // Another version may look up other keys: it starts with the current snapshot.
        if !diff.changed.is_empty() || desired.is_some() || !self.has_snapshot {
            match view.snapshot(fleet, &session.node, node) {
                // The agent has this one. In a large fleet a snapshot is hundreds of kilobytes, for each of thousands of nodes.
                Ok(snapshot) if diff.changed.is_empty() && self.snapshot.as_ref() == Some(&snapshot.tag) => {}
                Ok(snapshot) => match snapshot.write() {
                    Ok(text) => {
                        let changed = serde_json::json!(diff.changed);
                        let text = format!("event: snapshot\ndata: {{\"changed\":{changed},\"snapshot\":{text}}}\n\n");
                        self.ready.push_back(text.into());
                        self.has_snapshot = true;
                        self.snapshot = Some(snapshot.tag);
                        self.guard.sent(&seen, diff.now.clone());
                    }
                    Err(error) => tracing::error!(%error, "a snapshot cannot be encoded"),
                },
                Err(error) => tracing::error!(%error, "a snapshot cannot be encoded"),
            }
        }
        drop(fleets);
        if let Some(record) = renamed {
            (self.role, self.host_name) = (record.role, record.host_name);
            self.send_hello();
        }
        if let Some(pause) = pause {
            self.pause = pause.clone();
            self.send(&SyncEvent::Pause { pause });
        }
        if let Some(identity) = identity {
            self.send(&identity);
        }
        if let Some(trust) = trust {
            self.send(&SyncEvent::Trust { trust });
        }
        if let Some((generation, event)) = desired {
            self.generation = Some(generation);
            self.ready.push_back(event);
        }
        if let Some(request) = request {
            self.asked = Some(request.id.clone());
            self.send(&SyncEvent::Run(request));
        }
        ControlFlow::Continue(())
    }

    /// The event with the node's desired state, if that is newer than the agent's.
    fn newer_desired(&self, fleet: &Fleet, node: Option<&Node>) -> Option<(Generation, Bytes)> {
        let name = &self.guard.session.node;
        let desired = node.map_or_else(|| fleet.base(), |node| fleet.desired_by(node));
        let desired = desired.filter(|desired| Some(desired.generation) > self.generation)?;
        match self.view.desired_text(fleet, name, &desired) {
            Ok(event) => Some((desired.generation, event?)),
            Err(error) => {
                tracing::error!(%error, node = %name, "the desired state cannot be encoded");
                None
            }
        }
    }

    /// The pause of the node, if it differs from the one that the agent has.
    fn changed_pause(&self, fleet: &Fleet, node: Option<&Node>) -> Option<Option<NodePause>> {
        let record = node?.record.as_ref()?;
        let pause = fleet.pause_of(&self.guard.session.node, &record.role, self.clock.now());
        (pause != self.pause).then_some(pause)
    }

    /// The list of trusted keys, if the agent has an older one.
    fn newer_trust(&mut self, fleet: &Fleet) -> Option<SignedTrust> {
        let (trust, at) = fleet.trust()?;
        if self.trust_at.replace(*at) == Some(*at) {
            return None;
        }
        let serial = trust.read().ok()?.serial;
        if serial <= self.trust {
            return None;
        }
        self.trust = serial;
        Some(trust.clone())
    }

    fn send_hello(&mut self) {
        let (incarnation, role, host_name) = (self.incarnation, self.role.clone(), self.host_name.clone());
        let (now, protocol) = (self.clock.now(), Some(PROTOCOL));
        self.send(&SyncEvent::Hello { incarnation, role, host_name, now, protocol });
    }

    fn send(&mut self, event: &SyncEvent) {
        match sse::encode(event) {
            Ok(text) => self.ready.push_back(text.into()),
            Err(error) => tracing::error!(%error, ?event, "an event cannot be encoded"),
        }
    }
}

/// The event of a run request. None if the release that it names is not registered any more.
fn requested_run(fleet: &Fleet, node: &NodeName, request: &RunRequest) -> Option<RequestedRun> {
    let RunRequest { id, noop, options, by, .. } = request.clone();
    let release = match &options.version {
        None => None,
        Some(version) => Some(Box::new(DesiredState::for_preview(fleet, node, version)?)),
    };
    Some(RequestedRun { id, noop, by, options, release })
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use muster_core::names::{EnvName, NodeName};
    use muster_core::node::status::Activity;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::agents::admission::Admission;
    use crate::agents::{Hub, JoinRequest};

    /// Events of an agent that answers the first `answers` pings, until its stream ends or nearly five minutes are over.
    async fn events_of(answers: usize) -> (Vec<String>, bool) {
        let hub = Arc::new(Hub::new(Clock::system(), CancellationToken::new(), &View::default()));
        let (env, node) = (EnvName::new("test").unwrap(), NodeName::new("web1").unwrap());
        let connected = hub.join(&env, &node, JoinRequest::default()).unwrap();
        let role = Role::new("web").unwrap();
        let permit = Admission::default().enter().await.unwrap();
        let (pause, asked) = (None, None);
        let init = StreamInit {
            incarnation: 1,
            role,
            host_name: None,
            generation: None,
            has_snapshot: true,
            snapshot: None,
            pause,
            asked,
            trust: 0,
            identity: None,
            permit,
        };
        let view = Arc::new(View::default());
        let mut events = Box::pin(SyncEvents::new(view, connected, init, Clock::system()).into_body());
        let (mut names, mut pings) = (Vec::new(), 0);
        let listening = async {
            while let Some(Ok(event)) = events.next().await {
                let text = String::from_utf8(event.to_vec()).unwrap();
                names.push(text.lines().next().unwrap_or_default().trim_start_matches("event: ").to_owned());
                pings += usize::from(text.starts_with("event: ping"));
                if text.starts_with("event: ping") && pings <= answers {
                    hub.set_activity(&env, &node, Activity::Idle);
                }
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(295), listening).await.is_ok();
        drop(events);
        assert_eq!(hub.connected(), 0);
        (names, ended)
    }

    #[tokio::test(start_paused = true)]
    async fn unanswered_pings_end_the_stream() {
        assert_eq!(events_of(0).await, (vec!["hello".to_owned(), "ping".to_owned(), "ping".to_owned()], true));
    }

    #[tokio::test(start_paused = true)]
    async fn answered_pings_keep_the_stream() {
        let (names, ended) = events_of(1000).await;
        assert!(!ended);
        assert_eq!(names.iter().filter(|name| *name == "ping").count(), 29);
    }
}
