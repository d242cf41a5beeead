//! Parser and writer of server-sent events: `event:` and one `data:` line, terminated by an empty line.

use jiff::Timestamp;
use muster_core::lookup::snapshot::Snapshot;
use muster_core::names::{HostName, Role};
use muster_core::node::pause::NodePause;
use muster_core::node::status::Activity;
use muster_core::release::manifest::SignedTrust;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::sync::SyncEvent;

#[derive(Debug, Error)]
pub enum DecodeError {
    #[error(transparent)]
    TooLarge(#[from] FrameTooLarge),
    #[error("an event of the stream is not valid: {text:?}")]
    Event {
        text: String,
        #[source]
        source: serde_json::Error,
    },
}

impl DecodeError {
    fn new(Frame { name, data }: &Frame, source: serde_json::Error) -> Self {
        DecodeError::Event { text: format!("{name}: {data:.200}"), source }
    }
}

/// Encodes an event: an enum with the tag `event`.
pub fn encode(event: &impl Serialize) -> Result<String, serde_json::Error> {
    let mut value = serde_json::to_value(event)?;
    let name = value.as_object_mut().and_then(|fields| fields.remove("event"));
    let name = name.as_ref().and_then(serde_json::Value::as_str).unwrap_or("message").to_owned();
    Ok(format!("event: {name}\ndata: {value}\n\n"))
}

/// Name of the event by which an agent sends its activity on an upgraded stream.
const ACTIVITY: &str = "activity";

/// Encodes the activity of an agent, for the server.
pub fn encode_activity(activity: &Activity) -> Result<String, serde_json::Error> {
    Ok(format!("event: {ACTIVITY}\ndata: {}\n\n", serde_json::to_string(activity)?))
}

/// Decodes the activities that an agent sends on an upgraded stream.
#[derive(Debug)]
pub struct ActivityDecoder {
    frames: Frames,
}

/// Maximum size of an agent's frame in bytes. An activity has less than 1 KiB.
const AGENT_LIMIT: usize = 16 * 1024;

impl Default for ActivityDecoder {
    fn default() -> Self {
        Self { frames: Frames { limit: AGENT_LIMIT, ..Frames::default() } }
    }
}

impl ActivityDecoder {
    /// Adds a chunk and returns the completed activities. Unknown events are skipped.
    pub fn feed(&mut self, piece: &[u8]) -> Result<Vec<Activity>, DecodeError> {
        let frames = self.frames.feed(piece)?;
        let activities = frames.iter().filter(|frame| frame.name == ACTIVITY);
        let parse = |frame: &Frame| serde_json::from_str(&frame.data).map_err(|source| DecodeError::new(frame, source));
        activities.map(parse).collect()
    }
}

/// Decodes sync events from a stream of chunks.
#[derive(Debug, Default)]
pub struct Decoder {
    frames: Frames,
}

impl Decoder {
    /// Adds a chunk and returns the completed events.
    pub fn feed(&mut self, piece: &[u8]) -> Result<Vec<SyncEvent>, DecodeError> {
        let frames = self.frames.feed(piece)?;
        let parse = |frame: &Frame| parse(&frame.name, &frame.data).map_err(|source| DecodeError::new(frame, source));
        frames.iter().map(parse).filter_map(Result::transpose).collect()
    }
}

/// Parses the data of an event directly into its type. A generic JSON value would take several times the memory of a
/// large snapshot, and the memory of an agent does not shrink again.
///
/// Unknown events are skipped: a newer server may send more than this agent supports.
fn parse(name: &str, data: &str) -> Result<Option<SyncEvent>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Hello {
        incarnation: u64,
        role: Role,
        #[serde(default)]
        host_name: Option<HostName>,
        now: Timestamp,
        #[serde(default)]
        protocol: Option<u32>,
    }
    #[derive(Deserialize)]
    struct Pause {
        pause: Option<NodePause>,
    }
    #[derive(Deserialize)]
    struct Trust {
        trust: SignedTrust,
    }
    #[derive(Deserialize)]
    struct Identity {
        roots: String,
        servers: Vec<String>,
        #[serde(default)]
        renew_within_ms: Option<u32>,
    }
    #[derive(Deserialize)]
    struct SnapshotEvent {
        changed: Vec<String>,
        snapshot: Snapshot,
    }
    let event = match name {
        "hello" => {
            let Hello { incarnation, role, host_name, now, protocol } = serde_json::from_str(data)?;
            SyncEvent::Hello { incarnation, role, host_name, now, protocol }
        }
        "desired" => SyncEvent::Desired(serde_json::from_str(data)?),
        "snapshot" => {
            let SnapshotEvent { changed, snapshot } = serde_json::from_str(data)?;
            SyncEvent::Snapshot { changed, snapshot }
        }
        "run" => SyncEvent::Run(serde_json::from_str(data)?),
        "pause" => {
            let Pause { pause } = serde_json::from_str(data)?;
            SyncEvent::Pause { pause }
        }
        "trust" => {
            let Trust { trust } = serde_json::from_str(data)?;
            SyncEvent::Trust { trust }
        }
        "identity" => {
            let Identity { roots, servers, renew_within_ms } = serde_json::from_str(data)?;
            SyncEvent::Identity { roots, servers, renew_within_ms }
        }
        "ping" => SyncEvent::Ping,
        "move" => SyncEvent::Move,
        _ => return Ok(None),
    };
    Ok(Some(event))
}

