//! Accepts connections on the TCP port and the Unix socket, and limits what a slow client can hold.
//!
//! A sync stream takes its connection over from HTTP: an idle agent then costs a small task and no buffers.
//!
//! The first byte of a TCP connection tells whether it is TLS. Without TLS only clients of this machine are answered.
//!
//! A client that sends no complete request head, leaves a request body incomplete, or does not read the response is
//! disconnected after a time. A request that the server itself takes long for is not: neither a response that has no
//! data yet nor a sync stream between two pings counts as idle.

use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fs, io};

use axum::Router;
use axum::http::StatusCode;
use hyper::server::conn::http1;
use hyper::upgrade::{OnUpgrade, Parts};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use muster_wire::client::new_request_id;
use muster_wire::problem::{MEDIA_TYPE, Problem, ProblemCode};
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tower_http::add_extension::AddExtension;
use tower_http::timeout::RequestBodyTimeout;

use crate::agents::stream::SyncEvents;
use crate::api::{Encryption, Peer};
use crate::identity::tls::ServerTls;

use super::places::{Place, Places};

/// Largest head of a request, and size of the buffers of a connection in each direction.
const BUFFER: usize = 64 * 1024;
/// Most headers of a request.
const MAX_HEADERS: usize = 100;
/// Files that the server keeps for its store, its blobs and requests to other replicas.
const RESERVED_FILES: u64 = 256;
/// Bounds of the limit of connections.
const MIN_CONNECTIONS: u64 = 64;
const MAX_CONNECTIONS: usize = 40 * 1024;
/// Minimum time between two log lines about refused connections.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Pause after a failure to accept, such as a limit of open files.
const ACCEPT_RETRY: Duration = Duration::from_secs(1);

/// Limits of the connections of clients.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Time for the head of a request, from the begin of the connection or the end of the last response.
    pub idle: Duration,
    /// Time without progress while the client sends a body, or has to read a response.
    pub stall: Duration,
    /// Longest life of a TCP connection without a request that was admitted with an identity.
    pub anonymous: Duration,
    /// Open connections of both listeners. TCP gets at most three quarters, so that TCP clients cannot exclude those of the
    /// Unix socket.
    pub connections: usize,
    /// Open TCP connections of one address, without an identity.
    pub anonymous_of_address: usize,
    /// Age from which a TCP connection without an identity is closed for a new one, when all places are taken.
    pub eviction_age: Duration,
}

impl ConnectionLimits {
    /// The default limits, with this number of connections.
    pub fn of_connections(connections: usize) -> Self {
        let limits = Self {
            idle: Duration::from_secs(30),
            stall: Duration::from_secs(60),
            anonymous: Duration::from_secs(90),
            connections,
            anonymous_of_address: 0,
            eviction_age: Duration::from_secs(5),
        };
        // Agents that return at once through one address are anonymous until their first request.
        Self { anonymous_of_address: limits.tcp() / 4, ..limits }
    }

    pub(super) fn tcp(&self) -> usize {
        self.connections / 4 * 3
    }
}

impl Default for ConnectionLimits {
    /// An agent has a stream and a second connection while it reports: the limit is enough for 10,000 agents. A lower
    /// limit of open files reduces it.
    fn default() -> Self {
        Self::of_connections(connections_for(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)))
    }
}

/// Connections that a process with this limit of open files can have.
fn connections_for(open_files: u64) -> usize {
    let files = open_files.saturating_sub(RESERVED_FILES).max(MIN_CONNECTIONS);
    usize::try_from(files).unwrap_or(usize::MAX).min(MAX_CONNECTIONS)
}

/// A Unix socket with a name, which is removed on drop.
#[derive(Debug)]
pub(super) struct NamedSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode: a newer server may have replaced the file.
    file: (u64, u64),
}

impl NamedSocket {
    /// Listens at `path` and replaces a socket that an earlier server left there. None if a server listens there.
    pub(super) async fn bind(path: &Path) -> io::Result<Option<Self>> {
        match UnixStream::connect(path).await {
            Ok(_) => return Ok(None),
            // It does not accept at the moment.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(_) => {}
        }
        let new = path.with_extension(format!("new.{}", std::process::id()));
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(&new)?;
        // The server checks the user of each connection, and answers other users with a reason.
        let named = fs::set_permissions(&new, fs::Permissions::from_mode(0o666)).and_then(|()| {
            let found = fs::symlink_metadata(&new)?;
            fs::rename(&new, path)?;
            Ok((found.dev(), found.ino()))
        });
        match named {
            Ok(file) => Ok(Some(Self { listener, path: path.to_owned(), file })),
            Err(error) => {
                let _ = fs::remove_file(&new);
                Err(error)
            }
        }
    }
}

