//! What the run that goes on writes, as readable lines, in pieces that can be sent.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use muster_core::names::RunId;
use muster_core::report::summary::clip;
use muster_wire::run_log::PIECE;

use crate::applier::Line;
use crate::live_log::tail::{Looked, Tail};
use crate::redact::Redactor;
use crate::run::directory::RunDirectory;
use crate::run::log::{LINE, readable};
use crate::run::repetition::Repetition;

/// So many lines of checks wait to be sent. They are in the report too.
const WAITING: usize = 200;

/// What is known of the run that goes on.
#[derive(Debug)]
pub struct Source {
    pub run: RunId,
    /// Which runs that people asked for it is.
    pub(super) asked: Vec<String>,
    pub(super) puppet_log: PathBuf,
    pub(super) output: PathBuf,
    /// Where the release is: its author knows paths in it, not on this node.
    pub(super) release: PathBuf,
    /// What must not leave the node.
    pub(super) secrets: Redactor,
    /// What is said besides what is in the files.
    said: Mutex<VecDeque<String>>,
}

impl Source {
    pub fn new(run: RunId, asked: Vec<String>, directory: &RunDirectory, release: &Path, secrets: Redactor) -> Self {
        Self {
            run,
            asked,
            puppet_log: directory.puppet_log(),
            output: directory.output(),
            release: release.to_owned(),
            secrets,
            said: Mutex::default(),
        }
    }

    pub(super) fn say(&self, line: String) {
        let mut said = self.said();
        if said.len() < WAITING {
            said.push_back(line);
        }
    }

    fn said(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Collects the text that is to be sent next.
#[derive(Debug)]
pub(super) struct Collector {
    puppet: Tail,
    output: Tail,
    repetition: Repetition,
    /// Whole lines, at most a piece.
    pub(super) text: String,
    /// What is too much for this piece.
    over: VecDeque<String>,
}

impl Collector {
    pub(super) fn new(source: &Source) -> Self {
        Self {
            puppet: Tail::new(source.puppet_log.clone()),
            output: Tail::new(source.output.clone()),
            repetition: Repetition::default(),
            text: String::new(),
            over: VecDeque::new(),
        }
    }

    /// Takes what has come since the last look. `ended`: nobody writes any more.
    pub(super) fn collect(&mut self, source: &Source, ended: bool) -> Looked {
        self.fill();
        let room = PIECE.saturating_sub(self.text.len());
        if !self.over.is_empty() || room < LINE {
            return Looked::More;
        }
        let mut lines = Vec::new();
        // One line can become longer when it is made readable, and is cut; most become shorter.
        let mut take_log = |text: &[u8]| lines.push(in_words(text, &source.release));
        let mut looked = self.puppet.look(room, &mut take_log);
        if ended && looked == Looked::AtTheEnd {
            self.puppet.finish(&mut take_log);
        }
        let mut take_output = |text: &[u8]| lines.push(String::from_utf8_lossy(text).into_owned());
        if looked == Looked::AtTheEnd {
            looked = self.output.look(room, &mut take_output);
        }
        if ended && looked == Looked::AtTheEnd {
            self.output.finish(&mut take_output);
        }
        if looked == Looked::AtTheEnd {
            // What is said, of checks for instance, is said after what was written before.
            lines.extend(source.said().drain(..));
        }
        for line in lines {
            let line = clip(&source.secrets.text(line.trim_end()), LINE);
            self.over.extend(self.repetition.line(line));
        }
        self.over.extend(self.repetition.counted());
        self.fill();
        if self.over.is_empty() { looked } else { Looked::More }
    }

    /// Moves lines into the piece as long as they fit.
    fn fill(&mut self) {
        while let Some(line) = self.over.front() {
            if self.text.len() + line.len() + 1 > PIECE {
                return;
            }
            self.text.push_str(line);
            self.text.push('\n');
            self.over.pop_front();
        }
    }
}

fn in_words(text: &[u8], release: &Path) -> String {
    match Line::parse(text) {
        Some(line) => readable(&line, release),
        // One that is too long, or that Puppet was writing when it was ended. In JSON a secret may look different.
        None => format!("… a line of {} bytes that is not whole …", text.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that knows a secret.
    fn secrets() -> Redactor {
        let snapshot = r#"{"revision":1,"active_roles":{},"leaders":{},"published":{},
            "data":{"db::password":{"value":"hunter22","secret":true,"layer":"global"}}}"#;
        Redactor::of(&serde_json::from_str(snapshot).unwrap())
    }

    fn source(dir: &Path) -> Source {
        let runs = dir.join("runs");
        let run = RunId::new("r1").unwrap();
        let directory = RunDirectory::create(&runs, &run).unwrap();
        Source::new(run, Vec::new(), &directory, Path::new("/r"), secrets())
    }

    #[test]
    fn the_log_comes_before_the_output_and_what_is_said_comes_last() {
        let dir = tempfile::tempdir().unwrap();
        let source = source(dir.path());
        source.say("check a passed".into());
        std::fs::write(&source.output, "out\n").unwrap();
        std::fs::write(&source.puppet_log, "{\"level\":\"notice\",\"source\":\"Puppet\",\"message\":\"hello\"}\nodd")
            .unwrap();
        let mut collector = Collector::new(&source);
        assert_eq!(collector.collect(&source, false), Looked::AtTheEnd);
        assert_eq!(collector.text, "notice: hello\nout\ncheck a passed\n");
        collector.text.clear();
        assert_eq!(collector.collect(&source, true), Looked::AtTheEnd);
        assert_eq!(collector.text, "… a line of 3 bytes that is not whole …\n", "Puppet was ended while it wrote");
    }

    #[test]
    fn a_piece_is_never_larger_than_it_may_be_and_nothing_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let source = source(dir.path());
        let written: String = (0..20_000).map(|number| format!("line {number}\n")).collect();
        std::fs::write(&source.output, &written).unwrap();
        let (mut collector, mut read) = (Collector::new(&source), String::new());
        loop {
            let looked = collector.collect(&source, true);
            assert!(collector.text.len() <= PIECE);
            read.push_str(&std::mem::take(&mut collector.text));
            if looked == Looked::AtTheEnd {
                break;
            }
        }
        assert_eq!(read, written);
    }

    #[test]
    fn secrets_stay_on_the_node() {
        let dir = tempfile::tempdir().unwrap();
        let source = source(dir.path());
        std::fs::write(&source.output, "the password is hunter22\n").unwrap();
        source.say("check a failed: hunter22".into());
        let mut collector = Collector::new(&source);
        collector.collect(&source, true);
        assert_eq!(collector.text, "the password is [secret]\ncheck a failed: [secret]\n");
    }

    #[test]
    fn bytes_that_are_no_text_do_no_harm() {
        let dir = tempfile::tempdir().unwrap();
        let source = source(dir.path());
        std::fs::write(&source.output, [0xff, 0xfe, b'\n', 0x1b, b'[', b'\n']).unwrap();
        let mut collector = Collector::new(&source);
        collector.collect(&source, true);
        assert_eq!(collector.text, "\u{fffd}\u{fffd}\n\u{1b}[\n");
    }
}
