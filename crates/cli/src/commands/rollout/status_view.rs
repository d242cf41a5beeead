//! Shows the status of a rollout: a table of waves and roles, the reasons for waiting, and the next commands.

use jiff::{SignedDuration, Timestamp};
use muster_core::names::{EnvName, NodeName, Role, Version};
use muster_core::rollout::progress::{Hold, NodeCounts, RolloutNodeState};
use muster_core::rollout::record::{FailedNode, GateVerdict, PauseReason, RolloutPhase, WaveState};
use muster_core::rollout::strategy::Promote;
use muster_wire::hints::{Hint, RolloutSituation, next_commands};
use muster_wire::rollout::{RolloutStatus, WaveRow};

use crate::output::{NONE, Out, Table, age, count, text};

use super::labels::{self, granted};

/// Reasons for waiting that are listed.
const HOLDS: usize = 8;
/// The state of a wave whose nodes are being updated.
pub(super) const IN_PROGRESS: &str = "in progress";

pub(super) fn show(env: &EnvName, status: &RolloutStatus, out: &mut Out) {
    out.line(headline(env, status));
    if let Some(line) = end_reason(status) {
        out.line(line);
    }
    if let Some(problem) = &status.problem {
        out.line(format_args!("the plan cannot be read: {}", text::one_line(problem)));
    }
    if !status.waves.is_empty() {
        out.gap();
        out.table(table(status));
    }
    let mut nodes = failed_lines(status);
    nodes.extend(skipped_line(status));
    if !nodes.is_empty() {
        out.gap();
        nodes.iter().for_each(|line| out.line(line));
    }
    let holds = holds(status);
    if !holds.is_empty() {
        out.gap();
        holds.iter().for_each(|line| out.line(line));
    }
    let next = next_steps(status);
    if !next.is_empty() {
        out.gap();
        next.iter().for_each(|line| out.line(line));
    }
}

/// "prod, rollout 7: v2 → v3, running for 12m: wave 2 of 4, 12 of 40 nodes healthy"
pub(super) fn headline(env: &EnvName, status: &RolloutStatus) -> String {
    let record = &status.record;
    let versions = labels::versions(record.from.as_ref(), &record.to, record.rolls_back);
    let time = age(if record.phase.is_open() { record.started } else { record.phase_since }, status.now);
    let phase = match &record.phase {
        RolloutPhase::Running => format!("running for {time}"),
        RolloutPhase::Paused { .. } => format!("paused for {}", age(record.phase_since, status.now)),
        RolloutPhase::Completed => format!("completed {time} ago"),
        RolloutPhase::Aborted { .. } => format!("aborted {time} ago"),
        RolloutPhase::RolledBack { by, .. } => format!("rolled back by rollout {by} {time} ago"),
        RolloutPhase::Superseded { by } => format!("superseded by rollout {by} {time} ago"),
    };
    let left = time_to_end(status).map(|left| format!(", about {} left", age(status.now, left))).unwrap_or_default();
    format!("{env}, rollout {}: {versions}, {phase}: {}{left}", record.id, progress(status))
}

/// The predicted end of a running rollout: the share of the nodes that are left, and the soak times that are left.
fn time_to_end(status: &RolloutStatus) -> Option<Timestamp> {
    let NodeCounts { nodes, healthy, failed, skipped, removed, .. } = status.counts;
    let (RolloutPhase::Running, Some(predicted)) = (&status.record.phase, status.predicted) else { return None };
    // The time until an operator or a window is not predicted.
    if status.holds.iter().any(|hold| matches!(hold, Hold::Promotion { .. } | Hold::Window { .. })) {
        return None;
    }
    let all = i32::try_from(nodes.saturating_sub(removed)).ok().filter(|all| *all > 0)?;
    let left = all.saturating_sub(i32::try_from(healthy + failed + skipped).ok()?).max(0);
    let soaks: SignedDuration = status.waves.iter().map(|wave| wave.soak).sum();
    let soaks_left: SignedDuration = status.waves.iter().map(|wave| soak_left(wave, status.now)).sum();
    let updates = predicted.total.saturating_sub(soaks).max(SignedDuration::ZERO) * left / all;
    // The nodes in progress have used a part of their time.
    let used = status.now.duration_since(status.record.steps.progress).min(predicted.node).max(SignedDuration::ZERO);
    let updates = updates.saturating_sub(used).max(SignedDuration::ZERO);
    status.now.checked_add(updates.saturating_add(soaks_left)).ok()
}

