//! How a rollout stands, for people: waves and roles in a table, who blocks and why, and what to type next.

use jiff::Timestamp;
use muster_core::names::{EnvName, Role, Version};
use muster_core::rollout::progress::{Hold, NodeCounts, RolloutNodeState};
use muster_core::rollout::record::{FailedNode, GateVerdict, PauseReason, RolloutPhase, WaveState};
use muster_core::rollout::strategy::Promote;
use muster_wire::hints::{Hint, RolloutSituation, next_commands};
use muster_wire::rollout::{RolloutStatus, WaveRow};

use crate::commands::rows::{NONE, count};
use crate::terminal::{Out, Table, age, plain};

use super::words::{self, moved};

/// So many reasons are read at once.
const HOLDS: usize = 8;
/// Of a wave whose nodes are being moved.
const GOES_ON: &str = "goes on";

pub(super) fn show(env: &EnvName, status: &RolloutStatus, out: &mut Out) {
    out.line(headline(env, status));
    if let Some(line) = halted(status) {
        out.line(line);
    }
    if let Some(problem) = &status.problem {
        out.line(format_args!("its plan cannot be read: {}", plain::one_line(problem)));
    }
    if !status.waves.is_empty() {
        out.gap();
        out.table(table(status));
    }
    let mut nodes = failed_lines(status);
    nodes.extend(aside(status));
    if !nodes.is_empty() {
        out.gap();
        nodes.iter().for_each(|line| out.line(line));
    }
    let holds = holds(status);
    if !holds.is_empty() {
        out.gap();
        holds.iter().for_each(|line| out.line(line));
    }
    let next = next(status);
    if !next.is_empty() {
        out.gap();
        next.iter().for_each(|line| out.line(line));
    }
}

/// "prod, rollout 7: v2 → v3, running for 12m: wave 2 of 4, 12 of 40 nodes healthy"
pub(super) fn headline(env: &EnvName, status: &RolloutStatus) -> String {
    let record = &status.record;
    let way = words::way(record.from.as_ref(), &record.to, record.rolls_back);
    let long = age(if record.phase.is_open() { record.started } else { record.phase_since }, status.now);
    let phase = match &record.phase {
        RolloutPhase::Running => format!("running for {long}"),
        RolloutPhase::Paused { .. } => format!("paused for {}", age(record.phase_since, status.now)),
        RolloutPhase::Completed => format!("completed {long} ago"),
        RolloutPhase::Aborted { .. } => format!("aborted {long} ago"),
        RolloutPhase::RolledBack { by, .. } => format!("rolled back by rollout {by} {long} ago"),
        RolloutPhase::Superseded { by } => format!("superseded by rollout {by} {long} ago"),
    };
    format!("{env}, rollout {}: {way}, {phase}: {}", record.id, so_far(status))
}

/// "wave 2 of 4, 12 of 40 nodes healthy, 1 failed"
pub(super) fn so_far(status: &RolloutStatus) -> String {
    let NodeCounts { nodes, healthy, failed, skipped, removed, .. } = status.counts;
    let mut parts = Vec::new();
    let begun = status.waves.iter().filter(|wave| wave.state.is_some()).count();
    match &status.record {
        record if record.at_once => parts.push("all at once".to_owned()),
        record if record.phase.is_open() && begun > 0 => {
            parts.push(format!("wave {begun} of {}", status.waves.len()));
        }
        _ => {}
    }
    parts.push(format!("{healthy} of {} healthy", count(usize::try_from(nodes - removed).unwrap_or(0), "node")));
    for (number, word) in [(failed, "failed"), (skipped, "skipped")] {
        if number > 0 {
            parts.push(format!("{number} {word}"));
        }
    }
    parts.join(", ")
}

