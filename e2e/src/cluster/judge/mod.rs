//! What must hold, at every revision and at the end, by the history of the store alone.
//!
//! A judge reads the history in pieces, in order, and complains in words that name the revision. It is a pure fold: the
//! tests feed it histories that are wrong and see it complain, because a judge who is always content proves nothing.

mod controllers;
mod reports;
mod runs;
mod states;
#[cfg(test)]
mod testing;

use muster_core::keys::{self, Key};
use muster_core::names::NodeName;
use muster_etcd_rig::{RawChange, RevisionChanges};

pub use reports::Acknowledged;
pub use runs::Executed;

/// What one transaction did to a key of the environment.
#[derive(Debug)]
struct Touched<'a> {
    key: Key,
    /// None: it is gone.
    value: Option<&'a [u8]>,
    lease: i64,
}

/// All that is known so far.
#[derive(Debug, Default)]
pub struct Judge {
    last: i64,
    reports: reports::Reports,
    states: states::States,
    runs: runs::Runs,
    controllers: controllers::Controllers,
    complaints: Vec<String>,
}

impl Judge {
    /// Takes in what has happened since the last time.
    pub fn read(&mut self, history: &[RevisionChanges]) {
        for RevisionChanges { revision, changes } in history {
            if *revision <= self.last {
                self.complaints.push(format!("revision {revision}: it comes after {}", self.last));
            }
            self.last = *revision;
            let touched: Vec<Touched<'_>> = changes.iter().filter_map(Touched::of).collect();
            let mut complain = Complaints { revision: *revision, list: &mut self.complaints };
            self.states.read(&touched, &mut complain);
            self.reports.read(&touched, &mut complain);
            self.runs.read(*revision, &touched, &mut complain);
            self.controllers.read(&touched, &mut complain);
        }
    }

    /// From now on every node is in service and nothing that anybody looks up changes: nobody may leave its role, and
    /// nobody has anything to run for but a version.
    pub fn has_settled(&mut self) {
        self.runs.settled = true;
        self.controllers.settled = true;
    }

    /// So many times was an agent started.
    pub fn agents_started(&mut self, times: usize) {
        self.runs.starts = times;
    }

    /// Compares with what agents were told: each of these reports must have been applied, once.
    pub fn acknowledged(&mut self, told: &[Acknowledged]) {
        self.reports.compare(told, &mut self.complaints);
    }

    /// Every report that was applied must have been acknowledged. Only when all is quiet.
    pub fn all_acknowledged(&mut self) {
        self.reports.all_acknowledged(&mut self.complaints);
    }

    /// Compares with what appliers have written down themselves. Only when all is quiet: every run has been reported.
    pub fn executed(&mut self, journal: &[Executed]) {
        self.runs.compare(journal, &mut self.complaints);
    }

    /// Compares with what the operator was told: at this revision the version became this one.
    pub fn triggered(&mut self, revision: i64, version: &str) {
        self.runs.triggered(revision, version, &mut self.complaints);
    }

    /// Something else that is wrong.
    pub fn complain(&mut self, complaint: String) {
        self.complaints.push(complaint);
    }

    /// The revision up to which was read.
    pub fn last(&self) -> i64 {
        self.last
    }

    /// How many reports were applied.
    pub fn reports(&self) -> usize {
        self.reports.count()
    }

    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }
}

/// Where complaints about one revision go.
struct Complaints<'a> {
    revision: i64,
    list: &'a mut Vec<String>,
}

impl Complaints<'_> {
    fn push(&mut self, what: impl std::fmt::Display) {
        self.list.push(format!("revision {}: {what}", self.revision));
    }

    /// Reads a value. What Muster itself has written must be readable.
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

impl<'a> Touched<'a> {
    fn of(change: &'a RawChange) -> Option<Self> {
        let (_, key) = keys::parse(change.key())?;
        Some(match change {
            RawChange::Put { value, lease, .. } => Self { key, value: Some(value), lease: *lease },
            RawChange::Delete { .. } => Self { key, value: None, lease: 0 },
        })
    }

    /// The node that the key is about.
    fn node(&self) -> Option<&NodeName> {
        match &self.key {
            Key::RunningVersion { node, .. }
            | Key::Provisioned { node, .. }
            | Key::Status { node, .. }
            | Key::ActiveRole { node, .. }
            | Key::Observed { node }
            | Key::History { node }
            | Key::Node { node }
            | Key::Machine { node }
            | Key::Published { node }
            | Key::Asked { node }
            | Key::Desired { node }
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
            | Key::Replica { .. }
            | Key::Controller { .. }
            | Key::Unknown => None,
        }
    }
}
