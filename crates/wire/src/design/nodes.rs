//! The nodes that a design makes, and who said what of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use muster_core::design::DesignRevision;
use muster_core::names::{NodeName, Role};
use muster_core::node::record::NodeRecord;
use muster_core::txn::Revision;

/// A node that a design makes.
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

/// One node at a revision of the design.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DesignNode {
    pub node: NodeName,
    /// The revision of the design that this is of.
    pub design: DesignRevision,
    pub record: NodeRecord,
    /// All that is in effect.
    #[schema(value_type = Object)]
    pub effective: Value,
    /// Who said it, for the path that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<ValueProvenance>,
    /// Who said it, for all values; only if it was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub provenance: Vec<PathProvenance>,
    /// There are more values than are told here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub provenance_cut: bool,
    pub revision: Revision,
}

/// A value, and every layer that set, changed or removed it, the first one first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ValueProvenance {
    pub path: String,
    /// None: it was removed.
    #[schema(value_type = Option<Object>)]
    pub value: Option<Value>,
    pub steps: Vec<ProvenanceStep>,
}

/// What one layer did.
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
    /// What it was done to: the path that was asked for, or one below it.
    pub path: String,
    /// What it did: `set`, `changed`, `members` (of a list) or `removed`.
    pub action: String,
    /// What it wrote there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub fragment: Option<Value>,
}

/// The layer that had the last word on a value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PathProvenance {
    pub path: String,
    #[schema(value_type = Object)]
    pub value: Value,
    pub steps: Vec<ProvenanceStep>,
}
