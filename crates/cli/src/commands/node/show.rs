//! `muster node show`: shows the state, the runs and the log of a node.

use std::fmt;

use jiff::Timestamp;
use muster_core::node::liveness::Link;
use muster_core::node::record::MachinePhase;
use muster_core::node::status::{Activity, NodeState, Reason};
use muster_core::report::drift::DriftState;
use muster_core::report::record::{LastRun, PastRun};
use muster_core::report::{Cause, CheckResult, Report, ResourceError, Verdict};
use muster_core::rollout::progress::Hold;
use muster_wire::operator::{NodeDetail, NodeRow, NodeService, RunDetail};
use muster_wire::problem::ProblemCode;

use crate::args::{Globals, OutputFormat, node_or_host_arg};
use crate::commands::drift::show_difference;
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{
    Out, Table, Terminal, age, causes_and_reason, count, duration, reason_text, run_result, text, version_cell,
};

/// Keys of configuration data that are listed by name.
const DATA_KEYS: usize = 8;

/// Show a node: its state, its last runs with causes and results, and its log
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   success
  1   the node or environment does not exist
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster node show web1
  muster node show web1 -o json | jq '.history[0]'")]
pub struct Args {
    /// Name or host name of the node
    #[arg(value_parser = node_or_host_arg)]
    node: String,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let detail = session.map_err(session.client().node(&session.env, &args.node).await)?;
    // The table also has the results of checks, which are in the report of the run.
    let run = if globals.output == OutputFormat::Table { last_run(&session, &detail).await? } else { None };
    let now = terminal.now;
    terminal.out.answer(&detail, |out| {
        facts(&detail, now, out);
        drift(&detail, now, out);
        services(&detail, now, out);
        history(&detail.history, now, out);
        errors(&detail, run.as_ref(), out);
        checks(run.as_ref(), out);
        log(&detail, out);
    });
    Ok(Exit::Yes)
}

async fn last_run(session: &Session, detail: &NodeDetail) -> Result<Option<RunDetail>, Failure> {
    let Some(last) = &detail.last else { return Ok(None) };
    match session.client().run(&session.env, &detail.row.node, &last.run).await {
        // A later run may have removed it from the history meanwhile.
        Err(error) if error.problem().is_some_and(|problem| problem.code == ProblemCode::UnknownRun) => Ok(None),
        answer => session.map_err(answer).map(Some),
    }
}

fn facts(detail: &NodeDetail, now: Timestamp, out: &mut Out) {
    let row = &detail.row;
    let mut fact = |name: &str, text: String| out.line(format_args!("{name:<11} {}", text::one_line(&text)));

    fact("node", format!("{} (role {})", row.node, row.role));
    if let Some(host) = host(detail) {
        fact("host", host);
    }
    let for_time = row.since.map(|since| format!(" for {}", age(since, now))).unwrap_or_default();
    let why = row.reason.as_ref().map(|why| format!(": {}", reason_text(why, now))).unwrap_or_default();
    fact("state", format!("{}{for_time}{why}", row.state_text()));
    fact("version", row.running.as_ref().map_or_else(|| "no validated version".into(), ToString::to_string));
    fact("desired", version_cell(row.desired.as_ref()));
    fact("in service", if row.active { "yes" } else { "no" }.to_owned());
    fact(
        "agent",
        match row.link {
            Link::Connected { since } => {
                format!("connected for {}{}", age(since, now), activity(&detail.activity, now))
            }
            Link::BetweenCalls { since, every, due, .. } => {
                let next = if due > now {
                    format!("next call by {} UTC", due.strftime("%F %T"))
                } else {
                    format!("late for {}", age(due, now))
                };
                format!("cron, every {every}, {next} (last call {} ago)", age(since, now))
            }
            Link::Silent { since } => {
                let cron =
                    row.agent.as_ref().and_then(|agent| agent.every).map(|every| format!("; cron, every {every}"));
                format!("not connected for {}{}", age(since, now), cron.unwrap_or_default())
            }
        },
    );
    if let Some(agent) = &row.agent {
        fact("software", format!("muster-agent {} (protocol {})", agent.version, agent.protocol));
    }
    if let Some(refused) = &detail.refused_agent {
        fact("duplicate", refused.to_string());
    }
    if let Some(paused) = &row.paused {
        fact("paused", paused.to_string());
    }
    if let Some(policy) = &row.policy {
        fact("policy", format!("{policy} ({} ago)", age(policy.since, now)));
    }
    // The state of the node itself is shown above.
    if let Some(hold) = detail.hold.as_ref().filter(|hold| !matches!(hold, Hold::Node { .. })) {
        fact("rollout", format!("waits: {hold}"));
    }
    if let Some(machine) = &detail.machine {
        let phase = if let MachinePhase::Failed { .. } = &machine.phase {
            Reason::Machine { phase: machine.phase.clone(), attempt: machine.attempt }.to_string()
        } else {
            machine.phase.word().to_owned()
        };
        fact("machine", format!("{phase} (driver {})", machine.driver));
    }
    fact("domain", detail.record.failure_domain.clone());
    if let Some(profile) = &detail.record.profile {
        fact("profile", profile.clone());
    }
    if !detail.record.labels.is_empty() {
        fact("labels", joined(detail.record.labels.iter()));
    }
    if !detail.interfaces.is_empty() {
        fact("addresses", joined(detail.interfaces.iter()));
    }
    if !detail.published.is_empty() {
        let published: Vec<String> = detail.published.iter().map(|(key, value)| format!("{key} {value}")).collect();
        fact("publishes", published.join(", "));
    }
    if !detail.lookups.is_empty() {
        fact("looked up", looked_up(&detail.lookups));
    }
    if detail.states.len() > 1 {
        let states: Vec<String> = detail
            .states
            .iter()
            .map(|state| format!("{} at {}", state.node_state().label(), state.version()))
            .collect();
        fact("conflict", format!("the node is in several states at once, which is a bug: {}", states.join(", ")));
    }
}

