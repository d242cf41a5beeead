//! Client methods for runs.

use std::time::Duration;

use reqwest::Method;

use muster_core::names::{EnvName, NodeName};
use muster_core::report::failure_groups::FailureGroup;

use super::{ANSWER, Client, ClientError};
use crate::design::AUTHOR;
use crate::operator::Page;
use crate::runs::{RunRequestStatus, RunRow, StartRunRequest, StartRunResponse};

impl Client {
    /// Requests a run of a node on behalf of an operator.
    pub async fn ask_for_run(
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
    pub async fn asked_run(
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

    /// Failed nodes, grouped by equal failures.
    pub async fn failure_groups(&self, env: &EnvName, filter: &str) -> Result<Page<FailureGroup>, ClientError> {
        let request = self.request(Method::GET, &format!("/v1/envs/{env}/failure-groups"));
        self.send(request.query(&[("filter", filter)])).await
    }
}
