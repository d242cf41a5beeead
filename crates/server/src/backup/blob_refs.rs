//! Blobs that the keys of an environment refer to.

use std::collections::{BTreeSet, HashSet};

use muster_core::design::DesignRevisionRecord;
use muster_core::keys::{self, Key};
use muster_core::release::ReleaseRecord;
use muster_core::report::record::{ObservedRecord, RunHistory, StatusLeaf};
use muster_core::rollout::record::RolloutRecord;

use crate::blobs::{Blobs, is_digest};
use crate::design::tree::name_all;

/// References to blobs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Named {
    /// Blobs of the runs in the history.
    pub(super) needed: BTreeSet<String>,
    /// Optional: a status can outlive the log of the run that it began with.
    pub(super) welcome: BTreeSet<String>,
    /// Manifests of the design's revisions; reading them yields further references.
    pub(super) manifests: BTreeSet<String>,
}

impl Named {
    /// Reads the manifests, and adds their references. A manifest that cannot be read is reported as missing.
    pub(super) fn expand(&mut self, blobs: &Blobs) {
        let mut named = HashSet::new();
        for manifest in &self.manifests {
            if let Err(error) = name_all(blobs, manifest, &mut named) {
                tracing::warn!(%error, "a revision of the design is incomplete");
            }
        }
        self.needed.extend(named);
    }

    /// Adds the references of a key. A key that cannot be parsed has none.
    pub(super) fn add(&mut self, key: &str, value: &[u8]) {
        match keys::parse(key).map(|(_, key)| key) {
            Some(Key::History { .. }) => {
                let history: RunHistory = serde_json::from_slice(value).unwrap_or_default();
                self.needed.extend(history.0.into_iter().flat_map(|past| past.logs));
            }
            Some(Key::Observed { .. }) => {
                let observed: ObservedRecord = serde_json::from_slice(value).unwrap_or_default();
                self.needed.extend(observed.last.and_then(|last| last.log));
            }
            Some(Key::DesignRevision { .. }) => {
                let record: Option<DesignRevisionRecord> = serde_json::from_slice(value).ok();
                self.manifests.extend(record.map(|record| record.manifest));
            }
            Some(Key::Release { .. }) => {
                let record: Option<ReleaseRecord> = serde_json::from_slice(value).ok();
                let bundle = record.and_then(|record| record.digest.strip_prefix("sha256:").map(str::to_owned));
                self.needed.extend(bundle.filter(|digest| is_digest(digest)));
            }
            Some(Key::Rollout { .. }) => {
                let record: Option<RolloutRecord> = serde_json::from_slice(value).ok();
                self.needed.extend(record.into_iter().flat_map(|record| [Some(record.plan), record.outcome]).flatten());
            }
            Some(Key::Status { .. }) => {
                let leaf: Option<StatusLeaf> = serde_json::from_slice(value).ok();
                self.welcome.extend(leaf.and_then(|leaf| leaf.log));
            }
            Some(
                Key::StoreEpoch
                | Key::Restoring
                | Key::Destroying
                | Key::DesignHead
                | Key::DesignApplied
                | Key::CurrentVersion
                | Key::RunningVersion { .. }
                | Key::Provisioned { .. }
                | Key::ActiveRole { .. }
                | Key::Node { .. }
                | Key::Machine { .. }
                | Key::AllowOlder
                | Key::Trust
                | Key::Leader { .. }
                | Key::Published { .. }
                | Key::Datum { .. }
                | Key::Pause { .. }
                | Key::Asked { .. }
                | Key::ActiveRollout
                | Key::Desired { .. }
                | Key::Presence { .. }
                | Key::Replica { .. }
                | Key::Controller { .. }
                | Key::Unknown,
            )
            | None => {}
        }
    }
}
