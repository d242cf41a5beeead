//! Messages of agents and servers, recorded for each protocol that this build supports. Both sides read all of them.
//!
//! `protocol/<number>` has the recordings. They never change: a message that this build reads or writes differently is a new
//! protocol, with a directory of its own; see [`muster_core::node::agent`].

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::PathBuf;

use muster_core::node::agent::{FIRST_PROTOCOL, PROTOCOL, is_compatible};
use muster_core::node::status::Activity;
use muster_core::report::Report;
use muster_wire::runs::LogPiece;
use muster_wire::sse::{Decoder, encode};
use muster_wire::sync::{DesiredResponse, ReportAck, SyncEvent, SyncOpen};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn recorded(protocol: u32, name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/protocol/{protocol}/{name}"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Reads a message with fields that this build does not know. Nothing that it knows is lost.
fn read_back<T: Serialize + DeserializeOwned>(protocol: u32, name: &str) {
    let message: Value = serde_json::from_str(&recorded(protocol, name)).unwrap();
    let mut extended = message.clone();
    extended["from_the_future"] = json!({"list": [1, 2], "text": "x"});
    for (case, text) in [("as recorded", message.to_string()), ("with an unknown field", extended.to_string())] {
        let read: T = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{protocol}/{name} {case}: {error}"));
        assert_eq!(serde_json::to_value(&read).unwrap(), message, "{protocol}/{name} {case}");
    }
}

#[test]
fn messages_of_supported_protocols_are_read_without_loss() {
    for protocol in FIRST_PROTOCOL.max(PROTOCOL - 1)..=PROTOCOL {
        assert!(is_compatible(protocol));
        read_back::<SyncOpen>(protocol, "open.json");
        for report in ["report-configured.json", "report-failed.json", "report-validated.json"] {
            read_back::<Report>(protocol, report);
        }
        read_back::<Activity>(protocol, "activity.json");
        read_back::<LogPiece>(protocol, "log-piece.json");
        read_back::<ReportAck>(protocol, "ack.json");
        read_back::<DesiredResponse>(protocol, "desired.json");
    }
}

#[test]
fn streams_of_supported_protocols_are_read() {
    for protocol in FIRST_PROTOCOL.max(PROTOCOL - 1)..=PROTOCOL {
        let stream = recorded(protocol, "stream.txt");
        let events = Decoder::default().feed(stream.as_bytes()).unwrap();
        let names: Vec<String> =
            events.iter().map(|event| serde_json::to_value(event).unwrap()["event"].as_str().unwrap().into()).collect();
        assert_eq!(names, ["hello", "snapshot", "desired", "run", "pause", "trust", "ping", "move"]);
        let SyncEvent::Hello { protocol: given, .. } = &events[0] else { panic!("hello is first") };
        assert_eq!(*given, (protocol > FIRST_PROTOCOL).then_some(protocol));
        // The same events, written by this build.
        let written: String = events.iter().map(|event| encode(event).unwrap()).collect();
        assert_eq!(Decoder::default().feed(written.as_bytes()).unwrap(), events);
        // A newer server sends events and fields that this build does not know.
        let newer = stream.replace("\"incarnation\":", "\"from_the_future\":[{}],\"incarnation\":");
        let newer = format!("event: future\ndata: {{\"x\":1}}\n\n{newer}");
        assert_eq!(Decoder::default().feed(newer.as_bytes()).unwrap(), events);
    }
}
