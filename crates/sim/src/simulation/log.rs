//! What happened, in lines that a person reads; and a number that stands for all of them.

use std::fmt;

use super::agenda::Moment;

/// The lines of one world. Two worlds with the same number have told the same story.
#[derive(Clone, Debug)]
pub struct EventLog {
    lines: Vec<String>,
    hash: u64,
}

/// FNV-1a: a few lines that are the same for ever, as the dice are.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

impl Default for EventLog {
    fn default() -> Self {
        Self { lines: Vec::new(), hash: BASIS }
    }
}

impl EventLog {
    pub(crate) fn say(&mut self, at: Moment, what: fmt::Arguments<'_>) {
        let line = format!("{:>5}.{:03}s  {what}", at.as_secs(), at.subsec_millis());
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(PRIME);
        }
        self.lines.push(line);
    }

    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// The last lines, for whoever has to find out what went wrong.
    pub fn last(&self, count: usize) -> &[String] {
        &self.lines[self.lines.len().saturating_sub(count)..]
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_lines_have_the_same_number_and_others_have_not() {
        let told = |words: &[&str]| {
            let mut log = EventLog::default();
            words.iter().for_each(|word| log.say(Moment::from_millis(1_234), format_args!("{word}")));
            log
        };
        assert_eq!(told(&["a", "b"]).hash(), told(&["a", "b"]).hash());
        assert_ne!(told(&["a", "b"]).hash(), told(&["b", "a"]).hash());
        assert_eq!(told(&["a"]).lines(), ["    1.234s  a"]);
    }
}
