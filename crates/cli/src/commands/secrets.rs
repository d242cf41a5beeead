//! `muster secrets …`: the keys that seal secrets.

use muster_wire::secrets::SecretsStatus;

use crate::args::Globals;
use crate::connect::ServerConnection;
use crate::failure::{Exit, Failure};
use crate::output::{Out, Table, Terminal, count};
use crate::variables::author;

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    Status(StatusArgs),
    Rotate(RotateArgs),
}

/// Show the keys that seal secrets, and the secrets that the server cannot open
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Neither keys nor values are shown. A key that seals no secret is still needed to restore older backups.

Exit codes:
  0   all secrets are sealed and can be opened
  1   some cannot be opened, or no secret can be sealed
  2   unknown: the server cannot be reached

Examples:
  muster secrets status
  muster secrets status -o json | jq '.unopened[]'")]
pub struct StatusArgs {}

/// Make a new key and seal all secrets with it
///
/// The new key is added to the file of --secrets-key of the server. With several servers it is used as soon as all of them have
/// it: copy the file to the others. Older keys stay in the file, since older backups need them. No node runs again.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A rotation that was interrupted continues by itself, when the server starts again.

Exit codes:
  0   all secrets are sealed with the new key
  1   refused, or incomplete: the output says what is missing
  2   unknown: `muster secrets status` shows the state

Examples:
  muster secrets rotate")]
pub struct RotateArgs {}

pub(super) async fn status(_: &StatusArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let server = ServerConnection::find(globals)?;
    let status = server.client.secrets().await.map_err(|error| server.failure(error))?;
    terminal.out.answer(&status, |out| show(&status, out));
    Ok(finish(&status, terminal))
}

pub(super) async fn rotate(_: &RotateArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let server = ServerConnection::find(globals)?;
    let rotated = server.client.rotate_secrets(&author()).await.map_err(|error| server.failure(error))?;
    terminal.out.answer(&rotated, |out| {
        match &rotated.made {
            Some(id) => out.line(format_args!("made key {id} in {}", rotated.status.file)),
            None => out.line(format_args!("an earlier rotation is incomplete and was continued: no key was made")),
        }
        out.gap();
        show(&rotated.status, out);
    });
    let exit = finish(&rotated.status, terminal);
    terminal
        .notes
        .note("keep a copy of the file with the keys, apart from backups: without it a backup has no secrets");
    Ok(exit)
}

fn show(status: &SecretsStatus, out: &mut Out) {
    let mut table = Table::new(["KEY", "SEALS", "SECRETS"]);
    for key in &status.keys {
        let seals = if key.seals { "yes" } else { "" };
        table.row([key.id.to_string(), seals.to_owned(), key.secrets.to_string()]);
    }
    out.table(table);
    if !status.unopened.is_empty() {
        out.gap();
        let mut table = Table::new(["UNOPENED", "LAYER", "ENV", "REASON"]);
        for row in &status.unopened {
            table.row([row.key.to_string(), row.layer.to_string(), row.env.to_string(), row.reason.clone()]);
        }
        out.table(table);
    }
}

/// Notes about what is missing, and the exit code.
fn finish(status: &SecretsStatus, terminal: &mut Terminal) -> Exit {
    if let Some(problem) = &status.problem {
        terminal.notes.note(problem);
    }
    let waiting = status.remaining + status.unsealed;
    if waiting > 0 {
        terminal.notes.note(format_args!("{} are being sealed with the current key", count(waiting, "secret")));
    }
    if !status.unopened.is_empty() {
        terminal.notes.note(format_args!(
            "nodes that look up an unopened secret are pending; add its key to {} on the server, or set the secret again",
            status.file
        ));
    }
    if status.problem.is_none() && waiting == 0 && status.unopened.is_empty() { Exit::Yes } else { Exit::No }
}
