//! `muster status`: the environment on one screen.

use muster_core::names::Version;
use muster_core::node::status::NodeState;
use muster_core::rollout::progress::Hold;
use muster_core::rollout::record::RolloutPhase;
use muster_wire::operator::EnvironmentStatus;
use muster_wire::rollout::RolloutBrief;

use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::{Out, Terminal, plain};

use super::filter_args::{NodeFilter, node_filter_help};
use super::rows::{self, count};

/// Show an environment on one screen: who stands where, who blocks and why
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!(node_filter_help!(), "

Exit codes:
  0   it was shown, good or bad; for a verdict ask verify-hosts or failures
  1   there is no such environment, or the filter cannot be read
  2   cannot tell: the server is not there, or is not up to date

Examples:
  muster status
  muster status --env staging
  muster status role=web label.rack=r1
  muster status -o json | jq .counts"))]
pub struct Args {
    #[command(flatten)]
    filter: NodeFilter,
}

pub(super) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let status = session.told(session.client().status_of(&session.env, &args.filter.text()).await)?;
    let now = terminal.now;
    terminal.out.answer(&status, |out| show(&status, now, out));
    Ok(Exit::Yes)
}

fn show(status: &EnvironmentStatus, now: jiff::Timestamp, out: &mut Out) {
    if let Some(since) = status.store_unreachable_since {
        let (at, revision) = (since.strftime("%H:%M:%S"), status.revision);
        out.line(format_args!("store: not reachable since {at} UTC; what follows is as of revision {revision}"));
        out.gap();
    }
    let env = match &status.filter {
        None => status.env.to_string(),
        Some(filter) => format!("{}, {}", status.env, plain::one_line(filter)),
    };
    match (&status.desired, on_the_way(status)) {
        _ if status.filter.is_some() && status.nodes == 0 && status.leaving.is_empty() => {
            out.line(format_args!("{env}: no such node"))
        }
        // In the middle of a rollout nodes are well at what they should run, and that is not one version.
        (Some(_), Some(rollout)) => {
            let from = rollout.from.as_ref().map(|from| format!("from {from} ")).unwrap_or_default();
            let go = if status.nodes == 1 { "goes" } else { "go" };
            out.line(format_args!("{env}: {} {go} {from}to {}", count(status.nodes, "node"), rollout.to));
        }
        (Some(version), None) if status.nodes > 0 && status.blocked == 0 => {
            let all = if status.nodes == 1 { "1 node".to_owned() } else { format!("all {} nodes", status.nodes) };
            out.line(format_args!("{env}: {all} validated{}", at_which(status, version)));
        }
        (Some(version), None) => {
            let nodes = count(status.nodes, "node");
            match &status.rollout {
                Some(rollout) if was_left(rollout) => {
                    let stay = if status.nodes == 1 { "stays where it is" } else { "stay where they are" };
                    out.line(format_args!("{env}: {nodes} {stay}"));
                }
                // Who was set aside should run something else.
                Some(rollout) if rollout.phase == RolloutPhase::Completed && status.running.len() > 1 => {
                    out.line(format_args!("{env}: {nodes}; the environment should run {version}"));
                }
                Some(_) | None => out.line(format_args!("{env}: {nodes} should run {version}")),
            }
        }
        (None, _) => out.line(format_args!(
            "{env}: {}, and no version was chosen yet: muster trigger-update VERSION",
            count(status.nodes, "node")
        )),
    }
    if status.blocked > 0 || on_the_way(status).is_some() {
        out.line(format_args!("  state    {}", counts(status)));
    }
    if status.blocked > 0 || on_the_way(status).is_some() || status.running.len() > 1 {
        out.line(format_args!("  running  {}", running(status)));
    }
    if let Some(brief) = status.rollout.as_ref().filter(|brief| brief.phase != RolloutPhase::Completed) {
        rollout(brief, out);
    }
    if status.blocked > 0 {
        out.gap();
        out.table(rows::table(&status.blockers, now));
        let hidden = status.blocked.saturating_sub(status.blockers.len());
        if hidden > 0 {
            let filter = status.filter.as_ref().map(|filter| format!(" {}", plain::one_line(filter)));
            let more = count(hidden, "more node");
            out.line(format_args!("… and {more}: muster node list{}", filter.unwrap_or_default()));
        }
    }
    pauses(status, out);
    leaving(status, now, out);
    troubles(status, out);
}

/// The rollout whose end decides whether all nodes run the same, if that has not come, and not everybody is told already.
fn on_the_way(status: &EnvironmentStatus) -> Option<&RolloutBrief> {
    status.rollout.as_ref().filter(|brief| brief.phase.is_open() && !brief.at_once && status.nodes > 0)
}

/// Whether it was ended where it was: then nobody should run its version but those that it has moved.
fn was_left(brief: &RolloutBrief) -> bool {
    matches!(brief.phase, RolloutPhase::Aborted { .. }) && !brief.at_once
}

