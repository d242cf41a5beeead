//! Prints one line per change of a rollout, with the time of the server, for pipes and files.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::names::{EnvName, NodeName};
use muster_core::rollout::RolloutId;
use muster_core::rollout::progress::Hold;
use muster_core::rollout::record::RolloutPhase;
use muster_wire::rollout::RolloutStatus;

use crate::output::{count, text};

use super::super::{labels, status_view};

/// End of the last line of a wave.
const PASSED: &str = "; passed";

/// The lines that were printed already.
#[derive(Debug, Default)]
pub(super) struct RolloutTranscript {
    rollout: Option<RolloutId>,
    phase: Option<RolloutPhase>,
    waves: BTreeMap<usize, String>,
    failed: BTreeSet<NodeName>,
    holds: BTreeSet<String>,
}

impl RolloutTranscript {
    /// "14:02:11  something"
    pub(super) fn line(&self, status: &RolloutStatus, text: &str) -> String {
        format!("{}  {}", status.now.strftime("%H:%M:%S"), text::one_line(text))
    }

    /// The lines for all changes since the last call.
    pub(super) fn changes(&mut self, env: &EnvName, status: &RolloutStatus) -> Vec<String> {
        let mut texts = Vec::new();
        if self.rollout != Some(status.record.id) {
            *self = Self { rollout: Some(status.record.id), ..Self::default() };
            texts.push(start_line(env, status));
        }
        self.waves(status, &mut texts);
        self.failures(status, &mut texts);
        self.holds(status, &mut texts);
        if self.phase.as_ref() != Some(&status.record.phase) {
            let is_first = self.phase.is_none();
            texts.extend(phase_line(status, is_first));
            self.phase = Some(status.record.phase.clone());
        }
        texts.iter().map(|text| self.line(status, text)).collect()
    }

    fn waves(&mut self, status: &RolloutStatus, texts: &mut Vec<String>) {
        for (index, wave) in status.waves.iter().enumerate().filter(|(_, wave)| wave.state.is_some()) {
            let mut healthy = 0;
            let mut all = 0;
            let mut parts = Vec::new();
            let (mut in_progress, mut pending, mut failed, mut skipped) = (0, 0, 0, 0);
            for counts in wave.counts.values() {
                healthy += counts.healthy;
                all += counts.nodes - counts.removed;
                in_progress += status_view::in_progress(counts) - counts.pending;
                pending += counts.pending;
                failed += counts.failed;
                skipped += counts.skipped;
            }
            for (number, word) in
                [(in_progress, "applying"), (pending, "pending"), (failed, "failed"), (skipped, "skipped")]
            {
                if number > 0 {
                    parts.push(format!("{number} {word}"));
                }
            }
            let roles: Vec<String> = wave.counts.keys().map(ToString::to_string).collect();
            // Without the remaining soak time, which changes with each answer.
            let state = match status_view::wave_state(status, index) {
                state if state.starts_with("soaking for") => format!("; soaking for {}", labels::duration(wave.soak)),
                state if state.starts_with(status_view::IN_PROGRESS) => String::new(),
                state => format!("; {state}"),
            };
            let counts = parts.iter().map(|part| format!(", {part}")).collect::<String>();
            let of = count(usize::try_from(all).unwrap_or(0), "node");
            let text = format!("wave {} ({}): {healthy} of {of} healthy{counts}{state}", index + 1, roles.join(", "));
            // A rollback of its nodes is shown with the rollback.
            let has_passed = self.waves.get(&index).is_some_and(|printed| printed.ends_with(PASSED));
            if !has_passed && self.waves.get(&index) != Some(&text) {
                texts.push(text.clone());
                self.waves.insert(index, text);
            }
        }
    }

    /// Each failed node once, with its error and its position.
    fn failures(&mut self, status: &RolloutStatus, texts: &mut Vec<String>) {
        for failed in &status.failed {
            if self.failed.insert(failed.node.clone()) {
                texts.push(format!("failed: {failed}"));
            }
        }
        // A recovered node may fail again.
        self.failed.retain(|node| status.failed.iter().any(|failed| failed.node == *node));
    }

    /// Failed nodes of a rollback that were not printed yet: they may be reverted already.
    pub(super) fn unprinted_failures(&self, status: &RolloutStatus) -> Vec<String> {
        let why = match &status.record.phase {
            RolloutPhase::RolledBack { why, .. } | RolloutPhase::Paused { why } => status_view::failed_of(why),
            RolloutPhase::Running
            | RolloutPhase::Completed
            | RolloutPhase::Aborted { .. }
            | RolloutPhase::Superseded { .. } => &[],
        };
        let unprinted = why.iter().filter(|failed| !self.failed.contains(&failed.node));
        unprinted.map(|failed| format!("failed: {failed}")).collect()
    }

    /// Reasons for waiting that need an operator, or take longer than one node.
    fn holds(&mut self, status: &RolloutStatus, texts: &mut Vec<String>) {
        let mut now = BTreeSet::new();
        for hold in status.holds.iter().filter(|hold| is_news(hold)) {
            let text = format!("waits: {}", labels::hold(hold, &status.waves));
            if !self.holds.contains(&text) {
                texts.push(text.clone());
            }
            now.insert(text);
        }
        self.holds = now;
    }
}

