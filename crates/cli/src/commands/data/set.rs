//! `muster data set`: sets a datum of a layer; a concurrent change is a conflict.

use std::io::{IsTerminal, Read};
use std::path::PathBuf;

use anyhow::Context;
use muster_core::names::DataKey;
use muster_core::txn::Revision;
use muster_wire::client::DatumPrecondition;
use muster_wire::data::SetDatum;
use muster_wire::problem::ProblemCode;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr};
use serde_json::Value;

use crate::args::Globals;
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::Terminal;
use crate::variables::author;

use super::LayerArgs;

/// Set configuration data for all nodes, a role or one node: host overrides role, role overrides global
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A VALUE that is valid JSON is stored as JSON; anything else is stored as a string, and a note says so. Nodes whose last run \
looked the key up and whose value has changed run again; other nodes do not.

The current value is read first, and the write is a compare-and-swap: of two concurrent changes one is refused, and its \
error shows the other one.

Exit codes:
  0   set, or unchanged
  1   refused: no such role or node, too large, or a conflict
  2   unknown: retry, which is safe

Examples:
  muster data set ntp_servers '[\"10.0.0.1\"]' --role web
  muster data set nova::debug true --host web1 --message 'looking for the timeout'
  muster data set db::password --secret --role db
  pass show db | muster data set db::password - --secret --role db")]
pub struct Args {
    /// Key, as releases look it up
    #[arg(value_parser = super::key_arg)]
    key: DataKey,
    /// Value, as JSON or as text; `-` reads it from standard input
    ///
    /// A secret is never an argument, which other users of the machine could see: without VALUE it is asked for, or read from
    /// standard input.
    #[arg(allow_hyphen_values = true, required_unless_present_any = ["secret", "from_file"])]
    value: Option<String>,
    /// Read the value from a file
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    from_file: Option<PathBuf>,
    #[command(flatten)]
    layer: LayerArgs,
    /// Seal the value, and show it to nodes in scope only; it becomes Sensitive in Puppet
    #[arg(long)]
    secret: bool,
    /// Reason for the value
    #[arg(short, long, value_name = "TEXT")]
    message: Option<String>,
    /// Only replace the value of this revision, which `muster data get` shows
    #[arg(long, value_name = "N", conflicts_with = "new")]
    if_revision: Option<u64>,
    /// Only if the key is not set yet
    #[arg(long)]
    new: bool,
    /// Allow a role or node that the design does not have yet
    #[arg(long)]
    force: bool,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let text = read_value(args, terminal)?;
    if args.secret && text.trim().is_empty() {
        return Err(Failure::usage(format!("the value of {} is empty, and nothing was changed", args.key))
            .hint("the command that should print the secret may have failed; an empty secret is the JSON text \"\""));
    }
    let value = match serde_json::from_str::<Value>(&text) {
        Ok(value) => value,
        // Text that starts like JSON is most likely JSON that was truncated or changed by the shell.
        Err(error) if text.trim_start().starts_with(['[', '{', '"']) => {
            return Err(Failure::usage(format!("the value starts like JSON but cannot be parsed: {error}")).hint(
                "put it into single quotes for the shell; write a string that starts like this as JSON, in double quotes",
            ));
        }
        Err(_) => {
            let text = text.strip_suffix('\n').unwrap_or(&text);
            terminal.notes.note("the value is not JSON and is stored as a string");
            Value::from(text)
        }
    };
    let session = Session::open(globals).await?;
    let (layer, key) = (args.layer.layer(&session).await?, &args.key);
    let before = match (args.if_revision, args.new) {
        (Some(revision), _) => DatumPrecondition::At(Revision(revision)),
        (None, true) => DatumPrecondition::Nothing,
        (None, false) => match session.client().datum(&session.env, &layer, key).await {
            Ok(datum) => DatumPrecondition::At(datum.changed_at),
            Err(error) if error.problem().is_some_and(|problem| problem.code == ProblemCode::UnknownDatum) => {
                DatumPrecondition::Nothing
            }
            Err(error) => return Err(session.server.failure(error)),
        },
    };
    let set = SetDatum { value, secret: args.secret, message: args.message.clone(), force: args.force };
    let done = session.client().set_datum(&session.env, (&layer, key), &set, before, &author()).await;
    let done = session.map_err(done)?;
    terminal.out.answer(&done, |out| {
        let (layer, value, revision) = (&done.datum.layer, super::value(&done.datum), done.revision);
        if done.changed {
            out.line(format_args!("{key} ({layer}) is {value} (revision {revision})"));
        } else {
            out.line(format_args!("{key} ({layer}) is {value} already"));
        }
    });
    if done.datum.matches_no_node {
        terminal.notes.note(format_args!("no node of the design uses this value yet: {layer}"));
    }
    Ok(Exit::Yes)
}

/// Reads the value. Arguments are visible in the list of processes, which secrets must not be.
fn read_value(args: &Args, terminal: &mut Terminal) -> Result<String, Failure> {
    if let Some(path) = &args.from_file {
        let read = std::fs::read_to_string(path);
        return read.with_context(|| format!("cannot read {}", path.display())).map_err(Failure::failed);
    }
    match args.value.as_deref() {
        Some(value) if value != "-" && args.secret => {
            let key = &args.key;
            Err(Failure::usage("a secret cannot be an argument: other users of this machine see it in the list of processes")
                .hint(format!("pass it on standard input: `… | muster data set {key} - --secret`; or leave VALUE out, and it is asked for")))
        }
        Some(value) if value != "-" => Ok(value.to_owned()),
        None if std::io::stdin().is_terminal() => {
            terminal.notes.note(format_args!("value of {} (it is not shown):", args.key));
            read_hidden_line().context("cannot read the value from the terminal").map_err(Failure::failed)
        }
        Some(_) | None => {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text).map(|_| text);
            read.context("cannot read the value from standard input").map_err(Failure::failed)
        }
    }
}

/// Reads a line from the terminal without showing it. Ctrl-C ends the line as a character, so that the terminal never stays
/// without echo.
fn read_hidden_line() -> std::io::Result<String> {
    const CTRL_C: u8 = 3;
    let stdin = std::io::stdin();
    let before = tcgetattr(&stdin)?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO | LocalModes::ISIG);
    hidden.special_codes[SpecialCodeIndex::VEOL] = CTRL_C;
    tcsetattr(&stdin, OptionalActions::Flush, &hidden)?;
    let mut line = Vec::new();
    let mut byte = [0];
    let mut reader = stdin.lock();
    let read = loop {
        match reader.read(&mut byte) {
            Ok(0) => break Ok(()),
            Ok(_) if byte[0] == CTRL_C => break Err(std::io::ErrorKind::Interrupted.into()),
            Ok(_) if byte[0] == b'\n' => break Ok(()),
            Ok(_) => line.push(byte[0]),
            Err(error) => break Err(error),
        }
    };
    tcsetattr(std::io::stdin(), OptionalActions::Now, &before)?;
    read?;
    String::from_utf8(line).map_err(std::io::Error::other)
}
