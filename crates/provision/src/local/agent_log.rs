//! The agent's log: appended to by the agent, kept from growing for ever, and quoted when the agent does not stay up.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use muster_core::report::summary::clip;

/// A log over this is moved aside when the agent is started. With the one before it, that is the last weeks of a machine
/// that is well, and the last hours of one that is not.
const LONGEST: u64 = 8 * 1024 * 1024;
/// What fits on a screen beside other machines' troubles.
const QUOTED_LINES: usize = 4;
const QUOTED_LINE: usize = 300;
/// Where the end of a log is looked for.
const TAIL: u64 = 16 * 1024;

/// Opens the log for another start of the agent, and tells how long it is now.
pub(super) fn open(path: &Path) -> io::Result<(File, u64)> {
    if fs::metadata(path).is_ok_and(|log| log.len() > LONGEST) {
        fs::rename(path, before(path))?;
    }
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let length = file.metadata()?.len();
    Ok((file, length))
}

fn before(path: &Path) -> PathBuf {
    let mut before = path.as_os_str().to_owned();
    before.push(".1");
    before.into()
}

/// The last lines that were written since the log was `from` bytes long, on one line.
pub(super) fn end_of(path: &Path, from: u64) -> io::Result<String> {
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

/// Without colours and other commands to a terminal: what a log says must not be able to act on who reads it.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' && characters.next_if_eq(&'[').is_some() {
            // A sequence ends with its first letter.
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
    fn the_end_is_quoted_without_what_was_there_before() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("agent.log");
        fs::write(&path, "an older start\n").unwrap();
        let (_, from) = open(&path).unwrap();
        assert_eq!(end_of(&path, from).unwrap(), "");

        fs::write(&path, "an older start\n1\n2\n\n3\n\u{1b}[31mERROR\u{1b}[0m port\ttaken\n5").unwrap();
        assert_eq!(end_of(&path, from).unwrap(), "2 | 3 | ERROR port taken | 5");

        fs::write(&path, "x".repeat(100_000)).unwrap();
        assert!(end_of(&path, from).unwrap().len() <= QUOTED_LINE);
        fs::write(&path, "").unwrap();
        assert_eq!(end_of(&path, from).unwrap(), "", "somebody has emptied it");
    }

    #[test]
    fn a_long_log_is_moved_aside() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("agent.log");
        File::create(&path).unwrap().set_len(LONGEST + 1).unwrap();
        let (_, length) = open(&path).unwrap();
        assert_eq!(length, 0);
        assert_eq!(fs::metadata(before(&path)).unwrap().len(), LONGEST + 1);
    }
}
