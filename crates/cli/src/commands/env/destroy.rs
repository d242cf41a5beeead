//! `muster env destroy`: removes an environment with its nodes, its design and its history.

use std::io::{self, IsTerminal};
use std::time::Duration;

use anyhow::Context;
use jiff::SignedDuration;
use muster_core::names::EnvName;
use muster_wire::operator::EnvironmentDetail;
use muster_wire::problem::ProblemCode;
use tokio::time::{Instant, sleep_until};

use crate::args::Globals;
use crate::connect::{ServerConnection, is_retryable};
use crate::failure::{Exit, Failure};
use crate::output::{Notes, Terminal, count};
use crate::variables::author;

use super::show::counts;

/// Pause between two requests while waiting.
const POLL_PAUSE: Duration = Duration::from_millis(500);

/// Destroy an environment: drain and remove its nodes, then delete its design, its history and all other data
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Prints what is affected and asks for the name of the environment; scripts confirm with --confirm. Without a terminal and \
without --confirm nothing is done. This cannot be undone: `muster backup FILE --env ENV` saves a copy first.

Exit codes:
  0   destroyed; with --no-wait: in progress
  1   nothing was done; or not destroyed before the timeout, and still in progress
  2   unknown: the server cannot be reached, or is not up to date
  64  not confirmed

Examples:
  muster env destroy lab
  muster env destroy lab --confirm lab")]
pub struct Args {
    /// Name of the environment
    #[arg(value_name = "ENV")]
    name: EnvName,
    /// Name of the environment, as confirmation
    #[arg(long, value_name = "NAME")]
    confirm: Option<String>,
    /// Do not wait until the environment is destroyed
    #[arg(long)]
    no_wait: bool,
    /// Maximum time to wait, such as 90s or 1h30m
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = crate::args::timeout_arg)]
    timeout: SignedDuration,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut server = ServerConnection::find(globals)?;
    let env = &args.name;
    let detail = server.client.environment(env).await.map_err(|error| server.failure(error))?;
    confirm(args, &detail, &mut terminal.notes)?;
    let mut destroyed = server.client.destroy(env, Some(&author())).await.map_err(|error| server.failure(error))?;
    if !destroyed.completed && !args.no_wait {
        let timeout = Duration::try_from(args.timeout).unwrap_or_default();
        destroyed.completed = wait_until_destroyed(&mut server, env, timeout, &mut terminal.notes).await?;
    }
    terminal.out.answer(&destroyed, |out| {
        let nodes = count(destroyed.nodes, "node");
        if destroyed.completed {
            out.line(format_args!("{env} is destroyed, with {nodes}"));
        } else {
            out.line(format_args!("{env} is being destroyed, with {nodes}"));
        }
    });
    if !destroyed.completed && !args.no_wait {
        terminal.notes.note("still in progress; `muster env list` shows when the environment is gone");
    }
    Ok(Exit::yes_if(destroyed.completed || args.no_wait))
}

/// Asks for confirmation, with a summary of what is affected.
fn confirm(args: &Args, detail: &EnvironmentDetail, notes: &mut Notes) -> Result<(), Failure> {
    let env = &detail.env;
    if let Some(name) = &args.confirm {
        if name == env.as_str() {
            return Ok(());
        }
        let failure = Failure::usage(format!("--confirm is {name:?}, but the environment is {env}"));
        return Err(failure.hint("nothing was done"));
    }
    let affected = affected(detail);
    if !io::stdin().is_terminal() {
        let failure = Failure::usage(format!("{env} would be destroyed: {affected}"));
        return Err(failure.hint(format!("nothing was done; confirm with --confirm {env}")));
    }
    notes.prompt(format_args!(
        "{env} will be destroyed: {affected}.\nAll nodes are stopped and removed with all of their data. This cannot be \
         undone.\nType the name of the environment to continue: "
    ));
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).context("cannot read the answer").map_err(Failure::failed)?;
    if answer.trim() == env.as_str() { Ok(()) } else { Err(Failure::failed(anyhow::anyhow!("nothing was done"))) }
}

/// "4 nodes (1 db, 2 web, 1 lb) that should run v2, 3 validated, 1 failed; its design, revision 7; 2 releases"
fn affected(detail: &EnvironmentDetail) -> String {
    let mut text = count(detail.nodes, "node");
    if detail.nodes > 0 {
        let roles: Vec<String> = detail.roles.iter().map(|row| format!("{} {}", row.nodes, row.role)).collect();
        text.push_str(&format!(" ({})", roles.join(", ")));
        match &detail.current_version {
            Some(version) => text.push_str(&format!(" that should run {version}")),
            None => text.push_str(" without a version"),
        }
        text.push_str(&format!(", {}", counts(&detail.counts)));
    }
    if let Some(head) = detail.design.head {
        text.push_str(&format!("; its design, revision {head}"));
    }
    if detail.releases > 0 {
        text.push_str(&format!("; {}", count(detail.releases, "release")));
    }
    text
}

async fn wait_until_destroyed(
    server: &mut ServerConnection,
    env: &EnvName,
    timeout: Duration,
    notes: &mut Notes,
) -> Result<bool, Failure> {
    let started = Instant::now();
    let deadline = started + timeout;
    loop {
        match server.client.environment(env).await {
            Ok(detail) => {
                let left = count(detail.nodes, "node");
                notes.progress(format_args!("{left} left ({}s)", started.elapsed().as_secs()));
            }
            Err(error) if error.problem().is_some_and(|problem| problem.code == ProblemCode::UnknownEnvironment) => {
                notes.end_progress();
                return Ok(true);
            }
            Err(error) if is_retryable(&error) => {
                // Without an announcement the old address is retried.
                let _ = server.rediscover();
            }
            Err(error) => return Err(server.failure(error)),
        }
        if Instant::now() >= deadline {
            notes.end_progress();
            return Ok(false);
        }
        sleep_until((Instant::now() + POLL_PAUSE).min(deadline)).await;
    }
}
