//! Request and response types for runs: requests of operators, lists of runs, and the log of a run in progress.
//!
//! The agent sends the log in chunks; readers get events.

use jiff::Timestamp;
use muster_core::names::{NodeName, Role, RunId, Version};
use muster_core::node::record::RunRequest;
use muster_core::report::RunOptions;
use muster_core::report::failure_groups::FailureGroup;
use muster_core::report::record::PastRun;
use muster_core::txn::Revision;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::operator::NodeRow;
use crate::sse::{DecodeError, Frame};

/// Nodes that have failed and were not validated since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailureList {
    /// The nodes of this page. State, begin and reason are those of the failure.
    pub items: Vec<NodeRow>,
    /// All of them, in groups with the same error; the largest group first.
    pub groups: Vec<FailureGroup>,
    /// Value of `after` for the next page. None on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    pub revision: Revision,
}

/// Request to run a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StartRunRequest {
    /// Preview: report what would change, change nothing.
    #[serde(default)]
    pub noop: bool,
    #[serde(flatten)]
    pub options: RunOptions,
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
    /// The request has failed: the release to preview was removed before the run began.
    ReleaseRemoved {
        version: Version,
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

/// Maximum size of a chunk in bytes.
pub const PIECE: usize = 64 * 1024;

/// Chunk of the log of a run in progress. A repeated chunk is recognised by its offset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogPiece {
    /// Number of bytes before it.
    pub offset: u64,
    /// Complete lines.
    pub text: String,
    /// Last chunk: the run has ended.
    #[serde(default)]
    pub last: bool,
    /// Ids of the run requests that this run serves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<String>,
}

/// Query of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct LogQuery {
    /// Stream new text as server-sent events until the run ends.
    #[serde(default)]
    pub follow: bool,
    /// Offset of the first byte to return.
    #[serde(default)]
    pub from: u64,
    /// Do not forward the request to another replica.
    #[serde(default)]
    pub here: bool,
}

/// Event for a reader of a log. On the stream, its name is the `event:` and the rest the `data:`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum LogEvent {
    /// Lines of the log.
    Text { offset: u64, text: String },
    /// Number of bytes that are no longer available.
    Cut { bytes: u64 },
    /// Keep-alive.
    Alive,
    /// End of the log.
    End { end: LogEnd },
}

/// Reason for the end of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogEnd {
    /// The run has ended.
    Finished,
    /// The run is in progress, and the reader does not follow it.
    SoFar,
    /// The agent disconnected. The run may continue; a later request may return more.
    AgentGone,
    /// The server is stopping. Another server, or the same one later, may have more.
    ServerStops,
}

/// The available log of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunLog {
    /// Offset of the first byte. Text before it is no longer available.
    pub offset: u64,
    pub text: String,
    pub end: LogEnd,
}

impl LogEvent {
    /// Parses a frame. None for unknown events, which a newer server may send.
    pub fn read(frame: &Frame) -> Result<Option<Self>, DecodeError> {
        #[derive(Deserialize)]
        struct Text {
            offset: u64,
            text: String,
        }
        #[derive(Deserialize)]
        struct Cut {
            bytes: u64,
        }
        #[derive(Deserialize)]
        struct End {
            end: LogEnd,
        }
        let data = frame.data.as_str();
        let event = match frame.name.as_str() {
            "text" => serde_json::from_str(data).map(|Text { offset, text }| LogEvent::Text { offset, text }),
            "cut" => serde_json::from_str(data).map(|Cut { bytes }| LogEvent::Cut { bytes }),
            "alive" => Ok(LogEvent::Alive),
            "end" => serde_json::from_str(data).map(|End { end }| LogEvent::End { end }),
            _ => return Ok(None),
        };
        let invalid = |source| DecodeError::Event { text: format!("{}: {data:.200}", frame.name), source };
        event.map(Some).map_err(invalid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sse::{Frames, encode};

    #[test]
    fn events_survive_the_stream() {
        let all = [
            LogEvent::Text { offset: 7, text: "a \u{1b}[31mline\nand \"another\"\n".into() },
            LogEvent::Cut { bytes: 12 },
            LogEvent::Alive,
            LogEvent::End { end: LogEnd::AgentGone },
        ];
        let stream: String = all.iter().map(|event| encode(event).unwrap()).collect();
        let frames = Frames::default().feed(stream.as_bytes()).unwrap();
        let read: Vec<_> = frames.iter().filter_map(|frame| LogEvent::read(frame).unwrap()).collect();
        assert_eq!(read, all);
    }

    #[test]
    fn unknown_event_is_skipped_malformed_is_an_error() {
        let frame = |name: &str, data: &str| Frame { name: name.into(), data: data.into() };
        assert_eq!(LogEvent::read(&frame("unheard_of", "[")).unwrap(), None);
        assert!(LogEvent::read(&frame("text", "{}")).is_err());
    }
}