impl NamedSocket {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for NamedSocket {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Source of connections.
trait Listener {
    const NAME: &'static str;
    type Io: Send + 'static;

    /// Accepts a connection. On TCP it has an address.
    async fn accept(&self) -> io::Result<(Self::Io, Option<IpAddr>)>;

    /// Answers the requests of an accepted connection.
    fn serve(&self, io: Self::Io, service: ConnectionService) -> Phase;

    /// Tells a client that its connection has no place, without waiting for it.
    fn refuse(&self, io: Self::Io);
}

/// A phase of a connection: handshake, requests, stream. Each has an allocation of its own and ends with it, so that an idle
/// agent has only that of its stream. Within one future the phases would be copies of each other's parts: 15 KiB for each agent.
type Phase = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What answers the requests of a connection.
#[derive(Clone)]
struct ConnectionService {
    router: Router,
    limits: ConnectionLimits,
    stop: CancellationToken,
    place: Option<Arc<Place>>,
}

/// The TCP port, with TLS if the server has a certificate.
struct TcpPort {
    listener: TcpListener,
    tls: Option<Arc<ServerTls>>,
}

impl Listener for TcpPort {
    const NAME: &'static str = "TCP";
    type Io = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, Option<IpAddr>)> {
        self.listener.accept().await.map(|(stream, address)| (stream, Some(address.ip().to_canonical())))
    }

    fn serve(&self, stream: TcpStream, service: ConnectionService) -> Phase {
        let established = Box::pin(establish(stream, self.tls.clone(), service));
        Box::pin(async move {
            match established.await {
                Ok(Some(requests)) => requests.await,
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, "a TCP connection was not established"),
            }
        })
    }

    fn refuse(&self, stream: TcpStream) {
        let mut first = [0; BUFFER / 16];
        // Reads what has arrived, so that closing does not discard the answer.
        let speaks_http = match stream.try_read(&mut first) {
            Ok(read) => read > 0 && first[0] != TLS_HANDSHAKE,
            Err(_) => self.tls.is_none(),
        };
        if speaks_http {
            let problem = Problem::new(ProblemCode::Busy, "the server has too many open connections");
            let _ = stream.try_write(&raw_problem(problem.retry_after(BUSY_RETRY)));
        }
    }
}

impl Listener for NamedSocket {
    const NAME: &'static str = "Unix socket";
    type Io = (UnixStream, Peer);

    async fn accept(&self) -> io::Result<(Self::Io, Option<IpAddr>)> {
        let (stream, _) = self.listener.accept().await?;
        let uid = stream.peer_cred()?.uid();
        Ok(((stream, Peer::Socket { uid }), None))
    }

    fn refuse(&self, (stream, _): Self::Io) {
        let problem = Problem::new(ProblemCode::Busy, "the server has too many open connections");
        let _ = stream.try_write(&raw_problem(problem.retry_after(BUSY_RETRY)));
    }

    fn serve(&self, (stream, peer): Self::Io, service: ConnectionService) -> Phase {
        serve_connection(stream, peer, service)
    }
}

/// First byte of a TLS connection: the type of a handshake record.
const TLS_HANDSHAKE: u8 = 0x16;
/// `Retry-After` of a client without a place, in seconds.
const BUSY_RETRY: u16 = 5;

/// A problem as the whole response of a connection, whose request is not read.
fn raw_problem(problem: Problem) -> Vec<u8> {
    let id = new_request_id();
    let problem = Problem { request_id: Some(id.clone()), ..problem };
    let body = serde_json::to_string(&problem).unwrap_or_default();
    let reason =
        StatusCode::from_u16(problem.status).ok().and_then(|status| status.canonical_reason()).unwrap_or("Error");
    let later = problem.retry_after_seconds.map(|seconds| format!("retry-after: {seconds}\r\n")).unwrap_or_default();
    format!(
        "HTTP/1.1 {} {reason}\r\ncontent-type: {MEDIA_TYPE}\r\nx-request-id: {id}\r\n{later}connection: close\r\n\
         content-length: {}\r\n\r\n{body}",
        problem.status,
        body.len()
    )
    .into_bytes()
}

