//! `muster item …`: reads and writes single documents of a design on the server.

pub(super) mod delete;
pub(super) mod get;
pub(super) mod list;
pub(super) mod put;

use muster_core::names::EnvName;
use muster_wire::design::DocumentChangesResponse;

use crate::output::Terminal;

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    List(list::Args),
    Get(get::Args),
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