/// The part of the soak time of a wave that is in the future.
fn soak_left(wave: &WaveRow, now: Timestamp) -> SignedDuration {
    match &wave.state {
        Some(state) if state.passed.is_some() => SignedDuration::ZERO,
        Some(WaveState { settled: Some(settled), .. }) => {
            (wave.soak - now.duration_since(*settled)).max(SignedDuration::ZERO)
        }
        Some(_) | None => wave.soak,
    }
}

/// The names of the nodes in progress, by state: "applying: web3, web4".
pub(super) fn nodes_in_progress(status: &RolloutStatus) -> Vec<String> {
    let of = |word: &str, is: fn(&RolloutNodeState) -> bool| {
        let nodes: Vec<&NodeName> = status.slots.iter().filter(|slot| is(&slot.state)).map(|slot| &slot.node).collect();
        (!nodes.is_empty()).then(|| format!("{word}: {}", labels::names(nodes.into_iter(), false)))
    };
    let applying = of("applying", |state| matches!(state, RolloutNodeState::Granted));
    let pending = of("pending", |state| matches!(state, RolloutNodeState::Pending { .. }));
    let soaking = of("soaking", |state| matches!(state, RolloutNodeState::Soaking { .. }));
    [applying, pending, soaking].into_iter().flatten().collect()
}

/// "wave 2 of 4, 12 of 40 nodes healthy, 1 failed"
pub(super) fn progress(status: &RolloutStatus) -> String {
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

/// The reason of a pause, a rollback or an abort.
fn end_reason(status: &RolloutStatus) -> Option<String> {
    let line = match &status.record.phase {
        RolloutPhase::Running | RolloutPhase::Completed | RolloutPhase::Superseded { .. } => return None,
        RolloutPhase::Paused { why } => format!("because {}", current_pause_reason(why, status.counts.failed)),
        RolloutPhase::RolledBack { why, .. } => format!("because {}", rollback_reason(why)),
        RolloutPhase::Aborted { by, reason } if reason.is_empty() => format!("by {by}"),
        RolloutPhase::Aborted { by, reason } => format!("by {by}: {reason}"),
    };
    Some(format!("  {}", text::one_line(&line)))
}

/// The reason of a pause, without its nodes, which are listed separately.
pub(in crate::commands) fn pause_reason(why: &PauseReason) -> String {
    reason_text(why, true)
}

/// The same for a rollout that is paused now: failed nodes may have recovered or been skipped meanwhile.
pub(in crate::commands) fn current_pause_reason(why: &PauseReason, failed: u32) -> String {
    reason_text(why, failed > 0)
}

fn reason_text(why: &PauseReason, have_failed: bool) -> String {
    match why {
        PauseReason::Operator { by, reason, over } => {
            let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            let over =
                over.as_ref().map(|over| format!("; it was paused before because {}", reason_text(over, have_failed)));
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
        PauseReason::NoRollbackTarget { why } => {
            format!(
                "{}; there is no version to roll back to, because no rollout was ever completed",
                reason_text(why, have_failed)
            )
        }
        PauseReason::GateFailed { .. }
        | PauseReason::GateInconclusive { .. }
        | PauseReason::NoProgress { .. }
        | PauseReason::Blocked { .. } => why.to_string(),
    }
}

/// The reason of a rollback.
pub(super) fn rollback_reason(why: &PauseReason) -> String {
    match why {
        PauseReason::Operator { by, reason, .. } if reason.is_empty() => format!("{by} requested it"),
        PauseReason::Operator { by, reason, .. } => format!("{by} requested it: {reason}"),
        PauseReason::Failures { .. }
        | PauseReason::GateFailed { .. }
        | PauseReason::GateInconclusive { .. }
        | PauseReason::NoProgress { .. }
        | PauseReason::NoRollbackTarget { .. }
        | PauseReason::Blocked { .. } => pause_reason(why),
    }
}

/// One row per role of each wave.
pub(super) fn table(status: &RolloutStatus) -> Table {
    let headings = ["WAVE", "ROLE", "DESIRED", "STARTED", "APPLYING", "HEALTHY", "FAILED", "DEADLINE", "STATE"];
    let mut table = Table::new(headings).color_column(headings.len() - 1);
    for (index, wave) in status.waves.iter().enumerate() {
        for (row, (role, counts)) in wave.counts.iter().enumerate() {
            let first = row == 0;
            table.row([
                if first { (index + 1).to_string() } else { String::new() },
                role.to_string(),
                (counts.nodes - counts.removed).to_string(),
                granted(counts).to_string(),
                in_progress(counts).to_string(),
                counts.healthy.to_string(),
                counts.failed.to_string(),
                deadline(status, index, role),
                if first { wave_state(status, index) } else { String::new() },
            ]);
        }
    }
    table
}

/// Nodes that were granted the version, and are neither healthy nor failed yet.
pub(super) fn in_progress(counts: &NodeCounts) -> u32 {
    counts.granted + counts.pending + counts.soaking
}

/// The time left until the next deadline of a role. Only one wave is in progress at a time.
fn deadline(status: &RolloutStatus, index: usize, role: &Role) -> String {
    let is_open = status.waves.get(index).is_some_and(|wave| wave.state.as_ref().is_some_and(|it| it.passed.is_none()));
    let of_role = status.slots.iter().filter(|slot| slot.role == *role && is_in_progress(&slot.state));
    time_left(of_role.filter_map(|slot| slot.deadline).min().filter(|_| is_open), status.now)
}

/// The time left until a deadline.
pub(super) fn time_left(deadline: Option<Timestamp>, now: Timestamp) -> String {
    match deadline {
        None => NONE.to_owned(),
        Some(at) if at <= now => "now".to_owned(),
        Some(at) => format!("in {}", age(now, at)),
    }
}

fn is_in_progress(state: &RolloutNodeState) -> bool {
    match state {
        RolloutNodeState::Granted | RolloutNodeState::Pending { .. } | RolloutNodeState::Soaking { .. } => true,
        RolloutNodeState::Waiting
        | RolloutNodeState::Healthy
        | RolloutNodeState::Failed { .. }
        | RolloutNodeState::Skipped
        | RolloutNodeState::Removed => false,
    }
}

/// The state of a wave.
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
            | RolloutPhase::Superseded { .. } => "stopped".to_owned(),
        };
    }
    match (open_wave(wave, state, status.now, status.record.operator.promotes_all), &status.record.phase) {
        (text, RolloutPhase::Paused { .. }) if text == IN_PROGRESS => "paused".to_owned(),
        (text, _) if text == IN_PROGRESS && wave.canary => format!("{text} (canary)"),
        (text, _) => text,
    }
}

