//! Requests about the audit.

use std::time::Duration;

use muster_core::names::EnvName;
use reqwest::Method;

use super::{ANSWER, Client, ClientError};
use crate::audit::{AuditPage, AuditQuery, AuditVerification, VerifyAuditQuery};

impl Client {
    /// Records of an environment, or of the whole server.
    pub async fn audit(&self, env: Option<&EnvName>, query: &AuditQuery) -> Result<AuditPage, ClientError> {
        let path = env.map_or_else(|| "/v1/audit".to_owned(), |env| format!("/v1/envs/{env}/audit"));
        let timeout = ANSWER + Duration::from_secs(query.wait.unwrap_or(0).into());
        self.send(self.request(Method::GET, &path).query(query).timeout(timeout)).await
    }

    pub async fn verify_audit(&self, query: &VerifyAuditQuery) -> Result<AuditVerification, ClientError> {
        self.send(self.request(Method::GET, "/v1/audit/verify").query(query)).await
    }
}
