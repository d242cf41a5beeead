//! A rollout where nobody looks: one line for each change, with the time of the server.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::names::{EnvName, NodeName};
use muster_core::rollout::RolloutId;
use muster_core::rollout::progress::Hold;
use muster_core::rollout::record::RolloutPhase;
use muster_wire::rollout::RolloutStatus;

use crate::commands::rows::count;
use crate::terminal::plain;

use super::super::{status_view, words};

/// How the last line of a wave ends.
const PASSED: &str = "; passed";

/// What was said already.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    rollout: Option<RolloutId>,
    phase: Option<RolloutPhase>,
    waves: BTreeMap<usize, String>,
    failed: BTreeSet<NodeName>,
    holds: BTreeSet<String>,
}

impl Transcript {
    /// "14:02:11  something"
    pub(super) fn line(&self, status: &RolloutStatus, text: &str) -> String {
        format!("{}  {}", status.now.strftime("%H:%M:%S"), plain::one_line(text))
    }

    /// The lines of what has changed.
    pub(super) fn changes(&mut self, env: &EnvName, status: &RolloutStatus) -> Vec<String> {
        let mut texts = Vec::new();
        if self.rollout != Some(status.record.id) {
            *self = Self { rollout: Some(status.record.id), ..Self::default() };
            texts.push(beginning(env, status));
        }
        self.waves(status, &mut texts);
        self.failures(status, &mut texts);
        self.holds(status, &mut texts);
        if self.phase.as_ref() != Some(&status.record.phase) {
            let is_first = self.phase.is_none();
            texts.extend(phase(status, is_first));
            self.phase = Some(status.record.phase.clone());
        }
        texts.iter().map(|text| self.line(status, text)).collect()
    }

    fn waves(&mut self, status: &RolloutStatus, texts: &mut Vec<String>) {
        for (index, wave) in status.waves.iter().enumerate().filter(|(_, wave)| wave.state.is_some()) {
            let mut healthy = 0;
            let mut all = 0;
            let mut parts = Vec::new();
            let (mut under_way, mut pending, mut failed, mut skipped) = (0, 0, 0, 0);
            for counts in wave.counts.values() {
                healthy += counts.healthy;
                all += counts.nodes - counts.removed;
                under_way += status_view::under_way(counts) - counts.pending;
                pending += counts.pending;
                failed += counts.failed;
                skipped += counts.skipped;
            }
            for (number, word) in
                [(under_way, "applying"), (pending, "pending"), (failed, "failed"), (skipped, "skipped")]
            {
                if number > 0 {
                    parts.push(format!("{number} {word}"));
                }
            }
            let roles: Vec<String> = wave.counts.keys().map(ToString::to_string).collect();
            // How long a soak still takes changes all the time, and says nothing new.
            let state = match status_view::wave_state(status, index) {
                state if state.starts_with("watched for") => format!("; watched for {}", words::span(wave.soak)),
                state if state.starts_with("goes on") => String::new(),
                state => format!("; {state}"),
            };
            let counts = parts.iter().map(|part| format!(", {part}")).collect::<String>();
            let of = count(usize::try_from(all).unwrap_or(0), "node");
            let text = format!("wave {} ({}): {healthy} of {of} healthy{counts}{state}", index + 1, roles.join(", "));
            // What becomes of its nodes when they are taken back is told there.
            let has_passed = self.waves.get(&index).is_some_and(|said| said.ends_with(PASSED));
            if !has_passed && self.waves.get(&index) != Some(&text) {
                texts.push(text.clone());
                self.waves.insert(index, text);
            }
        }
    }

    /// Each failed node once, with what went wrong and where.
    fn failures(&mut self, status: &RolloutStatus, texts: &mut Vec<String>) {
        for failed in &status.failed {
            if self.failed.insert(failed.node.clone()) {
                texts.push(format!("failed: {failed}"));
            }
        }
        // One that is well again may fail again.
        self.failed.retain(|node| status.failed.iter().any(|failed| failed.node == *node));
    }

    /// The failed nodes that the end of a rollout names, and that were not told of: they are on their way back already.
    pub(super) fn unsaid(&self, status: &RolloutStatus) -> Vec<String> {
        let why = match &status.record.phase {
            RolloutPhase::RolledBack { why, .. } | RolloutPhase::Paused { why } => status_view::failed_of(why),
            RolloutPhase::Running
            | RolloutPhase::Completed
            | RolloutPhase::Aborted { .. }
            | RolloutPhase::Superseded { .. } => &[],
        };
        let unsaid = why.iter().filter(|failed| !self.failed.contains(&failed.node));
        unsaid.map(|failed| format!("failed: {failed}")).collect()
    }

