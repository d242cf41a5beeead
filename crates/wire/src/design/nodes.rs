//! Nodes of a design, and the provenance of their values.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use muster_core::design::DesignRevision;
use muster_core::names::{NodeName, Role};
use muster_core::node::record::NodeRecord;
use muster_core::txn::Revision;

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