fn is_news(hold: &Hold) -> bool {
    match hold {
        Hold::Window { .. }
        | Hold::Promotion { .. }
        | Hold::Brake { .. }
        | Hold::Paused { .. }
        | Hold::Cordoned { .. }
        | Hold::Silent { .. }
        | Hold::NotDue { .. }
        | Hold::Machine { .. } => true,
        // These change with each node; the lines of the waves show them.
        Hold::Halted { .. }
        | Hold::Turn { .. }
        | Hold::Soak { .. }
        | Hold::Gate { .. }
        | Hold::RoleBudget { .. }
        | Hold::DomainBudget { .. }
        | Hold::Ramp { .. }
        | Hold::Node { .. } => false,
    }
}

fn start_line(env: &EnvName, status: &RolloutStatus) -> String {
    let record = &status.record;
    let versions = labels::versions(record.from.as_ref(), &record.to, record.rolls_back);
    let nodes = count(usize::try_from(status.counts.nodes).unwrap_or(0), "node");
    let waves = if record.at_once { "all at once".to_owned() } else { count(status.waves.len(), "wave") };
    format!("{env}, rollout {}: {versions}, {nodes}, {waves}", record.id)
}

/// The line for a change of the phase.
fn phase_line(status: &RolloutStatus, is_first: bool) -> Option<String> {
    let id = status.record.id;
    Some(match &status.record.phase {
        RolloutPhase::Running if is_first => return None,
        RolloutPhase::Running => format!("rollout {id} is resumed"),
        RolloutPhase::Paused { why } => {
            format!("rollout {id} is paused because {}", status_view::current_pause_reason(why, status.counts.failed))
        }
        RolloutPhase::Completed => format!("rollout {id} is completed: {}", status_view::progress(status)),
        RolloutPhase::Aborted { by, reason } if reason.is_empty() => format!("rollout {id} was aborted by {by}"),
        RolloutPhase::Aborted { by, reason } => format!("rollout {id} was aborted by {by}: {reason}"),
        RolloutPhase::RolledBack { why, .. } => {
            format!("rollout {id} is rolled back because {}", status_view::rollback_reason(why))
        }
        RolloutPhase::Superseded { by } => format!("rollout {id} was superseded by rollout {by}"),
    })
}

#[cfg(test)]
mod tests {
    use muster_core::names::Version;
    use muster_core::rollout::record::PauseReason;

    use super::super::super::test_data::{self, env};
    use super::*;

    /// The transcript of a sequence of states.
    fn transcript(states: &[RolloutStatus]) -> String {
        let mut transcript = RolloutTranscript::default();
        let lines: Vec<String> = states.iter().flat_map(|status| transcript.changes(&env(), status)).collect();
        lines.join("\n")
    }

    #[test]
    fn each_change_is_printed_once() {
        let mut later = test_data::status();
        later.now = test_data::at(31);
        let mut resumed = test_data::waits_for_promotion();
        resumed.holds.clear();
        let mut paused = resumed.clone();
        paused.record.phase = RolloutPhase::Paused { why: PauseReason::by_operator("jo", "lunch") };
        let states = [test_data::status(), later, test_data::waits_for_promotion(), paused, resumed.clone(), resumed];
        insta::assert_snapshot!(transcript(&states), @"
        10:00:30  prod, rollout 7: v2 → v3, 4 nodes, 2 waves
        10:00:30  wave 1 (web): 0 of 1 node healthy, 1 applying
        10:06:40  wave 1 (web): 1 of 1 node healthy; waits for promotion
        10:06:40  waits: wave 1 is healthy and waits for `muster rollout promote`
        10:06:40  rollout 7 is paused because jo has paused it: lunch
        10:06:40  rollout 7 is resumed
        ");
    }

    #[test]
    fn failure_and_rollback_are_printed() {
        let why = test_data::failures(vec![test_data::failed_node("web1")]);
        let mut back = test_data::status();
        (back.record.id, back.record.rolls_back) = (RolloutId(8), Some(RolloutId(7)));
        (back.record.from, back.record.to) = (Some(Version::new("v3").unwrap()), Version::new("v2").unwrap());
        let states = [test_data::status(), test_data::failed(RolloutPhase::RolledBack { by: RolloutId(8), why }), back];
        insta::assert_snapshot!(transcript(&states), @"
        10:00:30  prod, rollout 7: v2 → v3, 4 nodes, 2 waves
        10:00:30  wave 1 (web): 0 of 1 node healthy, 1 applying
        10:01:10  wave 1 (web): 0 of 1 node healthy, 1 failed; stopped
        10:01:10  failed: web1: its run failed: Service[web]: cannot start (manifests/site.pp:12)
        10:01:10  rollout 7 is rolled back because 1 node has failed, and 0 are tolerated in the first wave of a stage
        10:00:30  prod, rollout 8: back to v2 (rolls back rollout 7), 4 nodes, 2 waves
        10:00:30  wave 1 (web): 0 of 1 node healthy, 1 applying
        ");
    }
}