/// Why it stopped, or was ended.
fn halted(status: &RolloutStatus) -> Option<String> {
    let line = match &status.record.phase {
        RolloutPhase::Running | RolloutPhase::Completed | RolloutPhase::Superseded { .. } => return None,
        RolloutPhase::Paused { why } => format!("because {}", because_now(why, status.counts.failed)),
        RolloutPhase::RolledBack { why, .. } => format!("because {}", taken_back(why)),
        RolloutPhase::Aborted { by, reason } if reason.is_empty() => format!("by {by}"),
        RolloutPhase::Aborted { by, reason } => format!("by {by}: {reason}"),
    };
    Some(format!("  {}", plain::one_line(&line)))
}

/// The reason without the first node that it names: all of them follow.
pub(in crate::commands) fn because(why: &PauseReason) -> String {
    cause(why, true)
}

/// The same of one that stands still now: those that had failed may be well again, or set aside.
pub(in crate::commands) fn because_now(why: &PauseReason, failed: u32) -> String {
    cause(why, failed > 0)
}

fn cause(why: &PauseReason, have_failed: bool) -> String {
    match why {
        PauseReason::Operator { by, reason, over } => {
            let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            let over = over.as_ref().map(|over| format!("; it stood still already: {}", cause(over, have_failed)));
            format!("{by} has paused it{reason}{}", over.unwrap_or_default())
        }
        PauseReason::Failures { threshold, failed, tolerated, .. } => {
            let bare = PauseReason::Failures {
                threshold: *threshold,
                failed: *failed,
                tolerated: *tolerated,
                nodes: Vec::new(),
            };
            match have_failed {
                true => bare.to_string(),
                false => bare.to_string().replacen(" has failed", " had failed", 1).replacen(
                    " have failed",
                    " had failed",
                    1,
                ),
            }
        }
        PauseReason::NothingToGoBackTo { why } => {
            format!(
                "{}; no version was ever validated by a whole rollout, so there is none to go back to",
                cause(why, have_failed)
            )
        }
        PauseReason::GateFailed { .. }
        | PauseReason::GateInconclusive { .. }
        | PauseReason::NoProgress { .. }
        | PauseReason::Blocked { .. } => why.to_string(),
    }
}

/// Why it was taken back.
pub(super) fn taken_back(why: &PauseReason) -> String {
    match why {
        PauseReason::Operator { by, reason, .. } if reason.is_empty() => format!("{by} wished it"),
        PauseReason::Operator { by, reason, .. } => format!("{by} wished it: {reason}"),
        PauseReason::Failures { .. }
        | PauseReason::GateFailed { .. }
        | PauseReason::GateInconclusive { .. }
        | PauseReason::NoProgress { .. }
        | PauseReason::NothingToGoBackTo { .. }
        | PauseReason::Blocked { .. } => because(why),
    }
}

/// A row for each role of each wave.
pub(super) fn table(status: &RolloutStatus) -> Table {
    let headings = ["WAVE", "ROLE", "DESIRED", "GRANTED", "APPLYING", "HEALTHY", "FAILED", "DEADLINE", "STATE"];
    let mut table = Table::new(headings);
    for (index, wave) in status.waves.iter().enumerate() {
        for (row, (role, counts)) in wave.counts.iter().enumerate() {
            let first = row == 0;
            table.row([
                if first { (index + 1).to_string() } else { String::new() },
                role.to_string(),
                (counts.nodes - counts.removed).to_string(),
                moved(counts).to_string(),
                under_way(counts).to_string(),
                counts.healthy.to_string(),
                counts.failed.to_string(),
                deadline(status, index, role),
                if first { wave_state(status, index) } else { String::new() },
            ]);
        }
    }
    table
}

/// Nodes that were granted, and are neither healthy nor failed yet.
pub(super) fn under_way(counts: &NodeCounts) -> u32 {
    counts.granted + counts.pending + counts.soaking
}

/// How long the next of its nodes has to become healthy. Only one wave goes on at a time.
fn deadline(status: &RolloutStatus, index: usize, role: &Role) -> String {
    let goes_on = status.waves.get(index).is_some_and(|wave| wave.state.as_ref().is_some_and(|it| it.passed.is_none()));
    let of_role = status.slots.iter().filter(|slot| slot.role == *role && is_under_way(&slot.state));
    time_left(of_role.filter_map(|slot| slot.deadline).min().filter(|_| goes_on), status.now)
}

