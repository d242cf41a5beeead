//! Reads an agent's log for acknowledged reports, and counts the reports in its outbox.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cluster::checker::AcknowledgedReport;

/// The log of one agent, read as far as it goes.
#[derive(Debug)]
pub struct AgentLog {
    pub node: String,
    log: PathBuf,
    outbox: PathBuf,
    read: usize,
}

/// Reports named in a log.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LoggedReports {
    pub acknowledged: Vec<AcknowledgedReport>,
    /// Reports that the agent has dropped. They are lost.
    pub dropped: Vec<String>,
}

impl AgentLog {
    pub fn new(node: &str, log: &Path, state: &Path) -> Self {
        Self { node: node.to_owned(), log: log.to_owned(), outbox: state.join("outbox"), read: 0 }
    }

    /// The reports logged since the last call.
    pub fn read_new(&mut self) -> LoggedReports {
        let text = fs::read(&self.log).unwrap();
        // An incomplete last line is read with the next call.
        let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1).max(self.read);
        let new = String::from_utf8_lossy(&text[self.read..end]).into_owned();
        self.read = end;
        parse_log(&self.node, &new)
    }

    /// Number of unsent reports.
    pub fn waiting(&self) -> usize {
        let entries = fs::read_dir(&self.outbox).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(".json")).count()
    }
}

fn parse_log(node: &str, text: &str) -> LoggedReports {
    let mut reports = LoggedReports::default();
    for line in text.lines() {
        if line.contains("it is dropped")
            || line.contains("moved to outbox/refused")
            || line.contains("requesting a new incarnation")
        {
            reports.dropped.push(format!("{node}: {line}"));
        }
        let Some((_, rest)) = line.split_once(" reported ") else { continue };
        let field = |name: &str| {
            rest.split(' ').find_map(|part| part.strip_prefix(name).and_then(|part| part.strip_prefix('=')))
        };
        let (Some(run), Some(seq), Some(taken)) = (field("run"), field("seq"), field("taken")) else {
            panic!("{node}: cannot parse the line {line:?}");
        };
        match taken {
            "Applied" | "AlreadyApplied" => reports.acknowledged.push(AcknowledgedReport {
                node: node.to_owned(),
                seq: seq.parse().unwrap(),
                run: run.to_owned(),
            }),
            _ => reports.dropped.push(format!("{node}: {line}")),
        }
    }
    reports
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_reports_are_understood_and_others_passed_over() {
        let log = "\
2026-11-15T10:00:00Z  INFO run started run=r1
2026-11-15T10:00:01Z DEBUG reported run=r1 seq=1 taken=Applied
2026-11-15T10:00:02Z DEBUG reported run=r1 seq=2 taken=AlreadyApplied
2026-11-15T10:00:03Z DEBUG reported run=r2 seq=3 taken=Outdated
2026-11-15T10:00:04Z  WARN the report is outdated also under a new incarnation; it is dropped run=r2
";
        let reports = parse_log("web1", log);
        let acknowledged = |seq| AcknowledgedReport { node: "web1".to_owned(), seq, run: "r1".to_owned() };
        assert_eq!(reports.acknowledged, [acknowledged(1), acknowledged(2)]);
        assert_eq!(reports.dropped.len(), 2, "{reports:?}");
    }
}
