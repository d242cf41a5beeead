//! Tests of the planner and its executor: transitions and properties.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::wildcard_enum_match_arm)]

mod execution;
mod properties;
mod transitions;

use jiff::{SignedDuration, Timestamp};

use muster_core::node::record::{MachinePhase, MachineRecord, MachineStage};
use muster_provision::driver::{MachineObservation, MachineState};
use muster_provision::lifecycle::{MachineFacts, Policy};

const LOG: &str = "/nodes/web1/agent.log";

/// Start of the server in all tests. Records begin a minute later.
fn started() -> Timestamp {
    "2026-11-15T10:00:00Z".parse().unwrap()
}

fn at(seconds: i64) -> Timestamp {
    started() + SignedDuration::from_secs(seconds)
}

fn policy() -> Policy {
    Policy::local(started())
}

fn record(phase: MachinePhase, attempt: u32) -> MachineRecord {
    MachineRecord { driver: "model".into(), phase, attempt, since: at(60) }
}

fn failed(during: MachineStage, retry: Option<Timestamp>) -> MachinePhase {
    MachinePhase::Failed { during, cause: "it broke".into(), retry }
}

fn facts(seen: MachineState, agent_connected: bool) -> MachineFacts {
    MachineFacts {
        observation: MachineObservation { state: seen, log: Some(LOG.into()) },
        agent_connected,
        leaving: None,
    }
}

fn broken(during: MachineStage) -> MachineState {
    MachineState::Broken { during, cause: "it broke".into() }
}

fn unknown() -> MachineState {
    MachineState::Unknown { cause: "no route".into() }
}

fn underway(stage: MachineStage) -> MachineState {
    MachineState::Underway { stage }
}
