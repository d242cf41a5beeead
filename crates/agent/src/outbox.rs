//! Reports that wait for the server: one file each, on disk before anything else happens, sent in the order of their
//! numbers, and gone only when the server has answered.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use muster_core::report::Report;

use crate::durable::{self, WriteError};

/// So many refused reports are kept for whoever looks into it.
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

/// The directory of the waiting reports.
#[derive(Clone, Debug)]
pub struct Outbox {
    directory: PathBuf,
}

/// A report that waits, and its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub seq: u64,
    pub report: Report,
}

impl Outbox {
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Keeps a report. When this returns, the report survives a power cut.
    pub fn keep(&self, report: &Report) -> Result<(), WriteError> {
        durable::write_json(&self.path(report.seq), report)
    }

    /// The report to send next. One that cannot be read is put aside: it would hold up all others for ever.
    pub fn first(&self) -> Result<Option<Waiting>, OutboxError> {
        loop {
            let Some(seq) = self.numbers()?.first().copied() else { return Ok(None) };
            let path = self.path(seq);
            let bytes = match fs::read(&path) {
                Ok(bytes) => bytes,
                Err(source) => return Err(OutboxError::Read { path, source }),
            };
            match serde_json::from_slice(&bytes) {
                Ok(report) => return Ok(Some(Waiting { seq, report })),
                Err(error) => {
                    tracing::error!(file = %path.display(), %error, "a waiting report is not understood; it is put aside");
                    self.put_aside(seq)?;
                }
            }
        }
    }

    /// Forgets a report that the server has taken.
    pub fn remove(&self, seq: u64) -> Result<(), OutboxError> {
        let path = self.path(seq);
        match fs::remove_file(&path) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(OutboxError::Remove { path, source }),
        }
    }

    /// Takes a report that the server will never take out of the way of the others, and keeps the last few of those.
    pub fn put_aside(&self, seq: u64) -> Result<(), OutboxError> {
        let (from, refused) = (self.path(seq), self.directory.join("refused"));
        let moved = fs::create_dir_all(&refused).and_then(|()| fs::rename(&from, refused.join(file_name(seq))));
        match moved {
            Ok(()) => {}
            // On a full disk there is no room to keep it; it must not hold up the others all the same.
            Err(_) => self.remove(seq)?,
        }
        let mut kept = numbers_in(&refused).unwrap_or_default();
        while kept.len() > REFUSED {
            let _ = fs::remove_file(refused.join(file_name(kept.remove(0))));
        }
        Ok(())
    }

    /// The number after the largest one that waits: what the next report may be numbered if the ledger was lost.
    pub fn after_last(&self) -> Result<u64, OutboxError> {
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
    fn reports_leave_in_the_order_of_their_numbers_and_survive_a_restart() {
        let (dir, outbox) = outbox();
        for seq in [10, 2, 9] {
            outbox.keep(&report(seq)).unwrap();
        }
        let again = Outbox::new(dir.path().to_owned());
        assert_eq!(again.after_last().unwrap(), 11);
        let mut order = Vec::new();
        while let Some(waiting) = again.first().unwrap() {
            assert_eq!(waiting.report, report(waiting.seq));
            order.push(waiting.seq);
            again.remove(waiting.seq).unwrap();
        }
        assert_eq!(order, [2, 9, 10]);
        assert_eq!(again.after_last().unwrap(), 1);
    }

    #[test]
    fn a_write_that_was_cut_off_is_no_report() {
        let (dir, outbox) = outbox();
        fs::write(dir.path().join("00000000000000000001.json.tmp"), "{").unwrap();
        assert_eq!(outbox.first().unwrap(), None);
    }

    #[test]
    fn what_cannot_be_read_is_put_aside_and_the_next_goes_on() {
        let (dir, outbox) = outbox();
        fs::write(dir.path().join(file_name(1)), "{").unwrap();
        outbox.keep(&report(2)).unwrap();
        assert_eq!(outbox.first().unwrap().map(|waiting| waiting.seq), Some(2));
        assert!(dir.path().join("refused").join(file_name(1)).exists());
    }

    #[test]
    fn only_the_last_refused_reports_are_kept() {
        let (dir, outbox) = outbox();
        for seq in 1..=25 {
            outbox.keep(&report(seq)).unwrap();
            outbox.put_aside(seq).unwrap();
        }
        assert_eq!(numbers_in(&dir.path().join("refused")).unwrap(), (6..=25).collect::<Vec<_>>());
        assert_eq!(outbox.first().unwrap(), None);
    }
}