/// Maximum size of a frame in bytes. A snapshot of 50,000 nodes is smaller.
const LIMIT: usize = 16 * 1024 * 1024;

/// A frame that is too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("an event of the stream is larger than {} KiB", limit / 1024)]
pub struct FrameTooLarge {
    /// Maximum size in bytes.
    limit: usize,
}

/// One event, not parsed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub name: String,
    pub data: String,
}

/// Splits a stream of chunks into frames.
#[derive(Debug)]
pub struct Frames {
    /// The begin of a line, without its end.
    pending: Vec<u8>,
    name: Option<String>,
    data: String,
    limit: usize,
}

impl Default for Frames {
    fn default() -> Self {
        Self { pending: Vec::new(), name: None, data: String::new(), limit: LIMIT }
    }
}

impl Frames {
    /// Adds a chunk and returns the completed frames.
    pub fn feed(&mut self, piece: &[u8]) -> Result<Vec<Frame>, FrameTooLarge> {
        let mut frames = Vec::new();
        let mut rest = piece;
        // Only the new bytes are searched: the line of a large snapshot has hundreds of chunks.
        while let Some(length) = rest.iter().position(|byte| *byte == b'\n') {
            let mut line = std::mem::take(&mut self.pending);
            line.extend_from_slice(&rest[..length]);
            rest = &rest[length + 1..];
            frames.extend(self.line(String::from_utf8_lossy(&line).trim_end_matches('\r')));
        }
        self.pending.extend_from_slice(rest);
        if self.pending.len() + self.data.len() > self.limit {
            return Err(FrameTooLarge { limit: self.limit });
        }
        Ok(frames)
    }