fn open_wave(wave: &WaveRow, state: &WaveState, now: Timestamp, full: bool) -> String {
    match (&state.gate, state.settled) {
        (Some(GateVerdict::Failed { check, .. }), _) => format!("the check {check:?} failed"),
        (Some(GateVerdict::Inconclusive { check, .. }), _) => format!("the check {check:?} is inconclusive"),
        (Some(GateVerdict::Passed { .. }), _) => match wave.promote {
            Promote::Manual if state.promoted.is_none() && !full => "waits for promotion".to_owned(),
            Promote::Manual | Promote::Auto => "passing".to_owned(),
        },
        (None, Some(settled)) => match settled.checked_add(wave.soak) {
            Ok(until) if until > now => format!("soaking for {}", age(now, until)),
            Ok(_) | Err(_) => "checks its gate".to_owned(),
        },
        (None, None) => IN_PROGRESS.to_owned(),
    }
}

/// The failed nodes, each with its error and its position.
pub(super) fn failed_lines(status: &RolloutStatus) -> Vec<String> {
    let named = match &status.record.phase {
        RolloutPhase::Paused { why } | RolloutPhase::RolledBack { why, .. } => failed_of(why),
        RolloutPhase::Running
        | RolloutPhase::Completed
        | RolloutPhase::Aborted { .. }
        | RolloutPhase::Superseded { .. } => &[],
    };
    // The current error of a node is newer than the one at the time of the pause.
    let line = |failed: &FailedNode| format!("failed: {}", text::one_line(&failed.to_string()));
    let mut lines: Vec<String> = status.failed.iter().map(line).collect();
    let more = usize::try_from(status.counts.failed).unwrap_or(0).saturating_sub(lines.len());
    for failed in named.iter().filter(|failed| !status.failed.iter().any(|now| now.node == failed.node)) {
        match recovery(status, failed) {
            Some(recovery) => lines.push(format!("had {}; {recovery}", line(failed))),
            None => lines.push(line(failed)),
        }
    }
    if more > 0 {
        lines.push(format!("… and {more} more: muster failures"));
    }
    lines
}

