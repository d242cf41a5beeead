//! Which blobs a key names.

use std::collections::BTreeSet;

use muster_core::keys::{self, Key};
use muster_core::records::{History, Observed, StatusLeaf};

/// The blobs that the keys of an environment name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Named {
    /// Those of the runs that are remembered.
    pub(super) needed: BTreeSet<String>,
    /// A status can outlive the log of the run that it began with: whoever has it takes it, nobody misses it.
    pub(super) welcome: BTreeSet<String>,
}

impl Named {
    /// Takes in a key. One that cannot be read names nothing.
    pub(super) fn add(&mut self, key: &str, value: &[u8]) {
        match keys::parse(key).map(|(_, key)| key) {
            Some(Key::History { .. }) => {
                let history: History = serde_json::from_slice(value).unwrap_or_default();
                self.needed.extend(history.0.into_iter().flat_map(|past| past.logs));
            }
            Some(Key::Observed { .. }) => {
                let observed: Observed = serde_json::from_slice(value).unwrap_or_default();
                self.needed.extend(observed.last.and_then(|last| last.log));
            }
            Some(Key::Status { .. }) => {
                let leaf: Option<StatusLeaf> = serde_json::from_slice(value).ok();
                self.welcome.extend(leaf.and_then(|leaf| leaf.log));
            }
            Some(
                Key::StoreEpoch
                | Key::Restoring
                | Key::CurrentVersion
                | Key::RunningVersion { .. }
                | Key::Provisioned { .. }
                | Key::ActiveRole { .. }
                | Key::Node { .. }
                | Key::Machine { .. }
                | Key::Release { .. }
                | Key::Presence { .. }
                | Key::Replica { .. }
                | Key::Controller { .. }
                | Key::Unknown,
            )
            | None => {}
        }
    }
}
