//! `muster status`: shows an environment's versions, nodes, rollout, pauses and problems on one screen.

use jiff::Timestamp;
use muster_core::names::Version;
use muster_core::node::status::NodeState;
use muster_core::rollout::progress::Hold;
use muster_core::rollout::record::RolloutPhase;
use muster_wire::operator::{EnvironmentStatus, NodeRow};
use muster_wire::rollout::RolloutBrief;

use crate::args::{Globals, NodeFilter, node_filter_help};
use crate::commands::watch::{WatchedAnswer, watch};
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Out, Terminal, count, node_table, text};

/// Nodes in a line of `--watch`.
const SUMMARY_NODES: usize = 5;

/// Show an environment on one screen: states, versions, the rollout, and nodes that are not validated with the reason
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!(node_filter_help!(), "

Exit codes:
  0   success, independent of the state; `verify-hosts` and `failures` return a verdict
  1   the environment does not exist
  2   unknown: the server cannot be reached, or is not up to date
  64  the filter is invalid

Examples:
  muster status
  muster status --watch
  muster status --env staging
  muster status role=web label.rack=r1
  muster status -o json | jq .counts"))]
pub struct Args {
    #[command(flatten)]
    filter: NodeFilter,
    /// Show every change until Ctrl-C: redrawn on a terminal, one line per change elsewhere
    #[arg(long)]
    watch: bool,
}

pub(super) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    if args.watch {
        let (filter, transcript) =
            (args.filter.text(), StatusTranscript { began: terminal.now, printed: String::new() });
        let request = async |session: &Session| session.client().status_of(&session.env, &filter).await;
        return watch(session, globals, terminal, transcript, request).await;
    }
    let status = session.map_err(session.client().status_of(&session.env, &args.filter.text()).await)?;
    let now = terminal.now;
    terminal.out.answer(&status, |out| show(&status, now, out));
    Ok(Exit::Yes)
}

/// The last printed line of `--watch` in a pipe.
pub(super) struct StatusTranscript {
    began: Timestamp,
    printed: String,
}

impl WatchedAnswer for EnvironmentStatus {
    type Transcript = StatusTranscript;

    fn show(&self, now: Timestamp, out: &mut Out) {
        show(self, now, out);
    }

    fn changes(&self, transcript: &mut StatusTranscript, now: Timestamp) -> Vec<String> {
        let line = summary(self);
        if line == transcript.printed {
            return Vec::new();
        }
        let seconds = now.duration_since(transcript.began).as_secs_f64();
        transcript.printed.clone_from(&line);
        vec![format!("{seconds:6.1}s  {line}")]
    }
}

/// "quickstart v1: 2 validated, 2 pending; web1 pending: waiting for role db: 0 of 1 active; …", without times.
fn summary(status: &EnvironmentStatus) -> String {
    let version = status.desired.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
    let node = |row: &NodeRow| {
        let why = row.reason.as_ref().map(|why| format!(": {}", text::one_line(&why.to_string()))).unwrap_or_default();
        format!("{} {}{why}", row.node, row.state.label())
    };
    let mut parts = vec![format!("{}{version}: {}", status.env, counts(status))];
    parts.extend(status.rollout.as_ref().and_then(rollout_summary));
    parts.extend(status.pauses.iter().map(|paused| text::one_line(&paused.to_string())));
    parts.extend(status.blockers.iter().take(SUMMARY_NODES).map(node));
    let hidden = status.blocked.saturating_sub(SUMMARY_NODES);
    if hidden > 0 {
        parts.push(format!("and {}", count(hidden, "more node")));
    }
    parts.join("; ")
}

/// "rollout 3 to v2 paused: jo has paused it"; none for an update at once, which the states of the nodes show.
fn rollout_summary(brief: &RolloutBrief) -> Option<String> {
    let RolloutBrief { id, to, phase, .. } = brief;
    let state = match phase {
        RolloutPhase::Completed => return None,
        RolloutPhase::Running if brief.at_once => return None,
        RolloutPhase::Running => "in progress".to_owned(),
        RolloutPhase::Paused { why } => format!("paused: {}", super::rollout::current_pause_reason(why, brief.failed)),
        RolloutPhase::Aborted { .. } | RolloutPhase::RolledBack { .. } | RolloutPhase::Superseded { .. } => {
            phase.word().to_owned()
        }
    };
    Some(text::one_line(&format!("rollout {id} to {to} {state}")))
}

