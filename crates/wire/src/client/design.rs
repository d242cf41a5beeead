//! Client methods for designs.

use std::time::Duration;

use reqwest::{Method, RequestBuilder, Url, header};
use serde::Serialize;
use serde_json::Value;

use muster_core::design::DesignRevision;
use muster_core::names::{EnvName, NodeName};

use super::{Client, ClientError};
use crate::design::{
    AUTHOR, ApplyDesign, ApplyDesignResponse, CheckDesignResponse, DesignDiff, DesignInput, DesignNode, DesignNodeRow,
    DesignSummary, DocumentChanges, DocumentChangesResponse, DocumentDetail, DocumentRow, DocumentText,
    PlanDesignResponse, RevisionRow, SchemaRow, YAML,
};
use crate::operator::{DestroyResponse, EnvironmentDetail, Page};

/// Timeout of large requests. A design of many megabytes takes time to upload and check, and an apply waits for the
/// nodes.
const LONG: Duration = Duration::from_secs(180);

/// Precondition of a change to a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DocumentPrecondition {
    #[default]
    Anything,
    /// It must not exist.
    Nothing,
    /// It must have this etag.
    Etag(String),
}

/// Options of a document write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    pub expected: DocumentPrecondition,
    pub message: String,
    pub author: Option<String>,
    /// Check only.
    pub dry_run: bool,
}

impl Client {
    /// One environment: design, roles and node counts.
    pub async fn environment(&self, env: &EnvName) -> Result<EnvironmentDetail, ClientError> {
        self.get(&format!("/v1/envs/{env}")).await
    }

    /// Destroys an environment: its nodes leave, then its keys are deleted.
    pub async fn destroy(&self, env: &EnvName, author: Option<&str>) -> Result<DestroyResponse, ClientError> {
        let request = self.request(Method::DELETE, &format!("/v1/envs/{env}")).timeout(LONG);
        self.send(by(request.query(&[("confirm", env.as_str())]), author)).await
    }

    pub async fn design(&self, env: &EnvName) -> Result<DesignSummary, ClientError> {
        self.get(&format!("/v1/envs/{env}/design")).await
    }

    /// All revisions, the newest first.
    pub async fn design_revisions(&self, env: &EnvName) -> Result<Page<RevisionRow>, ClientError> {
        self.all_pages(&format!("/v1/envs/{env}/design/revisions")).await
    }

    pub async fn design_revision(&self, env: &EnvName, design: DesignRevision) -> Result<RevisionRow, ClientError> {
        self.get(&format!("/v1/envs/{env}/design/revisions/{design}")).await
    }

    /// Differences between two revisions. Default: between the applied and the newest one.
    pub async fn design_diff(
        &self,
        env: &EnvName,
        from: Option<DesignRevision>,
        to: Option<DesignRevision>,
    ) -> Result<DesignDiff, ClientError> {
        let request = self.request(Method::GET, &format!("/v1/envs/{env}/design/diff")).timeout(LONG);
        self.send(request.query(&[("from", from), ("to", to)])).await
    }

    /// Documents that match a filter, at a revision or the newest.
    pub async fn documents(
        &self,
        env: &EnvName,
        filter: Option<&str>,
        design: Option<DesignRevision>,
    ) -> Result<Page<DocumentRow>, ClientError> {
        let design = design.map(|design| design.to_string());
        let design = design.as_deref().map(|design| ("revision", design));
        let query: Vec<(&str, &str)> = filter.map(|filter| ("filter", filter)).into_iter().chain(design).collect();
        self.all_pages_of(&format!("/v1/envs/{env}/design/documents"), &query).await
    }

    pub async fn document(
        &self,
        env: &EnvName,
        kind: &str,
        name: &str,
        design: Option<DesignRevision>,
    ) -> Result<DocumentDetail, ClientError> {
        let request = self.document_request(Method::GET, env, kind, name)?;
        self.send(request.query(&[("revision", design)])).await
    }

    /// Writes a document to the source `api`. YAML is stored unchanged.
    pub async fn put_document(
        &self,
        env: &EnvName,
        kind: &str,
        name: &str,
        document: &DocumentText,
        options: &WriteOptions,
    ) -> Result<DocumentChangesResponse, ClientError> {
        let request = options.on(self.document_request(Method::PUT, env, kind, name)?);
        let request = match document {
            DocumentText::Yaml(text) => request.header(header::CONTENT_TYPE, YAML).body(text.clone()),
            DocumentText::Json(value) => request.json(value),
        };
        self.send(request).await
    }

