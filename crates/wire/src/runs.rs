//! Runs: requests of operators, and lists of runs.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use muster_core::names::{NodeName, Role, RunId};
use muster_core::node::record::RunRequest;
use muster_core::report::record::PastRun;
use muster_core::txn::Revision;

/// Request to run a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StartRunRequest {
    /// Preview: report what would change, change nothing.
    #[serde(default)]
    pub noop: bool,
}

/// Response to a run request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StartRunResponse {
    pub node: NodeName,
    /// Id of the request. The agent chooses the id of the run.
    pub id: String,
    /// Begin of the agent's silence. It gets the request when it reconnects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub silent_since: Option<Timestamp>,
    /// Revision at which it is visible.
    pub revision: Revision,
}

/// Status of the last run request of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunRequestStatus {
    pub asked: RunRequest,
    pub progress: RunRequestProgress,
    pub revision: Revision,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum RunRequestProgress {
    /// The run has not begun.
    Waiting {
        /// Begin of the agent's silence.
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

/// A run in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunRow {
    pub node: NodeName,
    pub role: Role,
    #[serde(flatten)]
    pub run: PastRun,
}
