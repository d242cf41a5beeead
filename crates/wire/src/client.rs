//! Typed client of the API, for the agent and the command line.

mod audit;
mod data;
mod design;
mod identity;
mod release;
mod rollout;
mod runs;
mod secrets;
mod sync;
mod users;

use std::fmt::Display;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use muster_core::names::{EnvName, NodeName, RunId, ServiceName, Version};
use muster_core::node::status::Activity;
use muster_core::report::Report;
use muster_core::txn::Revision;
use reqwest::header::{self, HeaderMap, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::backup::{self, RestoreQuery, RestoreResponse};
use crate::doctor::{DoctorReport, ReplicaReport};
use crate::operator::{
    CurrentVersion, EnvironmentChange, EnvironmentRow, EnvironmentStatus, MIN_REVISION, NodeDetail, NodeRow, Page,
    RunDetail, RunningVersions, ServiceRow, TriggerUpdate, UpdateResponse, VerifyHostsRequest, VerifyHostsResponse,
};
use crate::problem::Problem;
use crate::runs::FailureList;
use crate::sse::DecodeError;
use crate::sync::{AGENT_HOLDER, AGENT_PROTOCOL, AgentActivity, DesiredResponse, ReportAck};
use crate::token::Token;

pub use data::{DataQuery, DatumPrecondition};
pub use design::{DocumentPrecondition, WriteOptions};
pub use release::BundleDownload;
pub use rollout::{RolloutRef, RolloutVerb, StatusQuery};
pub use runs::LogStream;
pub use sync::{SyncReplies, SyncStream};

/// Connect timeout. A reachable server accepts within milliseconds.
const CONNECT: Duration = Duration::from_secs(5);
/// Timeout of a response, unless the request waits for something.
const ANSWER: Duration = Duration::from_secs(30);
/// Time that an unused connection is kept. The server closes it later, so that no request is sent to a closing connection.
const IDLE: Duration = Duration::from_secs(20);
/// Prefix of the address of a Unix socket.
const UNIX: &str = "unix:";

#[derive(Debug, Error)]
pub enum ClientError {
    #[error("{0:?} is not the address of a server: expected https://HOST:PORT, http://HOST:PORT or unix:/PATH")]
    Address(String),
    #[error(
        "refusing to send the token to {0} without encryption: every host on the way could read it; use https://, a loopback \
         address or unix:/PATH"
    )]
    TokenNotSent(String),
    #[error(
        "{0} needs the root certificate of the server: give its file with --ca-file or MUSTER_CA_FILE (`muster ca show` on \
         the server prints it)"
    )]
    NoRoots(String),
    #[error("cannot reach the server at {base}")]
    Unreachable {
        base: String,
        #[source]
        source: reqwest::Error,
    },
    #[error("the server refused the request: {0}")]
    Refused(Box<Problem>),
    #[error("the connection to the server at {base} is lost")]
    Disconnected {
        base: String,
        #[source]
        source: io::Error,
    },
    #[error("the response of the server at {base} is not valid (status {status})")]
    NotUnderstood {
        base: String,
        status: u16,
        #[source]
        source: Option<reqwest::Error>,
    },
    #[error("the stream of the server is not valid")]
    Stream(#[source] DecodeError),
}

impl ClientError {
    /// Problem of the response, if there was one.
    pub fn problem(&self) -> Option<&Problem> {
        if let ClientError::Refused(problem) = self { Some(problem) } else { None }
    }
}

/// What a client presents to servers, and by what it recognises them.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    pub token: Option<Token>,
    /// Roots of servers, and the certificate of the client. Needed for `https://`.
    pub tls: Option<rustls::ClientConfig>,
}

/// Client of one server.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    /// Address of the server: `https://HOST:PORT`, `http://HOST:PORT` or `unix:/PATH`.
    base: String,
    /// Beginning of the URLs of requests. On a Unix socket the host has no meaning.
    origin: String,
    min_revision: Option<Revision>,
    /// Id of the agent that uses the client.
    holder: Option<String>,
    /// Protocol of the agent that uses the client.
    protocol: Option<u32>,
}

impl Client {
    /// Client without a token, for the Unix socket of a server.
    pub fn new(base: &str) -> Result<Self, ClientError> {
        Self::with_token(base, None)
    }