/// What nodes that are well have proved to run. That is not what the environment should run where one was set aside, or a
/// rollout was ended halfway.
fn at_which(status: &EnvironmentStatus, version: &Version) -> String {
    let should = match &status.rollout {
        Some(rollout) if was_left(rollout) => String::new(),
        Some(_) | None => format!("; the environment should run {version}"),
    };
    let mut versions = status.running.keys();
    match (versions.next(), versions.len()) {
        (None, _) => format!(" at {version}"),
        (Some(only), 0) if only == version => format!(" at {version}"),
        (Some(only), 0) => format!(" at {only}{should}"),
        (Some(_), others) => format!(", at {} versions{should}", others + 1),
    }
}

/// How far the rollout is, and what holds it up.
fn rollout(brief: &RolloutBrief, out: &mut Out) {
    let RolloutBrief { id, to, wave, waves, healthy, failed, nodes, .. } = brief;
    let phase = match &brief.phase {
        RolloutPhase::Running if brief.at_once => "all at once".to_owned(),
        RolloutPhase::Running => format!("wave {wave} of {waves}"),
        RolloutPhase::Paused { .. } => format!("paused in wave {wave} of {waves}"),
        RolloutPhase::Completed
        | RolloutPhase::Aborted { .. }
        | RolloutPhase::RolledBack { .. }
        | RolloutPhase::Superseded { .. } => brief.phase.word().to_owned(),
    };
    let failed = if *failed > 0 { format!(", {failed} failed") } else { String::new() };
    let nodes = count(usize::try_from(*nodes).unwrap_or(0), "node");
    out.line(format_args!("  rollout  {id} to {to}: {phase}, {healthy} of {nodes} healthy{failed}"));
    let why = match (&brief.phase, &brief.held_by) {
        (RolloutPhase::Paused { why }, _) => Some(super::rollout::because_now(why, brief.failed)),
        (_, Some(Hold::Promotion { .. })) => Some(format!("wave {wave} is well, and a person has to promote it")),
        (_, Some(hold)) => Some(hold.to_string()),
        (_, None) => None,
    };
    let next = brief.next.as_ref().map(|next| format!("next: {next}"));
    let rest: Vec<String> = why.into_iter().chain(next).collect();
    if !rest.is_empty() {
        out.line(format_args!("           {}", plain::one_line(&rest.join("; "))));
    }
}

/// Who is kept from running, by whose word.
fn pauses(status: &EnvironmentStatus, out: &mut Out) {
    if !status.pauses.is_empty() {
        out.gap();
    }
    status.pauses.iter().for_each(|paused| out.line(plain::one_line(&paused.to_string())));
}

/// Nodes that the design does not want any more, and what keeps them.
fn leaving(status: &EnvironmentStatus, now: jiff::Timestamp, out: &mut Out) {
    if status.leaving.is_empty() {
        return;
    }
    let all = status.counts.get(&NodeState::Leaving).copied().unwrap_or(status.leaving.len());
    out.gap();
    out.line(format_args!("{} {}", count(all, "node"), if all == 1 { "leaves" } else { "leave" }));
    out.table(rows::table(&status.leaving, now));
    let hidden = all.saturating_sub(status.leaving.len());
    if hidden > 0 {
        out.line(format_args!("… and {}: muster node list state=leaving", count(hidden, "more node")));
    }
}

/// What is wrong with the fleet or the store rather than with a node.
fn troubles(status: &EnvironmentStatus, out: &mut Out) {
    if !status.held_domains.is_empty() {
        out.gap();
    }
    for held in &status.held_domains {
        out.line(format_args!(
            "failure domain {}: {} of {} nodes are silent at once, which is the network's fault or the server's: nobody \
             there is declared lost",
            plain::one_line(&held.failure_domain),
            held.silent,
            held.nodes
        ));
    }
    if !status.unreadable.is_empty() {
        out.gap();
    }
    for (key, problem) in &status.unreadable {
        out.line(format_args!("unreadable key {}: {}", plain::one_line(key), plain::one_line(problem)));
    }
}

/// How many nodes stand where, the good news first.
fn counts(status: &EnvironmentStatus) -> String {
    let words: Vec<String> = status
        .counts
        .iter()
        .rev()
        .map(|(word, nodes): (&NodeState, &usize)| format!("{nodes} {}", word.as_str()))
        .collect();
    words.join(", ")
}

fn running(status: &EnvironmentStatus) -> String {
    let mut parts: Vec<String> =
        status.running.iter().map(|(version, nodes)| format!("{version} on {}", count(*nodes, "node"))).collect();
    let none = status.nodes.saturating_sub(status.running.values().sum());
    if none > 0 {
        parts.push(format!("nothing yet on {}", count(none, "node")));
    }
    parts.join(", ")
}