/// How long a node has left.
pub(super) fn time_left(deadline: Option<Timestamp>, now: Timestamp) -> String {
    match deadline {
        None => NONE.to_owned(),
        Some(at) if at <= now => "now".to_owned(),
        Some(at) => format!("in {}", age(now, at)),
    }
}

fn is_under_way(state: &RolloutNodeState) -> bool {
    match state {
        RolloutNodeState::Granted | RolloutNodeState::Pending { .. } | RolloutNodeState::Soaking { .. } => true,
        RolloutNodeState::Waiting
        | RolloutNodeState::Healthy
        | RolloutNodeState::Failed { .. }
        | RolloutNodeState::Skipped
        | RolloutNodeState::Removed => false,
    }
}

/// Where a wave is on its way.
pub(super) fn wave_state(status: &RolloutStatus, index: usize) -> String {
    let Some(wave) = status.waves.get(index) else { return String::new() };
    let Some(state) = &wave.state else { return String::new() };
    if state.passed.is_some() {
        return "passed".to_owned();
    }
    if !status.record.phase.is_open() {
        return match status.record.phase {
            RolloutPhase::Completed => "passed".to_owned(),
            RolloutPhase::Running
            | RolloutPhase::Paused { .. }
            | RolloutPhase::Aborted { .. }
            | RolloutPhase::RolledBack { .. }
            | RolloutPhase::Superseded { .. } => "ended here".to_owned(),
        };
    }
    match (open_wave(wave, state, status.now, status.record.full), &status.record.phase) {
        (text, RolloutPhase::Paused { .. }) if text == GOES_ON => "paused".to_owned(),
        (text, _) if text == GOES_ON && wave.canary => format!("{text} (canary)"),
        (text, _) => text,
    }
}

fn open_wave(wave: &WaveRow, state: &WaveState, now: Timestamp, full: bool) -> String {
    match (&state.gate, state.settled) {
        (Some(GateVerdict::Failed { check, .. }), _) => format!("the check {check:?} failed"),
        (Some(GateVerdict::Inconclusive { check, .. }), _) => format!("the check {check:?} could not say"),
        (Some(GateVerdict::Passed { .. }), _) => match wave.promote {
            Promote::Manual if state.promoted.is_none() && !full => "waits for promotion".to_owned(),
            Promote::Manual | Promote::Auto => "passes".to_owned(),
        },
        (None, Some(settled)) => match settled.checked_add(wave.soak) {
            Ok(until) if until > now => format!("watched for {}", age(now, until)),
            Ok(_) | Err(_) => "asks its gate".to_owned(),
        },
        (None, None) => GOES_ON.to_owned(),
    }
}

/// The failed nodes, each with what went wrong and where.
pub(super) fn failed_lines(status: &RolloutStatus) -> Vec<String> {
    let named = match &status.record.phase {
        RolloutPhase::Paused { why } | RolloutPhase::RolledBack { why, .. } => failed_of(why),
        RolloutPhase::Running
        | RolloutPhase::Completed
        | RolloutPhase::Aborted { .. }
        | RolloutPhase::Superseded { .. } => &[],
    };
    // What a node says now is newer than what it said when the rollout stopped.
    let line = |failed: &FailedNode| format!("failed: {}", plain::one_line(&failed.to_string()));
    let mut lines: Vec<String> = status.failed.iter().map(line).collect();
    let more = usize::try_from(status.counts.failed).unwrap_or(0).saturating_sub(lines.len());
    for failed in named.iter().filter(|failed| !status.failed.iter().any(|now| now.node == failed.node)) {
        match since(status, failed) {
            Some(since) => lines.push(format!("had {}; {since}", line(failed))),
            None => lines.push(line(failed)),
        }
    }
    if more > 0 {
        lines.push(format!("… and {more} more: muster failures"));
    }
    lines
}

