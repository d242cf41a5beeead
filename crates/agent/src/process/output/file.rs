//! The output of a program that may leave services behind: a file whose middle is given back to the disk.
//!
//! The file is written at its end only (`O_APPEND`), so it can be cut while others write to it. As long as the program
//! runs, what is cut is made a hole: what is left keeps its place, and whoever follows the file by its length may go on
//! doing so (a hole reads as zeros). At the end the hole is closed, for people who open the file.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::{private, shortened};

/// So much of each end is kept on the node; the report has less. The end is where it says what went wrong.
const HEAD: u64 = 256 * 1024;
const TAIL: u64 = 768 * 1024;
/// It is not worth while to cut less than this.
const STEP: u64 = 256 * 1024;
/// Space comes in blocks; the largest that file systems commonly have.
const BLOCK: u64 = 64 * 1024;
/// How often the file is looked at. A look costs microseconds; between two of them the fastest writer, which does nothing
/// but write, gets some tens of megabytes into the cache of a machine.
const LOOK: Duration = Duration::from_millis(20);

/// A file that is being written, and what was cut out of it.
#[derive(Debug)]
pub(in crate::process) struct Trimmed {
    file: File,
    /// Where the hole ends; it begins after the head.
    cut: u64,
    /// What was cut without leaving a hole.
    lost: u64,
    failed: bool,
}

impl Trimmed {
    /// The second file is for the program.
    pub(super) fn create(path: &Path) -> io::Result<(Self, File)> {
        let file = private(path)?;
        let end = file.try_clone()?;
        Ok((Self::of(file), end))
    }

    fn of(file: File) -> Self {
        Self { file, cut: HEAD, lost: 0, failed: false }
    }

    pub(super) async fn keep_up(&mut self) -> std::convert::Infallible {
        loop {
            tokio::time::sleep(LOOK).await;
            if self.failed {
                return std::future::pending().await;
            }
            if let Err(error) = self.trim() {
                self.failed = true;
                tracing::warn!(%error, "the output of a program cannot be kept within bounds");
            }
        }
    }

    /// Gives back what is neither in the head nor in the tail.
    fn trim(&mut self) -> io::Result<()> {
        let size = self.file.metadata()?.len();
        let until = size.saturating_sub(TAIL) / BLOCK * BLOCK;
        if until < self.cut + STEP {
            return Ok(());
        }
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, hole, self.cut, until - self.cut) {
            Ok(()) => {
                self.cut = until;
                Ok(())
            }
            // A file system without holes. What comes next is written after the head: the end is what is lost.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                self.file.set_len(HEAD)?;
                self.lost += size - HEAD;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Closes the hole. In place, because a service may go on writing to this very file.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.trim()?;
        if self.cut == HEAD && self.lost == 0 {
            return Ok(());
        }
        let (mut head, mut tail) = (Vec::new(), Vec::new());
        self.file.rewind()?;
        (&self.file).take(HEAD).read_to_end(&mut head)?;
        self.file.seek(SeekFrom::Start(self.cut))?;
        // A service may write as fast as this reads.
        (&self.file).take(TAIL + STEP + BLOCK).read_to_end(&mut tail)?;
        let text = shortened(&head, self.cut - HEAD + self.lost, &tail);
        self.file.set_len(0)?;
        self.file.write_all(&text)
    }
}

/// Cuts back what services of an earlier run have written to its output since. A file that is not there is none.
pub fn cut_back(path: &Path) -> io::Result<()> {
    let file = match fs::OpenOptions::new().read(true).append(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    Trimmed::of(file).finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    /// Lines of 16 bytes, numbered.
    fn lines(from: u64, to: u64) -> String {
        (from..to).map(|number| format!("line {number:010}\n")).collect()
    }

    #[test]
    fn a_long_output_keeps_its_ends_and_gives_its_middle_back_while_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("output.log");
        let (mut trimmed, mut program) = Trimmed::create(&path).unwrap();
        for part in 0..64 {
            program.write_all(lines(part * 16_384, (part + 1) * 16_384).as_bytes()).unwrap();
            trimmed.trim().unwrap();
            let used = fs::metadata(&path).unwrap().blocks() * 512;
            assert!(used <= HEAD + TAIL + STEP + 2 * BLOCK + 256 * 1024, "{used} bytes after part {part}");
        }
        assert_eq!(fs::metadata(&path).unwrap().len(), 16 * 1024 * 1024, "whoever follows it by its length can go on");
        trimmed.finish().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("line 0000000000\nline 0000000001\n"));
        assert!(text.ends_with("line 0001048574\nline 0001048575\n"));
        let note = text.lines().find(|line| line.starts_with('…')).unwrap();
        let left_out: u64 = note.split(' ').nth(1).unwrap().parse().unwrap();
        assert_eq!(left_out + text.len() as u64 - note.len() as u64 - 1, 16 * 1024 * 1024);
    }

    #[test]
    fn a_service_goes_on_writing_to_the_same_file_and_is_cut_back_later() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("output.log");
        let (trimmed, mut service) = Trimmed::create(&path).unwrap();
        service.write_all(lines(0, 200_000).as_bytes()).unwrap();
        trimmed.finish().unwrap();
        service.write_all(b"still here\n").unwrap();
        assert!(fs::read_to_string(&path).unwrap().ends_with("line 0000199999\nstill here\n"));
        service.write_all(lines(0, 200_000).as_bytes()).unwrap();
        cut_back(&path).unwrap();
        assert!(fs::metadata(&path).unwrap().len() <= HEAD + TAIL + STEP + BLOCK + 100);
        service.write_all(b"and here\n").unwrap();
        assert!(fs::read_to_string(&path).unwrap().ends_with("line 0000199999\nand here\n"));
        cut_back(Path::new("/nonexistent")).unwrap();
    }

    #[test]
    fn a_short_output_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("output.log");
        let (trimmed, mut program) = Trimmed::create(&path).unwrap();
        program.write_all(b"a\nb\n").unwrap();
        trimmed.finish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a\nb\n");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }
}