/// Returns the phase of the requests. None if the client was refused.
async fn establish(
    stream: TcpStream,
    tls: Option<Arc<ServerTls>>,
    service: ConnectionService,
) -> io::Result<Option<Phase>> {
    let (port, address) = (stream.local_addr()?.port(), stream.peer_addr()?.ip().to_canonical());
    let is_local = address.is_loopback();
    let plain = Peer::Tcp { port, address, encryption: Encryption::Plain };
    let Some(tls) = tls else { return Ok(Some(serve_connection(stream, plain, service))) };
    let timed_out = |_| io::Error::from(io::ErrorKind::TimedOut);
    let mut first = [0];
    let read = timeout(service.limits.idle, stream.peek(&mut first)).await.map_err(timed_out)??;
    if read == 1 && first[0] != TLS_HANDSHAKE {
        if is_local {
            return Ok(Some(serve_connection(stream, plain, service)));
        }
        let mut stream = stream;
        let problem = Problem::new(ProblemCode::InvalidRequest, "this port needs TLS: use https:// in the URL");
        timeout(service.limits.idle, stream.write_all(&raw_problem(problem))).await.map_err(timed_out)??;
        return Ok(None);
    }
    let (stream, certificate) = timeout(service.limits.idle, tls.accept(stream)).await.map_err(timed_out)??;
    let certificate = certificate.map(Arc::new);
    let entry = certificate.as_ref().and_then(|certificate| tls.connections.add(certificate));
    let encryption = Encryption::Tls { certificate };
    let served = serve_connection(stream, Peer::Tcp { port, address, encryption }, service);
    Ok(Some(match entry {
        None => served,
        // The certificate of a node may be revoked while the connection is open.
        Some(entry) => Box::pin(async move {
            tokio::select! {
                () = served => {}
                () = entry.end.cancelled() => {}
            }
        }),
    }))
}

/// Listeners of a server.
#[derive(Debug)]
pub(super) struct Listeners {
    pub(super) tcp: TcpListener,
    pub(super) socket: Option<NamedSocket>,
    pub(super) tls: Option<Arc<ServerTls>>,
}

impl Listeners {
    /// Answers requests until the server stops, and then until the open requests are answered.
    pub(super) async fn serve(self, router: Router, limits: ConnectionLimits, stop: &CancellationToken) {
        let Self { tcp, socket, tls } = self;
        let places = Places::new(limits);
        let service = ConnectionService { router, limits, stop: stop.clone(), place: None };
        let socket = async {
            if let Some(socket) = socket {
                accept_all(socket, &service, &places).await;
            }
        };
        tokio::join!(accept_all(TcpPort { listener: tcp, tls }, &service, &places), socket);
    }
}

/// Accepts connections. Each takes one of the places, which all listeners share.
async fn accept_all<L: Listener>(listener: L, service: &ConnectionService, places: &Arc<Places>) {
    let stop = &service.stop;
    let mut connections = JoinSet::new();
    let mut refusals = RefusalLog::default();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((io, address)) => match places.admit(address) {
                Ok(place) => {
                    let place = Arc::new(place);
                    let served =
                        listener.serve(io, ConnectionService { place: Some(place.clone()), ..service.clone() });
                    connections.spawn(async move {
                        tokio::select! {
                            () = served => {}
                            () = place.ended() => {}
                        }
                    });
                }
                Err(reason) => {
                    listener.refuse(io);
                    if let Some(refused) = refusals.count() {
                        let listener = L::NAME;
                        tracing::warn!(
                            listener,
                            ?reason,
                            ?address,
                            refused,
                            "the limit of open connections is reached: new connections are closed at once; look for clients \
                             that do not close theirs, or raise the limit of open files"
                        );
                    }
                }
            },
            Err(error) if is_disconnect(&error) => {}
            Err(error) => {
                tracing::error!(%error, listener = L::NAME, "cannot accept connections; retrying");
                tokio::select! {
                    () = stop.cancelled() => break,
                    () = sleep(ACCEPT_RETRY) => {}
                }
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// True if the client has ended the connection before it was accepted.
fn is_disconnect(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::NotConnected
    )
}

/// Counts refused connections for the log, which gets one line for many.
#[derive(Debug, Default)]
struct RefusalLog {
    logged: Option<Instant>,
    refused: u64,
}

impl RefusalLog {
    /// Counts a refused connection. Returns the number since the last line if it is time for another one.
    fn count(&mut self) -> Option<u64> {
        self.refused += 1;
        if self.logged.is_some_and(|logged| logged.elapsed() < LOG_INTERVAL) {
            return None;
        }
        self.logged = Some(Instant::now());
        Some(std::mem::take(&mut self.refused))
    }
}

/// Answers the requests of a connection, until it ends. A stream may take it over.
fn serve_connection<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    io: T,
    peer: Peer,
    service: ConnectionService,
) -> Phase {
    let requests = Box::pin(async move {
        let slot = TakeoverSlot::default();
        serve_http(io, peer, service, slot.clone()).await;
        let Takeover { connection, events } = slot.take()?;
        let connection = connection.await.ok()?.downcast::<TokioIo<StallTimeout<T>>>();
        let Parts { io, read_buf, .. } = connection.ok()?;
        let stream: Phase = Box::pin(events.run(io.into_inner(), read_buf));
        Some(stream)
    });
    Box::pin(async move {
        if let Some(stream) = requests.await {
            stream.await;
        }
    })
}