/// What became of a node that had failed when the rollout stopped. None if that is the last that is known of it.
fn since(status: &RolloutStatus, failed: &FailedNode) -> Option<&'static str> {
    let record = &status.record;
    // What has ended says how it ended. And of more than are shown, it may be one that is not.
    if !record.phase.is_open() || usize::try_from(status.counts.failed).unwrap_or(0) > status.failed.len() {
        return None;
    }
    let is_on_its_way = || status.slots.iter().any(|slot| slot.node == failed.node && is_under_way(&slot.state));
    Some(match () {
        () if record.skipped.contains(&failed.node) => "it is set aside now",
        () if is_on_its_way() => "it is on its way once more",
        // Its slot would say so, or it is no longer there.
        () if record.released.contains(&failed.node) || status.counts.removed > 0 => "it does not count as failed now",
        () => "it is well again",
    })
}

/// Who was set aside.
fn aside(status: &RolloutStatus) -> Option<String> {
    let skipped = &status.record.skipped;
    (!skipped.is_empty()).then(|| format!("skipped: {}", words::names(skipped.iter(), false)))
}

/// The nodes that a halt names.
pub(super) fn failed_of(why: &PauseReason) -> &[FailedNode] {
    match why {
        PauseReason::Failures { nodes, .. } => nodes,
        PauseReason::NothingToGoBackTo { why } => failed_of(why),
        PauseReason::Operator { over, .. } => over.as_ref().map(|over| failed_of(over)).unwrap_or_default(),
        PauseReason::GateFailed { .. }
        | PauseReason::GateInconclusive { .. }
        | PauseReason::NoProgress { .. }
        | PauseReason::Blocked { .. } => &[],
    }
}

/// What holds it up, beside what was said above.
pub(super) fn holds(status: &RolloutStatus) -> Vec<String> {
    let is_paused = matches!(status.record.phase, RolloutPhase::Paused { .. });
    let said_above = |hold: &Hold| match hold {
        Hold::Halted { .. } => true,
        Hold::Node { state, .. } => matches!(state, RolloutNodeState::Failed { .. }),
        // Whatever the next thing would be: it waits for a person first.
        Hold::Window { .. }
        | Hold::Turn { .. }
        | Hold::Soak { .. }
        | Hold::Gate { .. }
        | Hold::Promotion { .. }
        | Hold::RoleBudget { .. }
        | Hold::DomainBudget { .. }
        | Hold::Ramp { .. } => is_paused,
        Hold::Brake { .. } | Hold::Paused { .. } | Hold::Silent { .. } | Hold::Machine { .. } => false,
    };
    let shown: Vec<&Hold> = status.holds.iter().filter(|hold| !said_above(hold)).collect();
    let mut lines: Vec<String> =
        shown.iter().take(HOLDS).map(|hold| format!("waits: {}", words::hold(hold, &status.waves))).collect();
    if shown.len() > HOLDS {
        lines.push(format!("… and for {} more", shown.len() - HOLDS));
    }
    lines
}

/// What somebody can type now.
pub(super) fn next(status: &RolloutStatus) -> Vec<String> {
    let hints = next_commands(RolloutSituation {
        phase: &status.record.phase,
        at_once: status.record.at_once,
        waits_for_promotion: status.holds.iter().any(|hold| matches!(hold, Hold::Promotion { .. })),
        stable: status.stable.as_ref(),
        failed: status.counts.failed,
        sent: status.record.grants > 0 || status.record.at_once,
    });
    hints.iter().map(|Hint { command, does }| format!("next: {command:<35}{does}")).collect()
}

