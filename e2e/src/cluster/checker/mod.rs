//! Checks the invariants at every revision of the store's history.
//!
//! The checker reads the history in order and records violations with their revision. It is a pure fold: its tests feed
//! it histories that violate each rule.

mod controllers;
mod reports;
mod runs;
mod states;
#[cfg(test)]
mod testing;

use muster_core::keys::{self, Key};
use muster_core::names::NodeName;
use muster_etcd_rig::{RawChange, RevisionChanges};

pub use reports::AcknowledgedReport;
pub use runs::ExecutedRun;

/// A change of one key of the environment.
#[derive(Debug)]
struct ChangedKey<'a> {
    key: Key,
    /// None if the key was deleted.
    value: Option<&'a [u8]>,
    lease: i64,
}

/// State of the checker.
#[derive(Debug, Default)]
pub struct HistoryChecker {
    last: i64,
    reports: reports::ReportRules,
    states: states::StateRules,
    runs: runs::RunRules,
    controllers: controllers::ControllerRules,
    violations: Vec<String>,
}

impl HistoryChecker {
    /// Reads the history since the last call.
    pub fn read(&mut self, history: &[RevisionChanges]) {
        for RevisionChanges { revision, changes } in history {
            if *revision <= self.last {
                self.violations.push(format!("revision {revision}: comes after {}", self.last));
            }
            self.last = *revision;
            let changed: Vec<ChangedKey<'_>> = changes.iter().filter_map(ChangedKey::from_change).collect();
            let mut complain = Violations { revision: *revision, list: &mut self.violations };
            self.states.read(&changed, &mut complain);
            self.reports.read(&changed, &mut complain);
            self.runs.read(*revision, &changed, &mut complain);
            self.controllers.read(&changed, &mut complain);
        }
    }

    /// From now on every node is in service and no looked-up value changes: no node may leave its role, and only a
    /// version is a cause for a run.
    pub fn has_settled(&mut self) {
        self.runs.settled = true;
        self.controllers.settled = true;
    }

    /// Records starts of agents.
    pub fn agents_started(&mut self, times: usize) {
        self.runs.starts = times;
    }

    /// Checks that each acknowledged report was applied once.
    pub fn acknowledged(&mut self, acknowledged: &[AcknowledgedReport]) {
        self.reports.compare(acknowledged, &mut self.violations);
    }

    /// Checks that each applied report was acknowledged. Only when the fleet is idle.
    pub fn all_acknowledged(&mut self) {
        self.reports.all_acknowledged(&mut self.violations);
    }

    /// Compares the reports with the appliers' journal. Only when the fleet is idle and every run is reported.
    pub fn executed(&mut self, journal: &[ExecutedRun]) {
        self.runs.compare(journal, &mut self.violations);
    }

    /// Checks an acknowledged change of the version: at this revision it became this one.
    pub fn triggered(&mut self, revision: i64, version: &str) {
        self.runs.triggered(revision, version, &mut self.violations);
    }

    /// Adds a violation that was found elsewhere.
    pub fn add_violation(&mut self, violation: String) {
        self.violations.push(violation);
    }

    /// The last revision that was read.
    pub fn last(&self) -> i64 {
        self.last
    }

    /// Number of applied reports.
    pub fn reports(&self) -> usize {
        self.reports.count()
    }

    pub fn violations(&self) -> &[String] {
        &self.violations
    }
}

/// Violations at one revision.
struct Violations<'a> {
    revision: i64,
    list: &'a mut Vec<String>,
}

impl Violations<'_> {
    fn push(&mut self, what: impl std::fmt::Display) {
        self.list.push(format!("revision {}: {what}", self.revision));
    }

    /// Parses a value that Muster has written.
    fn json<T: serde::de::DeserializeOwned>(&mut self, what: &str, value: &[u8]) -> Option<T> {
        match serde_json::from_slice(value) {
            Ok(read) => Some(read),
            Err(error) => {
                self.push(format_args!("the value of {what} cannot be read: {error}"));
                None
            }
        }
    }
}

impl<'a> ChangedKey<'a> {
    fn from_change(change: &'a RawChange) -> Option<Self> {
        let (_, key) = keys::parse(change.key())?;
        Some(match change {
            RawChange::Put { value, lease, .. } => Self { key, value: Some(value), lease: *lease },
            RawChange::Delete { .. } => Self { key, value: None, lease: 0 },
        })
    }

    /// The node of the key.
    fn node(&self) -> Option<&NodeName> {
        match &self.key {
            Key::RunningVersion { node, .. }
            | Key::Provisioned { node, .. }
            | Key::Status { node, .. }
            | Key::ActiveRole { node, .. }
            | Key::Observed { node }
            | Key::PastRun { node, .. }
            | Key::RunList { node }
            | Key::Node { node }
            | Key::Machine { node }
            | Key::Policy { node }
            | Key::SelfValues { node }
            | Key::Published { node }
            | Key::RunRequest { node }
            | Key::Desired { node }
            | Key::Certificate { node }
            | Key::Presence { node } => Some(node),
            Key::StoreEpoch
            | Key::Restoring
            | Key::Destroying
            | Key::DesignRevision { .. }
            | Key::DesignHead
            | Key::DesignApplied
            | Key::CurrentVersion
            | Key::AllowOlder
            | Key::Trust
            | Key::Leader { .. }
            | Key::Datum { .. }
            | Key::Pause { .. }
            | Key::Release { .. }
            | Key::ActiveRollout
            | Key::Rollout { .. }
            | Key::Token { .. }
            | Key::Replica { .. }
            | Key::Controller { .. }
            | Key::Unknown => None,
        }
    }
}
