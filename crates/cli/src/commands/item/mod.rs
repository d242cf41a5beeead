//! `muster item …`: reads and writes single documents of a design on the server.

pub(super) mod delete;
pub(super) mod list;
pub(super) mod put;

use muster_core::design::DesignRevision;
use muster_core::names::EnvName;
use muster_wire::design::DocumentChangesResponse;

use crate::args::{Globals, OutputFormat};
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::Terminal;

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    List(list::Args),
    Get(GetArgs),
    Put(put::Args),
    Delete(delete::Args),
}

/// Prints the result of a change. It is in the design, but not applied to nodes yet.
fn show_accepted(accepted: &DocumentChangesResponse, dry_run: bool, env: &EnvName, terminal: &mut Terminal) {
    terminal.notes.findings(&accepted.findings);
    let design = accepted.design.map_or_else(|| "none".to_owned(), |design| design.to_string());
    terminal.out.answer(accepted, |out| match (dry_run, accepted.changed) {
        (true, _) => out.line("the change would be accepted; nothing was changed"),
        (false, false) => {
            out.line(format_args!("no changes: the design already has these documents (design {design})"))
        }
        (false, true) => out.line(format_args!("{env} has a new design, {design} (revision {})", accepted.revision)),
    });
    if accepted.changed {
        terminal.notes.note(format_args!("apply it to nodes with `muster env apply {env}`"));
    }
}

/// Show one document of the design: the text of each source, and the effective values
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
--if-match of `put` and `delete` takes the etag.

Exit codes:
  0   success
  1   the document or environment does not exist
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster item get Network oob
  muster item get Network oob --design 3
  muster item get Node web1 -o json | jq .effective
  muster item get promenade/Docker/v1 docker -o json | jq -r .etag")]
pub struct GetArgs {
    /// Kind of the document, such as Network
    kind: String,
    /// Name of the document
    name: String,
    /// Revision of the design [default: the newest]
    #[arg(long, value_name = "N", value_parser = crate::commands::item::list::design_revision_arg)]
    design: Option<DesignRevision>,
}

pub(super) async fn get(args: &GetArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let detail = session.map_err(session.client().document(&session.env, &args.kind, &args.name, args.design).await)?;
    // Documents are YAML, also for people.
    let format = if globals.output == OutputFormat::Table { OutputFormat::Yaml } else { globals.output };
    terminal.out.answer_as(format, &detail, |_| {});
    Ok(Exit::Yes)
}