/// The current state of a node that had failed when the rollout was paused; none if it is not known.
fn recovery(status: &RolloutStatus, failed: &FailedNode) -> Option<&'static str> {
    let record = &status.record;
    // Not for a rollout that has ended, and not if some failed nodes are not in the list.
    if !record.phase.is_open() || usize::try_from(status.counts.failed).unwrap_or(0) > status.failed.len() {
        return None;
    }
    let retries = || status.slots.iter().any(|slot| slot.node == failed.node && is_in_progress(&slot.state));
    Some(match () {
        () if record.operator.skipped.contains(&failed.node) => "it is skipped now",
        () if retries() => "it is being retried",
        // Without a slot, or with removed nodes, its state is not known.
        () if record.operator.released.contains(&failed.node) || status.counts.removed > 0 => {
            "it does not count as failed now"
        }
        () => "it is healthy again",
    })
}

/// The skipped nodes.
fn skipped_line(status: &RolloutStatus) -> Option<String> {
    let skipped = &status.record.operator.skipped;
    (!skipped.is_empty()).then(|| format!("skipped: {}", labels::names(skipped.iter(), false)))
}

/// The failed nodes of a pause or rollback.
pub(super) fn failed_of(why: &PauseReason) -> &[FailedNode] {
    match why {
        PauseReason::Failures { nodes, .. } => nodes,
        PauseReason::NoRollbackTarget { why } => failed_of(why),
        PauseReason::Operator { over, .. } => over.as_ref().map(|over| failed_of(over)).unwrap_or_default(),
        PauseReason::GateFailed { .. }
        | PauseReason::GateInconclusive { .. }
        | PauseReason::NoProgress { .. }
        | PauseReason::Blocked { .. } => &[],
    }
}

/// The reasons for waiting, without those that are shown above.
pub(super) fn holds(status: &RolloutStatus) -> Vec<String> {
    let is_paused = matches!(status.record.phase, RolloutPhase::Paused { .. });
    let is_shown_above = |hold: &Hold| match hold {
        Hold::Halted { .. } => true,
        Hold::Node { state, .. } => matches!(state, RolloutNodeState::Failed { .. }),
        // A paused rollout waits for an operator first.
        Hold::Window { .. }
        | Hold::Turn { .. }
        | Hold::Soak { .. }
        | Hold::Gate { .. }
        | Hold::Promotion { .. }
        | Hold::RoleBudget { .. }
        | Hold::DomainBudget { .. }
        | Hold::Ramp { .. } => is_paused,
        Hold::Brake { .. }
        | Hold::Paused { .. }
        | Hold::Cordoned { .. }
        | Hold::Silent { .. }
        | Hold::NotDue { .. }
        | Hold::Machine { .. } => false,
    };
    let shown: Vec<&Hold> = status.holds.iter().filter(|hold| !is_shown_above(hold)).collect();
    let mut lines: Vec<String> =
        shown.iter().take(HOLDS).map(|hold| format!("waits: {}", labels::hold(hold, &status.waves))).collect();
    if shown.len() > HOLDS {
        lines.push(format!("… and {} more reasons", shown.len() - HOLDS));
    }
    lines
}

/// The commands that an operator can use next.
pub(super) fn next_steps(status: &RolloutStatus) -> Vec<String> {
    let hints = next_commands(RolloutSituation {
        phase: &status.record.phase,
        at_once: status.record.at_once,
        waits_for_promotion: status.holds.iter().any(|hold| matches!(hold, Hold::Promotion { .. })),
        stable: status.stable.as_ref(),
        failed: status.counts.failed,
        sent: status.record.steps.grants > 0 || status.record.at_once,
    });
    let failed = first_failed(status).map(node_show_hint);
    failed.iter().chain(&hints).map(|Hint { command, does }| format!("next: {command:<35}{does}")).collect()
}

