//! Follows a growing file line by line, with limits.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

/// A reader that is further behind than this skips ahead. The report contains the rest.
const MAX_LAG: u64 = 256 * 1024;
/// Distance from the end at which the reader continues then.
const RESUME_AT: u64 = 64 * 1024;
/// Longer lines are cut. Far less of a line is shown, and the cut part could be half a secret.
const MAX_LINE: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct FileTail {
    path: PathBuf,
    file: Option<File>,
    at: u64,
    /// Beginning of an incomplete line.
    partial: Vec<u8>,
    /// Skip the rest of the current line.
    skip_line: bool,
}

/// Result of reading a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadProgress {
    /// At the current end of the file.
    AtEnd,
    /// There is more.
    More,
}

impl FileTail {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, file: None, at: 0, partial: Vec::new(), skip_line: false }
    }

    /// Passes on new lines, reading about `limit` bytes at most. A missing file has none.
    pub(super) fn read(&mut self, limit: usize, mut handle: impl FnMut(&[u8])) -> ReadProgress {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else { return ReadProgress::AtEnd };
        let length = file.metadata().map_or(0, |found| found.len());
        if length.saturating_sub(self.at) > MAX_LAG {
            let to = length - RESUME_AT;
            handle(format!("… {} KiB left out …", (to - self.at) / 1024).as_bytes());
            self.at = to;
            self.partial.clear();
            // The first line has lost its beginning.
            self.skip_line = true;
        }
        let mut read = Vec::new();
        let got = file.seek(SeekFrom::Start(self.at)).and_then(|_| file.take(limit as u64).read_to_end(&mut read));
        if got.is_err() {
            return ReadProgress::AtEnd;
        }
        self.at += read.len() as u64;
        for piece in read.split_inclusive(|byte| *byte == b'\n') {
            let ends = piece.ends_with(b"\n");
            if !self.skip_line {
                self.partial.extend_from_slice(piece);
                if ends || self.partial.len() >= MAX_LINE {
                    flush(&mut self.partial, &mut handle);
                    self.skip_line = !ends;
                }
            } else if ends {
                self.skip_line = false;
            }
        }
        if self.at < length { ReadProgress::More } else { ReadProgress::AtEnd }
    }

    /// Passes on the last line if it has no line end.
    pub(super) fn finish(&mut self, mut handle: impl FnMut(&[u8])) {
        flush(&mut self.partial, &mut handle);
    }
}

fn flush(partial: &mut Vec<u8>, handle: &mut impl FnMut(&[u8])) {
    let line = partial.trim_ascii_end();
    if !line.is_empty() {
        handle(line);
    }
    partial.clear();
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn lines(tail: &mut FileTail, limit: usize) -> (Vec<String>, ReadProgress) {
        let mut lines = Vec::new();
        let progress = tail.read(limit, |line| lines.push(String::from_utf8_lossy(line).into_owned()));
        (lines, progress)
    }

    #[test]
    fn only_complete_lines_are_passed_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut tail = FileTail::new(path.clone());
        assert_eq!(lines(&mut tail, 100), (vec![], ReadProgress::AtEnd), "the file does not exist yet");
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
    fn reads_are_limited() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "one\ntwo\nthree\n").unwrap();
        let mut tail = FileTail::new(path);
        assert_eq!(lines(&mut tail, 5), (vec!["one".to_owned()], ReadProgress::More));
        assert_eq!(lines(&mut tail, 100), (vec!["two".to_owned(), "three".to_owned()], ReadProgress::AtEnd));
    }

    #[test]
    fn reader_that_lags_behind_skips_ahead() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "0123456789abcde\n".repeat(1024 * 1024 / 16)).unwrap();
        let mut tail = FileTail::new(path);
        let (lines, progress) = lines(&mut tail, 1024 * 1024);
        assert_eq!(lines[0], "… 960 KiB left out …");
        assert_eq!((lines.len(), progress), (64 * 1024 / 16, ReadProgress::AtEnd), "without the cut line");
    }

    #[test]
    fn endless_line_is_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, format!("{}\nnext\n", "x".repeat(200_000))).unwrap();
        let mut tail = FileTail::new(path);
        let mut all = Vec::new();
        loop {
            let (lines, progress) = lines(&mut tail, 1000);
            all.extend(lines);
            assert!(tail.partial.len() < MAX_LINE + 1000);
            if progress == ReadProgress::AtEnd {
                break;
            }
        }
        assert_eq!((all.len(), all[0].len(), all[1].as_str()), (2, 66_000, "next"));
    }
}
