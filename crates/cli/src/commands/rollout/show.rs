//! `muster rollout show`: a rollout with all its nodes, in the order in which they were granted.

use jiff::Timestamp;
use muster_core::names::NodeName;
use muster_core::rollout::RolloutId;
use muster_core::rollout::progress::{NodeProgress, RolloutNodeState};
use muster_core::rollout::record::{GateVerdict, Promotion, RolloutPhase};
use muster_wire::client::StatusQuery;
use muster_wire::rollout::{RolloutStatus, WaveRow};

use crate::args::Globals;
use crate::commands::rows::NONE;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::{Out, Table, Terminal, plain};

use super::status_view;
use super::which;

/// Show a rollout with all its nodes, in the order in which they were granted, with times
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
The order is that of the plan. Where nodes were granted in another one (because somebody had them granted once more, or \
one was not there when its turn came), both are shown. A node that a later rollout has granted something keeps no time of \
this one.

Exit codes:
  0   it was shown, good or bad
  1   there is no such rollout or environment
  2   cannot tell: the server is not there, or is not up to date

Examples:
  muster rollout show 7
  muster rollout show 7 -o json | jq -r '.waves[].nodes[] | [.granted, .node] | @tsv'")]
pub struct Args {
    /// The number of the rollout [default: the last one that was started]
    #[arg(value_parser = which::id)]
    id: Option<RolloutId>,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let asked = session.client().rollout(&session.env, which::which(args.id), StatusQuery::default()).await;
    let status = session.told(asked)?;
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
    let mut fact = |name: &str, text: &str| out.line(format_args!("{name:<8} {}", plain::one_line(text)));
    fact("started", &format!("{} by {}", clock(record.started), record.by));
    let at = clock(record.phase_since);
    match &record.phase {
        RolloutPhase::Running => {}
        RolloutPhase::Paused { why } => {
            fact("paused", &format!("{at} because {}", status_view::because_now(why, status.counts.failed)))
        }
        RolloutPhase::Completed => fact("ended", &format!("{at}, completed")),
        RolloutPhase::Aborted { by, reason } if reason.is_empty() => fact("ended", &format!("{at}, aborted by {by}")),
        RolloutPhase::Aborted { by, reason } => fact("ended", &format!("{at}, aborted by {by}: {reason}")),
        RolloutPhase::RolledBack { by, why } => {
            fact("ended", &format!("{at}, rolled back by rollout {by} because {}", status_view::taken_back(why)));
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
        state if state.is_empty() => out.line(format_args!("wave {number}{stage}: not begun")),
        state => out.line(format_args!("wave {number}{stage}: {state}{}", history(wave))),
    }
    let granted = in_order_of_grants(&wave.nodes);
    let mut table = Table::new(["NODE", "ROLE", "GRANTED", "STATE"]).painted(3);
    for node in &granted {
        let at = node.granted.map_or_else(|| NONE.to_owned(), clock);
        table.row([node.node.to_string(), node.role.to_string(), at, state(&node.state)]);
    }
    out.table(table);
    let planned: Vec<&NodeName> = wave.nodes.iter().map(|node| &node.node).collect();
    if planned != granted.iter().map(|node| &node.node).collect::<Vec<_>>() {
        let names: Vec<String> = planned.iter().map(|node| node.to_string()).collect();
        out.line(format_args!("the plan's order was: {}", names.join(", ")));
    }
}

/// What became of a wave when.
fn history(wave: &WaveRow) -> String {
    let Some(state) = &wave.state else { return String::new() };
    let mut parts = vec![format!("began {}", clock(state.began))];
    parts.extend(state.settled.map(|at| format!("its nodes well {}", clock(at))));
    let in_spite = match &state.gate {
        Some(GateVerdict::Failed { check, message, .. }) => {
            parts.push(format!("check {check:?} failed: {}", plain::one_line(message)));
            "in spite of it "
        }
        Some(GateVerdict::Inconclusive { check, message, .. }) => {
            parts.push(format!("check {check:?} could not say: {}", plain::one_line(message)));
            "in spite of it "
        }
        Some(GateVerdict::Passed { .. }) | None => "",
    };
    let promoted = state.promoted.as_ref();
    parts.extend(promoted.map(|Promotion { by, at }| format!("promoted {in_spite}by {by} {}", clock(*at))));
    parts.extend(state.passed.map(|at| format!("passed {}", clock(at))));
    format!(" ({})", parts.join(", "))
}

/// As they were granted; of those that were granted together, and of those that were not, as they were planned.
fn in_order_of_grants(planned: &[NodeProgress]) -> Vec<&NodeProgress> {
    let mut nodes: Vec<&NodeProgress> = planned.iter().collect();
    // Nobody knows when those without a time were granted, if ever: they say nothing about the order.
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

fn state(state: &RolloutNodeState) -> String {
    state.word().to_owned()
}

fn clock(at: Timestamp) -> String {
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
        in_order_of_grants(nodes).iter().map(|node| node.node.as_str()).collect()
    }

    #[test]
    fn a_check_that_failed_is_named_and_so_is_who_went_on() {
        let mut status = super::super::sample::waits_for_promotion();
        let wave = status.waves.first_mut().unwrap();
        let (began, at) = (Timestamp::UNIX_EPOCH, Timestamp::from_second(60).unwrap());
        let gate = Some(GateVerdict::Failed { at, check: "orders".into(), message: "500".into() });
        let promoted = Some(Promotion { by: "jo".into(), at });
        wave.state = Some(WaveState { gate, promoted, ..WaveState::begun(began) });
        assert_eq!(
            history(wave),
            " (began 1970-01-01 00:00:00 UTC, check \"orders\" failed: 500, promoted in spite of it by jo 1970-01-01 \
             00:01:00 UTC)"
        );
    }

    #[test]
    fn nodes_are_in_the_order_of_their_grants() {
        use RolloutNodeState::{Healthy, Skipped, Waiting};
        let together = [node("web3", Healthy, Some(1)), node("web1", Healthy, Some(2)), node("web2", Healthy, Some(2))];
        assert_eq!(order(&together), ["web3", "web1", "web2"], "as planned");
        let again = [node("web3", Healthy, Some(9)), node("web1", Healthy, Some(2)), node("web2", Waiting, None)];
        assert_eq!(order(&again), ["web1", "web3", "web2"], "one was granted once more");
        let aside = [node("web3", Skipped, None), node("web1", Healthy, Some(2)), node("web2", Healthy, Some(3))];
        assert_eq!(order(&aside), ["web1", "web2", "web3"]);
        let forgotten = [node("web3", Healthy, None), node("web1", Healthy, Some(2)), node("web2", Waiting, None)];
        assert_eq!(order(&forgotten), ["web3", "web1", "web2"], "what nobody knows says nothing");
    }
}
