//! The stream from the server: opened, read, opened again for ever. What it says goes to the queue.

use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use muster_core::node::status::Activity;
use muster_wire::client::ClientError;
use muster_wire::problem::{Problem, ProblemCode};
use muster_wire::sync::SyncEvent;

use crate::activity::is_busy;
use crate::backoff;
use crate::node::Node;
use crate::opening::Opening;
use crate::queue::input::Input;
use crate::queue::task::Message;
use crate::release::trust::Trust;
use crate::renewal::Asked;
use crate::route::Route;
use crate::servers::Servers;

/// The server pings this often.
pub const PING: Duration = Duration::from_secs(10);
/// An agent that was sent elsewhere stays there at least this long, whatever the servers think of it.
const STAY: Duration = Duration::from_secs(60);
/// How many seconds a busy server is left alone that does not say how long, and at most.
const COME_BACK: u16 = 2;
const LONGEST_BUSY: u16 = 60;

/// What the task works with.
#[derive(Debug)]
pub struct Sync {
    pub node: Arc<Node>,
    pub servers: Servers,
    pub opening: watch::Receiver<Opening>,
    pub activity: watch::Receiver<Activity>,
    pub queue: mpsc::Sender<Message>,
    /// Tells the server again what the agent does.
    pub tell_activity: Arc<Notify>,
    /// Another incarnation is asked for, and a new stream for it.
    pub renewal: Asked,
    /// Whose releases the node runs.
    pub trust: Arc<Trust>,
    pub bounds: Bounds,
    pub cancel: CancellationToken,
}

/// How long a server may take before another is tried.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// To answer when a stream is opened. One that is frozen takes the connection and never answers.
    pub open: Duration,
    /// To say anything at all on an open stream.
    pub silence: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        // A server to which a whole fleet comes at once still answers in a second or two. After two pings that did not
        // come the connection is dead, whatever TCP believes.
        Self { open: Duration::from_secs(10), silence: Duration::from_secs(25) }
    }
}

/// Why a stream came to its end.
#[derive(Debug)]
enum StreamEnd {
    /// The queue is gone: the agent is to end.
    Over,
    Lost(String),
    Refused(String),
    /// Another incarnation is asked for.
    Renewed,
    /// The server has more agents than its share.
    SentElsewhere,
    /// More agents come at once than the server lets in: it says when to come back.
    Busy(Duration),
}

/// Where the agent goes when a stream ends.
#[derive(Debug)]
struct Way {
    route: Route,
    sent_elsewhere: Option<Instant>,
}

impl Sync {
    /// Works until the agent is to end.
    pub async fn run(mut self) {
        let cancel = self.cancel.clone();
        tokio::select! {
            () = cancel.cancelled() => {}
            () = self.work() => {}
        }
    }

    async fn work(&mut self) {
        let mut way = Way { route: Route::new(self.servers.count()), sent_elsewhere: None };
        loop {
            self.servers.take(way.route.current());
            let end = self.stream(&mut way).await;
            let is_first = way.route.failed() == 0;
            let server = self.servers.current().base();
            match end {
                StreamEnd::Over => return,
                StreamEnd::Renewed => continue,
                StreamEnd::SentElsewhere => {
                    tracing::info!(server, "the server has more than its share of agents; going to another");
                    way.sent_elsewhere = Some(Instant::now());
                    way.route.leave();
                    continue;
                }
                StreamEnd::Busy(after) => {
                    // Between once and twice what it says: whoever was sent away together does not come back together.
                    let pause = after.mul_f64(1.0 + backoff::chance());
                    tracing::debug!(server, ?pause, "the server is busy; coming back");
                    tokio::time::sleep(pause).await;
                    continue;
                }
                StreamEnd::Lost(why) if is_first => {
                    tracing::warn!(server, why, "no connection; the node keeps its state");
                }
                StreamEnd::Refused(why) if is_first => {
                    tracing::error!(server, why, "the server refuses this node; trying again");
                }
                StreamEnd::Lost(why) | StreamEnd::Refused(why) => tracing::debug!(server, why, "no connection"),
            }
            tokio::time::sleep(way.route.lost(backoff::chance())).await;
        }
    }

