//! The typed client of the API, for the agent and the operator's tool.

mod data;
mod design;
mod release;
mod rollout;
mod run_log;
mod runs;

use std::fmt::Display;
use std::time::Duration;

use reqwest::{Method, RequestBuilder, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use muster_core::names::{EnvName, NodeName, RunId, Version};
use muster_core::node::status::Activity;
use muster_core::report::Report;
use muster_core::txn::Revision;

use crate::backup::{self, RestoreQuery, RestoreResponse};
use crate::doctor::{DoctorReport, ReplicaReport};
use crate::operator::{
    CurrentVersion, EnvironmentRow, EnvironmentStatus, MIN_REVISION, NodeDetail, NodeRow, Page, RunDetail,
    RunningVersionRow, TriggerUpdate, UpdateResponse, VerifyHostsRequest, VerifyHostsResponse,
};
use crate::problem::Problem;
use crate::replica::AgentActivity;
use crate::sse::{DecodeError, Decoder};
use crate::sync::{DesiredResponse, ReportAck, SyncEvent, SyncOpen};

pub use data::{DataQuery, DatumPrecondition};
pub use design::{DocumentPrecondition, WriteOptions};
pub use release::BundleDownload;
pub use rollout::{RolloutRef, RolloutVerb, StatusQuery};
pub use run_log::LogStream;

/// How long a connection may take to be made. A server that is there answers in a millisecond.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an answer may take, unless the question says that it waits.
const ANSWER: Duration = Duration::from_secs(30);

#[derive(Debug, Error)]
pub enum ClientError {
    #[error("{0:?} is not the address of a server: expected http://HOST:PORT")]
    Address(String),
    #[error("cannot reach the server at {base}")]
    Unreachable {
        base: String,
        #[source]
        source: reqwest::Error,
    },
    #[error("the server refused: {0}")]
    Refused(Box<Problem>),
    #[error("the server at {base} answered in a way that is not understood (status {status})")]
    NotUnderstood {
        base: String,
        status: u16,
        #[source]
        source: Option<reqwest::Error>,
    },
    #[error("the server's stream is not understood")]
    Stream(#[source] DecodeError),
}

impl ClientError {
    /// The problem that the server answered with, if it did answer.
    pub fn problem(&self) -> Option<&Problem> {
        if let ClientError::Refused(problem) = self { Some(problem) } else { None }
    }
}

/// Talks to one server.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    base: String,
    min_revision: Option<Revision>,
}

impl Client {
    pub fn new(base: &str) -> Result<Self, ClientError> {
        let base = base.trim_end_matches('/').to_owned();
        if !base.starts_with("http://") || reqwest::Url::parse(&base).is_err() {
            return Err(ClientError::Address(base));
        }
        // The server listens on loopback: a proxy from the environment would only be in the way.
        let http = reqwest::Client::builder().no_proxy().connect_timeout(CONNECT).build();
        let http = http.map_err(|source| ClientError::Unreachable { base: base.clone(), source })?;
        Ok(Self { http, base, min_revision: None })
    }

    /// Demands answers that are at least as new as a revision.
    #[must_use]
    pub fn at_least(mut self, revision: Revision) -> Self {
        self.min_revision = Some(revision);
        self
    }

    pub fn base(&self) -> &str {
        &self.base
    }

    pub async fn environments(&self) -> Result<Page<EnvironmentRow>, ClientError> {
        self.get("/v1/envs").await
    }

    /// Whether the server is there: the shortest question that there is.
    pub async fn alive(&self) -> Result<(), ClientError> {
        self.answer(self.request(Method::GET, "/healthz")).await.map(drop)
    }

    /// Has the server examine its store, itself and the other replicas.
    pub async fn doctor(&self) -> Result<DoctorReport, ClientError> {
        self.get("/v1/doctor").await
    }

    /// Asks a replica what it says of itself.
    pub async fn self_examination(&self, patience: Duration) -> Result<ReplicaReport, ClientError> {
        self.send(self.request(Method::GET, "/v1/doctor/self").timeout(patience)).await
    }

    /// Has the server write a backup. It may take as long as it takes.
    pub async fn backup(&self, env: &EnvName) -> Result<Download, ClientError> {
        let response = self.answer(self.http.get(format!("{}/v1/envs/{env}/backup", self.base))).await?;
        Ok(Download { base: self.base.clone(), response })
    }

    /// Sends a backup to be restored, or to be looked at only.
    pub async fn restore(
        &self,
        env: &EnvName,
        query: RestoreQuery,
        backup: impl Into<reqwest::Body>,
    ) -> Result<RestoreResponse, ClientError> {
        let request = self.http.post(format!("{}/v1/envs/{env}/restore", self.base)).query(&query);
        self.send(request.header("content-type", backup::MEDIA_TYPE).body(backup)).await
    }

    pub async fn status(&self, env: &EnvName) -> Result<EnvironmentStatus, ClientError> {
        self.status_of(env, "").await
    }

    /// The same for the nodes that a filter chooses.
    pub async fn status_of(&self, env: &EnvName, filter: &str) -> Result<EnvironmentStatus, ClientError> {
        let request = self.request(Method::GET, &format!("/v1/envs/{env}/status"));
        self.send(request.query(&chosen_by(filter))).await
    }

    /// All nodes: asks for page after page.
    pub async fn nodes(&self, env: &EnvName) -> Result<Page<NodeRow>, ClientError> {
        self.nodes_of(env, "").await
    }

    /// The nodes that a filter chooses.
    pub async fn nodes_of(&self, env: &EnvName, filter: &str) -> Result<Page<NodeRow>, ClientError> {
        self.pages_of(&format!("/v1/envs/{env}/nodes"), filter).await
    }

    pub async fn failures(&self, env: &EnvName) -> Result<Page<NodeRow>, ClientError> {
        self.all_pages(&format!("/v1/envs/{env}/failures")).await
    }

    /// One node, by its name or its host name.
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

    /// The same, with all that can be said of it.
    pub async fn trigger(&self, env: &EnvName, update: &TriggerUpdate) -> Result<UpdateResponse, ClientError> {
        self.send(self.request(Method::PUT, &format!("/v1/envs/{env}/current-version")).json(update)).await
    }

    pub async fn running_versions(&self, env: &EnvName) -> Result<Page<RunningVersionRow>, ClientError> {
        self.get(&format!("/v1/envs/{env}/running-versions")).await
    }

    pub async fn hosts_at_version(&self, env: &EnvName, version: &Version) -> Result<Page<String>, ClientError> {
        self.all_pages(&format!("/v1/envs/{env}/running-versions/{version}/hosts")).await
    }

    pub async fn verify_hosts(
        &self,
        env: &EnvName,
        question: &VerifyHostsRequest,
    ) -> Result<VerifyHostsResponse, ClientError> {
        let patience = ANSWER + Duration::from_secs(question.wait_seconds);
        let request = self.request(Method::POST, &format!("/v1/envs/{env}/verify-hosts"));
        self.send(request.timeout(patience).json(question)).await
    }

    /// What the agents do that are connected to this server; of one node, or of all that do something.
    pub async fn activities(
        &self,
        env: &EnvName,
        node: Option<&NodeName>,
        patience: Duration,
    ) -> Result<Page<AgentActivity>, ClientError> {
        let request = self.request(Method::GET, &format!("/v1/envs/{env}/activities")).timeout(patience);
        self.send(request.query(&node.map(|node| [("node", node.as_str())]))).await
    }

    /// Opens the stream of a node.
    pub async fn sync(&self, env: &EnvName, node: &NodeName, open: &SyncOpen) -> Result<SyncStream, ClientError> {
        let url = format!("{}/v1/envs/{env}/nodes/{node}/sync", self.base);
        let request = self.http.post(url).header("accept", "text/event-stream").json(open);
        let response = self.answer(request).await?;
        Ok(SyncStream { base: self.base.clone(), response, decoder: Decoder::default(), ready: Vec::new() })
    }

    pub async fn report(&self, env: &EnvName, report: &Report) -> Result<ReportAck, ClientError> {
        self.post(&format!("/v1/envs/{env}/nodes/{}/reports", report.node), report).await
    }

    /// What a node should run, and whether it may.
    pub async fn told(&self, env: &EnvName, node: &NodeName) -> Result<DesiredResponse, ClientError> {
        self.get(&format!("/v1/envs/{env}/nodes/{node}/desired")).await
    }

    /// Says what the agent does right now.
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
        self.all_pages_of(path, chosen_by(filter).as_ref().map_or(&[], |query| query.as_slice())).await
    }

    async fn all_pages_of<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<Page<T>, ClientError> {
        let ask = || self.request(Method::GET, path).query(query);
        let mut all: Page<T> = self.send(ask()).await?;
        while let Some(after) = all.next.take() {
            let more: Page<T> = self.send(ask().query(&[("after", after)])).await?;
            all.items.extend(more.items);
            all.next = more.next;
            all.revision = more.revision;
        }
        Ok(all)
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base)).timeout(ANSWER);
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
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        match response.json::<Problem>().await {
            Ok(problem) => Err(ClientError::Refused(Box::new(problem))),
            Err(source) => Err(ClientError::NotUnderstood { base: self.base.clone(), status, source: Some(source) }),
        }
    }
}