    /// Client that presents a token. Without TLS, HOST must be of this machine.
    pub fn with_token(base: &str, token: Option<&Token>) -> Result<Self, ClientError> {
        Self::with_credentials(base, &Credentials { token: token.cloned(), tls: None })
    }

    /// Client of the server at `https://HOST:PORT`, `http://HOST:PORT` or `unix:/PATH`.
    pub fn with_credentials(base: &str, credentials: &Credentials) -> Result<Self, ClientError> {
        let Credentials { token, tls } = credentials;
        // Servers are in the same network. A proxy from the environment would break that.
        let http = plain_http().connect_timeout(CONNECT).pool_idle_timeout(IDLE);
        let (http, base, origin) = match base.strip_prefix(UNIX) {
            Some(path) if path.starts_with('/') => {
                (http.unix_socket(path), base.to_owned(), "http://localhost".to_owned())
            }
            Some(_) => return Err(ClientError::Address(base.to_owned())),
            None => {
                let base = base.trim_end_matches('/').to_owned();
                let url = reqwest::Url::parse(&base).map_err(|_| ClientError::Address(base.clone()))?;
                let http = match (url.scheme(), tls) {
                    ("https", Some(tls)) => http.https_only(true).tls_backend_preconfigured(tls.clone()),
                    ("https", None) => return Err(ClientError::NoRoots(base)),
                    ("http", _) if token.is_some() && !is_loopback(&url) => {
                        return Err(ClientError::TokenNotSent(base));
                    }
                    ("http", _) => http,
                    _ => return Err(ClientError::Address(base)),
                };
                (http, base.clone(), base)
            }
        };
        let http = http.default_headers(token.as_ref().map(authorization).unwrap_or_default()).build();
        let http = http.map_err(|source| ClientError::Unreachable { base: base.clone(), source })?;
        Ok(Self { http, base, origin, min_revision: None, holder: None, protocol: None })
    }

    /// Requires responses that are at least as new as a revision.
    #[must_use]
    pub fn at_least(mut self, revision: Revision) -> Self {
        self.min_revision = Some(revision);
        self
    }

    /// Sends the id of an agent with each request.
    #[must_use]
    pub fn for_agent(mut self, holder: Option<String>) -> Self {
        self.holder = holder;
        self
    }

    /// Sends the protocol of an agent with each request.
    #[must_use]
    pub fn with_protocol(mut self, protocol: u32) -> Self {
        self.protocol = Some(protocol);
        self
    }

    pub fn base(&self) -> &str {
        &self.base
    }

    pub async fn environments(&self) -> Result<Page<EnvironmentRow>, ClientError> {
        self.all_pages("/v1/envs").await
    }

    /// Checks that the server is reachable.
    pub async fn alive(&self) -> Result<(), ClientError> {
        self.answer(self.request(Method::GET, "/healthz")).await.map(drop)
    }

    /// Runs the checks of the server: its store, itself and the other replicas.
    pub async fn doctor(&self) -> Result<DoctorReport, ClientError> {
        self.get("/v1/doctor").await
    }

    /// Requests the self-report of a replica.
    pub async fn self_examination(&self, timeout: Duration) -> Result<ReplicaReport, ClientError> {
        self.send(self.request(Method::GET, "/v1/doctor/self").timeout(timeout)).await
    }

    /// Downloads a backup, without a timeout.
    pub async fn backup(&self, env: &EnvName) -> Result<Download, ClientError> {
        let response = self.answer(self.http.get(format!("{}/v1/envs/{env}/backup", self.origin))).await?;
        Ok(Download { base: self.base.clone(), response })
    }

    /// Uploads a backup to be restored, or checked in a dry run.
    pub async fn restore(
        &self,
        env: &EnvName,
        query: RestoreQuery,
        backup: impl Into<reqwest::Body>,
    ) -> Result<RestoreResponse, ClientError> {
        let request = self.http.post(format!("{}/v1/envs/{env}/restore", self.origin)).query(&query);
        self.send(request.header("content-type", backup::MEDIA_TYPE).body(backup)).await
    }

