//! Request and response types for checking, planning and applying a design.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use muster_core::design::DesignRevision;
use muster_core::design::plan::DesignPlan;
use muster_core::names::Role;
use muster_core::txn::Revision;

use super::Finding;

/// One file of a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SourceFile {
    /// Path in the source: `environments/prod.yaml`.
    pub path: String,
    pub text: String,
}

/// A complete source. It replaces everything that the source of this name had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SourceBundle {
    pub name: String,
    pub files: Vec<SourceFile>,
}

/// Input of a design. Empty: the newest revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DesignInput {
    /// Sources in their order. A later one wins. Existing sources that are not given keep their position; the source
    /// `api` always comes last.
    #[serde(default)]
    pub bundles: Vec<SourceBundle>,
    /// Sources to remove.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove_sources: Vec<String>,
    /// Number of nodes per role, replacing the environment file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, u32>)]
    pub cardinality: BTreeMap<Role, u32>,
}

impl DesignInput {
    /// Returns whether nothing is given.
    pub fn is_empty(&self) -> bool {
        self.bundles.is_empty() && self.remove_sources.is_empty() && self.cardinality.is_empty()
    }
}

/// Result of checking a design.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckDesignResponse {
    /// True if no finding is an error.
    pub usable: bool,
    pub findings: Vec<Finding>,
    pub documents: usize,
    pub nodes: usize,
}

/// Plan of applying a design.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanDesignResponse {
    pub plan: DesignPlan,
    /// Warnings.
    pub findings: Vec<Finding>,
    pub revision: Revision,
}

/// Request to apply a design.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ApplyDesign {
    #[serde(flatten)]
    pub design: DesignInput,
    #[serde(default)]
    pub message: String,
    /// Author. Default: the header `Muster-Author`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// Plan that was shown. The server applies exactly this plan or refuses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<DesignPlan>,
    /// Allow a plan that removes all nodes. Refused without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub remove_all: bool,
}

/// Response to an apply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ApplyDesignResponse {
    /// Design revision that the nodes follow now.
    pub design: DesignRevision,
    /// False if there was nothing to do.
    pub changed: bool,
    /// Applied plan.
    pub plan: DesignPlan,
    /// True if the nodes are registered. False if it takes longer than the server waits; it continues in the
    /// background.
    pub followed: bool,
    pub findings: Vec<Finding>,
    pub revision: Revision,
}

/// A kind of document with a JSON Schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SchemaRow {
    pub kind: String,
    pub url: String,
}