/// The first failed node of a rollout.
fn first_failed(status: &RolloutStatus) -> Option<&NodeName> {
    let named = match &status.record.phase {
        RolloutPhase::RolledBack { why, .. } => failed_of(why),
        RolloutPhase::Running
        | RolloutPhase::Paused { .. }
        | RolloutPhase::Completed
        | RolloutPhase::Aborted { .. }
        | RolloutPhase::Superseded { .. } => &[],
    };
    status.failed.first().or(named.first()).map(|failed| &failed.node)
}

/// The command that shows a failed node.
pub(super) fn node_show_hint(node: &NodeName) -> Hint {
    Hint { command: format!("muster node show {node}"), does: "its failed run, checks and errors".into() }
}

/// "12 of 40 nodes have started v3 and keep it; 28 stay at v2"
pub(super) fn abort_summary(status: &RolloutStatus) -> String {
    let (record, counts) = (&status.record, &status.counts);
    let (updated, all) = (granted(counts), counts.nodes - counts.removed);
    let of = format!("{updated} of {}", count(usize::try_from(all).unwrap_or(0), "node"));
    let (have, keep) = if updated == 1 { ("has", "keeps") } else { ("have", "keep") };
    let to = &record.to;
    let stay = |(version, number): (&Version, &u32)| match number {
        1 => format!("; 1 stays at {version}"),
        _ => format!("; {number} stay at {version}"),
    };
    if updated == 0 {
        // Skipped nodes may have been granted the version before.
        let none = if record.steps.grants == 0 { "no node has started" } else { "no further node starts" };
        let stays: String = status.desired_versions.iter().map(stay).collect();
        return format!("{none} {to}{stays}");
    }
    // Nodes may be at several versions: earlier rollouts may have been aborted.
    let others: String = status.desired_versions.iter().filter(|(version, _)| *version != to).map(stay).collect();
    format!("{of} {have} started {to} and {keep} it{others}")
}

#[cfg(test)]
mod tests {
    use muster_core::rollout::RolloutId;

    use super::super::test_data::{self, at, env, node, role};
    use super::*;
    use crate::output::testing::render_table;

