//! The agent's log: rotated at a start, and quoted if the agent does not stay up.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use muster_core::report::summary::clip;

/// A larger log is rotated when the agent starts. Two logs cover weeks of a healthy machine and hours of a broken one.
const MAX_SIZE: u64 = 8 * 1024 * 1024;
/// Size of a quotation, for a list of several machines.
const QUOTED_LINES: usize = 4;
const QUOTED_LINE: usize = 300;
/// Size of the end of a log that is read for a quotation.
const TAIL: u64 = 16 * 1024;

/// Opens the log for a start of the agent. Returns its current length.
pub(super) fn open(path: &Path) -> io::Result<(File, u64)> {
    if fs::metadata(path).is_ok_and(|log| log.len() > MAX_SIZE) {
        fs::rename(path, rotated(path))?;
    }
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let length = file.metadata()?.len();
    Ok((file, length))
}

fn rotated(path: &Path) -> PathBuf {
    let mut rotated = path.as_os_str().to_owned();
    rotated.push(".1");
    rotated.into()
}

/// The last lines after byte `from`, joined to one line.
pub(super) fn last_lines(path: &Path, from: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(from.max(length.saturating_sub(TAIL)).min(length)))?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes)?;
    let text = plain(&String::from_utf8_lossy(&bytes));
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = lines[lines.len().saturating_sub(QUOTED_LINES)..].iter().map(|line| clip(line, QUOTED_LINE));
    Ok(last.collect::<Vec<_>>().join(" | "))
}

/// Removes colours and other control sequences, so that a log cannot control the reader's terminal.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' && characters.next_if_eq(&'[').is_some() {
            // A sequence ends with the first letter.
            while characters.next().is_some_and(|character| !character.is_ascii_alphabetic()) {}
        } else if character == '\t' {
            plain.push(' ');
        } else if character == '\n' || !character.is_control() {
            plain.push(character);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotation_has_only_lines_since_the_start() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("agent.log");
        fs::write(&path, "an older start\n").unwrap();
        let (_, from) = open(&path).unwrap();
        assert_eq!(last_lines(&path, from).unwrap(), "");

        fs::write(&path, "an older start\n1\n2\n\n3\n\u{1b}[31mERROR\u{1b}[0m port\ttaken\n5").unwrap();
        assert_eq!(last_lines(&path, from).unwrap(), "2 | 3 | ERROR port taken | 5");

        fs::write(&path, "x".repeat(100_000)).unwrap();
        assert!(last_lines(&path, from).unwrap().len() <= QUOTED_LINE);
        fs::write(&path, "").unwrap();
        assert_eq!(last_lines(&path, from).unwrap(), "", "the log was truncated");
    }

    #[test]
    fn large_log_is_rotated() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("agent.log");
        File::create(&path).unwrap().set_len(MAX_SIZE + 1).unwrap();
        let (_, length) = open(&path).unwrap();
        assert_eq!(length, 0);
        assert_eq!(fs::metadata(rotated(&path)).unwrap().len(), MAX_SIZE + 1);
    }
}
