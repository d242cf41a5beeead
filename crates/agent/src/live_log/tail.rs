//! A file that is being written, read line by line as it grows; never more of it than fits.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

/// Whoever is further behind than this skips what is between: it is a log to look at, and the report brings the rest.
const BEHIND: u64 = 256 * 1024;
/// Where the reader goes on then, from the end.
const AGAIN: u64 = 64 * 1024;
/// Of a longer line only so much is given: what is shown of it is far less, and what is cut off could be half a secret.
const LINE: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct Tail {
    path: PathBuf,
    file: Option<File>,
    at: u64,
    /// The beginning of a line whose end is not there yet.
    begun: Vec<u8>,
    /// What comes up to the end of the line is not given.
    skip_line: bool,
}

/// What a look at the file brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looked {
    /// That was all, for now.
    AtTheEnd,
    /// There is more.
    More,
}

impl Tail {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, file: None, at: 0, begun: Vec::new(), skip_line: false }
    }

    /// Gives the lines that have come, reading about `limit` bytes at most. A file that is not there yet has none.
    pub(super) fn look(&mut self, limit: usize, mut take: impl FnMut(&[u8])) -> Looked {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else { return Looked::AtTheEnd };
        let length = file.metadata().map_or(0, |found| found.len());
        if length.saturating_sub(self.at) > BEHIND {
            let to = length - AGAIN;
            take(format!("… {} KiB left out …", (to - self.at) / 1024).as_bytes());
            self.at = to;
            self.begun.clear();
            // The first line from there on has lost its beginning.
            self.skip_line = true;
        }
        let mut read = Vec::new();
        let got = file.seek(SeekFrom::Start(self.at)).and_then(|_| file.take(limit as u64).read_to_end(&mut read));
        if got.is_err() {
            return Looked::AtTheEnd;
        }
        self.at += read.len() as u64;
        for piece in read.split_inclusive(|byte| *byte == b'\n') {
            let ends = piece.ends_with(b"\n");
            if !self.skip_line {
                self.begun.extend_from_slice(piece);
                if ends || self.begun.len() >= LINE {
                    give(&mut self.begun, &mut take);
                    self.skip_line = !ends;
                }
            } else if ends {
                self.skip_line = false;
            }
        }
        if self.at < length { Looked::More } else { Looked::AtTheEnd }
    }

    /// Gives the last line, if nobody has ended it: nobody will any more.
    pub(super) fn finish(&mut self, mut take: impl FnMut(&[u8])) {
        give(&mut self.begun, &mut take);
    }
}

fn give(begun: &mut Vec<u8>, take: &mut impl FnMut(&[u8])) {
    let line = begun.trim_ascii_end();
    if !line.is_empty() {
        take(line);
    }
    begun.clear();
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn lines(tail: &mut Tail, limit: usize) -> (Vec<String>, Looked) {
        let mut lines = Vec::new();
        let looked = tail.look(limit, |line| lines.push(String::from_utf8_lossy(line).into_owned()));
        (lines, looked)
    }

    #[test]
    fn lines_are_given_when_they_are_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut tail = Tail::new(path.clone());
        assert_eq!(lines(&mut tail, 100), (vec![], Looked::AtTheEnd), "it is not there yet");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"one\ntw").unwrap();
        assert_eq!(lines(&mut tail, 100).0, ["one"]);
        file.write_all(b"o\n\nthree").unwrap();
        assert_eq!(lines(&mut tail, 100).0, ["two"]);
        let mut last = Vec::new();
        tail.finish(|line| last.push(line.to_vec()));
        assert_eq!(last, [b"three"]);
    }

    #[test]
    fn a_little_is_read_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "one\ntwo\nthree\n").unwrap();
        let mut tail = Tail::new(path);
        assert_eq!(lines(&mut tail, 5), (vec!["one".to_owned()], Looked::More));
        assert_eq!(lines(&mut tail, 100), (vec!["two".to_owned(), "three".to_owned()], Looked::AtTheEnd));
    }

    #[test]
    fn whoever_is_far_behind_skips_and_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "0123456789abcde\n".repeat(1024 * 1024 / 16)).unwrap();
        let mut tail = Tail::new(path);
        let (lines, looked) = lines(&mut tail, 1024 * 1024);
        assert_eq!(lines[0], "… 960 KiB left out …");
        assert_eq!((lines.len(), looked), (64 * 1024 / 16, Looked::AtTheEnd), "but for the one that is cut");
    }

    #[test]
    fn only_the_beginning_of_an_endless_line_is_given() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, format!("{}\nnext\n", "x".repeat(200_000))).unwrap();
        let mut tail = Tail::new(path);
        let mut all = Vec::new();
        loop {
            let (lines, looked) = lines(&mut tail, 1000);
            all.extend(lines);
            assert!(tail.begun.len() < LINE + 1000);
            if looked == Looked::AtTheEnd {
                break;
            }
        }
        assert_eq!((all.len(), all[0].len(), all[1].as_str()), (2, 66_000, "next"));
    }
}
