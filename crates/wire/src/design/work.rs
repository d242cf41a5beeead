//! Checking, planning and applying whole designs.

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
    /// Below the source, with `/`: `environments/prod.yaml`.
    pub path: String,
    pub text: String,
}

/// A source, whole: it replaces everything that the source of this name has brought before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SourceBundle {
    pub name: String,
    pub files: Vec<SourceFile>,
}

/// What a design is to be made of. With nothing in it: what is there already, at its newest revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DesignInput {
    /// The sources in their order; a later one wins. Those that are there and not given keep their place; what was
    /// written through the API always comes last.
    #[serde(default)]
    pub bundles: Vec<SourceBundle>,
    /// Sources to take out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove_sources: Vec<String>,
    /// How many nodes roles have, in place of what the environment file says.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, u32>)]
    pub cardinality: BTreeMap<Role, u32>,
}

impl DesignInput {
    /// Whether it says nothing: what is there already.
    pub fn is_empty(&self) -> bool {
        self.bundles.is_empty() && self.remove_sources.is_empty() && self.cardinality.is_empty()
    }
}

/// What was found in a design.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckDesignResponse {
    /// Whether it can be used: none of the findings is an error.
    pub usable: bool,
    pub findings: Vec<Finding>,
    pub documents: usize,
    pub nodes: usize,
}

/// What applying a design would do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanDesignResponse {
    pub plan: DesignPlan,
    /// What is worth knowing: none of them an error.
    pub findings: Vec<Finding>,
    pub revision: Revision,
}

/// Asks for a design to be applied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ApplyDesign {
    #[serde(flatten)]
    pub design: DesignInput,
    #[serde(default)]
    pub message: String,
    /// Who applies it; without it, the header `Muster-Author` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// What was shown: it is carried out exactly so, or refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<DesignPlan>,
    /// That it is meant if no node would be left of an environment that has some; else that is refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub remove_all: bool,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ApplyDesignResponse {
    /// The revision of the design that the nodes follow now.
    pub design: DesignRevision,
    /// False if there was nothing to do.
    pub changed: bool,
    /// What was done.
    pub plan: DesignPlan,
    /// Whether the nodes have been told; false if that takes longer than the server waits. It is done all the same.
    pub followed: bool,
    pub findings: Vec<Finding>,
    pub revision: Revision,
}

/// A kind of document whose JSON Schema there is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SchemaRow {
    pub kind: String,
    pub url: String,
}
