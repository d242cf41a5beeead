//! `muster rollout show`: shows a rollout with all nodes in the order of their grants.

use jiff::Timestamp;
use muster_core::names::NodeName;
use muster_core::rollout::RolloutId;
use muster_core::rollout::progress::{NodeProgress, RolloutNodeState};
use muster_core::rollout::record::{GateVerdict, Promotion, RolloutPhase};
use muster_wire::client::StatusQuery;
use muster_wire::rollout::{RolloutStatus, WaveRow};

use crate::args::Globals;
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{NONE, Out, Table, Terminal, text};

use super::{id_arg, select, status_view};

/// Show a rollout with all nodes in the order of their grants, with times
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Grants follow the order of the plan. If the actual order differs, because of a retry or a node that was not available, both \
orders are shown. The grant of a later rollout overwrites the time of this one.

Exit codes:
  0   success, independent of the outcome
  1   the rollout or environment does not exist
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster rollout show 7
  muster rollout show 7 -o json | jq -r '.waves[].nodes[] | [.started, .node] | @tsv'")]
pub struct Args {
    /// Number of the rollout [default: the last one that was started]
    #[arg(value_parser = id_arg)]
    id: Option<RolloutId>,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let status = session.client().rollout(&session.env, select(args.id), StatusQuery::default()).await;
    let status = session.map_err(status)?;
    terminal.out.answer(&status, |out| {
        out.line(status_view::headline(&session.env, &status));
        facts(&status, out);
        status.waves.iter().enumerate().for_each(|(index, wave)| show_wave(&status, index, wave, out));
        let failed = status_view::failed_lines(&status);
        if !failed.is_empty() {
            out.gap();
            failed.iter().for_each(|line| out.line(line));
        }
    });
    Ok(Exit::Yes)
}

fn facts(status: &RolloutStatus, out: &mut Out) {
    let record = &status.record;
    let mut fact = |name: &str, text: &str| out.line(format_args!("{name:<8} {}", text::one_line(text)));
    fact("started", &format!("{} by {}", utc(record.started), record.by));
    let at = utc(record.phase_since);
    match &record.phase {
        RolloutPhase::Running => {}
        RolloutPhase::Paused { why } => {
            fact("paused", &format!("{at} because {}", status_view::current_pause_reason(why, status.counts.failed)))
        }
        RolloutPhase::Completed => fact("ended", &format!("{at}, completed")),
        RolloutPhase::Aborted { by, reason } if reason.is_empty() => fact("ended", &format!("{at}, aborted by {by}")),
        RolloutPhase::Aborted { by, reason } => fact("ended", &format!("{at}, aborted by {by}: {reason}")),
        RolloutPhase::RolledBack { by, why } => {
            fact("ended", &format!("{at}, rolled back by rollout {by} because {}", status_view::rollback_reason(why)));
        }
        RolloutPhase::Superseded { by } => fact("ended", &format!("{at}, superseded by rollout {by}")),
    }
    fact("plan", &record.plan);
    if let Some(problem) = &status.problem {
        fact("problem", &format!("the plan cannot be read: {problem}"));
    }
}

fn show_wave(status: &RolloutStatus, index: usize, wave: &WaveRow, out: &mut Out) {
    let stages = status.waves.last().map_or(1, |last| last.stage);
    let stage = if stages > 1 { format!(", stage {} of {stages}", wave.stage) } else { String::new() };
    out.gap();
    let number = index + 1;
    match status_view::wave_state(status, index) {
        state if state.is_empty() => out.line(format_args!("wave {number}{stage}: not started")),
        state => out.line(format_args!("wave {number}{stage}: {state}{}", history(wave))),
    }
    let granted = by_grant_time(&wave.nodes);
    let mut table = Table::new(["NODE", "ROLE", "STARTED", "STATE"]).color_column(3);
    for node in &granted {
        let at = node.granted.map_or_else(|| NONE.to_owned(), utc);
        table.row([node.node.to_string(), node.role.to_string(), at, node.state.label().to_owned()]);
    }
    out.table(table);
    let planned: Vec<&NodeName> = wave.nodes.iter().map(|node| &node.node).collect();
    if planned != granted.iter().map(|node| &node.node).collect::<Vec<_>>() {
        let names: Vec<String> = planned.iter().map(|node| node.to_string()).collect();
        out.line(format_args!("order of the plan: {}", names.join(", ")));
    }
}

