//! Documents: reading, writing and listing them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use muster_core::design::DesignRevision;
use muster_core::txn::Revision;

use super::Finding;

/// One document in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DocumentRow {
    pub kind: String,
    pub name: String,
    /// The sources that say something of it, in their order; the last one wins.
    pub sources: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Where the last of them wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// One document, as each source wrote it, and as it is in effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DocumentDetail {
    pub kind: String,
    pub name: String,
    /// The revision of the design that this is of.
    pub design: DesignRevision,
    /// In the order of the sources; the last one wins.
    pub written: Vec<WrittenDocument>,
    /// All layers merged: of other sources, and of what it extends.
    #[schema(value_type = Option<Object>)]
    pub effective: Option<Value>,
    /// What `If-Match` compares; the header `ETag` says the same.
    pub etag: String,
    pub revision: Revision,
}

/// What one source says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WrittenDocument {
    pub source: String,
    pub file: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    #[schema(value_type = Object)]
    pub document: Value,
}

/// Several changes that are accepted together, or not at all. They are written to the source `api`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DocumentChanges {
    pub changes: Vec<DocumentChange>,
    #[serde(default)]
    pub message: String,
    /// Who makes them; without it, the header `Muster-Author` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// The newest revision that whoever asks has seen: any later one is a conflict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<DesignRevision>,
    /// Check only.
    #[serde(default)]
    pub dry_run: bool,
}

/// One of several changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum DocumentChange {
    Put {
        kind: String,
        name: String,
        document: DocumentText,
        /// The `etag` that the document must have now; `*`: it must be there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        if_match: Option<String>,
        /// It must not be there.
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

/// A document as text that is kept as it is, or as a value that is written down as YAML.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum DocumentText {
    Yaml(String),
    #[schema(value_type = Object)]
    Json(serde_json::Map<String, Value>),
}

/// What became of changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DocumentChangesResponse {
    /// The new revision of the design; without a change, the one that is there. None: there is no design yet.
    pub design: Option<DesignRevision>,
    /// False if the design was so already, or was only checked.
    pub changed: bool,
    /// What is worth knowing: none of them an error.
    pub findings: Vec<Finding>,
    /// What each document that was put has now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub etags: Vec<String>,
    /// The revision of the store at which the change is visible.
    pub revision: Revision,
}
