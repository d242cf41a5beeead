//! Client methods for runs and their logs.

use std::collections::VecDeque;
use std::time::Duration;

use muster_core::names::{EnvName, NodeName, RunId};
use reqwest::{Method, Response};

use crate::design::AUTHOR;
use crate::drift::NodeDrift;
use crate::operator::Page;
use crate::runs::{LogEvent, LogPiece, LogQuery, RunLog, RunRequestStatus, RunRow, StartRunRequest, StartRunResponse};
use crate::sse::{DecodeError, Frames};

use super::{ANSWER, Client, ClientError, Download};

impl Client {
    /// Requests a run of a node on behalf of an operator.
    pub async fn request_run(
        &self,
        env: &EnvName,
        node: &str,
        by: &str,
        ask: &StartRunRequest,
    ) -> Result<StartRunResponse, ClientError> {
        let request = self.request(Method::POST, &format!("/v1/envs/{env}/nodes/{node}/runs"));
        self.send(request.header(AUTHOR, by).json(ask)).await
    }

    /// Status of the last run request. With `wait`, the response waits until the run has begun or ended.
    pub async fn run_request(
        &self,
        env: &EnvName,
        node: &NodeName,
        id: &str,
        wait: Duration,
    ) -> Result<RunRequestStatus, ClientError> {
        let request = self.request(Method::GET, &format!("/v1/envs/{env}/nodes/{node}/asked/{id}"));
        self.send(request.timeout(ANSWER + wait).query(&[("wait_seconds", wait.as_secs())])).await
    }

    /// Newest runs of one node, or of the nodes that match a filter.
    pub async fn runs(&self, env: &EnvName, filter: &str, limit: usize) -> Result<Page<RunRow>, ClientError> {
        let request = self.request(Method::GET, &format!("/v1/envs/{env}/runs"));
        self.send(request.query(&[("filter", filter), ("limit", &limit.to_string())])).await
    }

    /// Drift of all nodes, or of those that match a filter.
    pub async fn drift(&self, env: &EnvName, filter: &str) -> Result<Page<NodeDrift>, ClientError> {
        self.pages_of(&format!("/v1/envs/{env}/drift"), filter).await
    }

    /// Sends a chunk of the log of a run in progress.
    pub async fn send_log(
        &self,
        env: &EnvName,
        node: &NodeName,
        run: &RunId,
        piece: &LogPiece,
    ) -> Result<(), ClientError> {
        let request = self.request(Method::POST, &log_path(env, node, run));
        self.answer(request.json(piece)).await.map(drop)
    }

    /// Available log of a run.
    pub async fn run_log(&self, env: &EnvName, node: &NodeName, run: &RunId) -> Result<RunLog, ClientError> {
        self.get(&log_path(env, node, run)).await
    }

    /// Follows the log of a run to its end, from an offset.
    pub async fn follow_log(
        &self,
        env: &EnvName,
        node: &NodeName,
        run: &RunId,
        from: u64,
    ) -> Result<LogStream, ClientError> {
        let response = self.request_log(env, node, run, LogQuery { follow: true, from, here: false }).await?;
        Ok(LogStream { base: self.base.clone(), response, frames: Frames::default(), ready: VecDeque::new() })
    }

    /// Raw log stream of this server, for another replica that forwards it.
    pub async fn forward_log(
        &self,
        env: &EnvName,
        node: &NodeName,
        run: &RunId,
        query: LogQuery,
    ) -> Result<Download, ClientError> {
        let response = self.request_log(env, node, run, query).await?;
        Ok(Download { base: self.base.clone(), response })
    }

    /// Without a timeout: a run has no maximum duration.
    async fn request_log(
        &self,
        env: &EnvName,
        node: &NodeName,
        run: &RunId,
        query: LogQuery,
    ) -> Result<Response, ClientError> {
        self.answer(self.http.get(format!("{}{}", self.origin, log_path(env, node, run))).query(&query)).await
    }
}

fn log_path(env: &EnvName, node: &NodeName, run: &RunId) -> String {
    format!("/v1/envs/{env}/nodes/{node}/runs/{run}/log")
}

/// Events of a log.
#[derive(Debug)]
pub struct LogStream {
    base: String,
    response: Response,
    frames: Frames,
    ready: VecDeque<LogEvent>,
}

impl LogStream {
    /// Next event. None when the connection has ended. A complete log ends with [`LogEvent::End`].
    pub async fn next(&mut self) -> Result<Option<LogEvent>, ClientError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            let unreachable = |source| ClientError::Unreachable { base: self.base.clone(), source };
            let Some(piece) = self.response.chunk().await.map_err(unreachable)? else { return Ok(None) };
            let frames = self.frames.feed(&piece).map_err(|error| ClientError::Stream(error.into()))?;
            for frame in frames {
                let event = LogEvent::read(&frame).map_err(|error: DecodeError| ClientError::Stream(error))?;
                self.ready.extend(event);
            }
        }
    }
}