    /// One stream, from its opening to its end.
    async fn stream(&mut self, way: &mut Way) -> StreamEnd {
        let activity = self.activity.borrow().clone();
        let mut open = self.opening.borrow().clone().with(activity, self.node.boot.clone(), self.servers.is_away());
        open.trust = self.trust.serial();
        let renewed = self.renewal.now();
        if renewed {
            open.incarnation = None;
        }
        let client = self.servers.current().clone();
        let opened = timeout(self.bounds.open, client.sync(&self.node.env, &self.node.name, &open)).await;
        let mut stream = match opened {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return failed(&error),
            Err(_) => return StreamEnd::Lost("the server does not answer".into()),
        };
        let mut doubts = self.servers.doubts();
        let (mut greeted, mut heard) = (false, Instant::now());
        loop {
            let event = tokio::select! {
                event = timeout_at(heard + self.bounds.silence, stream.next()) => event,
                () = self.renewal.anew() => return StreamEnd::Renewed,
                () = unanswered_since(&mut doubts, heard) => {
                    return StreamEnd::Lost("it left a report without an answer, and is silent".into());
                }
            };
            heard = Instant::now();
            let event = match event {
                Ok(Ok(Some(event))) => event,
                Ok(Ok(None)) => return StreamEnd::Lost("the server has ended the stream".into()),
                Ok(Err(error)) => return failed(&error),
                Err(_) => {
                    let silence = self.bounds.silence.as_secs_f32();
                    return StreamEnd::Lost(format!("nothing was heard for {silence} s"));
                }
            };
            let input = match event {
                SyncEvent::Hello { incarnation, role, now } => {
                    if !greeted {
                        tracing::info!(server = client.base(), "connected");
                    }
                    greeted = true;
                    way.route.greeted();
                    if *self.activity.borrow() != open.activity {
                        self.tell_activity.notify_one();
                    }
                    Input::Hello { incarnation, role, now, renewed }
                }
                SyncEvent::Desired(desired) => Input::Desired(desired),
                SyncEvent::Snapshot { changed, snapshot } => {
                    tracing::debug!(?changed, revision = %snapshot.revision, "snapshot");
                    Input::Snapshot(Arc::new(snapshot))
                }
                SyncEvent::Run { id, noop, by } => Input::RunAsked { id, by, noop },
                SyncEvent::Pause { pause } => Input::Pause(pause),
                SyncEvent::Trust { trust } => {
                    if let Err(error) = self.trust.take(trust) {
                        tracing::error!(server = client.base(), error = chain(&error), "other keys are not trusted");
                    }
                    continue;
                }
                SyncEvent::Ping => {
                    // The server holds a connection for dead from which nothing comes back.
                    self.tell_activity.notify_one();
                    continue;
                }
                SyncEvent::Move if self.may_go(way) => return StreamEnd::SentElsewhere,
                SyncEvent::Move => continue,
            };
            if !self.hand_over(input.into()).await {
                return StreamEnd::Over;
            }
            // While the queue took nothing nobody listened: that is not the server's silence.
            heard = Instant::now();
        }
    }

    /// Whether the agent goes to another server when it is asked to: if it knows another, not in the middle of a run, and
    /// not over and over.
    fn may_go(&self, way: &Way) -> bool {
        let has_stayed = way.sent_elsewhere.is_none_or(|when| when.elapsed() >= STAY);
        self.servers.count() > 1 && has_stayed && !is_busy(&self.activity.borrow())
    }

    /// Gives a message to the queue; false if that is gone. The queue takes nothing while the disk does not take what it
    /// was told before. Then pings are not read either, and are answered all the same.
    async fn hand_over(&self, message: Message) -> bool {
        let mut sending = pin!(self.queue.send(message));
        loop {
            match timeout(PING, &mut sending).await {
                Ok(sent) => return sent.is_ok(),
                Err(_) => self.tell_activity.notify_one(),
            }
        }
    }
}

/// Waits until a question has gone without an answer that was asked after the server was last heard. A server that still
/// speaks is there: it is its store that makes it slow, and the other servers have the same.
async fn unanswered_since(doubts: &mut watch::Receiver<Option<Instant>>, heard: Instant) {
    if doubts.wait_for(|asked| asked.is_some_and(|asked| asked > heard)).await.is_err() {
        // Nobody is left to ask.
        std::future::pending::<()>().await;
    }
}

