//! `muster env destroy`: the end of an environment.

use std::io::{self, IsTerminal};
use std::time::Duration;

use anyhow::Context;
use jiff::SignedDuration;
use muster_core::names::EnvName;
use muster_wire::design::EnvironmentDetail;
use muster_wire::problem::ProblemCode;
use tokio::time::{Instant, sleep_until};

use crate::args::Globals;
use crate::author::author;
use crate::commands::rows::count;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::{Server, is_interruption};
use crate::terminal::{Notes, Terminal};

use super::show::counts;

/// How often the server is asked whether it is gone.
const PACE: Duration = Duration::from_millis(500);

/// Destroy an environment: its nodes leave and are removed, then its design, its history and all else of it go
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
It is said what is affected, and the environment's name is asked for; a script says it with --confirm. Where nobody can \
be asked and nothing was confirmed, nothing is done. There is no way back: `muster backup FILE --env ENV` keeps a copy.

Exit codes:
  0   it is gone; with --no-wait: it is on its way
  1   nothing was done; or it was not gone in time, and goes on by itself
  2   cannot tell: the server is not there, or is not up to date
  64  it was not confirmed

Examples:
  muster env destroy lab
  muster env destroy lab --confirm lab")]
pub struct Args {
    /// The environment
    #[arg(value_name = "ENV")]
    name: EnvName,
    /// The environment's name once more: that this is meant
    #[arg(long, value_name = "NAME")]
    confirm: Option<String>,
    /// Do not wait until all of it is gone
    #[arg(long)]
    no_wait: bool,
    /// How long to wait, such as 90s or 1h30m
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = crate::patience::read)]
    timeout: SignedDuration,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut server = Server::find(globals)?;
    let env = &args.name;
    let there = server.client.environment(env).await.map_err(|error| server.failure(error))?;
    confirm(args, &there, &mut terminal.notes)?;
    let mut destroyed = server.client.destroy(env, Some(&author())).await.map_err(|error| server.failure(error))?;
    if !destroyed.gone && !args.no_wait {
        let patience = Duration::try_from(args.timeout).unwrap_or_default();
        destroyed.gone = until_gone(&mut server, env, patience, &mut terminal.notes).await?;
    }
    terminal.out.answer(&destroyed, |out| {
        let nodes = count(destroyed.nodes, "node");
        if destroyed.gone {
            out.line(format_args!("{env} is gone, with {nodes}"));
        } else {
            out.line(format_args!("{env} is on its way out, with {nodes}"));
        }
    });
    if !destroyed.gone && !args.no_wait {
        terminal.notes.note("it goes on by itself; `muster env list` shows whether it is gone");
    }
    Ok(Exit::yes_if(destroyed.gone || args.no_wait))
}

/// Says what is affected, and lets nobody destroy something by mistake.
fn confirm(args: &Args, there: &EnvironmentDetail, notes: &mut Notes) -> Result<(), Failure> {
    let env = &there.env;
    if let Some(said) = &args.confirm {
        if said == env.as_str() {
            return Ok(());
        }
        let failure = Failure::usage(format!("--confirm says {said:?}, and {env} would be destroyed"));
        return Err(failure.hint("nothing was done"));
    }
    let affected = affected(there);
    if !io::stdin().is_terminal() {
        let failure = Failure::usage(format!("{env} would be destroyed: {affected}"));
        return Err(failure.hint(format!("nothing was done; --confirm {env} says that this is meant")));
    }
    notes.ask(format_args!(
        "{env} will be destroyed: {affected}.\nAll nodes are stopped and removed, and everything that is known of them \
         goes. There is no way back.\nType the environment's name to go on: "
    ));
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).context("cannot read the answer").map_err(Failure::failed)?;
    if answer.trim() == env.as_str() { Ok(()) } else { Err(Failure::failed(anyhow::anyhow!("nothing was done"))) }
}

/// "4 nodes (1 db, 2 web, 1 lb) that should run v2, 3 validated, 1 failed; 7 revisions of its design; 2 releases"
fn affected(there: &EnvironmentDetail) -> String {
    let mut text = count(there.nodes, "node");
    if there.nodes > 0 {
        let roles: Vec<String> = there.roles.iter().map(|row| format!("{} {}", row.nodes, row.role)).collect();
        text.push_str(&format!(" ({})", roles.join(", ")));
        match &there.current_version {
            Some(version) => text.push_str(&format!(" that should run {version}")),
            None => text.push_str(" without a version"),
        }
        text.push_str(&format!(", {}", counts(&there.counts)));
    }
    if let Some(head) = there.design.head {
        text.push_str(&format!("; its design, number {head}"));
    }
    if there.releases > 0 {
        text.push_str(&format!("; {}", count(there.releases, "release")));
    }
    text
}

async fn until_gone(
    server: &mut Server,
    env: &EnvName,
    patience: Duration,
    notes: &mut Notes,
) -> Result<bool, Failure> {
    let begin = Instant::now();
    let deadline = begin + patience;
    loop {
        match server.client.environment(env).await {
            Ok(there) => {
                let left = count(there.nodes, "node");
                notes.progress(format_args!("{left} left ({}s)", begin.elapsed().as_secs()));
            }
            Err(error) if error.problem().is_some_and(|problem| problem.code == ProblemCode::UnknownEnvironment) => {
                notes.end_progress();
                return Ok(true);
            }
            Err(error) if is_interruption(&error) => {
                // If it is not found, the old address is as good as any.
                let _ = server.find_again();
            }
            Err(error) => return Err(server.failure(error)),
        }
        if Instant::now() >= deadline {
            notes.end_progress();
            return Ok(false);
        }
        sleep_until((Instant::now() + PACE).min(deadline)).await;
    }
}
