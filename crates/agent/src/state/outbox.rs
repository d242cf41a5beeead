//! The outbox: reports that no server has accepted yet, one file each.
//!
//! A report is on disk before the agent continues. Reports are sent in the order of their sequence numbers and removed
//! when a server has answered. Files that the agent did not write are moved to `foreign`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::report::unsent::UnsentReport;
use crate::state::durable::{self, StateWriteError};

/// Number of refused reports that are kept for debugging.
const REFUSED: usize = 20;
/// Directories of the outbox: reports that no server accepts, and files of other origin.
const REFUSED_DIR: &str = "refused";
const FOREIGN_DIR: &str = "foreign";

#[derive(Debug, Error)]
pub enum OutboxError {
    #[error("cannot read the outbox at {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot remove {path} from the outbox")]
    Remove {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The directory of the unsent reports.
#[derive(Clone, Debug)]
pub struct Outbox {
    directory: PathBuf,
}

/// A report in the outbox with its sequence number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedReport {
    pub seq: u64,
    pub report: UnsentReport,
}

impl Outbox {
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Writes a report, durably.
    pub fn store(&self, report: &UnsentReport) -> Result<(), StateWriteError> {
        durable::write_json(&self.path(report.seq), report)
    }

    /// The report to send next. A report that cannot be parsed is moved aside, because it would block all later ones.
    pub fn first(&self) -> Result<Option<QueuedReport>, OutboxError> {
        loop {
            let Entries { numbers, foreign } = entries_in(&self.directory)?;
            foreign.iter().for_each(|name| self.move_to_foreign(name));
            let Some(seq) = numbers.first().copied() else { return Ok(None) };
            let path = self.path(seq);
            let bytes = match fs::read(&path) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                    tracing::error!(path = %path.display(), "a directory is in place of a report; moved to outbox/refused");
                    self.move_to_refused(seq)?;
                    continue;
                }
                Err(source) => return Err(OutboxError::Read { path, source }),
            };
            match serde_json::from_slice(&bytes) {
                Ok(report) => return Ok(Some(QueuedReport { seq, report })),
                Err(error) => {
                    tracing::error!(file = %path.display(), %error, "cannot parse a report in the outbox; moved to outbox/refused");
                    self.move_to_refused(seq)?;
                }
            }
        }
    }

    /// Removes a report.
    pub fn remove(&self, seq: u64) -> Result<(), OutboxError> {
        let path = self.path(seq);
        match fs::remove_file(&path) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(OutboxError::Remove { path, source }),
        }
    }

    /// Moves a report that no server will accept to `refused`, which keeps the last 20.
    pub fn move_to_refused(&self, seq: u64) -> Result<(), OutboxError> {
        let (from, refused) = (self.path(seq), self.directory.join(REFUSED_DIR));
        let target = refused.join(file_name(seq));
        let moved = fs::create_dir_all(&refused).and_then(|()| durable::rename_past_directories(&from, &target));
        match moved {
            Ok(_) => {}
            // On a full disk there is no room for `refused`. The report must not block the later ones.
            Err(_) => self.remove(seq)?,
        }
        let mut kept = entries_in(&refused).map(|entries| entries.numbers).unwrap_or_default();
        while kept.len() > REFUSED {
            let _ = fs::remove_file(refused.join(file_name(kept.remove(0))));
        }
        Ok(())
    }

    /// Moves a file that the agent did not write to `foreign`. It blocks no report, and is kept for the operator.
    fn move_to_foreign(&self, name: &OsString) {
        let (from, foreign) = (self.directory.join(name), self.directory.join(FOREIGN_DIR));
        let target = foreign.join(name);
        match fs::create_dir_all(&foreign).and_then(|()| durable::rename_past_directories(&from, &target)) {
            Ok(kept) => tracing::error!(
                file = %from.display(), kept = %kept.display(),
                "the agent did not write this file in its outbox; moved aside",
            ),
            Err(error) => tracing::error!(
                file = %from.display(), %error,
                "the agent did not write this file in its outbox, and cannot move it aside",
            ),
        }
    }

    /// Number of unsent reports.
    pub fn count(&self) -> usize {
        entries_in(&self.directory).map_or(0, |entries| entries.numbers.len())
    }

    /// Names of the files that the agent did not write, moved aside or not.
    pub fn foreign(&self) -> Vec<String> {
        let here = entries_in(&self.directory).map(|entries| entries.foreign).unwrap_or_default();
        let aside = fs::read_dir(self.directory.join(FOREIGN_DIR)).into_iter().flatten().flatten();
        let names = here.into_iter().chain(aside.map(|entry| entry.file_name()));
        let mut names: Vec<String> = names.map(|name| name.to_string_lossy().escape_debug().to_string()).collect();
        names.sort();
        names
    }

    /// The sequence number after the highest one in the outbox, for an agent that has lost its ledger.
    pub fn next_seq(&self) -> Result<u64, OutboxError> {
        Ok(entries_in(&self.directory)?.numbers.last().map_or(1, |last| last.saturating_add(1)))
    }

    fn path(&self, seq: u64) -> PathBuf {
        self.directory.join(file_name(seq))
    }
}

fn file_name(seq: u64) -> String {
    format!("{seq:020}.json")
}