    /// Waits until something has changed since `after`, at most for this time. Without `after` it returns at once.
    pub async fn wait_for_change(
        &self,
        env: &EnvName,
        after: Option<&str>,
        wait: Duration,
    ) -> Result<EnvironmentChange, ClientError> {
        let mut pairs = vec![("wait_seconds", wait.as_secs().to_string())];
        pairs.extend(after.map(|after| ("after", after.to_owned())));
        let request = self.request(Method::GET, &format!("/v1/envs/{env}/changes"));
        self.send(request.timeout(ANSWER + wait).query(&pairs)).await
    }

    pub async fn status(&self, env: &EnvName) -> Result<EnvironmentStatus, ClientError> {
        self.status_of(env, "").await
    }

    /// Status of the nodes that match a filter.
    pub async fn status_of(&self, env: &EnvName, filter: &str) -> Result<EnvironmentStatus, ClientError> {
        let request = self.request(Method::GET, &format!("/v1/envs/{env}/status"));
        self.send(request.query(&filter_query(filter))).await
    }

    /// All nodes, fetched page by page.
    pub async fn nodes(&self, env: &EnvName) -> Result<Page<NodeRow>, ClientError> {
        self.nodes_of(env, "").await
    }

    /// Nodes that match a filter.
    pub async fn nodes_of(&self, env: &EnvName, filter: &str) -> Result<Page<NodeRow>, ClientError> {
        self.pages_of(&format!("/v1/envs/{env}/nodes"), filter).await
    }

    /// Failed nodes that match a filter, one by one and in groups, fetched page by page.
    pub async fn failures(&self, env: &EnvName, filter: &str) -> Result<FailureList, ClientError> {
        let path = format!("/v1/envs/{env}/failures");
        let page = || self.request(Method::GET, &path).query(&filter_query(filter));
        let mut all: FailureList = self.send(page()).await?;
        while let Some(after) = all.next.take() {
            let more: FailureList = self.send(page().query(&[("after", after)])).await?;
            all.items.extend(more.items);
            all = FailureList { items: all.items, ..more };
        }
        Ok(all)
    }

    /// One node, by name or host name.
    pub async fn node(&self, env: &EnvName, node: impl Display) -> Result<NodeDetail, ClientError> {
        self.get(&format!("/v1/envs/{env}/nodes/{node}")).await
    }

    pub async fn run(&self, env: &EnvName, node: &NodeName, run: &RunId) -> Result<RunDetail, ClientError> {
        self.get(&format!("/v1/envs/{env}/nodes/{node}/runs/{run}")).await
    }

    pub async fn current_version(&self, env: &EnvName) -> Result<CurrentVersion, ClientError> {
        self.get(&format!("/v1/envs/{env}/current-version")).await
    }

    pub async fn trigger_update(&self, env: &EnvName, version: Version) -> Result<UpdateResponse, ClientError> {
        self.trigger(env, &TriggerUpdate::to(version)).await
    }

    /// As [`Client::trigger_update`], with all options.
    pub async fn trigger(&self, env: &EnvName, update: &TriggerUpdate) -> Result<UpdateResponse, ClientError> {
        self.send(self.request(Method::PUT, &format!("/v1/envs/{env}/current-version")).json(update)).await
    }

    /// Services of active nodes; with a name, only of that service.
    pub async fn services(
        &self,
        env: &EnvName,
        service: Option<&ServiceName>,
    ) -> Result<Page<ServiceRow>, ClientError> {
        let query: Vec<(&str, &str)> = service.map(|name| ("service", name.as_str())).into_iter().collect();
        self.all_pages_of(&format!("/v1/envs/{env}/services"), &query).await
    }

    /// Versions that run now; with `recorded`, those that nodes validated last.
    pub async fn running_versions(&self, env: &EnvName, recorded: bool) -> Result<RunningVersions, ClientError> {
        let path = format!("/v1/envs/{env}/running-versions");
        let page = || self.request(Method::GET, &path).query(recorded_query(recorded));
        let mut all: RunningVersions = self.send(page()).await?;
        while let Some(after) = all.next.take() {
            let more: RunningVersions = self.send(page().query(&[("after", after)])).await?;
            all.items.extend(more.items);
            all = RunningVersions { items: all.items, ..more };
        }
        Ok(all)
    }