async fn serve_http(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    service: ConnectionService,
    slot: TakeoverSlot,
) {
    let ConnectionService { router, limits, stop, place } = service;
    let service = AddExtension::new(AddExtension::new(AddExtension::new(router, peer.clone()), place), slot);
    let service = RequestBodyTimeout::new(service, limits.stall);
    let io = TokioIo::new(StallTimeout { io, limit: limits.stall, stalled: None });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.idle).max_buf_size(BUFFER).max_headers(MAX_HEADERS);
    let mut connection = pin!(http.serve_connection(io, TowerToHyperService::new(service)).with_upgrades());
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error = &error as &dyn std::error::Error, ?peer, "a connection has failed");
    }
}

/// A stream that takes its connection over from HTTP when the response has been sent. It runs in the task of the connection, so
/// it ends with it.
#[derive(Debug)]
pub(crate) struct Takeover {
    pub(crate) connection: OnUpgrade,
    pub(crate) events: SyncEvents,
}

/// Place for the stream that takes a connection over.
#[derive(Clone, Debug, Default)]
pub(crate) struct TakeoverSlot(Arc<Mutex<Option<Takeover>>>);

impl TakeoverSlot {
    pub(crate) fn set(&self, takeover: Takeover) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(takeover);
    }

    fn take(&self) -> Option<Takeover> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A connection that fails when the client does not read for a time.