/// Entries of a directory with reports.
#[derive(Debug, Default)]
struct Entries {
    /// Sequence numbers of the reports, sorted.
    numbers: Vec<u64>,
    /// Names that the agent does not make.
    foreign: Vec<OsString>,
}

fn entries_in(directory: &Path) -> Result<Entries, OutboxError> {
    let failed = |source| OutboxError::Read { path: directory.to_owned(), source };
    let mut entries = Entries::default();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let text = name.to_str().unwrap_or_default();
        // An interrupted write leaves a temporary file, which the next write of the same report replaces.
        let report = text.strip_suffix(".tmp").unwrap_or(text);
        let seq = report.strip_suffix(".json").and_then(|seq| seq.parse::<u64>().ok());
        match seq.filter(|seq| file_name(*seq) == report) {
            Some(seq) if report == text => entries.numbers.push(seq),
            Some(_) => {}
            None if [REFUSED_DIR, FOREIGN_DIR].contains(&text) => {}
            None => entries.foreign.push(name),
        }
    }
    entries.numbers.sort_unstable();
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::report;

    fn outbox() -> (tempfile::TempDir, Outbox) {
        let dir = tempfile::tempdir().unwrap();
        let outbox = Outbox::new(dir.path().to_owned());
        (dir, outbox)
    }

    #[test]
    fn reports_survive_a_restart_and_leave_in_order() {
        let (dir, outbox) = outbox();
        for seq in [10, 2, 9] {
            outbox.store(&report(seq)).unwrap();
        }
        let again = Outbox::new(dir.path().to_owned());
        assert_eq!(again.next_seq().unwrap(), 11);
        let mut order = Vec::new();
        while let Some(queued) = again.first().unwrap() {
            assert_eq!(queued.report, report(queued.seq));
            order.push(queued.seq);
            again.remove(queued.seq).unwrap();
        }
        assert_eq!(order, [2, 9, 10]);
        assert_eq!(again.next_seq().unwrap(), 1);
    }

    #[test]
    fn report_of_an_older_agent_is_sent() {
        let (dir, outbox) = outbox();
        // An older agent wrote the whole report, with the incarnation 0 until it was sent.
        let old = serde_json::to_vec(&report(3).with_incarnation(0)).unwrap();
        assert!(String::from_utf8_lossy(&old).contains(r#""incarnation":0"#));
        fs::write(dir.path().join(file_name(3)), old).unwrap();
        let queued = outbox.first().unwrap().unwrap();
        assert_eq!(queued, QueuedReport { seq: 3, report: report(3) });
        assert_eq!(queued.report.with_incarnation(7).incarnation, 7);
    }

    #[test]
    fn interrupted_write_is_no_report() {
        let (dir, outbox) = outbox();
        fs::write(dir.path().join("00000000000000000001.json.tmp"), "{").unwrap();
        assert_eq!(outbox.first().unwrap(), None);
    }

    #[test]
    fn damaged_report_is_moved_aside() {
        let (dir, outbox) = outbox();
        fs::write(dir.path().join(file_name(1)), "{").unwrap();
        outbox.store(&report(2)).unwrap();
        assert_eq!(outbox.first().unwrap().map(|queued| queued.seq), Some(2));
        assert!(dir.path().join("refused").join(file_name(1)).exists());
    }

    #[test]
    fn only_the_last_refused_reports_are_kept() {
        let (dir, outbox) = outbox();
        for seq in 1..=25 {
            outbox.store(&report(seq)).unwrap();
            outbox.move_to_refused(seq).unwrap();
        }
        assert_eq!(entries_in(&dir.path().join("refused")).unwrap().numbers, (6..=25).collect::<Vec<_>>());
        assert_eq!(outbox.first().unwrap(), None);
    }

    #[test]
    fn foreign_files_are_moved_aside_and_block_no_report() {
        let (dir, outbox) = outbox();
        let foreign = ["1.json", "+0000000000000000001.json", "notes", "report.json"];
        for name in foreign {
            fs::write(dir.path().join(name), name).unwrap();
        }
        fs::create_dir(dir.path().join("old")).unwrap();
        outbox.store(&report(7)).unwrap();
        assert_eq!((outbox.count(), outbox.foreign().len()), (1, 5));
        assert_eq!(outbox.first().unwrap().map(|queued| queued.seq), Some(7));
        assert_eq!(outbox.next_seq().unwrap(), 8);
        for name in foreign {
            assert_eq!(fs::read_to_string(dir.path().join("foreign").join(name)).unwrap(), name);
        }
        assert!(dir.path().join("foreign/old").is_dir());
        assert_eq!(outbox.foreign().len(), 5, "they are still named");
    }

    #[test]
    fn directory_in_place_of_a_report_is_moved_aside() {
        let (dir, outbox) = outbox();
        for _ in 0..2 {
            fs::create_dir_all(dir.path().join(file_name(1)).join("deep")).unwrap();
            outbox.store(&report(2)).unwrap();
            assert_eq!(outbox.first().unwrap().map(|queued| queued.seq), Some(2));
        }
        assert!(dir.path().join("refused").join(format!("{}-1", file_name(1))).is_dir());
    }
}
