//! `muster item …`: the documents of an environment's design on the server, one by one.

pub(super) mod delete;
pub(super) mod get;
pub(super) mod list;
pub(super) mod put;
mod split;

use crate::terminal::Terminal;
use muster_wire::design::DocumentChangesResponse;

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    List(list::Args),
    Get(get::Args),
    Put(put::Args),
    Delete(delete::Args),
}

/// Says what became of a change: it is in the design, and the nodes do not follow it yet.
fn accepted(
    accepted: &DocumentChangesResponse,
    dry_run: bool,
    env: &muster_core::names::EnvName,
    terminal: &mut Terminal,
) {
    terminal.notes.findings(&accepted.findings);
    let design = accepted.design.map_or_else(|| "none".to_owned(), |design| design.to_string());
    terminal.out.answer(accepted, |out| match (dry_run, accepted.changed) {
        (true, _) => out.line("it would be accepted; nothing was changed"),
        (false, false) => out.line(format_args!("the design is so already: nothing was changed (design {design})")),
        (false, true) => out.line(format_args!("{env} has a new design, {design} (revision {})", accepted.revision)),
    });
    if accepted.changed {
        terminal.notes.note(format_args!("nodes follow it with `muster env apply {env}`"));
    }
}
