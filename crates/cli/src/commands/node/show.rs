//! `muster node show`: one node, whole.

use jiff::Timestamp;
use muster_core::names::NodeName;
use muster_core::node::liveness::Link;
use muster_core::node::record::MachinePhase;
use muster_core::node::status::{Activity, Reason};
use muster_core::report::record::PastRun;
use muster_core::report::{Cause, CheckResult, Report, Verdict};
use muster_core::rollout::progress::Hold;
use muster_wire::operator::{NodeDetail, RunDetail};
use muster_wire::problem::ProblemCode;

use crate::args::{Format, Globals};
use crate::commands::rows::{self, NONE};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::{Out, Table, Terminal, age, duration, plain};

/// So many keys of configuration data are named.
const FEW: usize = 8;

/// Show one node: its state, its last runs with causes and results, its log
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   it was shown
  1   there is no such node or environment
  2   cannot tell: the server is not there, or is not up to date

Examples:
  muster node show web1
  muster node show web1 -o json | jq '.history[0]'")]
pub struct Args {
    /// The node's name, or its host name
    #[arg(value_parser = node_or_host)]
    node: String,
}

/// Takes host names too, in which `_` has become `-`; whether the node exists is the server's to say.
pub(in crate::commands) fn node_or_host(text: &str) -> Result<String, String> {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
    if !text.is_empty() && text.bytes().all(legal) { Ok(text.to_owned()) } else { Err(NodeName::RULE.to_owned()) }
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let detail = session.told(session.client().node(&session.env, &args.node).await)?;
    // The results of single checks are in the run's report; whoever wants them as data asks for the run.
    let run = if globals.output == Format::Table { last_run(&session, &detail).await? } else { None };
    let now = terminal.now;
    terminal.out.answer(&detail, |out| {
        facts(&detail, now, out);
        history(&detail.history, now, out);
        errors(&detail, out);
        checks(run.as_ref(), out);
        log(&detail, out);
    });
    Ok(Exit::Yes)
}

async fn last_run(session: &Session, detail: &NodeDetail) -> Result<Option<RunDetail>, Failure> {
    let Some(last) = &detail.last else { return Ok(None) };
    match session.client().run(&session.env, &detail.row.node, &last.run).await {
        // The next run may have pushed it out of the history meanwhile.
        Err(error) if error.problem().is_some_and(|problem| problem.code == ProblemCode::UnknownRun) => Ok(None),
        answer => session.told(answer).map(Some),
    }
}

fn facts(detail: &NodeDetail, now: Timestamp, out: &mut Out) {
    let row = &detail.row;
    let mut fact = |name: &str, text: String| out.line(format_args!("{name:<11} {}", plain::one_line(&text)));
    let joined = |pairs: &std::collections::BTreeMap<String, String>| {
        pairs.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
    };

    fact("node", format!("{} (role {})", row.node, row.role));
    let for_how_long = row.since.map(|since| format!(" for {}", age(since, now))).unwrap_or_default();
    let why = row.reason.as_ref().map(|why| format!(": {}", rows::why(why, now))).unwrap_or_default();
    fact("state", format!("{}{for_how_long}{why}", row.state.as_str()));
    fact("runs", row.running.as_ref().map_or_else(|| "nothing that it has proved".into(), ToString::to_string));
    fact("should run", rows::version(row.desired.as_ref()));
    fact("active", if row.active { "yes: others may count on it".into() } else { "no".into() });
    fact(
        "agent",
        match row.link {
            Link::Connected { since } => format!("connected for {}{}", age(since, now), doing(&detail.activity, now)),
            Link::Silent { since } => format!("not connected for {}", age(since, now)),
        },
    );
    if let Some(paused) = &row.paused {
        fact("paused", paused.to_string());
    }
    // How it stands itself was said above.
    if let Some(hold) = detail.hold.as_ref().filter(|hold| !matches!(hold, Hold::Node { .. })) {
        fact("rollout", format!("it waits: {hold}"));
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
        fact("labels", joined(&detail.record.labels));
    }
    if !detail.interfaces.is_empty() {
        fact("addresses", joined(&detail.interfaces));
    }
    if !detail.published.is_empty() {
        let published: Vec<String> = detail.published.iter().map(|(key, value)| format!("{key} {value}")).collect();
        fact("publishes", published.join(", "));
    }
    if !detail.lookups.is_empty() {
        fact("looked up", looked_up(&detail.lookups));
    }
    if detail.states.len() > 1 {
        let states: Vec<String> = detail.states.iter().map(|state| format!("{state} at {}", state.version())).collect();
        fact("conflict", format!("it is in several states at once, which must never be: {}", states.join(", ")));
    }
}