    fn line(&mut self, line: &str) -> Option<Frame> {
        if line.is_empty() {
            let (name, data) = (self.name.take(), std::mem::take(&mut self.data));
            return name.map(|name| Frame { name, data });
        }
        // A line that begins with a colon is a comment. The standard requires unknown fields to be ignored.
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.name = Some(value.to_owned()),
            "data" => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use muster_core::names::Version;
    use muster_core::node::pause::{PauseRecord, PauseScope};
    use muster_core::release::manifest::SignedManifest;
    use muster_core::txn::Generation;

    use crate::sync::DesiredState;

    use super::*;
    use crate::sync::RequestedRun;

    fn all() -> Vec<SyncEvent> {
        vec![
            SyncEvent::Hello {
                incarnation: 3,
                role: Role::new("web").unwrap(),
                host_name: Some(HostName::new("web01.example.org").unwrap()),
                now: Timestamp::UNIX_EPOCH,
                protocol: Some(2),
            },
            SyncEvent::Desired(DesiredState {
                generation: Generation { epoch: 1, number: 2 },
                version: Version::new("v1").unwrap(),
                digest: "sha256:x".into(),
                serial: 7,
                allow_older: false,
                confirm_within: Some(jiff::SignedDuration::from_mins(5)),
                manifest: SignedManifest { payload: "{}".into(), signatures: Vec::new() },
            }),
            SyncEvent::Snapshot { changed: vec!["active_roles::db".into()], snapshot: Snapshot::default() },
            SyncEvent::Run(RequestedRun { id: "r".into(), noop: true, by: "ada".into(), ..RequestedRun::default() }),
            SyncEvent::Pause { pause: None },
            SyncEvent::Pause {
                pause: Some(NodePause {
                    scope: PauseScope::Global,
                    pause: PauseRecord {
                        by: "ada".into(),
                        reason: "disk swap".into(),
                        since: Timestamp::UNIX_EPOCH,
                        until: None,
                    },
                }),
            },
            SyncEvent::Trust { trust: SignedTrust { payload: "{}".into(), signatures: Vec::new() } },
            SyncEvent::Identity {
                roots: "-----BEGIN CERTIFICATE-----\n".into(),
                servers: vec!["https://muster.example.org:7300".into()],
                renew_within_ms: Some(40),
            },
            SyncEvent::Ping,
            SyncEvent::Move,
        ]
    }

    #[test]
    fn events_survive_any_chunking() {
        let stream: String = all().iter().map(|event| encode(event).unwrap()).collect();
        for size in [1, 2, 3, 7, stream.len()] {
            let mut decoder = Decoder::default();
            let events: Vec<_> =
                stream.as_bytes().chunks(size).flat_map(|piece| decoder.feed(piece).unwrap()).collect();
            assert_eq!(events, all(), "in pieces of {size}");
        }
    }

    #[test]
    fn event_matches_the_contract() {
        let text = encode(&all()[1]).unwrap();
        let data = r#"{"allow_older":false,"confirm_within":"PT5M","digest":"sha256:x","generation":{"epoch":1,"number":2},"manifest":{"payload":"{}","signatures":[]},"serial":7,"version":"v1"}"#;
        assert_eq!(text, format!("event: desired\ndata: {data}\n\n"));
    }

    #[test]
    fn comments_and_carriage_returns_are_accepted() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.feed(b": hello\r\nevent: ping\r\ndata: {}\r\n\r\n").unwrap(), [SyncEvent::Ping]);
    }

    #[test]
    fn unknown_event_is_skipped() {
        let stream = b"event: unheard_of\ndata: [not even JSON\n\nevent: ping\ndata: {}\n\n";
        assert_eq!(Decoder::default().feed(stream).unwrap(), [SyncEvent::Ping]);
    }

    #[test]
    fn activities_survive_any_chunking() {
        let sent = [Activity::Idle, Activity::Blocked { problem: "a disk is full".into() }, Activity::Idle];
        let stream: String = sent.iter().map(|activity| encode_activity(activity).unwrap()).collect();
        let stream = format!("event: unheard_of\ndata: x\n\n{stream}");
        for size in [1, 5, stream.len()] {
            let mut decoder = ActivityDecoder::default();
            let chunks = stream.as_bytes().chunks(size);
            let decoded: Vec<Activity> = chunks.flat_map(|piece| decoder.feed(piece).unwrap()).collect();
            assert_eq!(decoded, sent, "in pieces of {size}");
        }
        assert!(ActivityDecoder::default().feed(b"event: activity\ndata: [\n\n").is_err());
        let flood = ActivityDecoder::default().feed(&[b'x'; AGENT_LIMIT + 1]);
        assert_eq!(flood.unwrap_err().to_string(), "an event of the stream is larger than 16 KiB");
    }

    #[test]
    fn malformed_event_is_an_error() {
        assert!(Decoder::default().feed(b"event: desired\ndata: {\"version\":1}\n\n").is_err());
        assert!(Decoder::default().feed(&vec![b'x'; LIMIT + 1]).is_err());
    }
}