/// Host name of a node, if it is not made from its name, and the names that its agent uses instead.
fn host(detail: &NodeDetail) -> Option<String> {
    let NodeRow { node, host, .. } = &detail.row;
    let own = detail.agent_names.as_ref();
    let designed = Some(host).filter(|host| !host.is_empty() && **host != node.host());
    let used = own.and_then(|names| names.host.as_ref()).filter(|used| used.as_str() != host);
    let certname = own.and_then(|names| names.certname.as_ref()).filter(|name| name.as_str() != host);
    let mut text = match used {
        Some(used) => format!("{used} (in its agent.toml; the design has {host})"),
        None => designed.cloned().or_else(|| certname.map(|_| host.clone()))?,
    };
    if let Some(certname) = certname {
        text.push_str(&format!(", for Puppet {certname} (in its agent.toml)"));
    }
    Some(text)
}

/// Keys that a run looked up. Every class parameter is a key of configuration data: many of them are only counted.
fn looked_up(keys: &[String]) -> String {
    let (data, mut shown): (Vec<&String>, Vec<&String>) = keys.iter().partition(|key| key.starts_with("data::"));
    let data: Vec<String> = data.iter().map(|key| key.trim_start_matches("data::").to_owned()).collect();
    if data.len() <= DATA_KEYS {
        return shown.iter().map(|key| (*key).clone()).chain(data).collect::<Vec<_>>().join(", ");
    }
    let many = format!("and {} of configuration data", count(data.len(), "key"));
    shown.push(&many);
    shown.iter().map(|key| key.as_str()).collect::<Vec<_>>().join(", ")
}

fn activity(activity: &Activity, now: Timestamp) -> String {
    match activity {
        Activity::Idle => String::new(),
        Activity::Applying { run, version, since } => {
            format!(", applying {version} for {} (run {run})", age(*since, now))
        }
        Activity::Validating { run, version, since } => {
            format!(", validating {version} for {} (run {run})", age(*since, now))
        }
        Activity::Retrying { attempt, at } => format!(", retries in {} (attempt {attempt})", age(now, *at)),
        Activity::Blocked { problem } => format!(", cannot act: {problem}"),
    }
}

/// Drift of a node, with the timed run that was reported last. Timed runs that find nothing new are not reported.
fn drift(detail: &NodeDetail, now: Timestamp, out: &mut Out) {
    let Some(drift) = &detail.drift else { return };
    // The drift of a node that is not validated is unknown, which its state says already.
    if drift.drift == DriftState::Unknown && drift.run.is_none() && detail.row.state != NodeState::Validated {
        return;
    }
    let timed = detail.history.iter().find(|past| past.causes == [Cause::Schedule]);
    let timed = timed.map(|past| format!("; last reported timed run {}, {} ago", past.run, age(past.ended, now)));
    let since = drift.since.map(|since| format!(" for {}", age(since, now))).unwrap_or_default();
    let state = match (drift.drift, &drift.reason) {
        (DriftState::None, _) => "none".to_owned(),
        (DriftState::Unknown, reason) => format!("unknown: {}", reason.as_deref().unwrap_or("no reason was given")),
        (DriftState::Differs, _) if drift.count == 0 => format!("differs{since}"),
        (DriftState::Differs, _) => {
            format!("differs in {}{since}", count(usize::try_from(drift.count).unwrap_or(usize::MAX), "resource"))
        }
    };
    out.line(format_args!("{:<11} {}", "drift", text::one_line(&format!("{state}{}", timed.unwrap_or_default()))));
    drift.differences.iter().for_each(|difference| show_difference(difference, out));
}

