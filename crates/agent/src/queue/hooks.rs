//! Selects the hooks whose keys have changed since they last succeeded.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use muster_core::lookup::Lookups;
use muster_core::lookup::snapshot::Snapshot;
use muster_core::names::Role;
use muster_core::release::spec::ReleaseSpec;

/// A hook of the applied release with the keys that trigger it. In a work order: only the keys that changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookTrigger {
    pub name: String,
    pub keys: Vec<String>,
}

/// Results of one hook that the next decision needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookRecord {
    /// Values of its keys when it last succeeded.
    #[serde(rename = "seen")]
    pub succeeded_with: Lookups,
    /// Values of its keys when it last failed; empty if it has succeeded since.
    #[serde(default, rename = "tried")]
    pub failed_with: Lookups,
    /// Failures in a row.
    #[serde(default, rename = "attempt")]
    pub failures: u32,
}

pub type HookRecords = BTreeMap<String, HookRecord>;

/// The hooks of a release for a role.
pub fn for_role(spec: &ReleaseSpec, role: &Role) -> Vec<HookTrigger> {
    let hooks = spec.hooks.iter().filter(|hook| hook.is_for(role));
    hooks.map(|hook| HookTrigger { name: hook.name().to_owned(), keys: hook.on.as_slice().to_vec() }).collect()
}

/// Values of `keys` in a snapshot.
pub fn values(keys: &[String], snapshot: &Snapshot) -> Lookups {
    keys.iter().map(|key| (key.clone(), snapshot.tag(key))).collect()
}

/// Hooks that have not succeeded with the current values, with the keys that differ. For a hook that never succeeded all
/// keys differ.
pub fn due(hooks: &[HookTrigger], records: &HookRecords, snapshot: &Snapshot) -> Vec<HookTrigger> {
    let changed = |hook: &HookTrigger| {
        let known = records.get(&hook.name).map(|record| &record.succeeded_with);
        let is_new = |key: &&String| known.and_then(|known| known.get(*key)) != Some(&snapshot.tag(key));
        HookTrigger { name: hook.name.clone(), keys: hook.keys.iter().filter(is_new).cloned().collect() }
    };
    hooks.iter().map(changed).filter(|hook| !hook.keys.is_empty()).collect()
}

/// True if a hook that is due has not failed with the current values.
pub fn has_untried(hooks: &[HookTrigger], records: &HookRecords, snapshot: &Snapshot) -> bool {
    due(hooks, records, snapshot).iter().any(|due| {
        let hook = hooks.iter().find(|hook| hook.name == due.name);
        let failed_with = records.get(&due.name).map(|record| &record.failed_with);
        hook.is_some_and(|hook| failed_with != Some(&values(&hook.keys, snapshot)))
    })
}

/// Clears the failures of all hooks. Returns true if there were any.
pub fn clear_failures(records: &mut HookRecords) -> bool {
    let mut had_failed = false;
    for record in records.values_mut().filter(|record| record.failures > 0) {
        record.failures = 0;
        record.failed_with.clear();
        had_failed = true;
    }
    had_failed
}

/// The highest number of failures in a row.
pub fn failures(hooks: &[HookTrigger], records: &HookRecords) -> u32 {
    hooks.iter().filter_map(|hook| records.get(&hook.name)).map(|record| record.failures).max().unwrap_or(0)
}
