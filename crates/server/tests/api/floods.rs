//! Clients that attack the server through its connections: silence, and floods of headers and of bodies.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use muster_identity::certificate;
use muster_identity::tls::client_config;
use muster_server::ConnectionLimits;
use muster_testkit::wait::until;
use muster_wire::problem::{Problem, ProblemCode};
use muster_wire::sync::SyncOpen;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;

use crate::fixture::{Fixture, http, next, token};

/// Connections that the attackers open, and their addresses.
const SILENT: usize = 10_000;
const ATTACKERS: u8 = 40;

fn address(fixture: &Fixture) -> SocketAddr {
    fixture.url("").trim_start_matches("http://").parse().unwrap()
}

async fn connect(from: u8, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((Ipv4Addr::new(127, 0, 9, from), 0).into())?;
    socket.connect(to).await
}

/// The test has both ends of each connection.
fn raise_open_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    assert!(limit.current.is_none_or(|files| files > 13_000), "the test needs 13,000 open files: {limit:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_keep_out_no_agent() {
    raise_open_file_limit();
    let limits = ConnectionLimits { eviction_age: Duration::from_millis(10), ..ConnectionLimits::of_connections(400) };
    let fixture = Fixture::start_limited(&[("db1", "db"), ("web1", "web")], limits).await;
    let server = address(&fixture);
    let mut connected = fixture.open("db1", &SyncOpen::default()).await;
    let mut silent = Vec::with_capacity(SILENT);
    for number in 0..SILENT {
        let from = u8::try_from(number % usize::from(ATTACKERS)).unwrap() + 1;
        silent.extend(connect(from, server).await);
    }
    // An agent that is refused at first tries again, as the real one does.
    let mut stream = None;
    until("another agent connects", || {
        let opened = tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(fixture.client.sync(
                &fixture.env,
                &crate::fixture::node("web1"),
                &SyncOpen::default(),
            ))
        });
        stream = opened.ok();
        stream.is_some()
    })
    .await;
    next(&mut stream.unwrap()).await;
    next(&mut connected).await;
    fixture.validate("db1", 1).await;
    let is_open = |stream: &&TcpStream| {
        let read = stream.try_read(&mut [0]);
        matches!(read, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    };
    let places = 400 / 4 * 3;
    // An evicted connection needs a moment to end.
    until("the server has closed the connections over the limit", || silent.iter().filter(is_open).count() <= places)
        .await;
    assert!(silent.len() > SILENT / 2, "{}", silent.len());
    drop(silent);
    fixture.stop().await;
}

/// Sends a request as text, and returns what the server answers until it closes the connection.
async fn raw(fixture: &Fixture, request: &[u8]) -> String {
    send_raw(TcpStream::connect(address(fixture)).await.unwrap(), request).await
}

/// The same over TLS, without a certificate.
async fn raw_over_tls(fixture: &Fixture, request: &[u8]) -> String {
    let roots = certificate::from_pem(&fixture.client.authority().await.unwrap().root).unwrap();
    let connector = TlsConnector::from(Arc::new(client_config(&roots, None).unwrap()));
    let stream = TcpStream::connect(address(fixture)).await.unwrap();
    let name = address(fixture).ip().to_string().try_into().unwrap();
    send_raw(connector.connect(name, stream).await.unwrap(), request).await
}

async fn send_raw(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &[u8]) -> String {
    // The server may close the connection before it has read all.
    let _ = stream.write_all(request).await;
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text).await;
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_of_headers_and_bodies_are_refused() {
    let fixture = Fixture::start(&[("web1", "web")]).await;
    let host = address(&fixture);
    let many: String = (0..101).map(|number| format!("x-{number}: 1\r\n")).collect();
    let long = format!("x-long: {}\r\n", "x".repeat(256 * 1024));
    for headers in [many, long] {
        let text = raw(&fixture, format!("GET /healthz HTTP/1.1\r\nhost: {host}\r\n{headers}\r\n").as_bytes()).await;
        assert!(text.starts_with("HTTP/1.1 431"), "{text}");
    }
    let authorization = format!("authorization: Bearer {}", token().as_str());
    let request = |length: &str, body: &str| {
        format!(
            "POST /v1/envs/test/verify-hosts HTTP/1.1\r\nhost: {host}\r\n{authorization}\r\n\
             content-type: application/json\r\n{length}\r\n\r\n{body}"
        )
    };
    // Just over the limit: the server has read all that was sent when it answers, so that the answer is not lost.
    let (limit, chunk) = (2 * 1024 * 1024, format!("10000\r\n{}\r\n", " ".repeat(0x10000)));
    let long = request("content-length: 9999999999", &" ".repeat(limit + 1));
    let chunked = request("transfer-encoding: chunked", &(chunk.repeat(limit / 0x10000) + "1\r\n \r\n"));
    for sent in [&long, &chunked] {
        for text in [raw(&fixture, sent.as_bytes()).await, raw_over_tls(&fixture, sent.as_bytes()).await] {
            assert!(text.starts_with("HTTP/1.1 413"), "{text:?}");
            assert!(text.contains("\"code\":\"too_large\""), "{text}");
        }
    }
    // A client that sends on may lose the answer: closing a connection discards it while data arrives.
    for length in ["content-length: 9999999999", "transfer-encoding: chunked"] {
        let text = raw(&fixture, request(length, &chunk.repeat(40)).as_bytes()).await;
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 413"), "{text}");
    }
    let huge = vec![b' '; 3 * 1024 * 1024];
    let request = http().post(fixture.url("/v1/envs/test/verify-hosts")).header("content-type", "application/json");
    // The connection may be closed before the answer is read.
    if let Ok(response) = request.body(huge).send().await {
        let status = response.status();
        let text = response.text().await;
        let problem = serde_json::from_str::<Problem>(text.as_deref().unwrap_or_default());
        assert!(problem.is_ok_and(|problem| problem.code == ProblemCode::TooLarge), "{status} {text:?}");
    }
    fixture.client.environments().await.unwrap();
    fixture.stop().await;
}
