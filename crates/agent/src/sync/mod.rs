//! Sync task: holds one stream to a server, passes its events to the queue, and fails over to another server.

pub mod failover;
pub mod handshake;
pub mod servers;

use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use muster_core::node::status::Activity;
use muster_core::release::manifest::PublicKey;
use muster_wire::client::ClientError;
use muster_wire::problem::{Problem, ProblemCode};
use muster_wire::sync::SyncEvent;

use crate::backoff::{self, RetryBackoff};
use crate::config::AgentNode;
use crate::identity;
use crate::queue::io::Input;
use crate::queue::task::QueueMessage;
use crate::release::trust::TrustStore;
use crate::report::activity::{StreamReplies, is_busy};
use crate::sync::failover::Failover;
use crate::sync::handshake::{RenewalRequests, SyncState, incompatible, introduce};
use crate::sync::servers::ServerClients;

/// Interval of the server's pings.
pub const PING: Duration = Duration::from_secs(10);
/// Longest time until an agent whose certificate may be refused requests another one.
const CERTIFICATE_DOUBT: Duration = Duration::from_secs(10);
/// Least time between two such requests.
const DOUBT_INTERVAL: Duration = Duration::from_secs(60);
/// Minimum time between two moves that servers request to balance their load.
const MOVE_INTERVAL: Duration = Duration::from_secs(60);
/// Retry-after of a busy server that gives none, and the longest accepted one, in seconds.
const DEFAULT_RETRY_AFTER: u16 = 2;
const MAX_RETRY_AFTER: u16 = 60;
/// Pause of an agent that is refused because another one with its name is connected. After a reboot the connection of the
/// earlier boot may count as alive for some seconds.
const DUPLICATE_RETRY: RetryBackoff = RetryBackoff { first: Duration::from_secs(2), cap: Duration::from_secs(15) };
/// An agent that stays refused logs it again after this many attempts, about every ten minutes.
const DUPLICATE_LOG: u32 = 40;

/// The sync task.
#[derive(Debug)]
pub struct Sync {
    pub node: Arc<AgentNode>,
    pub servers: ServerClients,
    pub sync_state: watch::Receiver<SyncState>,
    pub activity: watch::Receiver<Activity>,
    pub queue: mpsc::Sender<QueueMessage>,
    /// Makes the activity sender send the activity again.
    pub activity_requests: Arc<Notify>,
    /// The stream's direction to the server, for the activity sender.
    pub replies: StreamReplies,
    /// Requests for a new incarnation, each of which needs a new stream.
    pub renewal: RenewalRequests,
    /// Trusted keys, which the server may update.
    pub trust: Arc<TrustStore>,
    pub timeouts: SyncTimeouts,
    pub cancel: CancellationToken,
}

/// Timeouts after which another server is tried.
#[derive(Clone, Copy, Debug)]
pub struct SyncTimeouts {
    /// Opening a stream. A frozen server accepts the connection and never answers.
    pub open: Duration,
    /// Silence on an open stream.
    pub silence: Duration,
}

impl Default for SyncTimeouts {
    fn default() -> Self {
        // A server that a whole fleet connects to at once answers in a second or two. After two missed pings the
        // connection is dead, even if TCP has not noticed.
        Self { open: Duration::from_secs(10), silence: Duration::from_secs(25) }
    }
}

/// Reason that a stream ended.
#[derive(Debug)]
enum StreamEnd {
    /// The queue is gone: the agent shuts down.
    ShuttingDown,
    Lost(String),
    Refused(String),
    /// A new incarnation is requested.
    RenewIncarnation,
    /// The server has more agents than its share and asks this one to move.
    MoveRequested,
    /// The server admits no more streams now and gives a time to retry after.
    Busy(Duration),
    /// Another agent with the name of this node is connected.
    Duplicate(String),
}

/// Choice of the server for the next stream.
#[derive(Debug)]
struct StreamRoute {
    failover: Failover,
    last_move: Option<Instant>,
    /// Refusals in a row because another agent with the name of this node is connected.
    duplicates: u32,
    /// The refusal that was logged since the last connection. Another server may be unreachable at the same time.
    refusal: Option<String>,
    /// Time at which the agent last requested a certificate because its own may be refused.
    doubted: Option<Instant>,
}

impl Sync {
    /// Runs until the agent shuts down.
    pub async fn run(mut self) {
        let cancel = self.cancel.clone();
        tokio::select! {
            () = cancel.cancelled() => {}
            () = self.hold_streams() => {}
        }
    }

