//! What the store's transactions mean, in lines that a person reads.

use muster_core::keys::{self, Key};
use muster_core::rollout::record::{DesiredRecord, RolloutPhase, RolloutRecord};
use muster_store::WatchChange;

use super::world::World;

impl World {
    /// Tells what a transaction says of rollouts, before it has its effect.
    pub(crate) fn narrate(&mut self, changes: &[WatchChange]) {
        let mut lines = Vec::new();
        for change in changes {
            let WatchChange::Put(kv) = change else { continue };
            if !kv.key.contains("/rollouts/") && !kv.key.contains("/desired/") {
                continue;
            }
            match keys::parse(&kv.key) {
                Some((_, Key::Desired { node })) => {
                    let Ok(desired) = serde_json::from_slice::<DesiredRecord>(&kv.value) else { continue };
                    let what = if desired.kept.is_some() { "leaves it at" } else { "grants" };
                    lines.push(format!("rollout {}: {node}: {what} {}", desired.rollout, desired.version));
                }
                Some((_, Key::Rollout { id })) => {
                    let Ok(after) = serde_json::from_slice::<RolloutRecord>(&kv.value) else { continue };
                    let before = self.judge.fleet().rollouts().get(&id).map(|(record, _)| record);
                    lines.extend(told(before, &after).map(|what| format!("rollout {id}: {what}")));
                }
                Some(_) | None => {}
            }
        }
        for line in lines {
            self.say(format_args!("{line}"));
        }
    }
}

/// What is new in a record.
fn told(before: Option<&RolloutRecord>, after: &RolloutRecord) -> impl Iterator<Item = String> {
    let begins = before.is_none().then(|| match after.rolls_back {
        Some(back) => format!("begins, from {} back to {}, instead of rollout {back}", from(after), after.to),
        None => format!("begins, from {} to {}", from(after), after.to),
    });
    let moved = before.is_some_and(|before| before.phase != after.phase).then(|| match &after.phase {
        RolloutPhase::Running => "goes on".to_owned(),
        RolloutPhase::Paused { why } => format!("pauses: {why}"),
        RolloutPhase::Completed => "is completed".to_owned(),
        RolloutPhase::Aborted { by, .. } => format!("is ended by {by}"),
        RolloutPhase::RolledBack { by, why, .. } => format!("is rolled back by rollout {by}: {why}"),
        RolloutPhase::Superseded { by, .. } => format!("makes way for rollout {by}"),
    });
    let passed = |record: &RolloutRecord| record.waves.iter().filter(|wave| wave.passed.is_some()).count();
    let (now, then) = (passed(after), before.map_or(0, passed));
    let wave = (now > then).then(|| format!("wave {now} has passed"));
    let settled = |record: &RolloutRecord| record.waves.iter().filter(|wave| wave.settled.is_some()).count();
    let whole = (settled(after) > before.map_or(0, settled)).then(|| format!("wave {} is whole", settled(after)));
    begins.into_iter().chain(whole).chain(wave).chain(moved)
}

fn from(record: &RolloutRecord) -> String {
    record.from.as_ref().map_or_else(|| "nothing".into(), ToString::to_string)
}
