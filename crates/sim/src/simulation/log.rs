//! The event log of a run, and its hash.

use std::fmt;

use muster_core::keys::{self, Key};
use muster_core::rollout::record::{DesiredRecord, RolloutPhase, RolloutRecord};
use muster_store::WatchChange;

use super::event::SimTime;
use super::world::World;

/// The lines of one run. Two runs with the same hash had the same events.
#[derive(Clone, Debug)]
pub struct EventLog {
    lines: Vec<String>,
    hash: u64,
}

/// FNV-1a: stable, like the random numbers.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

impl Default for EventLog {
    fn default() -> Self {
        Self { lines: Vec::new(), hash: BASIS }
    }
}

impl EventLog {
    pub(crate) fn push(&mut self, at: SimTime, what: fmt::Arguments<'_>) {
        let line = format!("{:>5}.{:03}s  {what}", at.as_secs(), at.subsec_millis());
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(PRIME);
        }
        self.lines.push(line);
    }

    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// The last lines, for a failure report.
    pub fn last(&self, count: usize) -> &[String] {
        &self.lines[self.lines.len().saturating_sub(count)..]
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }
}

impl World {
    /// Logs the rollout changes of a transaction, before it is applied.
    pub(crate) fn log_rollout_changes(&mut self, changes: &[WatchChange]) {
        let mut lines = Vec::new();
        for change in changes {
            let WatchChange::Put(kv) = change else { continue };
            if !kv.key.contains("/rollouts/") && !kv.key.contains("/desired/") {
                continue;
            }
            match keys::parse(&kv.key) {
                Some((_, Key::Desired { node })) => {
                    let Ok(desired) = serde_json::from_slice::<DesiredRecord>(&kv.value) else { continue };
                    let what = if desired.kept.is_some() { "skips it at" } else { "grants" };
                    lines.push(format!("rollout {}: {node}: {what} {}", desired.rollout, desired.version));
                }
                Some((_, Key::Rollout { id })) => {
                    let Ok(after) = serde_json::from_slice::<RolloutRecord>(&kv.value) else { continue };
                    let before = self.checker.fleet().rollouts().get(&id).map(|(record, _)| record);
                    lines.extend(record_events(before, &after).map(|what| format!("rollout {id}: {what}")));
                }
                Some(_) | None => {}
            }
        }
        for line in lines {
            self.log_event(format_args!("{line}"));
        }
    }
}

/// The new events in a rollout record.
fn record_events(before: Option<&RolloutRecord>, after: &RolloutRecord) -> impl Iterator<Item = String> {
    let started = before.is_none().then(|| match after.rolls_back {
        Some(back) => format!("starts as the rollback of rollout {back}, to {}", after.to),
        None => format!("starts, from {} to {}", from(after), after.to),
    });
    let moved = before.is_some_and(|before| before.phase != after.phase).then(|| match &after.phase {
        RolloutPhase::Running => "resumes".to_owned(),
        RolloutPhase::Paused { why } => format!("pauses: {why}"),
        RolloutPhase::Completed => "is completed".to_owned(),
        RolloutPhase::Aborted { by, .. } => format!("is aborted by {by}"),
        RolloutPhase::RolledBack { by, why, .. } => format!("is rolled back by rollout {by}: {why}"),
        RolloutPhase::Superseded { by, .. } => format!("is superseded by rollout {by}"),
    });
    let passed = |record: &RolloutRecord| record.waves.iter().filter(|wave| wave.passed.is_some()).count();
    let (now, then) = (passed(after), before.map_or(0, passed));
    let wave = (now > then).then(|| format!("wave {now} has passed"));
    let settled = |record: &RolloutRecord| record.waves.iter().filter(|wave| wave.settled.is_some()).count();
    let complete = (settled(after) > before.map_or(0, settled)).then(|| format!("wave {} is complete", settled(after)));
    started.into_iter().chain(complete).chain(wave).chain(moved)
}

fn from(record: &RolloutRecord) -> String {
    record.from.as_ref().map_or_else(|| "nothing".into(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_logs_have_equal_hashes() {
        let log_of = |words: &[&str]| {
            let mut log = EventLog::default();
            words.iter().for_each(|word| log.push(SimTime::from_millis(1_234), format_args!("{word}")));
            log
        };
        assert_eq!(log_of(&["a", "b"]).hash(), log_of(&["a", "b"]).hash());
        assert_ne!(log_of(&["a", "b"]).hash(), log_of(&["b", "a"]).hash());
        assert_eq!(log_of(&["a"]).lines(), ["    1.234s  a"]);
    }
}
