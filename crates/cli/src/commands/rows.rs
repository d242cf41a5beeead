//! The cells that several verbs show.

use jiff::Timestamp;
use muster_core::names::Version;
use muster_core::node::status::Reason;
use muster_wire::operator::NodeRow;

use crate::terminal::{Table, age};

/// Stands in a cell for what is not there.
pub(super) const NONE: &str = "-";

/// Nodes as a table.
pub(super) fn table(rows: &[NodeRow], now: Timestamp) -> Table {
    let mut table = Table::new(["NODE", "STATE", "FOR", "RUNS", "WHY"]).painted(1);
    for row in rows {
        table.row([
            row.node.to_string(),
            row.state.as_str().to_owned(),
            since(row.since, now),
            version(row.running.as_ref()),
            row.reason.as_ref().map(|reason| why(reason, now)).unwrap_or_default(),
        ]);
    }
    table
}

/// "1 node", "2 nodes".
pub(super) fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

pub(super) fn version(version: Option<&Version>) -> String {
    version.map_or_else(|| NONE.to_owned(), Version::to_string)
}

pub(super) fn since(since: Option<Timestamp>, now: Timestamp) -> String {
    since.map_or_else(|| NONE.to_owned(), |since| age(since, now))
}

/// Why a node is not where it should be; for a failure also what comes next.
pub(super) fn why(why: &Reason, now: Timestamp) -> String {
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
        Reason::Waiting { retry: Some(at), .. } => format!("{why}; looks again in {}", age(now, *at)),
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