    fn shown(status: &RolloutStatus) -> String {
        render_table(|out| show(&env(), status, out))
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
    fn pending_node_has_its_own_deadline_after_the_grant() {
        let mut status = test_data::status();
        status.now = at(1000);
        status.slots = vec![slot(&status, RolloutNodeState::Pending { since: at(60) }, 1860)];
        assert_eq!(deadline(&status, 0, &role("web")), "in 14m");
    }

    #[test]
    fn running_rollout_shows_progress_and_reasons() {
        let mut status = test_data::status();
        status.slots = vec![slot(&status, RolloutNodeState::Granted, 900)];
        status.holds = vec![
            Hold::Turn { stage: 1, wave: 1 },
            Hold::Node { node: node("web1"), state: RolloutNodeState::Granted, deadline: Some(at(900)) },
        ];
        insta::assert_snapshot!(shown(&status), @"
        prod, rollout 7: v2 → v3, running for 30s: wave 1 of 2, 0 of 4 nodes healthy

        WAVE  ROLE  DESIRED  STARTED  APPLYING  HEALTHY  FAILED  DEADLINE  STATE
        1     web   1        1        1         0        0       in 14m    in progress (canary)
        2     lb    1        0        0         0        0       -
              web   2        0        0         0        0       -

        waits: wave 1 has not passed
        waits: web1 is in progress, deadline 2027-01-15 10:15:00 UTC

        next: muster rollout status --watch      follow it to its end
        ");
    }

    #[test]
    fn wave_that_waits_for_promotion_names_the_command() {
        insta::assert_snapshot!(shown(&test_data::waits_for_promotion()), @"
        prod, rollout 7: v2 → v3, running for 6m: wave 1 of 2, 1 of 4 nodes healthy

        WAVE  ROLE  DESIRED  STARTED  APPLYING  HEALTHY  FAILED  DEADLINE  STATE
        1     web   1        1        0         1        0       -         waits for promotion
        2     lb    1        0        0         0        0       -
              web   2        0        0         0        0       -

        waits: wave 1 is healthy and waits for `muster rollout promote`

        next: muster rollout promote             start the next wave
        next: muster rollout rollback            roll back to v2
        ");
    }

    #[test]
    fn failures_have_file_line_and_next_commands() {
        let why = test_data::failures(vec![test_data::failed_node("web1")]);
        insta::assert_snapshot!(shown(&test_data::failed(RolloutPhase::Paused { why })), @"
        prod, rollout 7: v2 → v3, paused for 10s: wave 1 of 2, 0 of 4 nodes healthy, 1 failed
          because 1 node has failed, and 0 are tolerated in the first wave of a stage

        WAVE  ROLE  DESIRED  STARTED  APPLYING  HEALTHY  FAILED  DEADLINE  STATE
        1     web   1        1        0         0        1       -         paused
        2     lb    1        0        0         0        0       -
              web   2        0        0         0        0       -

        failed: web1: its run failed: Service[web]: cannot start (manifests/site.pp:12)

        next: muster node show web1              its failed run, checks and errors
        next: muster rollout retry --failed      start the failed nodes again and continue
        next: muster rollout skip NODE           skip a node, then resume
        next: muster rollout resume              continue despite the failures
        next: muster rollout rollback            roll back to v2
        ");
    }

    #[test]
    fn recovered_node_is_not_listed_as_failed() {
        let why = test_data::failures(vec![test_data::failed_node("web1")]);
        let mut status = test_data::failed(RolloutPhase::Paused { why });
        status.failed.clear();
        if let Some(wave) = status.waves.first_mut() {
            wave.counts.insert(role("web"), NodeCounts { nodes: 1, skipped: 1, ..NodeCounts::default() });
        }
        test_data::count(&mut status);
        status.record.operator.skipped.insert(node("web1"));
        insta::assert_snapshot!(shown(&status), @"
        prod, rollout 7: v2 → v3, paused for 10s: wave 1 of 2, 0 of 4 nodes healthy, 1 skipped
          because 1 node had failed, and 0 are tolerated in the first wave of a stage

        WAVE  ROLE  DESIRED  STARTED  APPLYING  HEALTHY  FAILED  DEADLINE  STATE
        1     web   1        0        0         0        0       -         paused
        2     lb    1        0        0         0        0       -
              web   2        0        0         0        0       -

        had failed: web1: its run failed: Service[web]: cannot start (manifests/site.pp:12); it is skipped now
        skipped: web1

        next: muster rollout resume              continue
        next: muster rollout rollback            roll back to v2
        ");
        status.record.operator.skipped.clear();
        let lines = failed_lines(&status);
        assert!(lines[0].starts_with("had failed: web1: ") && lines[0].ends_with("; it is healthy again"), "{lines:?}");
    }

    #[test]
    fn ended_rollout_shows_reason_and_time() {
        let line = |phase: RolloutPhase| headline(&env(), &test_data::failed(phase));
        let aborted = RolloutPhase::Aborted { by: "jo".into(), reason: "wrong one".into() };
        assert_eq!(line(aborted.clone()), "prod, rollout 7: v2 → v3, aborted 10s ago: 0 of 4 nodes healthy, 1 failed");
        assert_eq!(end_reason(&test_data::failed(aborted)).unwrap(), "  by jo: wrong one");
        let superseded = line(RolloutPhase::Superseded { by: RolloutId(8) });
        assert_eq!(
            superseded,
            "prod, rollout 7: v2 → v3, superseded by rollout 8 10s ago: 0 of 4 nodes healthy, 1 failed"
        );
    }

    #[test]
    fn abort_summary_counts_nodes_by_version() {
        let mut status = test_data::waits_for_promotion();
        assert_eq!(abort_summary(&status), "1 of 4 nodes has started v3 and keeps it; 3 stay at v2");
        status.desired_versions =
            [("v1", 1), ("v2", 2), ("v3", 1)].map(|(name, count)| (test_data::version(name), count)).into();
        let mixed = "1 of 4 nodes has started v3 and keeps it; 1 stays at v1; 2 stay at v2";
        assert_eq!(abort_summary(&status), mixed);
        let mut none = test_data::status();
        none.waves.iter_mut().for_each(|wave| wave.counts.clear());
        test_data::count(&mut none);
        none.desired_versions = [(test_data::version("v2"), 4)].into();
        assert_eq!(abort_summary(&none), "no node has started v3; 4 stay at v2");
    }
}