    /// What somebody could do something about, or has to wait for longer than for a node.
    fn holds(&mut self, status: &RolloutStatus, texts: &mut Vec<String>) {
        let mut now = BTreeSet::new();
        for hold in status.holds.iter().filter(|hold| is_news(hold)) {
            let text = format!("waits: {}", words::hold(hold, &status.waves));
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
        | Hold::Silent { .. }
        | Hold::Machine { .. } => true,
        // These come and go with each node, and the lines of the waves show it.
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

fn beginning(env: &EnvName, status: &RolloutStatus) -> String {
    let record = &status.record;
    let way = words::way(record.from.as_ref(), &record.to, record.rolls_back);
    let nodes = count(usize::try_from(status.counts.nodes).unwrap_or(0), "node");
    let waves = if record.at_once { "all at once".to_owned() } else { count(status.waves.len(), "wave") };
    format!("{env}, rollout {}: {way}, {nodes}, {waves}", record.id)
}

/// What is said when the rollout stands otherwise than before.
fn phase(status: &RolloutStatus, is_first: bool) -> Option<String> {
    let id = status.record.id;
    Some(match &status.record.phase {
        RolloutPhase::Running if is_first => return None,
        RolloutPhase::Running => format!("rollout {id} goes on"),
        RolloutPhase::Paused { why } => {
            format!("rollout {id} is paused because {}", status_view::because_now(why, status.counts.failed))
        }
        RolloutPhase::Completed => format!("rollout {id} is completed: {}", status_view::so_far(status)),
        RolloutPhase::Aborted { by, reason } if reason.is_empty() => format!("rollout {id} was aborted by {by}"),
        RolloutPhase::Aborted { by, reason } => format!("rollout {id} was aborted by {by}: {reason}"),
        RolloutPhase::RolledBack { why, .. } => {
            format!("rollout {id} is rolled back because {}", status_view::taken_back(why))
        }
        RolloutPhase::Superseded { by } => format!("rollout {id} was superseded by rollout {by}"),
    })
}

#[cfg(test)]
mod tests {
    use muster_core::names::Version;
    use muster_core::rollout::record::PauseReason;

    use super::super::super::sample::{self, env};
    use super::*;

    /// All that is said of states that follow each other.
    fn told(states: &[RolloutStatus]) -> String {
        let mut transcript = Transcript::default();
        let lines: Vec<String> = states.iter().flat_map(|status| transcript.changes(&env(), status)).collect();
        lines.join("\n")
    }

    #[test]
    fn one_line_for_each_change_and_none_without() {
        let mut later = sample::status();
        later.now = sample::at(31);
        let mut goes_on = sample::waits_for_promotion();
        goes_on.holds.clear();
        let mut paused = goes_on.clone();
        paused.record.phase = RolloutPhase::Paused { why: PauseReason::by_operator("jo", "lunch") };
        let states = [sample::status(), later, sample::waits_for_promotion(), paused, goes_on.clone(), goes_on];
        insta::assert_snapshot!(told(&states), @"
        10:00:30  prod, rollout 7: v2 → v3, 4 nodes, 2 waves
        10:00:30  wave 1 (web): 0 of 1 node healthy, 1 applying
        10:06:40  wave 1 (web): 1 of 1 node healthy; waits for promotion
        10:06:40  waits: wave 1 is well, and a person has to promote it
        10:06:40  rollout 7 is paused because jo has paused it: lunch
        10:06:40  rollout 7 goes on
        ");
    }

    #[test]
    fn a_failure_is_told_with_its_place_and_the_way_back_is_followed() {
        let why = sample::failures(vec![sample::failed_node("web1")]);
        let mut back = sample::status();
        (back.record.id, back.record.rolls_back) = (RolloutId(8), Some(RolloutId(7)));
        (back.record.from, back.record.to) = (Some(Version::new("v3").unwrap()), Version::new("v2").unwrap());
        let states = [sample::status(), sample::failed(RolloutPhase::RolledBack { by: RolloutId(8), why }), back];
        insta::assert_snapshot!(told(&states), @"
        10:00:30  prod, rollout 7: v2 → v3, 4 nodes, 2 waves
        10:00:30  wave 1 (web): 0 of 1 node healthy, 1 applying
        10:01:10  wave 1 (web): 0 of 1 node healthy, 1 failed; ended here
        10:01:10  failed: web1: its run failed: Service[web]: cannot start (manifests/site.pp:12)
        10:01:10  rollout 7 is rolled back because 1 node has failed, and 0 are tolerated in the first wave of a stage
        10:00:30  prod, rollout 8: back to v2 (takes rollout 7 back), 4 nodes, 2 waves
        10:00:30  wave 1 (web): 0 of 1 node healthy, 1 applying
        ");
    }
}
