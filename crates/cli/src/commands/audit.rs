//! `muster audit`: shows, follows and verifies the audit.

use jiff::{SignedDuration, Timestamp};
use muster_core::audit::{AuditChange, AuditRecord, AuditValue};
use muster_wire::audit::{AuditQuery, VerifyAuditQuery};

use crate::args::{Globals, OutputFormat, duration_arg};
use crate::connect::{ServerConnection, is_retryable};
use crate::failure::{Exit, Failure};
use crate::output::{Terminal, count};

/// Seconds that the server waits for a new record.
const WAIT: u16 = 25;

/// Show who changed what: every change by a person, every decision of a controller
#[derive(Clone, Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Each record has the time, the environment, who and from where, the operation, the changed keys with their values before and \
after, and the reason. Secrets are left out. With --env only records of that environment are shown.
With -o json every record is a line.

Exit codes:
  0   success
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster audit --since 1h
  muster audit --node web1 --by ann
  muster audit -f -o json | jq -r '[.at, .actor.name, .action] | @tsv'
  muster audit verify"
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Only records about this node
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Only records of this user, or controller
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Only records of the last TIME, such as 30m, 2h or 7d
    #[arg(long, value_name = "TIME", value_parser = duration_arg)]
    since: Option<SignedDuration>,
    /// Most records to show; the newest ones
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
    /// Go on with new records
    #[arg(short, long)]
    follow: bool,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    Verify(VerifyArgs),
}

/// Check that no record was changed, removed, replaced or moved
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Each record has the hash of the record before it. Someone who can write to the store could make all hashes again: to notice \
that, keep the printed hash in another place, and give it with --hash later.

Exit codes:
  0   all records are there and unchanged
  1   a record was changed, removed, replaced or moved
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster audit verify
  muster audit verify --hash 5f0c…")]
pub(crate) struct VerifyArgs {
    /// Hash of an earlier verification, whose record must still be there
    #[arg(long, value_name = "HASH")]
    hash: Option<String>,
}

pub(super) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let server = ServerConnection::find(globals)?;
    if let Some(Command::Verify(args)) = &args.command {
        return verify(args, &server, terminal).await;
    }
    let env = globals.env.as_ref();
    let since = args.since.map(|since| terminal.now.saturating_sub(since).unwrap_or(Timestamp::MIN));
    let (node, by) = (args.node.clone(), args.by.clone());
    let mut query = AuditQuery { node, by, since, limit: Some(args.limit), ..AuditQuery::default() };
    let mut page = server.client.audit(env, &query).await.map_err(|error| server.failure(error))?;
    if globals.output == OutputFormat::Yaml && !args.follow {
        terminal.out.answer(&page, |_| {});
        return Ok(Exit::Yes);
    }
    loop {
        for record in &page.items {
            match globals.output {
                OutputFormat::Json | OutputFormat::Yaml => {
                    terminal.out.line(format_args!("{}", serde_json::to_string(record).unwrap_or_default()));
                }
                OutputFormat::Table => show(record, terminal),
            }
        }
        if page.damaged {
            terminal.notes.note(format_args!("records are missing or were changed: `muster audit verify` shows which"));
        }
        if !args.follow {
            return Ok(Exit::Yes);
        }
        // The next record may be hours away.
        terminal.out.flush();
        query = AuditQuery { after: Some(page.next), since: None, limit: None, wait: Some(WAIT), ..query };
        page = loop {
            match server.client.audit(env, &query).await {
                Ok(page) => break page,
                Err(error) if is_retryable(&error) => tokio::time::sleep(std::time::Duration::from_secs(1)).await,
                Err(error) => return Err(server.failure(error)),
            }
        };
    }
}

fn show(record: &AuditRecord, terminal: &mut Terminal) {
    let AuditRecord { at, env, actor, from, action, changes, why, .. } = record;
    let env = env.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
    let why = why.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
    let at = at.strftime("%F %T");
    terminal.out.line(format_args!("{at}  {env}  {} from {from}: {action}{why}", actor.name()));
    for AuditChange { key, before, after } in changes {
        let verb = match (before, after) {
            (None, _) => "created",
            (Some(_), None) => "deleted",
            (Some(_), Some(_)) => "changed",
        };
        let value = |value: &Option<AuditValue>| match value {
            None => String::new(),
            Some(AuditValue::Value(value)) => value.to_string(),
            Some(AuditValue::Digest(digest)) => format!("(long, sha256 {})", &digest[..digest.len().min(12)]),
        };
        terminal.out.line(format_args!("    {verb} {key}"));
        for (sign, text) in [("-", value(before)), ("+", value(after))] {
            if !text.is_empty() {
                terminal.out.line(format_args!("      {sign} {text}"));
            }
        }
    }
}

async fn verify(args: &VerifyArgs, server: &ServerConnection, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let query = VerifyAuditQuery { hash: args.hash.clone() };
    let result = server.client.verify_audit(&query).await.map_err(|error| server.failure(error))?;
    terminal.out.answer(&result, |out| {
        for problem in &result.problems {
            out.line(format_args!("{problem}"));
        }
        let records = count(usize::try_from(result.records).unwrap_or(usize::MAX), "record");
        match (&result.problems[..], &result.hash) {
            ([], Some(hash)) => {
                out.line(format_args!("{records}, none changed or missing; the last one has the hash {hash}"))
            }
            ([], None) => out.line(format_args!("{records}")),
            (problems, _) => out.line(format_args!("{records}, {}", count(problems.len(), "defect"))),
        }
    });
    Ok(if result.problems.is_empty() { Exit::Yes } else { Exit::No })
}
