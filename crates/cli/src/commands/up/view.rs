//! Shows the nodes of a fleet that starts: redrawn lines on a terminal, one line per change elsewhere.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::names::NodeName;
use muster_core::node::status::{NodeState, Reason};
use muster_wire::operator::NodeRow;

use crate::commands::fleet_progress::is_about_to_run;
use crate::output::age;

/// Lines that fit a screen; validated nodes are left out first.
const LINES: usize = 20;

/// The state of a node on one line. A transcript prints a node again only if this line changes.
fn node_line(row: &NodeRow) -> String {
    let version = row.desired.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
    match (row.state, &row.reason) {
        (NodeState::Applying | NodeState::Validating | NodeState::Validated | NodeState::Configured, _) => {
            let unchecked = if row.checks == Some(0) { " (0 checks)" } else { "" };
            format!("{}{version}{unchecked}", row.state.label())
        }
        (NodeState::Provisioning, _) => "starting".to_owned(),
        (NodeState::Leaving, Some(why)) => format!("leaving: {why}"),
        (NodeState::Pending, _) if is_about_to_run(row) => "pending, about to run".to_owned(),
        (word, Some(why)) => format!("{}{version}: {why}{}", word.label(), retry(why)),
        (word, None) => word.label().to_owned(),
    }
}

fn retry(why: &Reason) -> String {
    if let Reason::Failed { attempt, retry: Some(_), .. } = why {
        format!(" (attempt {attempt}; retries automatically)")
    } else {
        String::new()
    }
}

/// The lines for a terminal.
pub(super) fn live_lines(rows: &[NodeRow], now: Timestamp) -> Vec<String> {
    let mut shown: Vec<&NodeRow> = rows.iter().collect();
    if shown.len() > LINES {
        shown.sort_by_key(|row| row.state == NodeState::Validated);
        shown.truncate(LINES);
    }
    let width = shown.iter().map(|row| row.node.as_str().len()).max().unwrap_or(0);
    let mut lines: Vec<String> = shown
        .iter()
        .map(|row| {
            let mark = match row.state {
                NodeState::Validated => "✔",
                NodeState::Failed | NodeState::Invalid | NodeState::Unprovisioned | NodeState::Blocked => "✘",
                NodeState::Pending | NodeState::Silent | NodeState::Outdated => "·",
                NodeState::Leaving => "◂",
                NodeState::Provisioning | NodeState::Applying | NodeState::Validating | NodeState::Configured => "▸",
            };
            let age = row.since.map(|since| format!("  {}", age(since, now))).unwrap_or_default();
            format!("{mark} {:width$}  {}{age}", row.node, node_line(row))
        })
        .collect();
    let validated = rows.iter().filter(|row| row.state == NodeState::Validated).count();
    let leaving = rows.iter().filter(|row| row.state == NodeState::Leaving).count();
    let suffix = if leaving > 0 { format!(", {leaving} leaving") } else { String::new() };
    lines.push(format!("{validated} of {} validated{suffix}", rows.len() - leaving));
    lines
}

/// Prints each change once, with the time since the start.
#[derive(Debug)]
pub(in crate::commands) struct FleetTranscript {
    began: Timestamp,
    printed: BTreeMap<NodeName, String>,
    /// Prints all states, also those that last for milliseconds when a fleet starts.
    all_states: bool,
    /// The text for a node that is missing now.
    missing: &'static str,
}

impl FleetTranscript {
    pub(super) fn new(began: Timestamp) -> Self {
        let missing = "gone: its machine was released";
        Self { began, printed: BTreeMap::new(), all_states: false, missing }
    }

    /// For a list of nodes, which a filter may limit.
    pub(in crate::commands) fn of_list(began: Timestamp, is_filtered: bool) -> Self {
        let missing = if is_filtered { "no longer matches" } else { "is no longer in the environment" };
        Self { all_states: true, missing, ..Self::new(began) }
    }

    /// Records the current state without printing it.
    pub(super) fn skip(&mut self, rows: &[NodeRow]) {
        self.printed = rows.iter().map(|row| (row.node.clone(), node_line(row))).collect();
    }

    /// The lines of nodes that have changed.
    pub(in crate::commands) fn changes(&mut self, rows: &[NodeRow], now: Timestamp) -> Vec<String> {
        let width = rows.iter().map(|row| row.node.as_str().len()).max().unwrap_or(0);
        let seconds = now.duration_since(self.began).as_secs_f64();
        let mut lines = Vec::new();
        let gone = |name: &NodeName| !rows.iter().any(|row| row.node == *name);
        for name in self.printed.keys().filter(|name| gone(name)).cloned().collect::<Vec<_>>() {
            lines.push(format!("{seconds:6.1}s  {name:width$}  {}", self.missing));
            self.printed.remove(&name);
        }
        for row in rows {
            let text = node_line(row);
            let is_news = match row.state {
                _ if self.all_states => true,
                // These states last for milliseconds only, before the first connection and before a run.
                NodeState::Outdated => false,
                NodeState::Silent => self.printed.contains_key(&row.node),
                NodeState::Pending => !is_about_to_run(row),
                NodeState::Leaving
                | NodeState::Provisioning
                | NodeState::Unprovisioned
                | NodeState::Applying
                | NodeState::Validating
                | NodeState::Failed
                | NodeState::Invalid
                | NodeState::Blocked
                | NodeState::Configured
                | NodeState::Validated => true,
            };
            if is_news && self.printed.get(&row.node) != Some(&text) {
                lines.push(format!("{seconds:6.1}s  {:width$}  {text}", row.node));
                self.printed.insert(row.node.clone(), text);
            }
        }
        lines
    }
}