fn show(status: &EnvironmentStatus, now: Timestamp, out: &mut Out) {
    if let Some(since) = status.store_unreachable_since {
        let (at, revision) = (since.strftime("%H:%M:%S"), status.revision);
        out.line(format_args!("store: unreachable since {at} UTC; this is the state of revision {revision}"));
        out.gap();
    }
    let env = match &status.filter {
        None => status.env.to_string(),
        Some(filter) => format!("{}, {}", status.env, text::one_line(filter)),
    };
    match (&status.desired, open_rollout(status)) {
        _ if status.filter.is_some() && status.nodes == 0 && status.leaving.is_empty() => {
            out.line(format_args!("{env}: no matching nodes"))
        }
        // During a rollout nodes are validated at several versions.
        (Some(_), Some(rollout)) => {
            let from = rollout.from.as_ref().map(|from| format!("from {from} ")).unwrap_or_default();
            let are = if status.nodes == 1 { "is" } else { "are" };
            out.line(format_args!("{env}: {} {are} updated {from}to {}", count(status.nodes, "node"), rollout.to));
        }
        (Some(version), None) if status.nodes > 0 && status.blocked == 0 => {
            let all = if status.nodes == 1 { "1 node".to_owned() } else { format!("all {} nodes", status.nodes) };
            let versions = validated_versions(status, version);
            out.line(format_args!("{env}: {all} validated{versions}{}", unchecked(status, status.nodes)));
        }
        (Some(version), None) => {
            let nodes = count(status.nodes, "node");
            match &status.rollout {
                Some(rollout) if was_aborted(rollout) => {
                    let keep = if status.nodes == 1 { "keeps its version" } else { "keep their versions" };
                    out.line(format_args!("{env}: {nodes} {keep}"));
                }
                // Skipped nodes have another desired version.
                Some(rollout) if rollout.phase == RolloutPhase::Completed && status.running.len() > 1 => {
                    out.line(format_args!("{env}: {nodes}; the environment should run {version}"));
                }
                Some(_) | None => out.line(format_args!("{env}: {nodes} should run {version}")),
            }
        }
        (None, _) => out.line(format_args!(
            "{env}: {}, no version yet; set one with `muster trigger-update VERSION`",
            count(status.nodes, "node")
        )),
    }
    if status.blocked > 0 || open_rollout(status).is_some() {
        out.line(format_args!("  state    {}", counts(status)));
    }
    if status.blocked > 0 || open_rollout(status).is_some() || status.running.len() > 1 {
        out.line(format_args!("  running  {}", running(status)));
    }
    if let Some(brief) = status.rollout.as_ref().filter(|brief| brief.phase != RolloutPhase::Completed) {
        show_rollout(brief, out);
    }
    if status.blocked > 0 {
        out.gap();
        out.table(node_table(&status.blockers, now));
        let hidden = status.blocked.saturating_sub(status.blockers.len());
        if hidden > 0 {
            let filter = status.filter.as_ref().map(|filter| format!(" {}", text::one_line(filter)));
            let more = count(hidden, "more node");
            out.line(format_args!("… and {more}: muster node list{}", filter.unwrap_or_default()));
        }
    }
    show_pauses(status, out);
    show_policies(status, out);
    show_leaving(status, now, out);
    show_problems(status, out);
}

/// The rollout in progress, unless it has granted the version to all nodes at once.
fn open_rollout(status: &EnvironmentStatus) -> Option<&RolloutBrief> {
    status.rollout.as_ref().filter(|brief| brief.phase.is_open() && !brief.at_once && status.nodes > 0)
}

/// True for an aborted rollout: only the nodes that it has updated should run its version.
fn was_aborted(brief: &RolloutBrief) -> bool {
    matches!(brief.phase, RolloutPhase::Aborted { .. }) && !brief.at_once
}

