//! One node in one line, the same on a terminal and in a transcript.

use muster_core::node::status::{NodeState, Reason};
use muster_core::report::reason::Need;
use muster_wire::operator::NodeRow;

/// What is said of a node. Two rows with equal lines differ in nothing that a reader of a transcript cares about.
pub(super) fn line(row: &NodeRow) -> String {
    let version = row.desired.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
    match (row.state, &row.reason) {
        (NodeState::Applying | NodeState::Validating | NodeState::Validated | NodeState::Configured, _) => {
            format!("{}{version}", row.state.as_str())
        }
        (NodeState::Provisioning, _) => "starting".to_owned(),
        (NodeState::Leaving, Some(why)) => format!("leaving: {why}"),
        (NodeState::Pending, _) if is_about_to_run(row) => "pending, about to run".to_owned(),
        (word, Some(why)) => format!("{}{version}: {why}{}", word.as_str(), retry(why)),
        (word, None) => word.as_str().to_owned(),
    }
}

/// Whether everything that a pending node waits for is there by now.
pub(super) fn is_about_to_run(row: &NodeRow) -> bool {
    let is_met = |need: &Need| matches!(need, Need::Role { want, have, .. } if have >= want);
    matches!(&row.reason, Some(Reason::Waiting { needs, .. }) if needs.iter().all(is_met))
}

fn retry(why: &Reason) -> String {
    if let Reason::Failed { attempt, retry: Some(_), .. } = why {
        format!(" (attempt {attempt}; tries again by itself)")
    } else {
        String::new()
    }
}