    /// Nodes that run a version now; with `recorded`, those that validated it last.
    pub async fn hosts_at_version(
        &self,
        env: &EnvName,
        version: &Version,
        recorded: bool,
    ) -> Result<Page<String>, ClientError> {
        let path = format!("/v1/envs/{env}/running-versions/{version}/hosts");
        self.all_pages_of(&path, recorded_query(recorded)).await
    }

    pub async fn verify_hosts(
        &self,
        env: &EnvName,
        request: &VerifyHostsRequest,
    ) -> Result<VerifyHostsResponse, ClientError> {
        let timeout = ANSWER + Duration::from_secs(request.wait_seconds);
        let http = self.request(Method::POST, &format!("/v1/envs/{env}/verify-hosts"));
        self.send(http.timeout(timeout).json(request)).await
    }

    /// Activities of the agents connected to this server: of one node, or of all busy ones.
    pub async fn activities(
        &self,
        env: &EnvName,
        node: Option<&NodeName>,
        timeout: Duration,
    ) -> Result<Page<AgentActivity>, ClientError> {
        let path = format!("/v1/envs/{env}/activities");
        let query = node.map(|node| [("node", node.as_str())]);
        self.all_pages_from(|| self.request(Method::GET, &path).timeout(timeout).query(&query)).await
    }

    pub async fn report(&self, env: &EnvName, report: &Report) -> Result<ReportAck, ClientError> {
        self.post(&format!("/v1/envs/{env}/nodes/{}/reports", report.node), report).await
    }

    /// Desired state and pause of a node.
    pub async fn desired(&self, env: &EnvName, node: &NodeName) -> Result<DesiredResponse, ClientError> {
        self.get(&format!("/v1/envs/{env}/nodes/{node}/desired")).await
    }

    /// Reports the current activity of an agent.
    pub async fn activity(&self, env: &EnvName, node: &NodeName, activity: &Activity) -> Result<(), ClientError> {
        let request = self.request(Method::PUT, &format!("/v1/envs/{env}/nodes/{node}/activity"));
        self.answer(request.json(activity)).await.map(drop)
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.send(self.request(Method::GET, path)).await
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        self.send(self.request(Method::POST, path).json(body)).await
    }

    async fn all_pages<T: DeserializeOwned>(&self, path: &str) -> Result<Page<T>, ClientError> {
        self.all_pages_of(path, &[]).await
    }

    async fn pages_of<T: DeserializeOwned>(&self, path: &str, filter: &str) -> Result<Page<T>, ClientError> {
        self.all_pages_of(path, filter_query(filter).as_ref().map_or(&[], |query| query.as_slice())).await
    }

    async fn all_pages_of<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<Page<T>, ClientError> {
        self.all_pages_from(|| self.request(Method::GET, path).query(query)).await
    }

    async fn all_pages_from<T: DeserializeOwned>(
        &self,
        page: impl Fn() -> RequestBuilder,
    ) -> Result<Page<T>, ClientError> {
        let mut all: Page<T> = self.send(page()).await?;
        while let Some(after) = all.next.take() {
            let more: Page<T> = self.send(page().query(&[("after", after)])).await?;
            all.items.extend(more.items);
            all.next = more.next;
            all.revision = more.revision;
        }
        Ok(all)
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.origin)).timeout(ANSWER);
        let request = match &self.holder {
            None => request,
            Some(holder) => request.header(AGENT_HOLDER, holder),
        };
        let request = match self.protocol {
            None => request,
            Some(protocol) => request.header(AGENT_PROTOCOL, protocol),
        };
        match self.min_revision {
            None => request,
            Some(revision) => request.header(MIN_REVISION, revision.to_string()),
        }
    }

    async fn send<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ClientError> {
        let response = self.answer(request).await?;
        let status = response.status().as_u16();
        let failed = |source| ClientError::NotUnderstood { base: self.base.clone(), status, source: Some(source) };
        response.json().await.map_err(failed)
    }

    async fn answer(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let unreachable = |source| ClientError::Unreachable { base: self.base.clone(), source };
        let response = request.send().await.map_err(unreachable)?;
        if response.status().is_success() || response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(response);
        }
        let status = response.status().as_u16();
        match response.json::<Problem>().await {
            Ok(problem) => Err(ClientError::Refused(Box::new(problem))),
            Err(source) => Err(ClientError::NotUnderstood { base: self.base.clone(), status, source: Some(source) }),
        }
    }
}