/// The versions of validated nodes. They differ from the desired version if nodes were skipped or a rollout was aborted.
fn validated_versions(status: &EnvironmentStatus, version: &Version) -> String {
    let should = match &status.rollout {
        Some(rollout) if was_aborted(rollout) => String::new(),
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

/// The number of nodes, of those validated, whose validation had no checks.
fn unchecked(status: &EnvironmentStatus, validated: usize) -> String {
    match status.unchecked {
        0 => String::new(),
        all if all == validated => " (0 checks)".to_owned(),
        some => format!(" ({some} of them with 0 checks)"),
    }
}

/// Progress of the rollout, and the reason that it waits.
fn show_rollout(brief: &RolloutBrief, out: &mut Out) {
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
        (RolloutPhase::Paused { why }, _) => Some(super::rollout::current_pause_reason(why, brief.failed)),
        (_, Some(Hold::Promotion { .. })) => {
            Some(format!("wave {wave} is healthy and waits for `muster rollout promote`"))
        }
        (_, Some(hold)) => Some(hold.to_string()),
        (_, None) => None,
    };
    let next = brief.next.as_ref().map(|next| format!("next: {next}"));
    let rest: Vec<String> = why.into_iter().chain(next).collect();
    if !rest.is_empty() {
        out.line(format_args!("           {}", text::one_line(&rest.join("; "))));
    }
}

fn show_pauses(status: &EnvironmentStatus, out: &mut Out) {
    if !status.pauses.is_empty() {
        out.gap();
    }
    status.pauses.iter().for_each(|paused| out.line(text::one_line(&paused.to_string())));
}

/// Cordoned and retired nodes.
fn show_policies(status: &EnvironmentStatus, out: &mut Out) {
    const ROWS: usize = 10;
    if !status.policies.is_empty() {
        out.gap();
    }
    status.policies.iter().take(ROWS).for_each(|row| out.line(text::one_line(&row.to_string())));
    let hidden = status.policies.len().saturating_sub(ROWS);
    if hidden > 0 {
        out.line(format_args!("… and {} with a policy: muster status -o json", count(hidden, "more node")));
    }
}

/// Nodes that leave the environment, with the reason that they are still there.
fn show_leaving(status: &EnvironmentStatus, now: Timestamp, out: &mut Out) {
    if status.leaving.is_empty() {
        return;
    }
    let all = status.counts.get(&NodeState::Leaving).copied().unwrap_or(status.leaving.len());
    out.gap();
    out.line(format_args!("{} {}", count(all, "node"), if all == 1 { "leaves" } else { "leave" }));
    out.table(node_table(&status.leaving, now));
    let hidden = all.saturating_sub(status.leaving.len());
    if hidden > 0 {
        out.line(format_args!("… and {}: muster node list state=leaving", count(hidden, "more node")));
    }
}

/// Problems of the whole environment or of the store.
fn show_problems(status: &EnvironmentStatus, out: &mut Out) {
    if !status.held_domains.is_empty() {
        out.gap();
    }
    for held in &status.held_domains {
        out.line(format_args!(
            "failure domain {}: {} of {} nodes are unreachable, most likely because of the network or the server; they are not \
             declared lost",
            text::one_line(&held.failure_domain),
            held.silent,
            held.nodes
        ));
    }
    if !status.unreadable.is_empty() {
        out.gap();
    }
    for (key, problem) in &status.unreadable {
        out.line(format_args!("unreadable key {}: {}", text::one_line(key), text::one_line(problem)));
    }
}

/// Number of nodes by state, validated first.
fn counts(status: &EnvironmentStatus) -> String {
    let states: Vec<String> = status
        .counts
        .iter()
        .rev()
        .map(|(state, nodes): (&NodeState, &usize)| {
            let unchecked = if *state == NodeState::Validated { unchecked(status, *nodes) } else { String::new() };
            format!("{nodes} {}{unchecked}", state.label())
        })
        .collect();
    states.join(", ")
}

fn running(status: &EnvironmentStatus) -> String {
    let mut parts: Vec<String> =
        status.running.iter().map(|(version, nodes)| format!("{version} on {}", count(*nodes, "node"))).collect();
    let none = status.nodes.saturating_sub(status.running.values().sum());
    if none > 0 {
        parts.push(format!("no validated version on {}", count(none, "node")));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use muster_core::names::Role;
    use muster_core::node::pause::{NodePause, PauseRecord, PauseScope};
    use muster_core::rollout::record::PauseReason;

    use super::*;

    #[test]
    fn summary_names_the_rollout_and_pauses() {
        let with = |phase: serde_json::Value, pauses: serde_json::Value| {
            let rollout = serde_json::json!({
                "id": 3, "from": "v1", "to": "v2", "phase_since": Timestamp::UNIX_EPOCH, "at_once": false, "wave": 1,
                "waves": 2, "healthy": 0, "failed": 0, "nodes": 2, "held_by": null, "next": null,
            });
            let mut status = serde_json::json!({
                "env": "lab", "revision": 7, "desired": "v2", "generation": null, "nodes": 2, "counts": {"validated": 2},
                "running": {"v1": 2}, "blockers": [], "blocked": 0, "pauses": pauses, "held_domains": [], "unreadable": {},
                "rollout": rollout,
            });
            status["rollout"].as_object_mut().unwrap().extend(phase.as_object().unwrap().clone());
            summary(&serde_json::from_value(status).unwrap())
        };
        let phase = |phase: RolloutPhase| serde_json::to_value(phase).unwrap();
        let running = || phase(RolloutPhase::Running);
        let none = || serde_json::json!([]);
        assert_eq!(with(running(), none()), "lab v2: 2 validated; rollout 3 to v2 in progress");
        let why = PauseReason::Operator { by: "jo".into(), reason: "latency".into(), over: None };
        let paused = with(phase(RolloutPhase::Paused { why }), none());
        assert_eq!(paused, "lab v2: 2 validated; rollout 3 to v2 paused: jo has paused it: latency");
        assert_eq!(with(phase(RolloutPhase::Completed), none()), "lab v2: 2 validated");
        let scope = PauseScope::Role { role: Role::new("db").unwrap() };
        let record = PauseRecord { by: "jo".into(), reason: "disk".into(), since: Timestamp::UNIX_EPOCH, until: None };
        let pauses = serde_json::to_value([NodePause { scope, pause: record }]).unwrap();
        let role_paused = with(phase(RolloutPhase::Completed), pauses);
        assert_eq!(role_paused, "lab v2: 2 validated; role db is paused by jo: disk");
    }
}
