//! Which hooks have something to react to: pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use muster_core::lookup::Lookups;
use muster_core::lookup::snapshot::Snapshot;
use muster_core::names::Role;
use muster_core::release::spec::ReleaseSpec;

/// A hook of the release that the node runs, and what it is about. As one that is to run: what of that has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookOn {
    pub name: String,
    pub keys: Vec<String>,
}

/// What is remembered of a hook.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookMemory {
    /// What it saw when it last ended well.
    pub seen: Lookups,
    /// What it saw when it last failed; nothing if it has ended well since.
    #[serde(default)]
    pub tried: Lookups,
    /// How often it has failed in a row.
    #[serde(default)]
    pub attempt: u32,
}

pub type HookMemories = BTreeMap<String, HookMemory>;

/// The hooks of a release that are for a role.
pub fn of_role(spec: &ReleaseSpec, role: &Role) -> Vec<HookOn> {
    let hooks = spec.hooks.iter().filter(|hook| hook.is_for(role));
    hooks.map(|hook| HookOn { name: hook.name().to_owned(), keys: hook.on.as_slice().to_vec() }).collect()
}

/// What a hook sees.
pub fn sees(keys: &[String], snapshot: &Snapshot) -> Lookups {
    keys.iter().map(|key| (key.clone(), snapshot.tag(key))).collect()
}

/// Hooks that have not ended well with what there is now, and what is new to each. One that never ended well has seen
/// nothing, so all is new to it.
pub fn due(hooks: &[HookOn], memories: &HookMemories, snapshot: &Snapshot) -> Vec<HookOn> {
    let changed = |hook: &HookOn| {
        let seen = memories.get(&hook.name).map(|memory| &memory.seen);
        let is_new = |key: &&String| seen.and_then(|seen| seen.get(*key)) != Some(&snapshot.tag(key));
        HookOn { name: hook.name.clone(), keys: hook.keys.iter().filter(is_new).cloned().collect() }
    };
    hooks.iter().map(changed).filter(|hook| !hook.keys.is_empty()).collect()
}

/// Whether one of those that are due would see something else than when it last failed.
pub fn has_news(hooks: &[HookOn], memories: &HookMemories, snapshot: &Snapshot) -> bool {
    due(hooks, memories, snapshot).iter().any(|due| {
        let whole = hooks.iter().find(|hook| hook.name == due.name);
        let tried = memories.get(&due.name).map(|memory| &memory.tried);
        whole.is_some_and(|hook| tried != Some(&sees(&hook.keys, snapshot)))
    })
}

/// Forgets that hooks have failed; whether any has.
pub fn forget_failures(memories: &mut HookMemories) -> bool {
    let mut had_failed = false;
    for memory in memories.values_mut().filter(|memory| memory.attempt > 0) {
        memory.attempt = 0;
        memory.tried.clear();
        had_failed = true;
    }
    had_failed
}

/// How often the one that fails most has failed in a row.
pub fn failures(hooks: &[HookOn], memories: &HookMemories) -> u32 {
    let attempts = hooks.iter().filter_map(|hook| memories.get(&hook.name)).map(|memory| memory.attempt);
    attempts.max().unwrap_or(0)
}