/// "12 of 40 nodes were sent to v3, and stay there; 28 stay at v2"; what an end is about.
pub(super) fn blast_radius(status: &RolloutStatus) -> String {
    let (record, counts) = (&status.record, &status.counts);
    let (there, all) = (moved(counts), counts.nodes - counts.removed);
    let of = format!("{there} of {}", count(usize::try_from(all).unwrap_or(0), "node"));
    let (were, remain) = if there == 1 { ("was", "stays") } else { ("were", "stay") };
    let to = &record.to;
    let stay = |(told, number): (&Version, &u32)| match number {
        1 => format!("; 1 stays at {told}"),
        _ => format!("; {number} stay at {told}"),
    };
    if there == 0 {
        // Who was sent there and set aside afterwards is there all the same.
        let nobody = if record.grants == 0 { "no node was sent to" } else { "no other node goes to" };
        let stays: String = status.told.iter().map(stay).collect();
        return format!("{nobody} {to}{stays}");
    }
    // They need not all be where this one began: rollouts before it may have ended halfway.
    let others: String = status.told.iter().filter(|(told, _)| *told != to).map(stay).collect();
    format!("{of} {were} sent to {to}, and {remain} there{others}")
}

#[cfg(test)]
mod tests {
    use muster_core::rollout::RolloutId;

    use super::super::plan_view::tests::written;
    use super::super::sample::{self, at, env, node, role};
    use super::*;

    fn shown(status: &RolloutStatus) -> String {
        written(|out| show(&env(), status, out))
    }

    /// A node of the first wave.
    fn slot(status: &RolloutStatus, state: RolloutNodeState, deadline: i64) -> muster_wire::rollout::SlotRow {
        muster_wire::rollout::SlotRow {
            node: node("web1"),
            role: role("web"),
            rollout: RolloutId(7),
            version: status.record.to.clone(),
            state,
            granted: at(0),
            fence: status.revision,
            expires: Some(at(900)),
            deadline: Some(at(deadline)),
        }
    }

    #[test]
    fn who_waits_for_others_has_time_also_after_its_grant_has_expired() {
        let mut status = sample::status();
        status.now = at(1000);
        status.slots = vec![slot(&status, RolloutNodeState::Pending { since: at(60) }, 1860)];
        assert_eq!(deadline(&status, 0, &role("web")), "in 14m");
    }

