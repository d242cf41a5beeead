//! Request and response types for the documents and nodes of a design, and for the provenance of their values.

use std::collections::BTreeMap;

use muster_core::design::DesignRevision;
use muster_core::names::{NodeName, Role};
use muster_core::node::record::NodeRecord;
use muster_core::txn::Revision;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::Finding;

/// One document in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DocumentRow {
    pub kind: String,
    pub name: String,
    /// Sources that define it, in their order. The last one wins.
    pub sources: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// File of the last source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// One document: as each source wrote it, and its effective value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DocumentDetail {
    pub kind: String,
    pub name: String,
    /// Design revision.
    pub design: DesignRevision,
    /// In the order of the sources. The last one wins.
    pub written: Vec<WrittenDocument>,
    /// All layers merged: of all sources, and of the documents that it extends.
    #[schema(value_type = Option<Object>)]
    pub effective: Option<Value>,
    /// Value for `If-Match`, also in the header `ETag`.
    pub etag: String,
    pub revision: Revision,
}

/// The document in one source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WrittenDocument {
    pub source: String,
    pub file: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    #[schema(value_type = Object)]
    pub document: Value,
}

/// Changes that are accepted together or not at all. They are written to the source `api`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DocumentChanges {
    pub changes: Vec<DocumentEdit>,
    #[serde(default)]
    pub message: String,
    /// Author. Default: the header `Muster-Author`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// Newest revision that the client has seen. A newer one is a conflict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<DesignRevision>,
    /// Check only.
    #[serde(default)]
    pub dry_run: bool,
}

/// One of several changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "action", rename_all = "snake_case")]
#[schema(as = DocumentChange)]
pub enum DocumentEdit {
    Put {
        kind: String,
        name: String,
        document: DocumentText,
        /// Required etag. `*`: it must exist.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        if_match: Option<String>,
        /// It must not exist.
        #[serde(default)]
        if_none_match: bool,
    },
    Delete {
        kind: String,
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        if_match: Option<String>,
    },
}

/// A document as text, stored unchanged, or as a value, stored as YAML.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum DocumentText {
    Yaml(String),
    #[schema(value_type = Object)]
    Json(serde_json::Map<String, Value>),
}

/// Response to document changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DocumentChangesResponse {
    /// New design revision, or the current one if nothing changed. None: there is no design yet.
    pub design: Option<DesignRevision>,
    /// False if nothing changed, or if it was a dry run.
    pub changed: bool,
    /// Warnings.
    pub findings: Vec<Finding>,
    /// New etag of each document that was put.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub etags: Vec<String>,
    /// Store revision at which the change is visible.
    pub revision: Revision,
}

/// A node of a design.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DesignNodeRow {
    pub node: NodeName,
    pub role: Role,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flavor: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    pub failure_domain: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// One node at a design revision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DesignNode {
    pub node: NodeName,
    /// Design revision.
    pub design: DesignRevision,
    pub record: NodeRecord,
    /// Effective value.
    #[schema(value_type = Object)]
    pub effective: Value,
    /// Provenance of the requested path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<ValueProvenance>,
    /// Provenance of all values, if requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub provenance: Vec<PathProvenance>,
    /// The provenance list was cut.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub provenance_cut: bool,
    pub revision: Revision,
}

/// A value with each layer that set, changed or removed it, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ValueProvenance {
    pub path: String,
    /// None: removed.
    #[schema(value_type = Option<Object>)]
    pub value: Option<Value>,
    pub steps: Vec<ProvenanceStep>,
}

/// Effect of one layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProvenanceStep {
    pub source: String,
    pub kind: String,
    pub name: String,
    pub file: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// Path of the change: the requested one, or one below it.
    pub path: String,
    /// `set`, `changed`, `members` (of a list) or `removed`.
    pub action: String,
    /// Value that the layer wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub fragment: Option<Value>,
}

/// Value at a path, with its layers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PathProvenance {
    pub path: String,
    #[schema(value_type = Object)]
    pub value: Value,
    pub steps: Vec<ProvenanceStep>,
}
