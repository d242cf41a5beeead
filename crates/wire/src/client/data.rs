//! Client methods for configuration data, pauses, policies and lookups.

use std::fmt::Display;

use reqwest::{Method, RequestBuilder, header};

use muster_core::lookup::config_data::Layer;
use muster_core::names::{DataKey, EnvName};
use muster_core::node::pause::PauseScope;
use muster_core::node::policy::{NodePolicy, NodePolicyRow};
use muster_core::txn::Revision;

use super::design::by as said_by;
use super::{Client, ClientError};
use crate::data::{
    DatumRow, LookupResponse, PauseRow, ResumeResponse, SelfResponse, SetDatum, SetDatumResponse, SetPause,
    SetPauseResponse, UnsetDatumResponse,
};
use crate::operator::Page;
use crate::policy::{PolicyResponse, SetPolicy};

/// Precondition of a change to a datum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatumPrecondition {
    Anything,
    Nothing,
    At(Revision),
}

impl DatumPrecondition {
    fn apply(self, request: RequestBuilder) -> RequestBuilder {
        match self {
            DatumPrecondition::Anything => request,
            DatumPrecondition::Nothing => request.header(header::IF_NONE_MATCH, "*"),
            DatumPrecondition::At(at) => request.header(header::IF_MATCH, format!("\"{at}\"")),
        }
    }
}

/// Filter of configuration data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataQuery {
    pub layer: Option<Layer>,
    /// Only data that apply to this node, by name or host name.
    pub effective: Option<String>,
    pub key: Option<DataKey>,
}

impl Client {
    pub async fn data(&self, env: &EnvName, query: &DataQuery) -> Result<Page<DatumRow>, ClientError> {
        let mut pairs: Vec<(&str, &str)> = query.layer.iter().filter_map(layer_pair).collect();
        pairs.extend(query.effective.as_deref().map(|node| ("effective", node)));
        pairs.extend(query.key.as_ref().map(|key| ("key", key.as_str())));
        self.all_pages_of(&format!("/v1/envs/{env}/data"), &pairs).await
    }

    pub async fn datum(&self, env: &EnvName, layer: &Layer, key: &DataKey) -> Result<DatumRow, ClientError> {
        self.send(self.datum_request(Method::GET, env, layer, key)).await
    }

    pub async fn set_datum(
        &self,
        env: &EnvName,
        (layer, key): (&Layer, &DataKey),
        set: &SetDatum,
        before: DatumPrecondition,
        by: &str,
    ) -> Result<SetDatumResponse, ClientError> {
        let request = before.apply(self.datum_request(Method::PUT, env, layer, key)).json(set);
        self.send(said_by(request, Some(by))).await
    }

    pub async fn unset_datum(
        &self,
        env: &EnvName,
        (layer, key): (&Layer, &DataKey),
        before: DatumPrecondition,
        by: &str,
    ) -> Result<UnsetDatumResponse, ClientError> {
        let request = before.apply(self.datum_request(Method::DELETE, env, layer, key));
        self.send(said_by(request, Some(by))).await
    }

    fn datum_request(&self, method: Method, env: &EnvName, layer: &Layer, key: &DataKey) -> RequestBuilder {
        let request = self.request(method, &format!("/v1/envs/{env}/data/{key}"));
        request.query(&layer_pair(layer).map(|pair| [pair]))
    }

    pub async fn pauses(&self, env: &EnvName) -> Result<Page<PauseRow>, ClientError> {
        self.all_pages_of(&format!("/v1/envs/{env}/pauses"), &[]).await
    }

    pub async fn pause(
        &self,
        env: &EnvName,
        scope: &PauseScope,
        set: &SetPause,
        by: &str,
    ) -> Result<SetPauseResponse, ClientError> {
        let request = self.request(Method::PUT, &format!("/v1/envs/{env}/pauses"));
        self.send(said_by(request.query(&scope_pair(scope).map(|pair| [pair])).json(set), Some(by))).await
    }

    pub async fn resume(&self, env: &EnvName, scope: &PauseScope, by: &str) -> Result<ResumeResponse, ClientError> {
        let request = self.request(Method::DELETE, &format!("/v1/envs/{env}/pauses"));
        self.send(said_by(request.query(&scope_pair(scope).map(|pair| [pair])), Some(by))).await
    }

    /// Cordoned and retired nodes.
    pub async fn policies(&self, env: &EnvName) -> Result<Page<NodePolicyRow>, ClientError> {
        self.all_pages_of(&format!("/v1/envs/{env}/policies"), &[]).await
    }

    /// Cordons or retires a node.
    pub async fn set_policy(
        &self,
        env: &EnvName,
        node: impl Display,
        set: &SetPolicy,
        by: &str,
    ) -> Result<PolicyResponse, ClientError> {
        let request = self.request(Method::PUT, &format!("/v1/envs/{env}/nodes/{node}/policy"));
        self.send(said_by(request.json(set), Some(by))).await
    }

    /// Ends the policy of a node.
    pub async fn end_policy(
        &self,
        env: &EnvName,
        node: impl Display,
        policy: NodePolicy,
        by: &str,
    ) -> Result<PolicyResponse, ClientError> {
        let request = self.request(Method::DELETE, &format!("/v1/envs/{env}/nodes/{node}/policy"));
        self.send(said_by(request.query(&[("policy", policy.word())]), Some(by))).await
    }

    /// Values of a node in the applied design; one of them if a path is given.
    pub async fn self_values(
        &self,
        env: &EnvName,
        node: impl Display,
        path: &str,
    ) -> Result<SelfResponse, ClientError> {
        let path = if path.is_empty() { String::new() } else { format!("/{path}") };
        self.send(self.request(Method::GET, &format!("/v1/envs/{env}/nodes/{node}/self{path}"))).await
    }

    /// Value that a node would look up.
    pub async fn lookup(&self, env: &EnvName, node: impl Display, key: &str) -> Result<LookupResponse, ClientError> {
        let Ok(mut url) = reqwest::Url::parse(&self.origin) else {
            return Err(ClientError::Address(self.base.clone()));
        };
        if let Ok(mut path) = url.path_segments_mut() {
            path.clear().extend(["v1", "envs", env.as_str(), "nodes", &node.to_string(), "lookup", key]);
        }
        self.send(self.request(Method::GET, url.path())).await
    }
}

fn layer_pair(layer: &Layer) -> Option<(&'static str, &str)> {
    match layer {
        Layer::Global => None,
        Layer::Role { role } => Some(("role", role.as_str())),
        Layer::Host { node } => Some(("host", node.as_str())),
    }
}

fn scope_pair(scope: &PauseScope) -> Option<(&'static str, &str)> {
    match scope {
        PauseScope::Global => None,
        PauseScope::Role { role } => Some(("role", role.as_str())),
        PauseScope::Host { node } => Some(("host", node.as_str())),
    }
}
