//! The log of a run while it goes on: what the agent sends piece by piece, and what a reader is told.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::sse::{DecodeError, Frame};

/// How much text a piece of an agent may hold.
pub const PIECE: usize = 64 * 1024;

/// What an agent sends of the run that goes on. A piece that was sent again does no harm: its place says so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogPiece {
    /// How many bytes of the log came before it.
    pub offset: u64,
    /// Whole lines.
    pub text: String,
    /// Nothing comes after it: the run is over.
    #[serde(default)]
    pub last: bool,
    /// Which runs that people asked for this one is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<String>,
}

/// How a log is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct LogQuery {
    /// Stay, and be sent what comes as server-sent events until the run is over.
    #[serde(default)]
    pub follow: bool,
    /// Begin with this byte of the log.
    #[serde(default)]
    pub from: u64,
    /// Ask no other replica.
    #[serde(default)]
    pub here: bool,
}

/// What a reader of a log is told. On the stream, the name of an event is its `event:` and the rest its `data:`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum LogEvent {
    /// Lines of the log.
    Text { offset: u64, text: String },
    /// What stood here is not there any more: so many bytes.
    Cut { bytes: u64 },
    /// Nothing has happened; the connection is alive.
    Alive,
    /// The log ends here.
    End { end: LogEnd },
}

/// Why a log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogEnd {
    /// The run is over.
    Finished,
    /// That is all there is so far: the run goes on, and its reader did not ask to follow it.
    SoFar,
    /// The agent's connection has ended. The run may go on; whoever asks again is told what there is then.
    AgentGone,
    /// The server stops. Another one, or the same when it is back, may know more.
    ServerStops,
}

/// The log of a run as far as it is there, for readers who do not follow it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunLog {
    /// The place of the text's first byte; what came before is not there any more.
    pub offset: u64,
    pub text: String,
    pub end: LogEnd,
}

impl LogEvent {
    /// Reads a frame. One of another name is none: a newer server may say more.
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
        let not_understood = |source| DecodeError::Event { text: format!("{}: {data:.200}", frame.name), source };
        event.map(Some).map_err(not_understood)
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
    fn an_event_of_tomorrow_is_passed_over_and_nonsense_is_not() {
        let frame = |name: &str, data: &str| Frame { name: name.into(), data: data.into() };
        assert_eq!(LogEvent::read(&frame("unheard_of", "[")).unwrap(), None);
        assert!(LogEvent::read(&frame("text", "{}")).is_err());
    }
}