    async fn hold_streams(&mut self) {
        let mut route = StreamRoute {
            failover: Failover::new(self.servers.count()),
            last_move: None,
            duplicates: 0,
            refusal: None,
            doubted: None,
        };
        loop {
            self.servers.select(route.failover.current());
            let end = self.stream(&mut route).await;
            *self.replies.lock().await = None;
            let is_first = route.failover.failed() == 0;
            let server = self.servers.current();
            let server = server.base();
            match end {
                StreamEnd::ShuttingDown => return,
                StreamEnd::RenewIncarnation => continue,
                StreamEnd::MoveRequested => {
                    tracing::info!(server, "the server has more than its share of agents; moving to another");
                    route.last_move = Some(Instant::now());
                    route.failover.leave();
                    continue;
                }
                StreamEnd::Busy(after) => {
                    // Between once and twice the given time, so that agents which were rejected together spread out.
                    let pause = after.mul_f64(1.0 + backoff::chance());
                    tracing::debug!(server, ?pause, "the server is busy; retrying");
                    tokio::time::sleep(pause).await;
                    continue;
                }
                StreamEnd::Duplicate(why) => {
                    if route.duplicates.is_multiple_of(DUPLICATE_LOG) {
                        tracing::error!(server, why, "the server refuses this agent; it makes no runs, and retries");
                    }
                    route.duplicates += 1;
                    if !self.pass_to_queue(Input::Duplicate.into()).await {
                        return;
                    }
                    tokio::time::sleep(DUPLICATE_RETRY.pause(route.duplicates, backoff::chance())).await;
                    continue;
                }
                StreamEnd::Lost(why) if is_first => {
                    self.doubt_certificate(&why, &mut route);
                    tracing::warn!(server, why, "no connection to a server; the node keeps its state");
                }
                StreamEnd::Refused(why) if route.refusal.as_ref() != Some(&why) => {
                    tracing::error!(server, why, "the server refuses this node; retrying");
                    route.refusal = Some(why);
                }
                StreamEnd::Lost(why) | StreamEnd::Refused(why) => {
                    self.doubt_certificate(&why, &mut route);
                    tracing::debug!(server, why, "no connection");
                }
            }
            tokio::time::sleep(route.failover.lost(backoff::chance())).await;
        }
    }

    /// Opens one stream and reads it to its end.
    async fn stream(&mut self, route: &mut StreamRoute) -> StreamEnd {
        let activity = self.activity.borrow().clone();
        let mut open =
            self.sync_state.borrow().clone().open_message(activity, self.node.boot.clone(), self.servers.is_away());
        open.trust = self.trust.serial();
        open.trusted = self.trust.keys().iter().map(PublicKey::id).collect();
        open.holder.clone_from(&self.node.holder);
        let mut open = introduce(open, self.node.every);
        let renewed = self.renewal.is_requested();
        if renewed {
            open.incarnation = None;
        }
        let client = self.servers.current();
        let opened = timeout(self.timeouts.open, client.sync(&self.node.env, &self.node.name, &open)).await;
        let mut stream = match opened {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return failed(&error),
            Err(_) => return StreamEnd::Lost("the server does not answer".into()),
        };
        *self.replies.lock().await = stream.take_replies();
        let mut unanswered = self.servers.unanswered();
        let (mut connected, mut last_event) = (false, Instant::now());
        loop {
            let event = tokio::select! {
                event = timeout_at(last_event + self.timeouts.silence, stream.next()) => event,
                () = self.renewal.next_request() => return StreamEnd::RenewIncarnation,
                () = report_unanswered_since(&mut unanswered, last_event) => {
                    return StreamEnd::Lost("the server did not answer a report, and the stream is silent".into());
                }
            };
            last_event = Instant::now();
            let event = match event {
                Ok(Ok(Some(event))) => event,
                Ok(Ok(None)) => return StreamEnd::Lost("the server closed the stream".into()),
                Ok(Err(error)) => return failed(&error),
                Err(_) => {
                    let silence = self.timeouts.silence.as_secs_f32();
                    return StreamEnd::Lost(format!("no event for {silence} s"));
                }
            };
            let input = match event {
                SyncEvent::Hello { incarnation, role, host_name, now, protocol } => {
                    if let Some(protocols) = incompatible(protocol) {
                        return StreamEnd::Refused(format!("{protocols}: {}", protocols.hint()));
                    }
                    let renewed = renewed && !connected;
                    if !connected {
                        tracing::info!(server = client.base(), "connected");
                    }
                    connected = true;
                    route.failover.connected();
                    (route.duplicates, route.refusal) = (0, None);
                    if *self.activity.borrow() != open.activity {
                        self.activity_requests.notify_one();
                    }
                    Input::Hello { incarnation, role, host_name, now, renewed }
                }
                SyncEvent::Desired(desired) => Input::Desired(desired),
                SyncEvent::Snapshot { changed, snapshot } => {
                    tracing::debug!(?changed, revision = %snapshot.revision, "snapshot");
                    Input::Snapshot(Arc::new(snapshot))
                }
                SyncEvent::Run(request) => Input::RunRequested(request),
                SyncEvent::Pause { pause } => Input::Pause(pause),
                SyncEvent::Trust { trust } => {
                    if let Err(error) = self.trust.update(trust) {
                        tracing::error!(
                            server = client.base(),
                            error = error_chain(&error),
                            "refused a list of trusted keys"
                        );
                    }
                    continue;
                }
                SyncEvent::Identity { roots, servers, renew_within_ms } => {
                    self.learn(&roots, &servers, renew_within_ms, route);
                    continue;
                }
                SyncEvent::Ping => {
                    // The server closes a connection that sends nothing back.
                    self.activity_requests.notify_one();
                    continue;
                }
                SyncEvent::Move if self.may_move(route) => return StreamEnd::MoveRequested,
                SyncEvent::Move => continue,
            };
            if !self.pass_to_queue(input.into()).await {
                return StreamEnd::ShuttingDown;
            }
            // The time that the queue took is no silence of the server.
            last_event = Instant::now();
        }
    }

