//! `muster rollout history`: lists the rollouts of an environment.

use jiff::Timestamp;
use muster_core::rollout::record::RolloutPhase;
use muster_core::txn::Revision;
use muster_wire::rollout::RolloutRow;
use serde::Serialize;

use crate::args::Globals;
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Table, Terminal, age, duration, version_cell};

use super::status_view::{pause_reason, rollback_reason};

/// List the rollouts of the environment, newest first
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   success
  1   the environment does not exist
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster rollout history
  muster rollout history --limit 3
  muster rollout history -o json | jq -r '.items[] | [.id, .to, .phase] | @tsv'")]
pub struct Args {
    /// Maximum number of rollouts
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let mut page = session.map_err(session.client().rollouts(&session.env).await)?;
    let older = page.items.len().saturating_sub(args.limit);
    page.items.truncate(args.limit);
    let now = terminal.now;
    let rows = page.items.iter().map(|row| HistoryRow { row, note: note(row) }).collect();
    let history = History { items: rows, next: &page.next, revision: page.revision };
    terminal.out.answer(&history, |out| {
        if history.items.is_empty() {
            return;
        }
        let mut table =
            Table::new(["ID", "FROM", "TO", "PHASE", "STARTED", "TOOK", "HEALTHY", "BY", "NOTE"]).color_column(3);
        history.items.iter().for_each(|row| table.row(cells(row, now)));
        out.table(table);
    });
    match (page.items.len(), older) {
        (0, 0) => terminal.notes.note(format_args!("{} has no rollouts yet", session.env)),
        (_, 0) => {}
        (_, older) => terminal.notes.note(format_args!("{older} older rollouts; show more with --limit")),
    }
    Ok(Exit::Yes)
}

#[derive(Debug, Serialize)]
struct History<'a> {
    items: Vec<HistoryRow<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: &'a Option<String>,
    revision: Revision,
}

#[derive(Debug, Serialize)]
struct HistoryRow<'a> {
    #[serde(flatten)]
    row: &'a RolloutRow,
    /// Its kind, and the reason of its phase.
    note: String,
}

fn cells(HistoryRow { row, note }: &HistoryRow<'_>, now: Timestamp) -> [String; 9] {
    let took = match row.phase.is_open() {
        true => String::new(),
        false => duration(row.phase_since.duration_since(row.started)),
    };
    [
        row.id.to_string(),
        // A rollback reverts nodes from several versions.
        version_cell(row.from.as_ref().filter(|_| row.rolls_back.is_none())),
        row.to.to_string(),
        row.phase.word().to_owned(),
        age(row.started, now),
        took,
        row.healthy.to_string(),
        row.by.clone(),
        note.clone(),
    ]
}

fn note(row: &RolloutRow) -> String {
    let phase = match &row.phase {
        RolloutPhase::Running | RolloutPhase::Completed => String::new(),
        RolloutPhase::Paused { why } => pause_reason(why),
        RolloutPhase::Aborted { by, reason } if reason.is_empty() => format!("by {by}"),
        RolloutPhase::Aborted { by, reason } => format!("by {by}: {reason}"),
        RolloutPhase::RolledBack { by, why } => format!("by rollout {by}: {}", rollback_reason(why)),
        RolloutPhase::Superseded { by } => format!("by rollout {by}"),
    };
    let kind = match (row.rolls_back, row.at_once) {
        (Some(id), _) => format!("rolls back rollout {id}"),
        (None, true) => "at once".to_owned(),
        (None, false) => String::new(),
    };
    [kind, phase].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
}