/// An HTTP client that ignores proxies and trusts no root, for requests without TLS. reqwest requires a TLS configuration in any
/// case, and would look for a crypto provider of the process.
pub fn plain_http() -> reqwest::ClientBuilder {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let tls = tls.map(|tls| tls.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth());
    let http = reqwest::Client::builder().no_proxy();
    match tls {
        Ok(tls) => http.tls_backend_preconfigured(tls),
        // The provider supports the default versions.
        Err(_) => http,
    }
}

/// True if the host of a URL is `localhost` or a loopback address.
fn is_loopback(url: &reqwest::Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

fn authorization(token: &Token) -> HeaderMap {
    let mut headers = HeaderMap::new();
    // A token has printable ASCII characters only, which every header may have.
    if let Ok(mut value) = HeaderValue::from_str(&format!("Bearer {}", token.as_str())) {
        value.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, value);
    }
    headers
}

fn recorded_query(recorded: bool) -> &'static [(&'static str, &'static str)] {
    if recorded { &[("recorded", "true")] } else { &[] }
}

/// Query of a filter. None for the empty filter.
fn filter_query(filter: &str) -> Option<[(&'static str, &str); 1]> {
    (!filter.is_empty()).then_some([("filter", filter)])
}

/// A large response, received in chunks.
#[derive(Debug)]
pub struct Download {
    base: String,
    response: Response,
}

impl Download {
    /// Next chunk. None at the end. A server that fails in the middle closes the connection, which is an error.
    pub async fn next(&mut self) -> Result<Option<impl AsRef<[u8]> + use<>>, ClientError> {
        let unreachable = |source| ClientError::Unreachable { base: self.base.clone(), source };
        self.response.chunk().await.map_err(unreachable)
    }
}

/// Idempotency key of a request: the server executes repeated requests with the same key once. It is random and unique, not
/// secret.
pub fn new_request_id() -> String {
    let random = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", random(), random())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_a_url_or_a_socket() {
        let base = |text: &str| Client::new(text).map(|client| (client.base().to_owned(), client.origin)).ok();
        let url = "http://127.0.0.1:7300".to_owned();
        assert_eq!(base("http://127.0.0.1:7300/"), Some((url.clone(), url)));
        assert_eq!(base("unix:/run/muster.sock"), Some(("unix:/run/muster.sock".into(), "http://localhost".into())));
        for wrong in ["", "127.0.0.1:7300", "https://127.0.0.1:7300", "unix:muster.sock", "/run/muster.sock"] {
            assert_eq!(base(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn token_is_not_shown() {
        let token = Token::new("0123456789abcdef0123456789abcdef").unwrap();
        let client = Client::with_token("http://127.0.0.1:7300", Some(&token)).unwrap();
        assert!(!format!("{client:?}").contains(token.as_str()));
    }

    #[test]
    fn token_is_sent_to_this_machine_only() {
        let token = Token::new("0123456789abcdef0123456789abcdef").unwrap();
        let client = |base: &str, token| Client::with_token(base, token);
        for base in
            ["http://127.0.0.1:7300", "http://127.77.0.2", "http://[::1]:7300", "http://localhost:7300", "unix:/s"]
        {
            assert!(client(base, Some(&token)).is_ok(), "{base}");
        }
        for base in [
            "http://10.0.0.1:7300",
            "http://[fd00::1]:7300",
            "http://0.0.0.0:7300",
            "http://ctl1:7300",
            "http://localhost.evil.example:7300",
            "http://127.0.0.1@evil.example:7300",
        ] {
            assert!(matches!(client(base, Some(&token)), Err(ClientError::TokenNotSent(_))), "{base}");
            assert!(client(base, None).is_ok(), "{base}");
        }
    }

    #[test]
    fn request_ids_are_unique() {
        assert_ne!(new_request_id(), new_request_id());
        assert_eq!(new_request_id().len(), 32);
    }
}