    /// Stores the roots and the servers, and renews the certificate if the server requests it.
    fn learn(&self, roots: &str, servers: &[String], renew_within_ms: Option<u32>, route: &mut StreamRoute) {
        let Some(identity) = self.servers.identity() else { return };
        if let Err(error) = identity.replace_roots(roots) {
            tracing::error!(error = error_chain(&error), "the root certificates of the servers cannot be stored");
            return;
        }
        match self.servers.learn(servers) {
            Ok(None) => {}
            Ok(Some(place)) => route.failover = Failover::connected_at(self.servers.count(), place),
            Err(error) => {
                tracing::warn!(error = error_chain(&error), "the list of servers cannot be stored");
            }
        }
        if let Some(within) = renew_within_ms {
            identity.request_renewal(Duration::from_millis(within.into()).mul_f64(backoff::chance()));
        }
    }

    /// Requests a renewal when the servers may refuse this certificate: it has ended, or they do not trust its authority any more.
    /// Either can be renewed.
    fn doubt_certificate(&self, why: &str, route: &mut StreamRoute) {
        let is_refused = why.contains("certificate") || why.contains("alert");
        let is_recent = route.doubted.is_some_and(|when| when.elapsed() < DOUBT_INTERVAL);
        if let Some(identity) = self.servers.identity().filter(|_| is_refused && !is_recent) {
            route.doubted = Some(Instant::now());
            identity.request_renewal(CERTIFICATE_DOUBT.mul_f64(backoff::chance()));
        }
    }

    /// True if the agent moves to another server on request: it knows another one, no run is in progress, and the last
    /// move was long enough ago.
    fn may_move(&self, route: &StreamRoute) -> bool {
        let interval_is_over = route.last_move.is_none_or(|when| when.elapsed() >= MOVE_INTERVAL);
        self.servers.count() > 1 && interval_is_over && !is_busy(&self.activity.borrow())
    }

    /// Sends a message to the queue; false if the queue is gone. While a full disk blocks the queue, pings are not read. The
    /// agent then sends its activity at the same interval, so that the server keeps the connection.
    async fn pass_to_queue(&self, message: QueueMessage) -> bool {
        let mut sending = pin!(self.queue.send(message));
        loop {
            match timeout(PING, &mut sending).await {
                Ok(sent) => return sent.is_ok(),
                Err(_) => self.activity_requests.notify_one(),
            }
        }
    }
}

/// Waits for a request without an answer that was sent after the last event of the stream. A server that still sends
/// events is alive: its store is slow, and the other servers use the same store.
async fn report_unanswered_since(unanswered: &mut watch::Receiver<Option<Instant>>, last_event: Instant) {
    if unanswered.wait_for(|sent| sent.is_some_and(|sent| sent > last_event)).await.is_err() {
        // All senders are gone.
        std::future::pending::<()>().await;
    }
}