fn failed(error: &ClientError) -> StreamEnd {
    match error.problem() {
        Some(Problem { code: ProblemCode::Busy, retry_after_seconds, .. }) => {
            let seconds = retry_after_seconds.unwrap_or(COME_BACK).min(LONGEST_BUSY);
            StreamEnd::Busy(Duration::from_secs(seconds.into()))
        }
        Some(problem) => {
            let hint = match problem.code {
                ProblemCode::UnknownNode | ProblemCode::UnknownEnvironment => {
                    ": correct `node` and `env` in the agent's configuration, or add the node to the design"
                }
                ProblemCode::InvalidRequest
                | ProblemCode::UnknownVersion
                | ProblemCode::UnknownRole
                | ProblemCode::UnknownDatum
                | ProblemCode::UnknownRun
                | ProblemCode::UnknownDocument
                | ProblemCode::UnknownKind
                | ProblemCode::UnknownDesignRevision
                | ProblemCode::Destroying
                | ProblemCode::PlanOutdated
                | ProblemCode::UnknownRollout
                | ProblemCode::RolloutUnderWay
                | ProblemCode::RolloutRefused
                | ProblemCode::OlderRelease
                | ProblemCode::UntrustsCurrent
                | ProblemCode::RemovesAll
                | ProblemCode::NotAsExpected
                | ProblemCode::TooLarge
                | ProblemCode::DesignRefused
                | ProblemCode::DesignUnreadable
                | ProblemCode::UnknownBundle
                | ProblemCode::ReleaseRefused
                | ProblemCode::ReleaseTaken
                | ProblemCode::ReleaseUnreadable
                | ProblemCode::RangeNotSatisfiable
                | ProblemCode::Busy
                | ProblemCode::NotFound
                | ProblemCode::Conflict
                | ProblemCode::CannotTell
                | ProblemCode::StoreUnavailable
                | ProblemCode::StoreFull
                | ProblemCode::Internal => "",
            };
            StreamEnd::Refused(format!("{problem}{hint}"))
        }
        None => StreamEnd::Lost(chain(error)),
    }
}

