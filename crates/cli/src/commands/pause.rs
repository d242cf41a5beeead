//! `muster pause`, `muster resume` and `muster pauses`: nodes that are not to run.

use clap::ArgGroup;
use jiff::{SignedDuration, Timestamp};
use muster_core::names::{NodeName, Role};
use muster_core::node::pause::PauseScope;
use muster_wire::data::{PauseRow, SetPause};

use crate::args::Globals;
use crate::author::author;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::{Table, Terminal, age};

use super::data::{node, role};
use super::rows::count;

/// Keep nodes from running: of a role, one node, or all
#[derive(Clone, Debug, clap::Args)]
#[command(group = ArgGroup::new("whom").required(true), after_help = "\
A run that is under way goes on to its end. Validations go on, and so does what others count on: a paused node stays in \
service. A pause of the same nodes takes the place of the one before; several for different ones add up.

Exit codes:
  0   they are paused
  1   refused: there is no such role or node
  2   cannot tell: ask again, which is safe

Examples:
  muster pause --role db --reason 'disk swap' --for 2h
  muster pause --host web1 --reason 'looking into the timeout'
  muster pause --all --reason 'network maintenance' --for 90m")]
pub struct PauseArgs {
    #[command(flatten)]
    whom: Whom,
    /// Why: shown to everybody who finds these nodes standing still
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// It ends by itself after so long, such as 90s, 30m, 2h or 3d [default: when it is ended]
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    lasts: Option<SignedDuration>,
    /// Even if no node has this role or this name yet
    #[arg(long)]
    force: bool,
}

/// End a pause; where there is none, nothing is changed
#[derive(Clone, Debug, clap::Args)]
#[command(group = ArgGroup::new("whom").required(true), after_help = "\
Exit codes:
  0   it has ended; or there was none
  1   there is no such environment
  2   cannot tell: ask again, which is safe

Examples:
  muster resume --role db
  muster resume --all")]
pub struct ResumeArgs {
    #[command(flatten)]
    whom: Whom,
}

/// List the pauses that hold nodes back, by whom and why
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   they were listed
  1   there is no such environment
  2   cannot tell: the server is not there, or is not up to date

Examples:
  muster pauses
  muster pauses -o json | jq '.items[].reason'")]
pub struct ListArgs {}

/// Which nodes.
#[derive(Clone, Debug, clap::Args)]
struct Whom {
    /// The nodes of a role
    #[arg(long, value_name = "ROLE", value_parser = role, group = "whom")]
    role: Option<Role>,
    /// One node
    #[arg(long, value_name = "NODE", value_parser = node, group = "whom")]
    host: Option<NodeName>,
    /// All nodes of the environment
    #[arg(long, group = "whom")]
    all: bool,
}

impl Whom {
    fn scope(&self) -> PauseScope {
        match (&self.role, &self.host) {
            (Some(role), _) => PauseScope::Role { role: role.clone() },
            (None, Some(node)) => PauseScope::Host { node: node.clone() },
            (None, None) => PauseScope::Global,
        }
    }
}

/// `90s`, `30m`, `2h`, `3d`; or any of them in a row.
fn duration(text: &str) -> Result<SignedDuration, String> {
    let wrong = || "expected a time such as 90s, 30m, 2h or 3d".to_owned();
    let span: jiff::Span = text.parse().map_err(|_| wrong())?;
    let long = span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).map_err(|_| wrong())?;
    if long >= SignedDuration::from_secs(1) { Ok(long) } else { Err(wrong()) }
}

pub(super) async fn pause(args: &PauseArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let seconds = args.lasts.map(|long| u64::try_from(long.as_secs()).unwrap_or(u64::MAX));
    let set = SetPause { reason: args.reason.clone(), seconds, force: args.force };
    let done = session.client().pause(&session.env, &args.whom.scope(), &set, &author()).await;
    let done = session.told(done)?;
    terminal.out.answer(&done, |out| {
        let PauseRow { paused, nodes } = &done.pause;
        let lasts = paused.pause.until.map_or_else(
            || "until somebody ends it".to_owned(),
            |until| format!("until {}", until.strftime("%Y-%m-%d %H:%M:%S UTC")),
        );
        let (scope, nodes, revision) = (&paused.scope, count(*nodes, "node"), done.revision);
        out.line(format_args!("{scope} is paused {lasts}: {nodes} (revision {revision})"));
    });
    if let Some(before) = &done.before {
        terminal.notes.note(format_args!("it took the place of another pause: {before}"));
    }
    Ok(Exit::Yes)
}

pub(super) async fn resume(args: &ResumeArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let scope = args.whom.scope();
    let done = session.told(session.client().resume(&session.env, &scope, &author()).await)?;
    terminal.out.answer(&done, |out| match &done.before {
        Some(before) => out.line(format_args!("ended: {before} (revision {})", done.revision)),
        None => out.line(format_args!("{scope} was not paused")),
    });
    for other in &done.still {
        terminal.notes.note(format_args!("still: {}", other.paused));
    }
    Ok(Exit::Yes)
}

pub(super) async fn list(_: &ListArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let page = session.told(session.client().pauses(&session.env).await)?;
    let now = terminal.now;
    terminal.out.answer(&page, |out| {
        if page.items.is_empty() {
            return;
        }
        let mut table = Table::new(["PAUSED", "NODES", "BY", "FOR", "ENDS IN", "REASON"]);
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