#[derive(Debug)]
struct StallTimeout<T> {
    io: T,
    limit: Duration,
    /// Set while a write waits for the client.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<T: Unpin> StallTimeout<T> {
    /// Bounds the time of a write that is not ready.
    fn bounded<R>(
        &mut self,
        context: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut T>, &mut Context<'_>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        let written = poll(Pin::new(&mut self.io), context);
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(self.limit)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read"))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for StallTimeout<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for StallTimeout<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.bounded(context, |io, context| io.poll_write(context, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.bounded(context, |io, context| io.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.bounded(context, |io, context| io.poll_shutdown(context))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.bounded(context, |io, context| io.poll_write_vectored(context, bytes))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, Bytes};
    use axum::routing::{get, post};
    use futures::{StreamExt, stream};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;

    const LIMITS: ConnectionLimits = ConnectionLimits {
        idle: Duration::from_secs(30),
        stall: Duration::from_secs(60),
        anonymous: Duration::from_secs(3600),
        connections: 4,
        anonymous_of_address: 4,
        eviction_age: Duration::from_secs(3600),
    };

    fn router() -> Router {
        let endless = || async {
            let piece = || async { Ok::<_, io::Error>(Bytes::from_static(&[b'x'; 4096])) };
            Body::from_stream(stream::repeat_with(piece).then(|piece| piece))
        };
        let late = || async {
            let piece = async {
                sleep(Duration::from_secs(3600)).await;
                Ok::<_, io::Error>(Bytes::from_static(b"late"))
            };
            Body::from_stream(stream::once(piece))
        };
        let receive = |body: Bytes| async move { format!("received {}", body.len()) };
        let ok = || async { StatusCode::NO_CONTENT };
        Router::new()
            .route("/ok", get(ok))
            .route("/endless", get(endless))
            .route("/late", get(late))
            .route("/receive", post(receive))
    }

    fn connect() -> (DuplexStream, JoinSet<()>) {
        let (client, server) = tokio::io::duplex(1024);
        let (peer, mut tasks) = (Peer::Socket { uid: 0 }, JoinSet::new());
        let service =
            ConnectionService { router: router(), limits: LIMITS, stop: CancellationToken::new(), place: None };
        tasks.spawn(serve_connection(server, peer, service));
        (client, tasks)
    }

    async fn ended(mut server: JoinSet<()>) {
        server.join_next().await.unwrap().unwrap();
    }

    async fn request(client: &mut (impl AsyncWrite + Unpin), head: &str) {
        client.write_all(format!("{head} HTTP/1.1\r\nhost: localhost\r\n").as_bytes()).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn incomplete_head_is_disconnected() {
        let (mut client, server) = connect();
        let begin = Instant::now();
        request(&mut client, "GET /ok").await;
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        ended(server).await;
        assert_eq!(begin.elapsed().as_secs(), LIMITS.idle.as_secs(), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connection_is_disconnected_after_a_response() {
        let (mut client, server) = connect();
        request(&mut client, "GET /ok").await;
        client.write_all(b"\r\n").await.unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        ended(server).await;
        assert!(text.starts_with("HTTP/1.1 204"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn incomplete_body_is_refused() {
        let (mut client, server) = connect();
        let begin = Instant::now();
        request(&mut client, "POST /receive").await;
        client.write_all(b"content-length: 10\r\n\r\nhalf").await.unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        ended(server).await;
        assert!(text.starts_with("HTTP/1.1 400") && begin.elapsed() >= LIMITS.stall, "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_does_not_read_is_disconnected() {
        let (mut client, server) = connect();
        let begin = Instant::now();
        request(&mut client, "GET /endless").await;
        client.write_all(b"\r\n").await.unwrap();
        ended(server).await;
        assert_eq!(begin.elapsed().as_secs(), LIMITS.stall.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn late_response_is_not_cut() {
        let (mut client, _server) = connect();
        request(&mut client, "GET /late").await;
        client.write_all(b"connection: close\r\n\r\n").await.unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        assert!(text.contains("late"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn refused_connections_are_logged_at_intervals() {
        let mut refusals = RefusalLog::default();
        assert_eq!(refusals.count(), Some(1), "the first one at once");
        assert!((0..4).all(|_| refusals.count().is_none()));
        tokio::time::advance(LOG_INTERVAL).await;
        assert_eq!(refusals.count(), Some(5));
        assert_eq!(refusals.count(), None);
    }

    /// Opens a connection, on which a request is answered.
    async fn answered<C: AsyncRead + AsyncWrite + Unpin>(mut client: C) -> io::Result<C> {
        let _ = client.write_all(b"GET /ok HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        let mut status = [0; 12];
        client.read_exact(&mut status).await?;
        match &status {
            b"HTTP/1.1 204" => Ok(client),
            b"HTTP/1.1 503" => Err(io::ErrorKind::ConnectionRefused.into()),
            other => panic!("{}", String::from_utf8_lossy(other)),
        }
    }

    #[tokio::test]
    async fn both_listeners_share_the_limit_of_connections() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.sock");
        let socket = NamedSocket::bind(&path).await.unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (tcp.local_addr().unwrap(), CancellationToken::new());
        let stopped = stop.clone();
        let mut server = JoinSet::new();
        server.spawn(async move { Listeners { tcp, socket, tls: None }.serve(router(), LIMITS, &stopped).await });
        let tcp = || async { answered(TcpStream::connect(address).await.unwrap()).await };
        let socket = || async { answered(UnixStream::connect(&path).await.unwrap()).await };
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(tcp().await.unwrap());
        }
        assert!(tcp().await.is_err(), "TCP has three quarters");
        let _fourth = socket().await.unwrap();
        assert!(socket().await.is_err(), "all four are open");
        clients.pop();
        // The server needs a moment to notice that a connection has ended.
        let _fifth = loop {
            if let Ok(client) = socket().await {
                break client;
            }
            tokio::task::yield_now().await;
        };
        assert!(tcp().await.is_err(), "all four are open");
        stop.cancel();
        ended(server).await;
    }

    #[test]
    fn connections_depend_on_the_limit_of_open_files() {
        let table = [(0, 64), (1_024, 768), (524_288, MAX_CONNECTIONS), (u64::MAX, MAX_CONNECTIONS)];
        for (files, connections) in table {
            assert_eq!(connections_for(files), connections, "{files}");
        }
    }

    #[tokio::test]
    async fn stale_socket_is_replaced_and_live_socket_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let socket = NamedSocket::bind(&path).await.unwrap().unwrap();
        assert!(NamedSocket::bind(&path).await.unwrap().is_none(), "a server listens there");
        assert!(UnixStream::connect(&path).await.is_ok());
        drop(socket);
        assert!(!path.exists());
        let replaced = NamedSocket::bind(&path).await.unwrap().unwrap();
        fs::remove_file(&path).unwrap();
        let _other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        drop(replaced);
        assert!(path.exists(), "the socket of another server is not removed");
    }
}
