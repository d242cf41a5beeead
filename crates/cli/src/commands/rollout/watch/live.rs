//! A rollout on a terminal: its table, redrawn in place.

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use muster_core::names::EnvName;
use muster_wire::rollout::RolloutStatus;

use super::super::status_view;

/// More rows than this do not fit a screen; waves that have passed give way first, then those that have not begun.
const ROWS: usize = 14;

pub(super) struct Live {
    screen: MultiProgress,
    bars: Vec<ProgressBar>,
}

impl Live {
    pub(super) fn new() -> Self {
        Self { screen: MultiProgress::new(), bars: Vec::new() }
    }

    pub(super) fn show(&mut self, env: &EnvName, status: &RolloutStatus) {
        let lines = lines(env, status);
        while self.bars.len() < lines.len() {
            self.bars.push(self.screen.add(plain_bar()));
        }
        self.bars.drain(lines.len()..).for_each(|bar| bar.finish_and_clear());
        for (bar, line) in self.bars.iter().zip(lines) {
            bar.set_message(line);
        }
    }

    /// Takes the lines away; what stays on the screen is printed by others.
    pub(super) fn end(&self) {
        // A terminal that is gone cannot be cleared, and need not be.
        let _ = self.screen.clear();
    }
}

/// What is on the screen.
fn lines(env: &EnvName, status: &RolloutStatus) -> Vec<String> {
    let mut lines = vec![status_view::headline(env, status), String::new()];
    let rows: Vec<String> = status_view::table(status).lines(None).collect();
    let first_open =
        status.waves.iter().position(|wave| wave.state.as_ref().is_none_or(|state| state.passed.is_none()));
    let passed: usize = status.waves.iter().take(first_open.unwrap_or(0)).map(|wave| wave.counts.len()).sum();
    let (heading, body) = rows.split_first().map_or(("", &[][..]), |(heading, body)| (heading.as_str(), body));
    lines.push(heading.to_owned());
    // The last one that has passed stays: it says where this is.
    let skipped = if body.len() > ROWS { passed.saturating_sub(1).min(body.len() - ROWS) } else { 0 };
    if skipped > 0 {
        lines.push(format!("… {skipped} rows of waves that have passed"));
    }
    lines.extend(body.iter().skip(skipped).take(ROWS).cloned());
    let left = body.len().saturating_sub(skipped + ROWS);
    if left > 0 {
        lines.push(format!("… {left} rows of waves to come"));
    }
    for part in [status_view::failed_lines(status), status_view::holds(status)] {
        if !part.is_empty() {
            lines.push(String::new());
            lines.extend(part.into_iter().take(ROWS / 2));
        }
    }
    lines
}

fn plain_bar() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar
}
