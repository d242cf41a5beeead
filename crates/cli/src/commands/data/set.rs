//! `muster data set`: sets a datum, unless somebody else changes it at the same time.

use std::io::Read;

use anyhow::Context;
use muster_core::names::DataKey;
use muster_core::txn::Revision;
use muster_wire::client::DatumPrecondition;
use muster_wire::data::SetDatum;
use muster_wire::problem::ProblemCode;
use serde_json::Value;

use crate::args::Globals;
use crate::author::author;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::Terminal;

use super::LayerArgs;

/// Set configuration data for all nodes, for a role or for one node: host beats role beats global
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A VALUE that is JSON is taken as what it says; anything else is taken as text, and a note says so. The nodes whose last \
run looked the key up, and that see another value now, run again; nobody else does.

What is there is read first, and changed only if it is still the same then: of two people who change one datum at the \
same time, one is told what the other did.

Exit codes:
  0   it is set; or was so already
  1   refused: no such role or node, too large, or somebody else was faster
  2   cannot tell: ask again, which is safe

Examples:
  muster data set ntp_servers '[\"10.0.0.1\"]' --role web
  muster data set nova::debug true --host web1 --message 'looking for the timeout'
  pass show db | muster data set db::password - --secret --role db")]
pub struct Args {
    /// The key, as content looks it up
    #[arg(value_parser = super::key)]
    key: DataKey,
    /// The value, as JSON or as text; `-` reads it from standard input
    #[arg(allow_hyphen_values = true)]
    value: String,
    #[command(flatten)]
    layer: LayerArgs,
    /// Show it to nodes, and to nobody else: it becomes Sensitive in Puppet
    #[arg(long)]
    secret: bool,
    /// Why, for those who find it
    #[arg(short, long, value_name = "TEXT")]
    message: Option<String>,
    /// Only over the value of this revision, which `muster data get` shows
    #[arg(long, value_name = "N", conflicts_with = "new")]
    if_revision: Option<u64>,
    /// Only if it is not there yet
    #[arg(long)]
    new: bool,
    /// Even if no node has this role or this name yet
    #[arg(long)]
    force: bool,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let text = read(&args.value)?;
    let value = match serde_json::from_str::<Value>(&text) {
        Ok(value) => value,
        // Nobody means a text that begins like a list or a mapping: it is one that was cut off, or eaten by a shell.
        Err(error) if text.trim_start().starts_with(['[', '{', '"']) => {
            return Err(Failure::usage(format!("the value is not JSON, although it begins like it: {error}")).hint(
                "put it into single quotes for your shell; a text that begins so is JSON too, in double quotes",
            ));
        }
        Err(_) => {
            let text = text.strip_suffix('\n').unwrap_or(&text);
            terminal.notes.note("the value is not JSON, and is taken as text");
            Value::from(text)
        }
    };
    let session = Session::open(globals).await?;
    let (layer, key) = (args.layer.layer(), &args.key);
    let before = match (args.if_revision, args.new) {
        (Some(revision), _) => DatumPrecondition::At(Revision(revision)),
        (None, true) => DatumPrecondition::Nothing,
        (None, false) => match session.client().datum(&session.env, &layer, key).await {
            Ok(there) => DatumPrecondition::At(there.changed_at),
            Err(error) if error.problem().is_some_and(|problem| problem.code == ProblemCode::UnknownDatum) => {
                DatumPrecondition::Nothing
            }
            Err(error) => return Err(session.server.failure(error)),
        },
    };
    let set = SetDatum { value, secret: args.secret, message: args.message.clone(), force: args.force };
    let done = session.client().set_datum(&session.env, (&layer, key), &set, before, &author()).await;
    let done = session.told(done)?;
    terminal.out.answer(&done, |out| {
        let (layer, value, revision) = (&done.datum.layer, super::value(&done.datum), done.revision);
        if done.changed {
            out.line(format_args!("{key} ({layer}) is {value} (revision {revision})"));
        } else {
            out.line(format_args!("{key} ({layer}) is {value} already"));
        }
    });
    if done.datum.for_nobody {
        terminal.notes.note(format_args!("no node of the design sees it yet: {layer}"));
    }
    Ok(Exit::Yes)
}

/// The value as it was given; `-` is standard input, so that a secret need not stand in the list of processes.
fn read(value: &str) -> Result<String, Failure> {
    if value != "-" {
        return Ok(value.to_owned());
    }
    let mut text = String::new();
    let read = std::io::stdin().read_to_string(&mut text).map(|_| text);
    read.context("cannot read the value from standard input").map_err(Failure::failed)
}