fn failed(error: &ClientError) -> StreamEnd {
    match error.problem() {
        Some(Problem { code: ProblemCode::Busy, retry_after_seconds, .. }) => {
            let seconds = retry_after_seconds.unwrap_or(DEFAULT_RETRY_AFTER).min(MAX_RETRY_AFTER);
            StreamEnd::Busy(Duration::from_secs(seconds.into()))
        }
        Some(problem) if problem.code == ProblemCode::DuplicateAgent => StreamEnd::Duplicate(problem.to_string()),
        Some(problem) => {
            let is_unknown = matches!(problem.code, ProblemCode::UnknownNode | ProblemCode::UnknownEnvironment);
            let hint = if is_unknown {
                ": correct `node` and `env` in the agent's configuration, or add the node to the design"
            } else if problem.code == ProblemCode::Unauthenticated {
                ": set `token_file` in the agent's configuration to a copy of the server's token file"
            } else {
                ""
            };
            StreamEnd::Refused(format!("{problem}{hint}"))
        }
        None => {
            let why = error_chain(error);
            let hint = identity::unknown_issuer_hint(&why);
            StreamEnd::Lost(why + hint)
        }
    }
}

/// An error and its sources in one line.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut inner = error.source();
    while let Some(source) = inner {
        text.push_str(": ");
        text.push_str(&source.to_string());
        inner = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::JoinSet;

    use muster_core::names::{EnvName, NodeName, RunId, Version};

    use crate::sync::handshake::IncarnationRenewal;
    use crate::testing::node;
    use muster_wire::client::Credentials;

    /// Accepts a stream, sends hello, and nothing more.
    async fn accept_with_hello(listener: &TcpListener) -> TcpStream {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 4096];
        let length = stream.read(&mut request).await.unwrap();
        assert!(request[..length].starts_with(b"POST /v1/envs/test/nodes/web1/sync "));
        let hello = "event: hello\ndata: {\"incarnation\":1,\"role\":\"web\",\"now\":\"2026-11-15T10:00:00Z\"}\n\n";
        let answer = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{hello}\r\n", hello.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream
    }

    fn url(listener: &TcpListener) -> String {
        format!("http://{}", listener.local_addr().unwrap())
    }

    fn servers(urls: &[String]) -> ServerClients {
        ServerClients::new(
            &EnvName::new("test").unwrap(),
            &NodeName::new("web1").unwrap(),
            urls,
            &Credentials::default(),
        )
        .unwrap()
    }

    fn sync(
        servers: ServerClients,
        queue: mpsc::Sender<QueueMessage>,
        cancel: &CancellationToken,
    ) -> (tempfile::TempDir, Sync) {
        let (directory, node) = node("web1");
        let trust = TrustStore::load(node.layout.trust(), Vec::new()).unwrap();
        let sync = Sync {
            node: Arc::new(node),
            trust: Arc::new(trust),
            servers,
            sync_state: watch::channel(SyncState::default()).1,
            activity: watch::channel(Activity::Idle).1,
            queue,
            activity_requests: Arc::default(),
            replies: Arc::default(),
            renewal: IncarnationRenewal::new().1,
            timeouts: SyncTimeouts { silence: Duration::from_millis(50), ..SyncTimeouts::default() },
            cancel: cancel.clone(),
        };
        (directory, sync)
    }

    #[test]
    fn busy_server_sets_the_time_to_retry() {
        let pause = |problem: Problem| match failed(&ClientError::Refused(Box::new(problem))) {
            StreamEnd::Busy(pause) => Some(pause.as_secs()),
            StreamEnd::ShuttingDown
            | StreamEnd::Lost(_)
            | StreamEnd::Refused(_)
            | StreamEnd::Duplicate(_)
            | StreamEnd::RenewIncarnation
            | StreamEnd::MoveRequested => None,
        };
        let busy = || Problem::new(ProblemCode::Busy, "too many");
        assert_eq!(pause(busy().retry_after(7)), Some(7));
        assert_eq!(pause(busy()), Some(u64::from(DEFAULT_RETRY_AFTER)), "without a time");
        assert_eq!(pause(busy().retry_after(u16::MAX)), Some(u64::from(MAX_RETRY_AFTER)), "limited");
        assert_eq!(pause(Problem::new(ProblemCode::CannotTell, "no")), None);
    }

    #[tokio::test]
    async fn silent_stream_is_opened_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (queue, mut messages) = mpsc::channel(16);
        let cancel = CancellationToken::new();
        let (_directory, sync) = sync(servers(&[url(&listener)]), queue, &cancel);
        let mut tasks = JoinSet::new();
        tasks.spawn(sync.run());
        // Held open: TCP reports no error.
        let _first = accept_with_hello(&listener).await;
        let _second = accept_with_hello(&listener).await;
        for _ in 0..2 {
            let last_event = messages.recv().await.map(|message| message.input);
            assert!(matches!(last_event, Some(Input::Hello { incarnation: 1, .. })));
        }
        cancel.cancel();
        while tasks.join_next().await.is_some() {}
    }

    /// Two servers in the order of `web1`.
    async fn two() -> ([TcpListener; 2], ServerClients) {
        let (a, b) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let servers = servers(&[url(&a), url(&b)]);
        let is_first = servers.current().base() == url(&a);
        (if is_first { [a, b] } else { [b, a] }, servers)
    }

    #[tokio::test]
    async fn silent_server_with_an_unanswered_report_is_left_at_once() {
        let ([first, second], servers) = two().await;
        let (queue, mut messages) = mpsc::channel(16);
        let cancel = CancellationToken::new();
        let (_directory, mut sync) = sync(servers.clone(), queue, &cancel);
        sync.timeouts.silence = Duration::from_secs(3600);
        let before = Instant::now();
        let mut tasks = JoinSet::new();
        tasks.spawn(sync.run());
        let _frozen = accept_with_hello(&first).await;
        messages.recv().await.unwrap();

        // The server sent an event after this request, so it is alive.
        servers.report_unanswered(before);
        servers.report_unanswered(Instant::now());
        let _alive = accept_with_hello(&second).await;
        messages.recv().await.unwrap();
        assert_eq!(servers.current().base(), url(&second));
        assert!(servers.is_away());
        cancel.cancel();
        while tasks.join_next().await.is_some() {}
    }

    #[tokio::test]
    async fn frozen_server_times_out_when_a_stream_is_opened() {
        let ([_frozen, second], servers) = two().await;
        let (queue, mut messages) = mpsc::channel(16);
        let cancel = CancellationToken::new();
        let (_directory, mut sync) = sync(servers, queue, &cancel);
        // The kernel accepts the connection, and no server reads from it.
        sync.timeouts.open = Duration::from_millis(50);
        let mut tasks = JoinSet::new();
        tasks.spawn(sync.run());
        let _alive = accept_with_hello(&second).await;
        messages.recv().await.unwrap();
        cancel.cancel();
        while tasks.join_next().await.is_some() {}
    }

    #[tokio::test]
    async fn agent_moves_on_request_unless_busy_or_moved_recently() {
        let ([_first, _second], several) = two().await;
        let one = servers(&["http://127.0.0.1:1".into()]);
        let now = Instant::now();
        let (run, version) = (RunId::new("r1").unwrap(), Version::new("v1").unwrap());
        let applying = Activity::Applying { run, version, since: jiff::Timestamp::UNIX_EPOCH };
        for (servers, activity, sent, moves) in [
            (&several, Activity::Idle, None, true),
            (&several, Activity::Idle, now.checked_sub(MOVE_INTERVAL), true),
            (&several, Activity::Idle, Some(now), false),
            (&several, applying, None, false),
            (&one, Activity::Idle, None, false),
        ] {
            let (_directory, mut sync) = sync(servers.clone(), mpsc::channel(1).0, &CancellationToken::new());
            sync.activity = watch::channel(activity.clone()).1;
            let route = StreamRoute {
                failover: Failover::new(servers.count()),
                last_move: sent,
                duplicates: 0,
                refusal: None,
                doubted: None,
            };
            assert_eq!(sync.may_move(&route), moves, "{activity:?} {sent:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn blocked_queue_keeps_the_connection_alive() {
        let (queue, mut messages) = mpsc::channel(1);
        queue.send(Input::Interrupted.into()).await.unwrap();
        let (_directory, sync) = sync(servers(&["http://127.0.0.1:1".into()]), queue, &CancellationToken::new());
        let requested = Arc::clone(&sync.activity_requests);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { sync.pass_to_queue(Input::Interrupted.into()).await });
        let begun = Instant::now();
        for _ in 0..3 {
            requested.notified().await;
        }
        assert_eq!(begun.elapsed().as_secs(), 3 * PING.as_secs());
        messages.recv().await.unwrap();
        assert!(tasks.join_next().await.unwrap().unwrap(), "it is passed on as soon as there is room");
        messages.recv().await.unwrap();
    }
}
