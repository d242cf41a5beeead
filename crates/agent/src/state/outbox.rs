//! The outbox: reports that no server has accepted yet, one file each.
//!
//! A report is on disk before the agent continues. Reports are sent in the order of their sequence numbers and removed
//! when a server has answered.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::report::unsent::UnsentReport;
use crate::state::durable::{self, StateWriteError};

/// Number of refused reports that are kept for debugging.
const REFUSED: usize = 20;

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
            let Some(seq) = self.numbers()?.first().copied() else { return Ok(None) };
            let path = self.path(seq);
            let bytes = match fs::read(&path) {
                Ok(bytes) => bytes,
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
        let (from, refused) = (self.path(seq), self.directory.join("refused"));
        let moved = fs::create_dir_all(&refused).and_then(|()| fs::rename(&from, refused.join(file_name(seq))));
        match moved {
            Ok(()) => {}
            // On a full disk there is no room for `refused`. The report must not block the later ones.
            Err(_) => self.remove(seq)?,
        }
        let mut kept = numbers_in(&refused).unwrap_or_default();
        while kept.len() > REFUSED {
            let _ = fs::remove_file(refused.join(file_name(kept.remove(0))));
        }
        Ok(())
    }

    /// The sequence number after the highest one in the outbox, for an agent that has lost its ledger.
    pub fn next_seq(&self) -> Result<u64, OutboxError> {
        Ok(self.numbers()?.last().map_or(1, |last| last + 1))
    }

    fn numbers(&self) -> Result<Vec<u64>, OutboxError> {
        numbers_in(&self.directory)
    }

    fn path(&self, seq: u64) -> PathBuf {
        self.directory.join(file_name(seq))
    }
}

fn file_name(seq: u64) -> String {
    format!("{seq:020}.json")
}

fn numbers_in(directory: &Path) -> Result<Vec<u64>, OutboxError> {
    let failed = |source| OutboxError::Read { path: directory.to_owned(), source };
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        numbers
            .extend(name.to_str().and_then(|name| name.strip_suffix(".json")).and_then(|seq| seq.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
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
        assert_eq!(numbers_in(&dir.path().join("refused")).unwrap(), (6..=25).collect::<Vec<_>>());
        assert_eq!(outbox.first().unwrap(), None);
    }
}
