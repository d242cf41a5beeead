//! `muster rollout history`: what was moved, when, by whom, and how it ended.

use jiff::Timestamp;
use muster_core::rollout::record::RolloutPhase;
use muster_wire::rollout::RolloutRow;

use crate::args::Globals;
use crate::commands::rows::version;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::{Table, Terminal, age, duration};

use super::status_view::{because, taken_back};

/// List the rollouts of the environment, the newest first
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   they were listed
  1   there is no such environment
  2   cannot tell: the server is not there, or is not up to date

Examples:
  muster rollout history
  muster rollout history --limit 3
  muster rollout history -o json | jq -r '.items[] | [.id, .to, .phase] | @tsv'")]
pub struct Args {
    /// So many of the newest
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let mut page = session.told(session.client().rollouts(&session.env).await)?;
    let older = page.items.len().saturating_sub(args.limit);
    page.items.truncate(args.limit);
    let now = terminal.now;
    terminal.out.answer(&page, |out| {
        if page.items.is_empty() {
            return;
        }
        let mut table = Table::new(["ID", "FROM", "TO", "STATE", "STARTED", "TOOK", "HEALTHY", "BY", "WHY"]).painted(3);
        page.items.iter().for_each(|row| table.row(cells(row, now)));
        out.table(table);
    });
    match (page.items.len(), older) {
        (0, 0) => terminal.notes.note(format_args!("no rollout was started in {} yet", session.env)),
        (_, 0) => {}
        (_, older) => terminal.notes.note(format_args!("{older} older; --limit shows more")),
    }
    Ok(Exit::Yes)
}

fn cells(row: &RolloutRow, now: Timestamp) -> [String; 9] {
    let took = match row.phase.is_open() {
        true => String::new(),
        false => duration(row.phase_since.duration_since(row.started)),
    };
    [
        row.id.to_string(),
        // Those that a rollback moves come from several versions.
        version(row.from.as_ref().filter(|_| row.rolls_back.is_none())),
        row.to.to_string(),
        row.phase.word().to_owned(),
        age(row.started, now),
        took,
        row.healthy.to_string(),
        row.by.clone(),
        why(row),
    ]
}

fn why(row: &RolloutRow) -> String {
    let phase = match &row.phase {
        RolloutPhase::Running | RolloutPhase::Completed => String::new(),
        RolloutPhase::Paused { why } => because(why),
        RolloutPhase::Aborted { by, reason } if reason.is_empty() => format!("by {by}"),
        RolloutPhase::Aborted { by, reason } => format!("by {by}: {reason}"),
        RolloutPhase::RolledBack { by, why } => format!("by rollout {by}: {}", taken_back(why)),
        RolloutPhase::Superseded { by } => format!("by rollout {by}"),
    };
    let what = match (row.rolls_back, row.at_once) {
        (Some(id), _) => format!("takes rollout {id} back"),
        (None, true) => "at once".to_owned(),
        (None, false) => String::new(),
    };
    [what, phase].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
}
