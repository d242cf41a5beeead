//! The fleet where nobody looks: one line for each change, with the time since the start.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::names::NodeName;
use muster_core::node::status::NodeState;
use muster_wire::operator::NodeRow;

use super::line::{is_about_to_run, line};

#[derive(Debug)]
pub(super) struct Transcript {
    began: Timestamp,
    said: BTreeMap<NodeName, String>,
}

impl Transcript {
    pub(super) fn new(began: Timestamp) -> Self {
        Self { began, said: BTreeMap::new() }
    }

    /// Notes how things stand without saying it.
    pub(super) fn skip(&mut self, rows: &[NodeRow]) {
        self.said = rows.iter().map(|row| (row.node.clone(), line(row))).collect();
    }

    /// The lines of what has changed.
    pub(super) fn changes(&mut self, rows: &[NodeRow], now: Timestamp) -> Vec<String> {
        let width = rows.iter().map(|row| row.node.as_str().len()).max().unwrap_or(0);
        let seconds = now.duration_since(self.began).as_secs_f64();
        let mut lines = Vec::new();
        let gone = |name: &NodeName| !rows.iter().any(|row| row.node == *name);
        for name in self.said.keys().filter(|name| gone(name)).cloned().collect::<Vec<_>>() {
            lines.push(format!("{seconds:6.1}s  {name:width$}  gone: its machine was released"));
            self.said.remove(&name);
        }
        for row in rows {
            let text = line(row);
            let news = match row.state {
                // That a node has not begun with what it should do lasts for milliseconds, and says nothing.
                NodeState::Outdated => false,
                // So does that it is not there yet, and that what it waits for has come.
                NodeState::Silent => self.said.contains_key(&row.node),
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
            if news && self.said.get(&row.node) != Some(&text) {
                lines.push(format!("{seconds:6.1}s  {:width$}  {text}", row.node));
                self.said.insert(row.node.clone(), text);
            }
        }
        lines
    }
}