    #[test]
    fn a_rollout_on_its_way_says_how_far_it_is_and_whom_it_waits_for() {
        let mut status = sample::status();
        status.slots = vec![slot(&status, RolloutNodeState::Granted, 900)];
        status.holds = vec![
            Hold::Turn { stage: 1, wave: 1 },
            Hold::Node { node: node("web1"), state: RolloutNodeState::Granted, deadline: Some(at(900)) },
        ];
        insta::assert_snapshot!(shown(&status), @"
        prod, rollout 7: v2 → v3, running for 30s: wave 1 of 2, 0 of 4 nodes healthy

        WAVE  ROLE  DESIRED  GRANTED  APPLYING  HEALTHY  FAILED  DEADLINE  STATE
        1     web   1        1        1         0        0       in 14m    goes on (canary)
        2     lb    1        0        0         0        0       -
              web   2        0        0         0        0       -

        waits: wave 1 has not passed
        waits: web1 is granted, and has until 2027-01-15 10:15:00 UTC

        next: muster rollout status --watch      follow it to its end
        ");
    }

    #[test]
    fn who_has_to_promote_is_told_so() {
        insta::assert_snapshot!(shown(&sample::waits_for_promotion()), @"
        prod, rollout 7: v2 → v3, running for 6m: wave 1 of 2, 1 of 4 nodes healthy

        WAVE  ROLE  DESIRED  GRANTED  APPLYING  HEALTHY  FAILED  DEADLINE  STATE
        1     web   1        1        0         1        0       -         waits for promotion
        2     lb    1        0        0         0        0       -
              web   2        0        0         0        0       -

        waits: wave 1 is well, and a person has to promote it

        next: muster rollout promote             let the next wave begin
        next: muster rollout rollback            go back to v2
        ");
    }

    #[test]
    fn failures_are_shown_with_file_and_line_and_what_to_do() {
        let why = sample::failures(vec![sample::failed_node("web1")]);
        insta::assert_snapshot!(shown(&sample::failed(RolloutPhase::Paused { why })), @"
        prod, rollout 7: v2 → v3, paused for 10s: wave 1 of 2, 0 of 4 nodes healthy, 1 failed
          because 1 node has failed, and 0 are tolerated in the first wave of a stage

        WAVE  ROLE  DESIRED  GRANTED  APPLYING  HEALTHY  FAILED  DEADLINE  STATE
        1     web   1        1        0         0        1       -         paused
        2     lb    1        0        0         0        0       -
              web   2        0        0         0        0       -

        failed: web1: its run failed: Service[web]: cannot start (manifests/site.pp:12)

        next: muster rollout retry --failed      grant the failed nodes once more, and go on
        next: muster rollout skip NODE           set a node aside, then resume
        next: muster rollout resume              go on in spite of them
        next: muster rollout rollback            go back to v2
        ");
    }

    #[test]
    fn who_had_failed_and_no_longer_does_is_not_called_failed() {
        let why = sample::failures(vec![sample::failed_node("web1")]);
        let mut status = sample::failed(RolloutPhase::Paused { why });
        status.failed.clear();
        if let Some(wave) = status.waves.first_mut() {
            wave.counts.insert(role("web"), NodeCounts { nodes: 1, skipped: 1, ..NodeCounts::default() });
        }
        sample::count(&mut status);
        status.record.skipped.insert(node("web1"));
        insta::assert_snapshot!(shown(&status), @"
        prod, rollout 7: v2 → v3, paused for 10s: wave 1 of 2, 0 of 4 nodes healthy, 1 skipped
          because 1 node had failed, and 0 are tolerated in the first wave of a stage

        WAVE  ROLE  DESIRED  GRANTED  APPLYING  HEALTHY  FAILED  DEADLINE  STATE
        1     web   1        0        0         0        0       -         paused
        2     lb    1        0        0         0        0       -
              web   2        0        0         0        0       -

        had failed: web1: its run failed: Service[web]: cannot start (manifests/site.pp:12); it is set aside now
        skipped: web1

        next: muster rollout resume              go on
        next: muster rollout rollback            go back to v2
        ");
        status.record.skipped.clear();
        let lines = failed_lines(&status);
        assert!(lines[0].starts_with("had failed: web1: ") && lines[0].ends_with("; it is well again"), "{lines:?}");
    }

    #[test]
    fn an_end_says_which_and_since_when() {
        let line = |phase: RolloutPhase| headline(&env(), &sample::failed(phase));
        let aborted = RolloutPhase::Aborted { by: "jo".into(), reason: "wrong one".into() };
        assert_eq!(line(aborted.clone()), "prod, rollout 7: v2 → v3, aborted 10s ago: 0 of 4 nodes healthy, 1 failed");
        assert_eq!(halted(&sample::failed(aborted)).unwrap(), "  by jo: wrong one");
        let superseded = line(RolloutPhase::Superseded { by: RolloutId(8) });
        assert_eq!(
            superseded,
            "prod, rollout 7: v2 → v3, superseded by rollout 8 10s ago: 0 of 4 nodes healthy, 1 failed"
        );
    }

    #[test]
    fn what_is_done_says_how_many_nodes_it_is_about() {
        let mut status = sample::waits_for_promotion();
        assert_eq!(blast_radius(&status), "1 of 4 nodes was sent to v3, and stays there; 3 stay at v2");
        status.told = [("v1", 1), ("v2", 2), ("v3", 1)].map(|(name, count)| (sample::version(name), count)).into();
        let mixed = "1 of 4 nodes was sent to v3, and stays there; 1 stays at v1; 2 stay at v2";
        assert_eq!(blast_radius(&status), mixed);
        let mut nobody = sample::status();
        nobody.waves.iter_mut().for_each(|wave| wave.counts.clear());
        sample::count(&mut nobody);
        nobody.told = [(sample::version("v2"), 4)].into();
        assert_eq!(blast_radius(&nobody), "no node was sent to v3; 4 stay at v2");
    }
}
