//! Lines that come again and again are counted: Facter, for one, says the same thing eighteen times.

/// What a log has said last, and how often since.
#[derive(Debug, Default)]
pub(crate) struct Repetition {
    last: String,
    again: usize,
}

impl Repetition {
    /// Takes a line; gives what is to be written for it, which is nothing as long as it only comes again.
    pub(crate) fn line(&mut self, line: String) -> Vec<String> {
        if line == self.last {
            self.again += 1;
            return Vec::new();
        }
        let mut lines: Vec<String> = self.counted().into_iter().collect();
        self.last.clone_from(&line);
        lines.push(line);
        lines
    }

    /// How often the last line came again, if it did and nobody was told.
    pub(crate) fn counted(&mut self) -> Option<String> {
        match std::mem::take(&mut self.again) {
            0 => None,
            1 => Some("  (once more)".to_owned()),
            times => Some(format!("  ({times} times more)")),
        }
    }
}
