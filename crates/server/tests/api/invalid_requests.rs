//! Invalid requests and their errors, start and stop of the server, and the checked-in OpenAPI document.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use muster_core::node::liveness::LivenessTimeouts;
use muster_server::{Clock, ConnectionLimits, LeasePace, Server, ServerConfig};
use muster_store::Store;
use muster_wire::problem::{Problem, ProblemCode};
use reqwest::{Method, StatusCode};
use tokio_util::sync::CancellationToken;

use crate::fixture::{Fixture, http, token, version};

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_is_a_problem_with_a_code() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    let http = http();
    let table = [
        (
            Method::GET,
            "/v1/envs/nowhere/status",
            "",
            404,
            ProblemCode::UnknownEnvironment,
            "there is no environment \"nowhere\"",
        ),
        (Method::GET, "/v1/envs/test/nodes/db9", "", 404, ProblemCode::UnknownNode, "db9 is not in the design of test"),
        (
            Method::GET,
            "/v1/envs/test/nodes/DB",
            "",
            400,
            ProblemCode::InvalidRequest,
            "\"DB\" is not a legal node name",
        ),
        (Method::GET, "/v1/envs/test/nodes/db1/runs/none", "", 404, ProblemCode::UnknownRun, "db1 has no run none"),
        (Method::GET, "/v1/nothing", "", 404, ProblemCode::NotFound, "there is nothing at GET /v1/nothing"),
        (Method::DELETE, "/v1/envs/test/status", "", 405, ProblemCode::MethodNotAllowed, "does not take DELETE"),
        (Method::POST, "/v1/envs/test/verify-hosts", "{", 400, ProblemCode::InvalidRequest, "EOF while parsing"),
        (
            Method::POST,
            "/v1/envs/test/verify-hosts",
            r#"{"version":"v1","hosts":[]}"#,
            400,
            ProblemCode::InvalidRequest,
            "no hosts were given",
        ),
        (
            Method::POST,
            "/v1/envs/test/verify-hosts",
            r#"{"version":"/","hosts":["a"]}"#,
            400,
            ProblemCode::InvalidRequest,
            "not a legal version",
        ),
        (
            Method::PUT,
            "/v1/envs/test/current-version",
            r#"{"version":"v9"}"#,
            404,
            ProblemCode::UnknownVersion,
            "there is no release v9",
        ),
        (
            Method::POST,
            "/v1/envs/test/nodes/db1/sync",
            r#"{"generation":{"epoch":18446744073709551615,"number":1}}"#,
            400,
            ProblemCode::InvalidRequest,
            "is later than the clock of this server",
        ),
        (Method::POST, "/v1/envs/test/nodes/db1/reports", "[]", 400, ProblemCode::InvalidRequest, "invalid"),
    ];
    for (method, path, body, status, code, says) in table {
        let request = http.request(method.clone(), format!("{}{path}", fixture.client.base()));
        let request = request.header("content-type", "application/json").body(body);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), StatusCode::from_u16(status).unwrap(), "{method} {path}");
        assert_eq!(response.headers()["content-type"], "application/problem+json", "{method} {path}");
        let problem: Problem = response.json().await.unwrap();
        assert_eq!(problem.code, code, "{method} {path}: {problem:?}");
        assert!(problem.detail.contains(says), "{method} {path}: {}", problem.detail);
        assert!(problem.request_id.is_some(), "{method} {path}");
    }
    fixture.stop().await;
}

