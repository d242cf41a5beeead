//! The fleet on a terminal: one line a node that changes in place.

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use jiff::Timestamp;
use muster_core::node::status::NodeState;
use muster_wire::operator::NodeRow;

use crate::terminal::age;

use super::line::line;

/// More lines than this do not fit a screen; the nodes that are validated give way first.
const LINES: usize = 20;

#[derive(Debug)]
pub(super) struct Live {
    screen: MultiProgress,
    bars: Vec<ProgressBar>,
    rest: ProgressBar,
}

impl Live {
    pub(super) fn new() -> Self {
        let screen = MultiProgress::new();
        let rest = screen.add(plain());
        Self { screen, bars: Vec::new(), rest }
    }

    pub(super) fn show(&mut self, rows: &[NodeRow], now: Timestamp) {
        let mut shown: Vec<&NodeRow> = rows.iter().collect();
        if shown.len() > LINES {
            shown.sort_by_key(|row| row.state == NodeState::Validated);
            shown.truncate(LINES);
        }
        while self.bars.len() < shown.len() {
            self.bars.push(self.screen.insert_before(&self.rest, plain()));
        }
        let width = shown.iter().map(|row| row.node.as_str().len()).max().unwrap_or(0);
        // Nodes that have left leave their lines.
        self.bars.drain(shown.len()..).for_each(|bar| bar.finish_and_clear());
        for (bar, row) in self.bars.iter().zip(&shown) {
            let mark = match row.state {
                NodeState::Validated => "✔",
                NodeState::Failed | NodeState::Invalid | NodeState::Unprovisioned | NodeState::Blocked => "✘",
                NodeState::Pending | NodeState::Silent | NodeState::Outdated => "·",
                NodeState::Leaving => "◂",
                NodeState::Provisioning | NodeState::Applying | NodeState::Validating | NodeState::Configured => "▸",
            };
            let age = row.since.map(|since| format!("  {}", age(since, now))).unwrap_or_default();
            bar.set_message(format!("{mark} {:width$}  {}{age}", row.node, line(row)));
        }
        let validated = rows.iter().filter(|row| row.state == NodeState::Validated).count();
        let leaving = rows.iter().filter(|row| row.state == NodeState::Leaving).count();
        let going = if leaving > 0 { format!(", {leaving} leaving") } else { String::new() };
        self.rest.set_message(format!("{validated} of {} validated{going}", rows.len() - leaving));
    }

    /// Takes the lines away; what stays on the screen is printed by others.
    pub(super) fn end(&self) {
        // A terminal that is gone cannot be cleared, and need not be.
        let _ = self.screen.clear();
    }
}

fn plain() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar
}
