//! Collects the log of the run in progress as lines for people, in pieces that can be sent.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use muster_core::names::RunId;
use muster_core::report::summary::clip;
use muster_wire::runs::PIECE;

use crate::applier::PuppetLogLine;
use crate::live_log::tail::{FileTail, ReadProgress};
use crate::redact::Redactor;
use crate::run::directory::RunDirectory;
use crate::run::log::{LINE, RepeatCounter, readable};

/// Maximum number of unsent lines of checks. The report contains all of them.
const MAX_LINES: usize = 200;

/// Log sources of the run in progress.
#[derive(Debug)]
pub struct LogSource {
    pub run: RunId,
    /// Ids of the run requests that it answers.
    pub(super) requests: Vec<String>,
    pub(super) puppet_log: PathBuf,
    pub(super) output: PathBuf,
    /// Directory of the release. Paths are shown relative to it.
    pub(super) release: PathBuf,
    /// Secrets to redact.
    pub(super) secrets: Redactor,
    /// Lines that are not in the files.
    lines: Mutex<VecDeque<String>>,
}

impl LogSource {
    pub fn new(run: RunId, requests: Vec<String>, directory: &RunDirectory, release: &Path, secrets: Redactor) -> Self {
        Self {
            run,
            requests,
            puppet_log: directory.puppet_log(),
            output: directory.output(),
            release: release.to_owned(),
            secrets,
            lines: Mutex::default(),
        }
    }

    pub(super) fn push_line(&self, line: String) {
        let mut lines = self.lines();
        if lines.len() < MAX_LINES {
            lines.push_back(line);
        }
    }

    fn lines(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Collects the next piece to send.
#[derive(Debug)]
pub(super) struct Collector {
    puppet: FileTail,
    output: FileTail,
    repeats: RepeatCounter,
    /// Complete lines, at most one piece.
    pub(super) text: String,
    /// Lines that do not fit into this piece.
    overflow: VecDeque<String>,
}

impl Collector {
    pub(super) fn new(source: &LogSource) -> Self {
        Self {
            puppet: FileTail::new(source.puppet_log.clone()),
            output: FileTail::new(source.output.clone()),
            repeats: RepeatCounter::default(),
            text: String::new(),
            overflow: VecDeque::new(),
        }
    }

    /// Adds the lines written since the last call. `ended`: the run writes no more.
    pub(super) fn collect(&mut self, source: &LogSource, ended: bool) -> ReadProgress {
        self.fill();
        let room = PIECE.saturating_sub(self.text.len());
        if !self.overflow.is_empty() || room < LINE {
            return ReadProgress::More;
        }
        let mut lines = Vec::new();
        // Formatting can lengthen a line, which is then cut; most become shorter.
        let mut add_log = |text: &[u8]| lines.extend(format_line(text, &source.release));
        let mut progress = self.puppet.read(room, &mut add_log);
        if ended && progress == ReadProgress::AtEnd {
            self.puppet.finish(&mut add_log);
        }
        let mut add_output = |text: &[u8]| lines.push(String::from_utf8_lossy(text).into_owned());
        if progress == ReadProgress::AtEnd {
            progress = self.output.read(room, &mut add_output);
        }
        if ended && progress == ReadProgress::AtEnd {
            self.output.finish(&mut add_output);
        }
        if progress == ReadProgress::AtEnd {
            // The results of checks follow the output of the applier.
            lines.extend(source.lines().drain(..));
        }
        for line in lines {
            let line = clip(&source.secrets.text(line.trim_end()), LINE);
            self.overflow.extend(self.repeats.line(line));
        }
        self.overflow.extend(self.repeats.take_count());
        self.fill();
        if self.overflow.is_empty() { progress } else { ReadProgress::More }
    }

    /// Moves lines into the piece while they fit.
    fn fill(&mut self) {
        while let Some(line) = self.overflow.front() {
            if self.text.len() + line.len() + 1 > PIECE {
                return;
            }
            self.text.push_str(line);
            self.text.push('\n');
            self.overflow.pop_front();
        }
    }
}

fn format_line(text: &[u8], release: &Path) -> Option<String> {
    match PuppetLogLine::parse(text) {
        Some(line) => line.is_for_people().then(|| readable(&line, release)),
        // Too long, or cut because Puppet was ended while writing. It is not shown: in JSON a secret may look different.
        None => Some(format!("… an incomplete line of {} bytes …", text.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A redactor with one secret.
    fn secrets() -> Redactor {
        let snapshot = r#"{"revision":1,"active_roles":{},"leaders":{},"published":{},
            "data":{"db::password":{"value":"hunter22","secret":true,"layer":"global"}}}"#;
        Redactor::for_snapshot(&serde_json::from_str(snapshot).unwrap())
    }

    fn source(dir: &Path) -> LogSource {
        let runs = dir.join("runs");
        let run = RunId::new("r1").unwrap();
        let directory = RunDirectory::create(&runs, &run).unwrap();
        LogSource::new(run, Vec::new(), &directory, Path::new("/r"), secrets())
    }

    #[test]
    fn log_precedes_output_and_check_results_come_last() {
        let dir = tempfile::tempdir().unwrap();
        let source = source(dir.path());
        source.push_line("check a passed".into());
        std::fs::write(&source.output, "out\n").unwrap();
        std::fs::write(&source.puppet_log, "{\"level\":\"notice\",\"source\":\"Puppet\",\"message\":\"hello\"}\nodd")
            .unwrap();
        let mut collector = Collector::new(&source);
        assert_eq!(collector.collect(&source, false), ReadProgress::AtEnd);
        assert_eq!(collector.text, "notice: hello\nout\ncheck a passed\n");
        collector.text.clear();
        assert_eq!(collector.collect(&source, true), ReadProgress::AtEnd);
        assert_eq!(collector.text, "… an incomplete line of 3 bytes …\n", "Puppet was ended while it wrote");
    }

    #[test]
    fn pieces_stay_within_their_limit_and_lose_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let source = source(dir.path());
        let written: String = (0..20_000).map(|number| format!("line {number}\n")).collect();
        std::fs::write(&source.output, &written).unwrap();
        let (mut collector, mut read) = (Collector::new(&source), String::new());
        loop {
            let progress = collector.collect(&source, true);
            assert!(collector.text.len() <= PIECE);
            read.push_str(&std::mem::take(&mut collector.text));
            if progress == ReadProgress::AtEnd {
                break;
            }
        }
        assert_eq!(read, written);
    }

    #[test]
    fn secrets_are_redacted() {
        let dir = tempfile::tempdir().unwrap();
        let source = source(dir.path());
        std::fs::write(&source.output, "the password is hunter22\n").unwrap();
        source.push_line("check a failed: hunter22".into());
        let mut collector = Collector::new(&source);
        collector.collect(&source, true);
        assert_eq!(collector.text, "the password is [secret]\ncheck a failed: [secret]\n");
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let source = source(dir.path());
        std::fs::write(&source.output, [0xff, 0xfe, b'\n', 0x1b, b'[', b'\n']).unwrap();
        let mut collector = Collector::new(&source);
        collector.collect(&source, true);
        assert_eq!(collector.text, "\u{fffd}\u{fffd}\n\u{1b}[\n");
    }
}