    pub async fn delete_document(
        &self,
        env: &EnvName,
        kind: &str,
        name: &str,
        options: &WriteOptions,
    ) -> Result<DocumentChangesResponse, ClientError> {
        self.send(options.on(self.document_request(Method::DELETE, env, kind, name)?)).await
    }

    /// Changes several documents atomically.
    pub async fn change_documents(
        &self,
        env: &EnvName,
        changes: &DocumentChanges,
    ) -> Result<DocumentChangesResponse, ClientError> {
        self.post_long(&format!("/v1/envs/{env}/design/changes"), changes).await
    }

    pub async fn design_nodes(
        &self,
        env: &EnvName,
        design: Option<DesignRevision>,
    ) -> Result<Page<DesignNodeRow>, ClientError> {
        let design = design.map(|design| design.to_string());
        let query: Vec<(&str, &str)> = design.as_deref().map(|design| ("revision", design)).into_iter().collect();
        self.all_pages_of(&format!("/v1/envs/{env}/design/nodes"), &query).await
    }

    /// One node at a revision. With a path, also the provenance of that value.
    pub async fn design_node(
        &self,
        env: &EnvName,
        node: &NodeName,
        design: Option<DesignRevision>,
        path: Option<&str>,
    ) -> Result<DesignNode, ClientError> {
        let request = self.request(Method::GET, &format!("/v1/envs/{env}/design/nodes/{node}"));
        self.send(request.query(&[("revision", design)]).query(&[("path", path)])).await
    }

    /// Checks a design without changing anything.
    pub async fn check_design(&self, env: &EnvName, design: &DesignInput) -> Result<CheckDesignResponse, ClientError> {
        self.post_long(&format!("/v1/envs/{env}/design/check"), design).await
    }

    /// Plans applying a design without changing anything.
    pub async fn plan_design(&self, env: &EnvName, design: &DesignInput) -> Result<PlanDesignResponse, ClientError> {
        self.post_long(&format!("/v1/envs/{env}/design/plan"), design).await
    }

    pub async fn apply_design(&self, env: &EnvName, apply: &ApplyDesign) -> Result<ApplyDesignResponse, ClientError> {
        self.post_long(&format!("/v1/envs/{env}/design/apply"), apply).await
    }

    /// Kinds of documents with a JSON Schema.
    pub async fn schemas(&self) -> Result<Page<SchemaRow>, ClientError> {
        self.all_pages("/v1/schemas").await
    }

    pub async fn schema(&self, kind: &str) -> Result<Value, ClientError> {
        self.get(&format!("/v1/schemas/{kind}")).await
    }

    async fn post_long<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.send(self.request(Method::POST, path).timeout(LONG).json(body)).await
    }

    /// Request for one document. The kind may contain a `/`, which must be encoded in the path.
    fn document_request(
        &self,
        method: Method,
        env: &EnvName,
        kind: &str,
        name: &str,
    ) -> Result<RequestBuilder, ClientError> {
        let wrong = || ClientError::Address(self.base.clone());
        let mut url = Url::parse(&self.origin).map_err(|_| wrong())?;
        let segments = ["v1", "envs", env.as_str(), "design", "documents", kind, name];
        url.path_segments_mut().map_err(|()| wrong())?.pop_if_empty().extend(segments);
        Ok(self.request(method, url.path()))
    }
}

impl WriteOptions {
    fn on(&self, request: RequestBuilder) -> RequestBuilder {
        let request = match &self.expected {
            DocumentPrecondition::Anything => request,
            DocumentPrecondition::Nothing => request.header(header::IF_NONE_MATCH, "*"),
            DocumentPrecondition::Etag(etag) => request.header(header::IF_MATCH, format!("\"{etag}\"")),
        };
        let request = if self.message.is_empty() { request } else { request.query(&[("message", &self.message)]) };
        let request = if self.dry_run { request.query(&[("dry_run", true)]) } else { request };
        by(request, self.author.as_deref())
    }
}

/// Sets the author of a request. A name that is not a valid header value is left out.
pub(super) fn by(request: RequestBuilder, author: Option<&str>) -> RequestBuilder {
    match author.and_then(|author| header::HeaderValue::from_str(author).ok()) {
        Some(author) => request.header(AUTHOR, author),
        None => request,
    }
}
