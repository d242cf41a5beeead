//! One node in one line, the same on a terminal and in a transcript.

use muster_core::reason::Need;
use muster_core::standing::{Why, Word};
use muster_wire::operator::NodeRow;

/// What is said of a node. Two rows with equal lines differ in nothing that a reader of a transcript cares about.
pub(super) fn line(row: &NodeRow) -> String {
    let version = row.desired.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
    match (row.standing, &row.why) {
        (Word::Applying | Word::Validating | Word::Validated | Word::Configured, _) => {
            format!("{}{version}", row.standing.as_str())
        }
        (Word::Provisioning, _) => "starting".to_owned(),
        (Word::Leaving, Some(why)) => format!("leaving: {why}"),
        (Word::Pending, _) if is_about_to_run(row) => "pending, about to run".to_owned(),
        (word, Some(why)) => format!("{}{version}: {why}{}", word.as_str(), retry(why)),
        (word, None) => word.as_str().to_owned(),
    }
}

/// Whether everything that a pending node waits for is there by now.
pub(super) fn is_about_to_run(row: &NodeRow) -> bool {
    let is_met = |need: &Need| matches!(need, Need::Role { want, have, .. } if have >= want);
    matches!(&row.why, Some(Why::Waiting { needs, .. }) if needs.iter().all(is_met))
}

fn retry(why: &Why) -> String {
    if let Why::Failed { attempt, retry: Some(_), .. } = why {
        format!(" (attempt {attempt}; tries again by itself)")
    } else {
        String::new()
    }
}
