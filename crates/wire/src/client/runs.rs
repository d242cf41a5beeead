//! Runs, those that people ask for and those of the whole fleet.

use std::time::Duration;

use reqwest::Method;

use muster_core::names::{EnvName, NodeName};
use muster_core::report::failure_groups::FailureGroup;

use super::{ANSWER, Client, ClientError};
use crate::design::AUTHOR;
use crate::operator::Page;
use crate::runs::{RunRequestStatus, RunRow, StartRunRequest, StartRunResponse};

impl Client {
    /// Asks a node for a run, in somebody's name.
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

    /// What has become of the last run that somebody asked for. With `wait`, answers when it has begun or is over, or when
    /// that time is over.
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

    /// The newest runs of the fleet: of one node, or of those that a filter chooses.
    pub async fn runs(&self, env: &EnvName, filter: &str, limit: usize) -> Result<Page<RunRow>, ClientError> {
        let request = self.request(Method::GET, &format!("/v1/envs/{env}/runs"));
        self.send(request.query(&[("filter", filter), ("limit", &limit.to_string())])).await
    }

    /// The nodes that have failed, those together that failed in the same way.
    pub async fn failure_groups(&self, env: &EnvName, filter: &str) -> Result<Page<FailureGroup>, ClientError> {
        let request = self.request(Method::GET, &format!("/v1/envs/{env}/failure-groups"));
        self.send(request.query(&[("filter", filter)])).await
    }
}
