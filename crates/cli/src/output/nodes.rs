//! Tables and cells that show nodes and their runs.

use jiff::Timestamp;
use muster_core::names::Version;
use muster_core::node::status::Reason;
use muster_core::report::{Outcome, Verdict};
use muster_wire::operator::NodeRow;

use super::{Table, age, count};

/// The text of an empty cell.
pub const NONE: &str = "-";

/// Nodes with state, version and reason.
pub fn node_table(rows: &[NodeRow], now: Timestamp) -> Table {
    let mut table = Table::new(["NODE", "STATE", "FOR", "RUNS", "WHY"]).color_column(1);
    for row in rows {
        table.row([
            row.node.to_string(),
            row.state.as_str().to_owned(),
            row.since.map_or_else(|| NONE.to_owned(), |since| age(since, now)),
            version_cell(row.running.as_ref()),
            row.reason.as_ref().map(|reason| reason_text(reason, now)).unwrap_or_default(),
        ]);
    }
    table
}

pub fn version_cell(version: Option<&Version>) -> String {
    version.map_or_else(|| NONE.to_owned(), Version::to_string)
}

/// The reason that a node is not validated, with the next retry of a failed run.
pub fn reason_text(why: &Reason, now: Timestamp) -> String {
    match why {
        Reason::Failed { errors, attempt, retry, .. } => {
            let mut text = why.to_string();
            if errors.len() > 1 {
                text.push_str(&format!(", and {}", count(errors.len() - 1, "more error")));
            }
            match (attempt, retry) {
                (_, Some(at)) => text.push_str(&format!("; attempt {} in {}", attempt + 1, age(now, *at))),
                (2.., None) => text.push_str(&format!("; attempt {attempt}")),
                (_, None) => {}
            }
            text
        }
        Reason::Waiting { retry: Some(at), .. } => format!("{why}; retries in {}", age(now, *at)),
        Reason::Leaving { .. }
        | Reason::Machine { .. }
        | Reason::Silent
        | Reason::Running { .. }
        | Reason::NoVersion
        | Reason::Behind { .. }
        | Reason::Paused { .. }
        | Reason::Waiting { retry: None, .. }
        | Reason::Blocked { .. }
        | Reason::NotValidated
        | Reason::Restarted => why.to_string(),
    }
}

/// The result of a run in one word.
pub fn run_result(outcome: Outcome) -> String {
    match outcome {
        Outcome::Configured(result) => result.word().to_owned(),
        Outcome::Previewed(result) => format!("preview: {}", result.word()),
        Outcome::Validated(Verdict::Passed) => "validated".to_owned(),
        Outcome::Validated(Verdict::Failed) => "invalid".to_owned(),
    }
}