/// The store has no such revision, so the server does not wait until its timeout.
#[tokio::test(flavor = "multi_thread")]
async fn future_revision_gets_503_with_the_present_one() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    let http = crate::fixture::http();
    for demanded in [u64::MAX, fixture.store.revision().await.unwrap().0 + 1_000_000] {
        let request = http.get(fixture.url("/v1/envs/test/status")).header("Muster-Min-Revision", demanded);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        let problem: Problem = response.json().await.unwrap();
        assert_eq!(problem.code, ProblemCode::CannotTell);
        assert!(problem.detail.starts_with(&format!("revision {demanded} does not exist")), "{}", problem.detail);
        let there = problem.current.unwrap()["revision"].as_u64().unwrap();
        assert!(problem.detail.ends_with(&format!("the store is at revision {there}")), "{}", problem.detail);
        assert!(there > 0 && there <= fixture.store.revision().await.unwrap().0);
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_cannot_report_for_another_node() {
    let fixture = Fixture::start(&[("db1", "db"), ("web1", "web")]).await;
    let report = fixture.report("web1", 1, 1, crate::fixture::PASSED);
    let url = format!("{}/v1/envs/test/nodes/db1/reports", fixture.client.base());
    let http = http();
    let response = http.post(url).json(&report).send().await.unwrap();
    assert_eq!(response.json::<Problem>().await.unwrap().detail, "db1 cannot report for web1");
    assert_eq!(fixture.app.view.fleets()[&fixture.env].running().get(&version("v1")), None);
    fixture.stop().await;
}

async fn start(dir: &std::path::Path, listen: &str) -> Result<Server, muster_server::ServerStartError> {
    let store: Arc<dyn Store> =
        muster_store::open(&format!("embedded:{}", dir.join("other").display()), &muster_store::StoreAccess::default())
            .await
            .unwrap();
    let config = ServerConfig {
        listen: listen.parse::<SocketAddr>().unwrap(),
        tls: None,
        socket: None,
        token: token(),
        limits: ConnectionLimits::default(),
        blobs: dir.join("blobs").into(),
        secrets_key: dir.join("secrets.key"),
        liveness_timeouts: LivenessTimeouts::default(),
        lease: LeasePace::default(),
        gate_commands: None,
        oidc: None,
        clock: Clock::system(),
    };
    Server::start(config, store, CancellationToken::new()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn server_without_tls_listens_on_loopback_only() {
    let dir = tempfile::tempdir().unwrap();
    for address in ["0.0.0.0:0", "[::]:0", "10.0.0.1:0"] {
        let refusal = start(dir.path(), address).await.unwrap_err().to_string();
        assert!(refusal.starts_with(&format!("refusing to listen on {address}")), "{refusal}");
        assert!(refusal.contains("without TLS"), "{refusal}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn port_in_use_is_reported() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    let taken = fixture.client.base().trim_start_matches("http://").to_owned();
    let dir = tempfile::tempdir().unwrap();
    let refusal = start(dir.path(), &taken).await.unwrap_err().to_string();
    assert!(refusal.starts_with(&format!("{taken} is in use by another process")), "{refusal}");
    fixture.stop().await;
}

/// A client that never completes its request.
#[tokio::test]
async fn open_requests_do_not_prevent_a_stop() {
    let fixture = Fixture::start(&[("web1", "web")]).await;
    let address = fixture.url("").trim_start_matches("http://").to_owned();
    let mut stuck = tokio::net::TcpStream::connect(&address).await.unwrap();
    let token = token();
    let begun = format!(
        "POST /v1/envs/test/verify-hosts HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\n\
         content-length: 100\r\n\r\n{{",
        token.as_str()
    );
    tokio::io::AsyncWriteExt::write_all(&mut stuck, begun.as_bytes()).await.unwrap();
    // The server answers a later request, so the first one has arrived.
    fixture.client.environments().await.unwrap();
    tokio::time::timeout(std::time::Duration::from_secs(60), fixture.run_to_its_end())
        .await
        .expect("it waits for ever");
    drop(stuck);
}

#[test]
fn checked_in_openapi_document_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let real = format!("{:#}\n", muster_server::openapi());
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        std::fs::write(&path, &real).unwrap();
    }
    let checked_in = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        checked_in == real,
        "docs/openapi.json is not what the server says: run `make reference`, and read the difference"
    );
}