fn services(detail: &NodeDetail, now: Timestamp, out: &mut Out) {
    if detail.services.is_empty() {
        return;
    }
    out.gap();
    let mut table = Table::new(["SERVICE", "ADDRESS", "PORT", "TAGS", "PASSING FOR"]);
    for NodeService { service, offer, passing_since } in &detail.services {
        let passing = passing_since.map_or_else(|| "-".to_owned(), |since| age(since, now));
        table.row([service.to_string(), offer.address.clone(), offer.port.to_string(), offer.tags.join(" "), passing]);
    }
    out.table(table);
}

fn history(runs: &[PastRun], now: Timestamp, out: &mut Out) {
    out.gap();
    if runs.is_empty() {
        return out.line("No run was reported yet.");
    }
    let mut table = Table::new(["RUN", "AGO", "VERSION", "RESULT", "TOOK", "CAUSES AND REASON"]).color_column(3);
    for run in runs {
        table.row([
            run.run.to_string(),
            age(run.ended, now),
            run.version.to_string(),
            run_result(run.outcome, run.checks),
            duration(run.ended.duration_since(run.started)),
            causes_and_reason(run),
        ]);
    }
    out.table(table);
}

/// Errors of the last run, without those of checks that are shown in the table of checks.
fn errors(detail: &NodeDetail, run: Option<&RunDetail>, out: &mut Out) {
    let checks = run.into_iter().flat_map(|run| &run.reports).flat_map(|report| &report.checks);
    let in_table: Vec<ResourceError> = checks.filter_map(CheckResult::error).collect();
    // A server of an older version sends only the first errors.
    let errors = |last: &LastRun| {
        let all = if detail.errors.is_empty() { &last.errors } else { &detail.errors };
        all.iter().filter(|error| !in_table.contains(error)).cloned().collect::<Vec<_>>()
    };
    let Some((last, errors)) = detail.last.as_ref().map(|last| (last, errors(last))) else { return };
    let first = last.first_failure.as_ref().filter(|first| first.run != last.run);
    if !errors.is_empty() {
        out.gap();
        out.line(format_args!("Errors of run {}", last.run));
    }
    errors.iter().for_each(|error| out.line(format_args!("  {}", text::one_line(&error.to_string()))));
    // The first of several failures is often closer to the cause.
    if let Some(first) = first {
        if errors.is_empty() {
            out.gap();
        }
        out.line(format_args!("First failed in run {}: {}", first.run, text::one_line(&first.error.to_string())));
    }
}

fn checks(run: Option<&RunDetail>, out: &mut Out) {
    let Some(run) = run else { return };
    let checks: Vec<&CheckResult> = run.reports.iter().flat_map(|report: &Report| &report.checks).collect();
    if checks.is_empty() {
        return;
    }
    out.gap();
    let mut table = Table::new(["CHECK", "RESULT", "TOOK", "MESSAGE"]).color_column(1);
    for check in checks {
        let verdict = match check.verdict {
            Verdict::Passed => "passed",
            Verdict::Failed => "failed",
        };
        let took = duration(jiff::SignedDuration::from_millis(i64::try_from(check.millis).unwrap_or(i64::MAX)));
        table.row([text::one_line(&check.name), verdict.to_owned(), took, check.message.clone()]);
    }
    out.table(table);
}

fn log(detail: &NodeDetail, out: &mut Out) {
    let Some(log) = detail.log.as_ref().filter(|log| !log.trim().is_empty()) else { return };
    out.gap();
    out.line("End of the log");
    log.lines().for_each(|line| out.line(format_args!("  {}", text::without_controls(line))));
    if let Some(last) = &detail.last {
        out.line(format_args!("Full log: muster node logs {} --run {}", detail.row.node, last.run));
    }
}

/// The pairs as `a 1, b 2`.
fn joined(pairs: impl Iterator<Item = (impl fmt::Display, impl fmt::Display)>) -> String {
    pairs.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
}
