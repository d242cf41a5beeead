//! `muster pause`, `muster resume` and `muster pauses`: keep nodes from running.

use clap::ArgGroup;
use jiff::{SignedDuration, Timestamp};
use muster_core::names::Role;
use muster_core::node::pause::PauseScope;
use muster_wire::data::{PauseRow, SetPause};

use crate::args::{Globals, duration_arg, node_or_host_arg, role_arg};
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Table, Terminal, age, count};
use crate::variables::author;

/// Keep nodes from running: the nodes of a role, one node, or all
#[derive(Clone, Debug, clap::Args)]
#[command(group = ArgGroup::new("target").required(true), after_help = "\
A run in progress finishes. Validations continue, and a paused node stays in service. A pause with the same target replaces \
the previous one; pauses with different targets are independent.

Exit codes:
  0   paused
  1   refused: the role or node does not exist
  2   unknown: retry, which is safe

Examples:
  muster pause --role db --reason 'disk swap' --for 2h
  muster pause --host web1 --reason 'looking into the timeout'
  muster pause --all --reason 'network maintenance' --for 90m")]
pub struct PauseArgs {
    #[command(flatten)]
    target: PauseTarget,
    /// Reason, shown in the status of these nodes
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Duration, such as 90s, 30m, 2h or 3d [default: until `muster resume`]
    #[arg(long = "for", value_name = "TIME", value_parser = duration_arg)]
    lasts: Option<SignedDuration>,
    /// Allow a role or node that the design does not have yet
    #[arg(long)]
    force: bool,
}

/// End a pause; a no-op if there is none
#[derive(Clone, Debug, clap::Args)]
#[command(group = ArgGroup::new("target").required(true), after_help = "\
Exit codes:
  0   ended, or there was none
  1   the environment does not exist
  2   unknown: retry, which is safe

Examples:
  muster resume --role db
  muster resume --all")]
pub struct ResumeArgs {
    #[command(flatten)]
    target: PauseTarget,
}

/// List the active pauses with author and reason
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   success
  1   the environment does not exist
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster pauses
  muster pauses -o json | jq '.items[].reason'")]
pub struct ListArgs {}

/// The nodes to pause.
#[derive(Clone, Debug, clap::Args)]
struct PauseTarget {
    /// Nodes of a role
    #[arg(long, value_name = "ROLE", value_parser = role_arg, group = "target")]
    role: Option<Role>,
    /// One node, by name or host name
    #[arg(long, value_name = "NODE", value_parser = node_or_host_arg, group = "target")]
    host: Option<String>,
    /// All nodes of the environment
    #[arg(long, group = "target")]
    all: bool,
}

impl PauseTarget {
    async fn scope(&self, session: &Session) -> Result<PauseScope, Failure> {
        Ok(match (&self.role, &self.host) {
            (Some(role), _) => PauseScope::Role { role: role.clone() },
            (None, Some(node)) => PauseScope::Host { node: session.node_name(node).await? },
            (None, None) => PauseScope::Global,
        })
    }
}

pub(super) async fn pause(args: &PauseArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let seconds = args.lasts.map(|long| u64::try_from(long.as_secs()).unwrap_or(u64::MAX));
    let set = SetPause { reason: args.reason.clone(), seconds, force: args.force };
    let scope = args.target.scope(&session).await?;
    let done = session.client().pause(&session.env, &scope, &set, &author()).await;
    let done = session.map_err(done)?;
    terminal.out.answer(&done, |out| {
        let PauseRow { paused, nodes } = &done.pause;
        let lasts = paused.pause.until.map_or_else(
            || "until `muster resume`".to_owned(),
            |until| format!("until {}", until.strftime("%Y-%m-%d %H:%M:%S UTC")),
        );
        let (scope, nodes, revision) = (&paused.scope, count(*nodes, "node"), done.revision);
        out.line(format_args!("{scope} is paused {lasts}: {nodes} (revision {revision})"));
    });
    if let Some(before) = &done.before {
        terminal.notes.note(format_args!("this replaces another pause: {before}"));
    }
    Ok(Exit::Yes)
}

pub(super) async fn resume(args: &ResumeArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let scope = args.target.scope(&session).await?;
    let done = session.map_err(session.client().resume(&session.env, &scope, &author()).await)?;
    terminal.out.answer(&done, |out| match &done.before {
        Some(before) => {
            let (pause, revision) = (&before.pause, done.revision);
            out.line(format_args!("{scope} is resumed (revision {revision}); it was paused {pause}"));
        }
        None => out.line(format_args!("{scope} was not paused")),
    });
    for other in &done.remaining {
        terminal.notes.note(format_args!("still paused: {}", other.paused));
    }
    Ok(Exit::Yes)
}

pub(super) async fn list(_: &ListArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let page = session.map_err(session.client().pauses(&session.env).await)?;
    let now = terminal.now;
    terminal.out.answer(&page, |out| {
        if page.items.is_empty() {
            return;
        }
        let mut table = Table::new(["SCOPE", "NODES", "BY", "FOR", "ENDS IN", "REASON"]);
        for PauseRow { paused, nodes } in &page.items {
            let pause = &paused.pause;
            table.row([
                paused.scope.to_string(),
                nodes.to_string(),
                pause.by.clone(),
                age(pause.since, now),
                ends(pause.until, now),
                pause.reason.clone(),
            ]);
        }
        out.table(table);
    });
    if page.items.is_empty() {
        terminal.notes.note(format_args!("nothing is paused in {}", session.env));
    }
    Ok(Exit::Yes)
}

fn ends(until: Option<Timestamp>, now: Timestamp) -> String {
    until.map_or_else(|| "-".to_owned(), |until| age(now, until))
}
