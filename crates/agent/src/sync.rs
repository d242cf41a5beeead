//! The stream from the server: opened, read, opened again for ever. What it says goes to the queue.

use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use muster_core::standing::Activity;
use muster_wire::client::ClientError;
use muster_wire::problem::Code;
use muster_wire::sync::SyncEvent;

use crate::backoff::{self, Backoff};
use crate::node::Node;
use crate::opening::Opening;
use crate::queue::task::Message;
use crate::renewal::Asked;
use crate::servers::Servers;

/// A server that was restarted is back in a second or two; one that is away for long is asked now and then.
const RECONNECT: Backoff = Backoff { first: Duration::from_millis(100), cap: Duration::from_secs(5) };
/// The server pings this often.
const PING: Duration = Duration::from_secs(10);
/// After two pings that did not come the connection is dead, whatever TCP believes.
pub const SILENCE: Duration = Duration::from_secs(25);

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
    /// For how long a stream may say nothing at all.
    pub silence: Duration,
    pub cancel: CancellationToken,
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
        let mut attempt = 0;
        loop {
            let mut greeted = false;
            let end = self.stream(&mut greeted).await;
            // A stream that worked was no failed attempt: the first try to get it back is quick.
            attempt = if greeted { 1 } else { attempt + 1 };
            match end {
                StreamEnd::Over => return,
                StreamEnd::Renewed => continue,
                StreamEnd::Lost(why) if attempt == 1 => {
                    tracing::warn!(
                        server = self.servers.current().base(),
                        why,
                        "no connection; the node keeps its state"
                    );
                }
                StreamEnd::Refused(why) if attempt == 1 => {
                    tracing::error!(
                        server = self.servers.current().base(),
                        why,
                        "the server refuses this node; trying again"
                    );
                }
                StreamEnd::Lost(why) | StreamEnd::Refused(why) => tracing::debug!(attempt, why, "no connection"),
            }
            self.servers.next();
            tokio::time::sleep(RECONNECT.pause(attempt, backoff::chance())).await;
        }
    }

    /// One stream, from its opening to its end.
    async fn stream(&mut self, greeted: &mut bool) -> StreamEnd {
        let activity = self.activity.borrow().clone();
        let mut open = self.opening.borrow().clone().with(activity, self.node.boot.clone());
        let renewed = self.renewal.now();
        if renewed {
            open.incarnation = None;
        }
        let client = self.servers.current().clone();
        let opened = timeout(self.silence, client.sync(&self.node.env, &self.node.name, &open)).await;
        let mut stream = match opened {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return failed(&error),
            Err(_) => return StreamEnd::Lost("the server does not answer".into()),
        };
        loop {
            let event = tokio::select! {
                event = timeout(self.silence, stream.next()) => event,
                () = self.renewal.anew() => return StreamEnd::Renewed,
            };
            let event = match event {
                Ok(Ok(Some(event))) => event,
                Ok(Ok(None)) => return StreamEnd::Lost("the server has ended the stream".into()),
                Ok(Err(error)) => return failed(&error),
                Err(_) => return StreamEnd::Lost(format!("nothing was heard for {} s", self.silence.as_secs_f32())),
            };
            let message = match event {
                SyncEvent::Hello { incarnation, role } => {
                    if !*greeted {
                        tracing::info!(server = client.base(), "connected");
                    }
                    *greeted = true;
                    if *self.activity.borrow() != open.activity {
                        self.tell_activity.notify_one();
                    }
                    Message::Hello { incarnation, role, renewed }
                }
                SyncEvent::Desired(desired) => Message::Desired(desired),
                SyncEvent::Snapshot { changed, snapshot } => {
                    tracing::debug!(?changed, revision = %snapshot.revision, "snapshot");
                    Message::Snapshot(Box::new(snapshot))
                }
                SyncEvent::Run { id } => Message::RunAsked { id },
                SyncEvent::Ping => {
                    // The server holds a connection for dead from which nothing comes back.
                    self.tell_activity.notify_one();
                    continue;
                }
            };
            if !self.hand_over(message).await {
                return StreamEnd::Over;
            }
        }
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

fn failed(error: &ClientError) -> StreamEnd {
    match error.problem() {
        Some(problem) => {
            let hint = match problem.code {
                Code::UnknownNode | Code::UnknownEnvironment => {
                    ": correct `node` and `env` in the agent's configuration, or add the node to the design"
                }
                Code::InvalidRequest
                | Code::UnknownVersion
                | Code::UnknownRun
                | Code::NotFound
                | Code::Conflict
                | Code::CannotTell
                | Code::StoreUnavailable
                | Code::StoreFull
                | Code::Internal => "",
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
    use tokio::time::Instant;

    use crate::renewal::Renewal;
    use crate::testing::node;

    /// Takes the opening of a stream, greets, and says nothing more.
    async fn greet(listener: &TcpListener) -> TcpStream {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut asked = vec![0; 4096];
        let length = stream.read(&mut asked).await.unwrap();
        assert!(asked[..length].starts_with(b"POST /v1/envs/test/nodes/web1/sync "));
        let hello = "event: hello\ndata: {\"incarnation\":1,\"role\":\"web\"}\n\n";
        let answer = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{hello}\r\n", hello.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream
    }

    fn sync(server: &str, queue: mpsc::Sender<Message>, cancel: &CancellationToken) -> (tempfile::TempDir, Sync) {
        let (directory, node) = node("web1");
        let sync = Sync {
            node: Arc::new(node),
            servers: Servers::new(&[server.to_owned()]).unwrap(),
            opening: watch::channel(Opening::default()).1,
            activity: watch::channel(Activity::Idle).1,
            queue,
            tell_activity: Arc::default(),
            renewal: Renewal::new().1,
            silence: Duration::from_millis(50),
            cancel: cancel.clone(),
        };
        (directory, sync)
    }

    #[tokio::test]
    async fn a_stream_that_falls_silent_is_opened_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (queue, mut messages) = mpsc::channel(16);
        let cancel = CancellationToken::new();
        let (_directory, sync) = sync(&format!("http://{}", listener.local_addr().unwrap()), queue, &cancel);
        let mut tasks = JoinSet::new();
        tasks.spawn(sync.run());
        // Held open: as far as TCP knows, all is well.
        let _first = greet(&listener).await;
        let _second = greet(&listener).await;
        for _ in 0..2 {
            assert!(matches!(messages.recv().await, Some(Message::Hello { incarnation: 1, .. })));
        }
        cancel.cancel();
        while tasks.join_next().await.is_some() {}
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_queue_takes_nothing_the_server_hears_that_the_agent_is_there() {
        let (queue, mut messages) = mpsc::channel(1);
        queue.send(Message::Interrupted).await.unwrap();
        let (_directory, sync) = sync("http://127.0.0.1:1", queue, &CancellationToken::new());
        let told = Arc::clone(&sync.tell_activity);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { sync.hand_over(Message::Interrupted).await });
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
