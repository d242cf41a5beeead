//! The log of a run as a person reads it, bounded: its beginning and its end.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use muster_core::report::summary::clip;

use crate::applier::{Line, in_release};
use crate::bounded::for_each_line;
use crate::redact::Redactor;
use crate::run::directory::RunDirectory;
use crate::run::repetition::Repetition;

/// A report with its log must stay easy to send and to keep.
const LIMIT: usize = 64 * 1024;
/// Of each of the two ends. What is between is in the run's directory on the node.
const HALF: usize = LIMIT / 2 - 100;
pub(crate) const LINE: usize = 4 * 1024;

/// Text that keeps its beginning and its end.
#[derive(Debug, Default)]
pub struct BoundedLog {
    head: String,
    tail: VecDeque<String>,
    tail_size: usize,
    left_out: usize,
    repetition: Repetition,
    secrets: Redactor,
}

impl BoundedLog {
    /// A log in which these secrets never stand.
    pub fn without(secrets: &Redactor) -> Self {
        Self { secrets: secrets.clone(), ..Self::default() }
    }

    pub fn line(&mut self, line: &str) {
        for line in self.repetition.line(clip(&self.secrets.text(line.trim_end()), LINE)) {
            self.add(line);
        }
    }

    /// All lines of a file that hold anything, each after `before`; a file that is not there has none.
    pub fn lines_of(&mut self, path: &Path, before: &str) {
        for_each_line(path, |text| self.line(&format!("{before}{}", String::from_utf8_lossy(text))));
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
        if let Some(counted) = self.repetition.counted() {
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

/// The log of the applier: what Puppet logged, then what came out of the program itself.
pub fn of_applier(directory: &RunDirectory, release: &Path, secrets: &Redactor) -> BoundedLog {
    let mut log = BoundedLog::without(secrets);
    for_each_line(&directory.puppet_log(), |text| match Line::parse(text) {
        // A diff has many lines, and a secret in it may have many too.
        Some(line) => secrets.text(&readable(&line, release)).lines().for_each(|line| log.line(line)),
        None => log.line(&String::from_utf8_lossy(text)),
    });
    log.lines_of(&directory.output(), "");
    log
}

/// `notice: /Stage[main]/Db: message (modules/db/manifests/init.pp:7)`; a message of several lines comes below that.
pub(crate) fn readable(line: &Line, release: &Path) -> String {
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

/// The last line of a file that holds anything.
pub fn last_line(path: &Path) -> Option<String> {
    last_lines(path, 1).pop()
}

/// The last lines of a file that hold anything.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_log_keeps_its_beginning_and_its_end() {
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
    fn a_short_one_is_whole() {
        let mut log = BoundedLog::default();
        log.line("a");
        log.line("b\n");
        assert_eq!(log.finish(), "a\nb\n");
    }

    #[test]
    fn what_is_said_again_and_again_is_counted() {
        let mut log = BoundedLog::default();
        for line in ["a", "a", "a", "b", "c", "c"] {
            log.line(line);
        }
        assert_eq!(log.finish(), "a\n  (2 times more)\nb\nc\n  (once more)\n");
    }

    #[test]
    fn the_last_line_is_the_last_that_says_something() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "one\ntwo \n\n\n").unwrap();
        assert_eq!(last_line(file.path()).as_deref(), Some("two"));
        assert_eq!(last_line(Path::new("/nonexistent")), None);
    }

    #[test]
    fn a_diff_stands_below_what_it_is_about_and_shows_no_secret() {
        let directory = tempfile::tempdir().unwrap();
        let run = RunDirectory::create(directory.path(), &muster_core::names::RunId::new("r1").unwrap()).unwrap();
        let line = r#"{"level":"notice","source":"/File[/x]/content","message":"\n--- /x\n+++ /y\n@@ -1 +1 @@\n-a\n+hunter2!\n","file":"/r/a.pp","line":3}"#;
        std::fs::write(run.puppet_log(), line).unwrap();
        std::fs::write(run.output(), "login with hunter2!\n").unwrap();
        let log = of_applier(&run, Path::new("/r"), &crate::testing::secrets(&["hunter2!"])).finish();
        assert_eq!(
            log,
            "notice: /File[/x]/content (a.pp:3)\n  --- /x\n  +++ /y\n  @@ -1 +1 @@\n  -a\n  +[secret]\n\
             login with [secret]\n"
        );
    }

    #[test]
    fn a_line_of_puppet_reads_like_a_sentence() {
        let text = br#"{"level":"err","source":"/Stage[main]/Db","message":"no","file":"/r/a.pp","line":3}"#;
        assert_eq!(readable(&Line::parse(text).unwrap(), Path::new("/r")), "err: /Stage[main]/Db: no (a.pp:3)");
    }
}