/// An error with all that is behind it, in one line.
pub fn chain(error: &dyn Error) -> String {
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

    use crate::renewal::Renewal;
    use crate::testing::node;

    /// Takes the opening of a stream, greets, and says nothing more.
    async fn greet(listener: &TcpListener) -> TcpStream {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut asked = vec![0; 4096];
        let length = stream.read(&mut asked).await.unwrap();
        assert!(asked[..length].starts_with(b"POST /v1/envs/test/nodes/web1/sync "));
        let hello = "event: hello\ndata: {\"incarnation\":1,\"role\":\"web\",\"now\":\"2026-11-15T10:00:00Z\"}\n\n";
        let answer = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{hello}\r\n", hello.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream
    }

    fn url(listener: &TcpListener) -> String {
        format!("http://{}", listener.local_addr().unwrap())
    }

    fn servers(urls: &[String]) -> Servers {
        Servers::new(&EnvName::new("test").unwrap(), &NodeName::new("web1").unwrap(), urls).unwrap()
    }

    fn sync(servers: Servers, queue: mpsc::Sender<Message>, cancel: &CancellationToken) -> (tempfile::TempDir, Sync) {
        let (directory, node) = node("web1");
        let trust = Trust::load(node.layout.trust(), Vec::new()).unwrap();
        let sync = Sync {
            node: Arc::new(node),
            trust: Arc::new(trust),
            servers,
            opening: watch::channel(Opening::default()).1,
            activity: watch::channel(Activity::Idle).1,
            queue,
            tell_activity: Arc::default(),
            renewal: Renewal::new().1,
            bounds: Bounds { silence: Duration::from_millis(50), ..Bounds::default() },
            cancel: cancel.clone(),
        };
        (directory, sync)
    }

    #[test]
    fn a_busy_server_says_when_to_come_back() {
        let pause = |problem: Problem| match failed(&ClientError::Refused(Box::new(problem))) {
            StreamEnd::Busy(pause) => Some(pause.as_secs()),
            StreamEnd::Over
            | StreamEnd::Lost(_)
            | StreamEnd::Refused(_)
            | StreamEnd::Renewed
            | StreamEnd::SentElsewhere => None,
        };
        let busy = || Problem::new(ProblemCode::Busy, "too many");
        assert_eq!(pause(busy().retry_after(7)), Some(7));
        assert_eq!(pause(busy()), Some(u64::from(COME_BACK)), "one that does not say it");
        assert_eq!(pause(busy().retry_after(u16::MAX)), Some(u64::from(LONGEST_BUSY)), "nobody is sent away for a day");
        assert_eq!(pause(Problem::new(ProblemCode::CannotTell, "no")), None);
    }

    #[tokio::test]
    async fn a_stream_that_falls_silent_is_opened_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (queue, mut messages) = mpsc::channel(16);
        let cancel = CancellationToken::new();
        let (_directory, sync) = sync(servers(&[url(&listener)]), queue, &cancel);
        let mut tasks = JoinSet::new();
        tasks.spawn(sync.run());
        // Held open: as far as TCP knows, all is well.
        let _first = greet(&listener).await;
        let _second = greet(&listener).await;
        for _ in 0..2 {
            let heard = messages.recv().await.map(|message| message.input);
            assert!(matches!(heard, Some(Input::Hello { incarnation: 1, .. })));
        }
        cancel.cancel();
        while tasks.join_next().await.is_some() {}
    }

    /// Two servers in the order of `web1`, and what leads to them.
    async fn two() -> ([TcpListener; 2], Servers) {
        let (a, b) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let servers = servers(&[url(&a), url(&b)]);
        let is_first = servers.current().base() == url(&a);
        (if is_first { [a, b] } else { [b, a] }, servers)
    }

    #[tokio::test]
    async fn a_silent_server_that_leaves_a_report_unanswered_is_left_at_once() {
        let ([first, second], servers) = two().await;
        let (queue, mut messages) = mpsc::channel(16);
        let cancel = CancellationToken::new();
        let (_directory, mut sync) = sync(servers.clone(), queue, &cancel);
        sync.bounds.silence = Duration::from_secs(3600);
        let before = Instant::now();
        let mut tasks = JoinSet::new();
        tasks.spawn(sync.run());
        let _frozen = greet(&first).await;
        messages.recv().await.unwrap();

        // It was heard after this was asked, so it lives.
        servers.doubt(before);
        servers.doubt(Instant::now());
        let _alive = greet(&second).await;
        messages.recv().await.unwrap();
        assert_eq!(servers.current().base(), url(&second));
        assert!(servers.is_away());
        cancel.cancel();
        while tasks.join_next().await.is_some() {}
    }

    #[tokio::test]
    async fn a_frozen_server_is_not_waited_for_when_a_stream_is_opened() {
        let ([_frozen, second], servers) = two().await;
        let (queue, mut messages) = mpsc::channel(16);
        let cancel = CancellationToken::new();
        let (_directory, mut sync) = sync(servers, queue, &cancel);
        // The connection is made, as the kernel does that, and nobody reads what comes.
        sync.bounds.open = Duration::from_millis(50);
        let mut tasks = JoinSet::new();
        tasks.spawn(sync.run());
        let _alive = greet(&second).await;
        messages.recv().await.unwrap();
        cancel.cancel();
        while tasks.join_next().await.is_some() {}
    }

    #[tokio::test]
    async fn whoever_is_sent_elsewhere_goes_if_it_can_and_then_stays() {
        let ([_first, _second], several) = two().await;
        let one = servers(&["http://127.0.0.1:1".into()]);
        let now = Instant::now();
        let (run, version) = (RunId::new("r1").unwrap(), Version::new("v1").unwrap());
        let applying = Activity::Applying { run, version, since: jiff::Timestamp::UNIX_EPOCH };
        for (servers, activity, sent, goes) in [
            (&several, Activity::Idle, None, true),
            (&several, Activity::Idle, now.checked_sub(STAY), true),
            (&several, Activity::Idle, Some(now), false),
            (&several, applying, None, false),
            (&one, Activity::Idle, None, false),
        ] {
            let (_directory, mut sync) = sync(servers.clone(), mpsc::channel(1).0, &CancellationToken::new());
            sync.activity = watch::channel(activity.clone()).1;
            let way = Way { route: Route::new(servers.count()), sent_elsewhere: sent };
            assert_eq!(sync.may_go(&way), goes, "{activity:?} {sent:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_queue_takes_nothing_the_server_hears_that_the_agent_is_there() {
        let (queue, mut messages) = mpsc::channel(1);
        queue.send(Input::Interrupted.into()).await.unwrap();
        let (_directory, sync) = sync(servers(&["http://127.0.0.1:1".into()]), queue, &CancellationToken::new());
        let told = Arc::clone(&sync.tell_activity);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { sync.hand_over(Input::Interrupted.into()).await });
        let begun = Instant::now();
        for _ in 0..3 {
            told.notified().await;
        }
        assert_eq!(begun.elapsed().as_secs(), 3 * PING.as_secs());
        messages.recv().await.unwrap();
        assert!(tasks.join_next().await.unwrap().unwrap(), "it is handed over as soon as there is room");
        messages.recv().await.unwrap();
    }
}
