//! The log of a run for people, limited to its beginning and its end.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use muster_core::report::log_time::{split_time, with_time};
use muster_core::report::summary::clip;

use crate::applier::{PuppetLogLine, in_release};
use crate::redact::Redactor;
use crate::run::content_files::for_each_line;
use crate::run::directory::RunDirectory;

/// Size of the log in a report, in bytes.
const LIMIT: usize = 64 * 1024;
/// Size of each of the two ends. The whole log is in the run's directory on the node.
const HALF: usize = LIMIT / 2 - 100;
pub(crate) const LINE: usize = 4 * 1024;

/// A log that keeps its beginning and its end, and counts repeated lines.
#[derive(Debug, Default)]
pub struct BoundedLog {
    head: String,
    tail: VecDeque<String>,
    tail_size: usize,
    left_out: usize,
    repeats: RepeatCounter,
    secrets: Redactor,
}

impl BoundedLog {
    /// A log from which these secrets are redacted.
    pub fn redacting(secrets: &Redactor) -> Self {
        Self { secrets: secrets.clone(), ..Self::default() }
    }

    pub fn line(&mut self, line: &str) {
        for line in self.repeats.line(clip(&self.secrets.text(line.trim_end()), LINE)) {
            self.add(line);
        }
    }

    /// Adds the lines of a file that are not empty, each after `prefix`. A missing file has none.
    pub fn add_file(&mut self, path: &Path, prefix: &str) {
        for_each_line(path, |text| self.line(&format!("{prefix}{}", String::from_utf8_lossy(text))));
    }

    fn add(&mut self, line: String) {
        let size = line.len() + 1;
        if self.tail.is_empty() && self.head.len() + size <= HALF {
            self.head.push_str(&line);
            self.head.push('\n');
            return;
        }
        self.tail.push_back(line);
        self.tail_size += size;
        while self.tail_size > HALF {
            let Some(first) = self.tail.pop_front() else { break };
            self.tail_size -= first.len() + 1;
            self.left_out += 1;
        }
    }

    pub fn finish(mut self) -> String {
        if let Some(counted) = self.repeats.take_count() {
            self.add(counted);
        }
        let mut text = self.head;
        if self.left_out > 0 {
            text.push_str(&format!("… {} lines left out …\n", self.left_out));
        }
        for line in self.tail {
            text.push_str(&line);
            text.push('\n');
        }
        text
    }
}

/// The log of the applier: Puppet's log, then the output of the program.
pub fn applier_log(directory: &RunDirectory, release: &Path, secrets: &Redactor) -> BoundedLog {
    let mut log = BoundedLog::redacting(secrets);
    for_each_line(&directory.puppet_log(), |text| match PuppetLogLine::parse(text) {
        Some(line) if !line.is_for_people() => {}
        // A diff has several lines, and so may a secret in it.
        Some(line) => secrets.text(&readable(&line, release)).lines().for_each(|line| log.line(line)),
        None => log.line(&String::from_utf8_lossy(text)),
    });
    log.add_file(&directory.output(), "");
    log
}

/// `2027-01-15T08:00:01Z notice: /Stage[main]/Db: message (modules/db/manifests/init.pp:7)`; a message of several lines follows
/// on its own lines.
pub(crate) fn readable(line: &PuppetLogLine, release: &Path) -> String {
    let text = readable_text(line, release);
    match line.time.as_deref().and_then(|time| time.parse().ok()) {
        Some(at) => with_time(at, &text),
        None => text,
    }
}

fn readable_text(line: &PuppetLogLine, release: &Path) -> String {
    let source = line.source.as_deref().filter(|source| *source != "Puppet");
    let source = source.map(|source| format!("{source}: ")).unwrap_or_default();
    let place = match (&line.file, line.line) {
        (Some(file), Some(number)) => format!(" ({}:{number})", in_release(file, release)),
        (Some(file), None) => format!(" ({})", in_release(file, release)),
        (None, _) => String::new(),
    };
    let (level, message) = (&line.level, line.message.trim_matches('\n').trim_end());
    if message.contains('\n') {
        let begin = format!("{level}: {source}");
        let below = message.lines().map(|line| format!("\n  {line}"));
        return format!("{}{place}{}", begin.trim_end_matches([':', ' ']), below.collect::<String>());
    }
    format!("{level}: {source}{}{place}", message.trim())
}

