//! `muster doctor`: checks the health of the store, of the servers and of the connections of agents.

use muster_server::doctor;
use muster_wire::doctor::{DoctorFinding, DoctorReport, DoctorVerdict};
use serde::Serialize;

use crate::args::Globals;
use crate::args::store::StoreArgs;
use crate::connect::ServerConnection;
use crate::failure::{Exit, Failure};
use crate::output::{Out, Table, Terminal, count};

/// Check the health of the store and of the servers, and that all agents are connected
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
The server checks its store (latency, members, space, alarms, history, versions), the other replicas, the holders of \
controllers, clocks, whether all replicas share the same blobs, and whether each node's agent is connected. With --store the store is checked directly, without a \
server; then servers and nodes are not checked.

Exit codes:
  0   healthy; there may be warnings
  1   a check failed
  2   unknown: no server answers, or a check could not be completed

Examples:
  muster doctor
  muster doctor -o json | jq '.items[] | select(.verdict != \"ok\")'
  muster doctor --store etcd://10.0.0.1:2379,10.0.0.2:2379")]
pub struct Args {
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let examination = match &args.store.store {
        None => check_by_server(globals).await?,
        Some(_) => check_store(args, terminal).await?,
    };
    let answer = DoctorAnswer { items: &examination.findings, now: examination.now };
    terminal.out.answer(&answer, |out| show(&examination.findings, out));
    Ok(exit(&examination.findings))
}

/// The findings, as a list.
#[derive(Debug, Serialize)]
struct DoctorAnswer<'a> {
    items: &'a [DoctorFinding],
    now: jiff::Timestamp,
}

async fn check_by_server(globals: &Globals) -> Result<DoctorReport, Failure> {
    let server = ServerConnection::find(globals)?;
    // A fast request measures the round trip without the time of the checks.
    let sent = now();
    server.client.alive().await.map_err(|error| server.failure(error))?;
    let round_trip = now().duration_since(sent);
    let mut examination = server.client.doctor().await.map_err(|error| server.failure(error))?;
    let answered = now();
    let sent_at = answered.checked_sub(round_trip).unwrap_or(answered);
    examination.findings.push(doctor::check_clock("this machine → server", sent_at, examination.now, answered));
    Ok(examination)
}

async fn check_store(args: &Args, terminal: &mut Terminal) -> Result<DoctorReport, Failure> {
    let store = args.store.open_existing(&mut terminal.notes).await?;
    let facts = doctor::collect_store(store.as_ref()).await;
    Ok(DoctorReport { findings: doctor::store_findings(&facts), now: now() })
}

fn now() -> jiff::Timestamp {
    #[expect(clippy::disallowed_methods, reason = "this command compares the clock of this machine")]
    jiff::Timestamp::now()
}

/// A failed check is definite, and outweighs an unknown one.
fn exit(findings: &[DoctorFinding]) -> Exit {
    match findings.iter().map(|finding| finding.verdict).max() {
        Some(DoctorVerdict::Failed) => Exit::No,
        Some(DoctorVerdict::CannotTell) => Exit::CannotTell,
        Some(DoctorVerdict::Ok | DoctorVerdict::Warning) | None => Exit::Yes,
    }
}

fn show(findings: &[DoctorFinding], out: &mut Out) {
    let mut table = Table::new(["CHECK", "VERDICT", "SUBJECT", "DETAIL"]).color_column(1);
    for finding in findings {
        table.row([
            finding.check.word().to_owned(),
            finding.verdict.word().to_owned(),
            finding.subject.clone().unwrap_or_default(),
            finding.detail.clone(),
        ]);
    }
    out.table(table);
    out.gap();
    for finding in findings {
        if let Some(advice) = &finding.advice {
            let subject = finding.subject.as_ref().map(|subject| format!(" {subject}")).unwrap_or_default();
            out.line(format_args!("{}{subject}: {advice}", finding.check.word()));
        }
    }
    let of = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let (failed, warnings, unknown) =
        (of(DoctorVerdict::Failed), of(DoctorVerdict::Warning), of(DoctorVerdict::CannotTell));
    let mut parts = Vec::new();
    if failed > 0 {
        parts.push(format!("{failed} failed"));
    }
    if unknown > 0 {
        parts.push(format!("{unknown} unknown"));
    }
    if warnings > 0 {
        parts.push(count(warnings, "warning"));
    }
    if parts.is_empty() {
        out.line("healthy");
    } else {
        out.line(parts.join(", "));
    }
}