/// The events of a wave with their times.
fn history(wave: &WaveRow) -> String {
    let Some(state) = &wave.state else { return String::new() };
    let mut parts = vec![format!("started {}", utc(state.began))];
    parts.extend(state.settled.map(|at| format!("nodes healthy {}", utc(at))));
    let despite = match &state.gate {
        Some(GateVerdict::Failed { check, message, .. }) => {
            parts.push(format!("check {check:?} failed: {}", text::one_line(message)));
            "despite this "
        }
        Some(GateVerdict::Inconclusive { check, message, .. }) => {
            parts.push(format!("check {check:?} was inconclusive: {}", text::one_line(message)));
            "despite this "
        }
        Some(GateVerdict::Passed { .. }) | None => "",
    };
    let promoted = state.promoted.as_ref();
    parts.extend(promoted.map(|Promotion { by, at }| format!("promoted {despite}by {by} {}", utc(*at))));
    parts.extend(state.passed.map(|at| format!("passed {}", utc(at))));
    format!(" ({})", parts.join(", "))
}

/// Sorts nodes by the time of their grant; nodes with the same time, or without one, keep the order of the plan.
fn by_grant_time(planned: &[NodeProgress]) -> Vec<&NodeProgress> {
    let mut nodes: Vec<&NodeProgress> = planned.iter().collect();
    // If the time of a granted node is missing, the order is not known.
    if nodes.iter().filter(|node| was_granted(&node.state)).all(|node| node.granted.is_some()) {
        nodes.sort_by_key(|node| node.granted.unwrap_or(Timestamp::MAX));
    }
    nodes
}

fn was_granted(state: &RolloutNodeState) -> bool {
    match state {
        RolloutNodeState::Granted
        | RolloutNodeState::Pending { .. }
        | RolloutNodeState::Soaking { .. }
        | RolloutNodeState::Healthy
        | RolloutNodeState::Failed { .. } => true,
        RolloutNodeState::Waiting | RolloutNodeState::Skipped | RolloutNodeState::Removed => false,
    }
}

fn utc(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

#[cfg(test)]
mod tests {
    use muster_core::names::Role;
    use muster_core::rollout::record::WaveState;

    use super::*;

    fn node(name: &str, state: RolloutNodeState, granted: Option<i64>) -> NodeProgress {
        NodeProgress {
            node: NodeName::new(name).unwrap(),
            role: Role::new("web").unwrap(),
            state,
            granted: granted.map(|second| Timestamp::from_second(second).unwrap()),
            deadline: None,
            hold: None,
        }
    }

    fn order(nodes: &[NodeProgress]) -> Vec<&str> {
        by_grant_time(nodes).iter().map(|node| node.node.as_str()).collect()
    }

    #[test]
    fn failed_check_and_promoting_operator_are_shown() {
        let mut status = super::super::test_data::waits_for_promotion();
        let wave = status.waves.first_mut().unwrap();
        let (began, at) = (Timestamp::UNIX_EPOCH, Timestamp::from_second(60).unwrap());
        let gate = Some(GateVerdict::Failed { at, check: "orders".into(), message: "500".into() });
        let promoted = Some(Promotion { by: "jo".into(), at });
        wave.state = Some(WaveState { gate, promoted, ..WaveState::begun(began) });
        assert_eq!(
            history(wave),
            " (started 1970-01-01 00:00:00 UTC, check \"orders\" failed: 500, promoted despite this by jo 1970-01-01 \
             00:01:00 UTC)"
        );
    }

    #[test]
    fn nodes_are_sorted_by_grant_time() {
        use RolloutNodeState::{Healthy, Skipped, Waiting};
        let together = [node("web3", Healthy, Some(1)), node("web1", Healthy, Some(2)), node("web2", Healthy, Some(2))];
        assert_eq!(order(&together), ["web3", "web1", "web2"], "as planned");
        let retried = [node("web3", Healthy, Some(9)), node("web1", Healthy, Some(2)), node("web2", Waiting, None)];
        assert_eq!(order(&retried), ["web1", "web3", "web2"], "one was retried");
        let skipped = [node("web3", Skipped, None), node("web1", Healthy, Some(2)), node("web2", Healthy, Some(3))];
        assert_eq!(order(&skipped), ["web1", "web2", "web3"]);
        let unknown = [node("web3", Healthy, None), node("web1", Healthy, Some(2)), node("web2", Waiting, None)];
        assert_eq!(order(&unknown), ["web3", "web1", "web2"], "a missing time keeps the order of the plan");
    }
}