/// The last line of a file that is not empty.
pub fn last_line(path: &Path) -> Option<String> {
    last_lines(path, 1).pop()
}

/// The last `count` lines of a file that are not empty.
pub fn last_lines(path: &Path, count: usize) -> Vec<String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|mut file| {
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(HALF as u64)))?;
        file.take(HALF as u64).read_to_end(&mut bytes)
    });
    if read.is_err() {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(&bytes);
    let mut lines: Vec<_> =
        text.lines().map(str::trim_end).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    lines.split_off(lines.len().saturating_sub(count))
}

/// Counts repeated lines: Facter, for one, prints the same line eighteen times.
#[derive(Debug, Default)]
pub(crate) struct RepeatCounter {
    last: String,
    repeats: usize,
}

impl RepeatCounter {
    /// Adds a line. Returns the lines to write: none while the line only repeats, at whatever times.
    pub(crate) fn line(&mut self, line: String) -> Vec<String> {
        if split_time(&line).1 == split_time(&self.last).1 {
            self.repeats += 1;
            return Vec::new();
        }
        let mut lines: Vec<String> = self.take_count().into_iter().collect();
        self.last.clone_from(&line);
        lines.push(line);
        lines
    }

    /// Describes how often the last line was repeated, and resets the count.
    pub(crate) fn take_count(&mut self) -> Option<String> {
        match std::mem::take(&mut self.repeats) {
            0 => None,
            1 => Some("  (once more)".to_owned()),
            times => Some(format!("  ({times} times more)")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_log_keeps_its_beginning_and_end() {
        let mut log = BoundedLog::default();
        for number in 0..100_000 {
            log.line(&format!("line {number}"));
        }
        let text = log.finish();
        assert!(text.len() <= LIMIT, "{}", text.len());
        assert!(text.starts_with("line 0\nline 1\n"));
        assert!(text.ends_with("line 99998\nline 99999\n"));
        assert!(text.contains(" lines left out …\n"));
    }

    #[test]
    fn short_log_is_complete() {
        let mut log = BoundedLog::default();
        log.line("a");
        log.line("b\n");
        assert_eq!(log.finish(), "a\nb\n");
    }

    #[test]
    fn repeated_lines_are_counted() {
        let mut log = BoundedLog::default();
        for line in ["a", "a", "2027-01-15T08:00:01Z a", "b", "c", "c"] {
            log.line(line);
        }
        assert_eq!(log.finish(), "a\n  (2 times more)\nb\nc\n  (once more)\n");
    }

    #[test]
    fn last_line_skips_empty_lines() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "one\ntwo \n\n\n").unwrap();
        assert_eq!(last_line(file.path()).as_deref(), Some("two"));
        assert_eq!(last_line(Path::new("/nonexistent")), None);
    }

    #[test]
    fn diff_follows_its_resource_and_is_redacted() {
        let directory = tempfile::tempdir().unwrap();
        let run = RunDirectory::create(directory.path(), &muster_core::names::RunId::new("r1").unwrap()).unwrap();
        let line = r#"{"level":"notice","source":"/File[/x]/content","message":"\n--- /x\n+++ /y\n@@ -1 +1 @@\n-a\n+hunter2!\n","file":"/r/a.pp","line":3}"#;
        std::fs::write(run.puppet_log(), line).unwrap();
        std::fs::write(run.output(), "login with hunter2!\n").unwrap();
        let log = applier_log(&run, Path::new("/r"), &crate::testing::secrets(&["hunter2!"])).finish();
        assert_eq!(
            log,
            "notice: /File[/x]/content (a.pp:3)\n  --- /x\n  +++ /y\n  @@ -1 +1 @@\n  -a\n  +[secret]\n\
             login with [secret]\n"
        );
    }

    #[test]
    fn puppet_line_is_formatted_for_people() {
        let text = br#"{"level":"err","source":"/Stage[main]/Db","message":"no","file":"/r/a.pp","line":3}"#;
        assert_eq!(
            readable(&PuppetLogLine::parse(text).unwrap(), Path::new("/r")),
            "err: /Stage[main]/Db: no (a.pp:3)"
        );
        let text = br#"{"level":"notice","source":"Puppet","message":"yes","time":"2027-01-15T09:00:01.25+01:00"}"#;
        assert_eq!(readable(&PuppetLogLine::parse(text).unwrap(), Path::new("/r")), "2027-01-15T08:00:01Z notice: yes");
    }
}
