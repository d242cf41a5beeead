//! Lines on a terminal that are redrawn in place.

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// A block of lines at the end of the screen.
#[derive(Debug)]
pub struct LiveLines {
    screen: MultiProgress,
    bars: Vec<ProgressBar>,
}

impl LiveLines {
    pub fn new() -> Self {
        Self { screen: MultiProgress::new(), bars: Vec::new() }
    }

    /// Replaces the lines on the screen.
    pub fn show(&mut self, lines: Vec<String>) {
        while self.bars.len() < lines.len() {
            self.bars.push(self.screen.add(line()));
        }
        self.bars.drain(lines.len()..).for_each(|bar| bar.finish_and_clear());
        for (bar, line) in self.bars.iter().zip(lines) {
            bar.set_message(line);
        }
    }

    /// Removes the lines from the screen.
    pub fn clear(&self) {
        // A terminal that was closed need not be cleared.
        let _ = self.screen.clear();
    }
}

impl Default for LiveLines {
    fn default() -> Self {
        Self::new()
    }
}

fn line() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar
}