/// What a run looked up. Every parameter of a class is a key of configuration data: many of them say little.
fn looked_up(keys: &[String]) -> String {
    let (data, mut shown): (Vec<&String>, Vec<&String>) = keys.iter().partition(|key| key.starts_with("data::"));
    let plain: Vec<String> = data.iter().map(|key| key.trim_start_matches("data::").to_owned()).collect();
    if plain.len() <= FEW {
        return shown.iter().map(|key| (*key).clone()).chain(plain).collect::<Vec<_>>().join(", ");
    }
    let many = format!("and {} of configuration data", rows::count(plain.len(), "key"));
    shown.push(&many);
    shown.iter().map(|key| key.as_str()).collect::<Vec<_>>().join(", ")
}

fn doing(activity: &Activity, now: Timestamp) -> String {
    match activity {
        Activity::Idle => String::new(),
        Activity::Applying { run, version, since } => {
            format!(", applying {version} for {} (run {run})", age(*since, now))
        }
        Activity::Validating { run, version, since } => {
            format!(", validating {version} for {} (run {run})", age(*since, now))
        }
        Activity::Retrying { attempt, at } => format!(", tries again in {} (attempt {attempt})", age(now, *at)),
        Activity::Blocked { problem } => format!(", cannot act: {problem}"),
    }
}

fn history(runs: &[PastRun], now: Timestamp, out: &mut Out) {
    out.gap();
    if runs.is_empty() {
        return out.line("It has not reported a run yet.");
    }
    let mut table = Table::new(["RUN", "AGO", "VERSION", "RESULT", "TOOK", "CAUSES AND REASON"]).painted(3);
    for run in runs {
        let causes: Vec<String> = run.causes.iter().map(Cause::to_string).collect();
        let causes = if causes.is_empty() { NONE.to_owned() } else { causes.join(", ") };
        let reason = run.reason.as_ref().map(|reason| format!(" → {reason}")).unwrap_or_default();
        table.row([
            run.run.to_string(),
            age(run.ended, now),
            run.version.to_string(),
            result(run),
            duration(run.ended.duration_since(run.started)),
            format!("{causes}{reason}"),
        ]);
    }
    out.table(table);
}

/// A run that changed things and whose validation has not been reported says so; a validated one has passed or not.
fn result(run: &PastRun) -> String {
    use muster_core::report::Outcome;
    match run.outcome {
        Outcome::Configured(_) => run.outcome.word().to_owned(),
        Outcome::Previewed(result) => format!("preview: {}", result.word()),
        Outcome::Validated(Verdict::Passed) => "validated".to_owned(),
        Outcome::Validated(Verdict::Failed) => "invalid".to_owned(),
    }
}

fn errors(detail: &NodeDetail, out: &mut Out) {
    let Some(last) = detail.last.as_ref().filter(|last| !last.errors.is_empty()) else { return };
    out.gap();
    out.line(format_args!("Errors of run {}", last.run));
    last.errors.iter().for_each(|error| out.line(format_args!("  {}", plain::one_line(&error.to_string()))));
    // The first of a row of failures often says more than the last.
    if let Some(first) = last.first_failure.as_ref().filter(|first| first.run != last.run) {
        out.line(format_args!("First failed in run {}: {}", first.run, plain::one_line(&first.error.to_string())));
    }
}

fn checks(run: Option<&RunDetail>, out: &mut Out) {
    let Some(run) = run else { return };
    let checks: Vec<&CheckResult> = run.reports.iter().flat_map(|report: &Report| &report.checks).collect();
    if checks.is_empty() {
        return;
    }
    out.gap();
    let mut table = Table::new(["CHECK", "RESULT", "TOOK", "SAID"]).painted(1);
    for check in checks {
        let verdict = match check.verdict {
            Verdict::Passed => "passed",
            Verdict::Failed => "failed",
        };
        let took = duration(jiff::SignedDuration::from_millis(i64::try_from(check.millis).unwrap_or(i64::MAX)));
        table.row([plain::one_line(&check.name), verdict.to_owned(), took, check.message.clone()]);
    }
    out.table(table);
}

fn log(detail: &NodeDetail, out: &mut Out) {
    let Some(log) = detail.log.as_ref().filter(|log| !log.trim().is_empty()) else { return };
    out.gap();
    out.line("The end of the log");
    log.lines().for_each(|line| out.line(format_args!("  {}", plain::without_controls(line))));
    if let Some(last) = &detail.last {
        out.line(format_args!("All of it: muster node logs {} --run {}", detail.row.node, last.run));
    }
}