/// The query that cuts a list down; the empty filter is none.
fn chosen_by(filter: &str) -> Option<[(&'static str, &str); 1]> {
    (!filter.is_empty()).then_some([("filter", filter)])
}

/// Something large that arrives in pieces.
#[derive(Debug)]
pub struct Download {
    base: String,
    response: Response,
}

impl Download {
    /// The next piece; none at the end. A server that failed in the middle breaks the connection, which is an error.
    pub async fn next(&mut self) -> Result<Option<impl AsRef<[u8]> + use<>>, ClientError> {
        let unreachable = |source| ClientError::Unreachable { base: self.base.clone(), source };
        self.response.chunk().await.map_err(unreachable)
    }
}

/// The events of a node's stream.
#[derive(Debug)]
pub struct SyncStream {
    base: String,
    response: Response,
    decoder: Decoder,
    /// Decoded and not yet handed out, the next one last.
    ready: Vec<SyncEvent>,
}

impl SyncStream {
    /// The next event; none when the server has ended the stream.
    pub async fn next(&mut self) -> Result<Option<SyncEvent>, ClientError> {
        loop {
            if let Some(event) = self.ready.pop() {
                return Ok(Some(event));
            }
            let unreachable = |source| ClientError::Unreachable { base: self.base.clone(), source };
            let Some(piece) = self.response.chunk().await.map_err(unreachable)? else { return Ok(None) };
            self.ready = self.decoder.feed(&piece).map_err(ClientError::Stream)?;
            self.ready.reverse();
        }
    }
}
