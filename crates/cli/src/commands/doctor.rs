//! `muster doctor`: whether what Muster stands on is sound.

use muster_server::doctor;
use muster_wire::doctor::{DoctorFinding, DoctorReport, DoctorVerdict};

use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Server;
use crate::store_args::StoreArgs;
use crate::terminal::{Out, Table, Terminal};

use super::rows::count;

/// Examine the store and the servers
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
The server looks at its store (whether it answers and how fast, each member, space, alarms, history, versions), at the \
other replicas, at who holds which controller, at clocks, and at whether all replicas see the same blobs. With --store, \
the store is asked directly, without a server; then nothing is said about servers.

Exit codes:
  0   all is well; there may be warnings
  1   something failed, and is named
  2   cannot tell: no server answers, or something could not be found out

Examples:
  muster doctor
  muster doctor -o json | jq '.findings[] | select(.verdict != \"ok\")'
  muster doctor --store etcd://10.0.0.1:2379,10.0.0.2:2379")]
pub struct Args {
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let examination = match &args.store.store {
        None => ask_server(globals).await?,
        Some(_) => ask_store(args, terminal).await?,
    };
    terminal.out.answer(&examination, |out| show(&examination.findings, out));
    Ok(exit(&examination.findings))
}

async fn ask_server(globals: &Globals) -> Result<DoctorReport, Failure> {
    let server = Server::find(globals)?;
    // The time that the examination takes is no part of the way there and back.
    let health = now();
    server.client.alive().await.map_err(|error| server.failure(error))?;
    let way = now().duration_since(health);
    let mut examination = server.client.doctor().await.map_err(|error| server.failure(error))?;
    let answered = now();
    let asked = answered.checked_sub(way).unwrap_or(answered);
    examination.findings.push(doctor::clock("this machine → server", asked, examination.now, answered));
    Ok(examination)
}

async fn ask_store(args: &Args, terminal: &mut Terminal) -> Result<DoctorReport, Failure> {
    let store = args.store.open_existing(&mut terminal.notes).await?;
    let facts = doctor::ask_store(store.as_ref()).await;
    Ok(DoctorReport { findings: doctor::judge_store(&facts), now: now() })
}

fn now() -> jiff::Timestamp {
    #[expect(clippy::disallowed_methods, reason = "this machine's clock is what is examined")]
    jiff::Timestamp::now()
}

/// What failed is certain; what could not be told might have.
fn exit(findings: &[DoctorFinding]) -> Exit {
    match findings.iter().map(|finding| finding.verdict).max() {
        Some(DoctorVerdict::Failed) => Exit::No,
        Some(DoctorVerdict::CannotTell) => Exit::CannotTell,
        Some(DoctorVerdict::Ok | DoctorVerdict::Warning) | None => Exit::Yes,
    }
}

fn show(findings: &[DoctorFinding], out: &mut Out) {
    let mut table = Table::new(["CHECK", "VERDICT", "OF", "SEEN"]).painted(1);
    for finding in findings {
        table.row([
            finding.check.word().to_owned(),
            finding.verdict.word().to_owned(),
            finding.subject.clone().unwrap_or_default(),
            finding.seen.clone(),
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
        parts.push(format!("{unknown} could not be told"));
    }
    if warnings > 0 {
        parts.push(count(warnings, "warning"));
    }
    if parts.is_empty() {
        out.line("all is well");
    } else {
        out.line(parts.join(", "));
    }
}
