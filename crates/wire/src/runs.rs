//! Runs: asked for by people, and listed over the whole fleet.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use muster_core::names::{NodeName, Role, RunId};
use muster_core::node::record::RunRequest;
use muster_core::report::record::PastRun;
use muster_core::txn::Revision;

/// Asks a node for a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StartRunRequest {
    /// Change nothing: only say what would change.
    #[serde(default)]
    pub noop: bool,
}

/// A run was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StartRunResponse {
    pub node: NodeName,
    /// Names what was asked for: the run itself gets its name from the node.
    pub id: String,
    /// Since when the node's agent has no connection; it hears of it when it is back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub silent_since: Option<Timestamp>,
    /// The revision at which it is visible.
    pub revision: Revision,
}

/// What has become of the last run that somebody asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunRequestStatus {
    pub asked: RunRequest,
    pub progress: RunRequestProgress,
    pub revision: Revision,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum RunRequestProgress {
    /// The node has not begun.
    Waiting {
        /// Since when its agent has no connection.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>, format = DateTime)]
        silent_since: Option<Timestamp>,
    },
    Running {
        run: RunId,
    },
    Done {
        run: RunId,
    },
}

/// A run in the list of the whole fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunRow {
    pub node: NodeName,
    pub role: Role,
    #[serde(flatten)]
    pub run: PastRun,
}
