//! Output file of a program that may leave services behind. The space of its middle is freed while it is written.
//!
//! Programs append to the file (`O_APPEND`), so it can be truncated while they write. During the run the freed part becomes
//! a hole, which reads as zeros: offsets do not change, and the live log can follow the file by its length. At the end the
//! hole is removed.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::{create_private, join_ends};

/// Size of each end that is kept on the node. The report has less. Errors are mostly at the end.
const HEAD: u64 = 256 * 1024;
const TAIL: u64 = 768 * 1024;
/// Minimum size to free at once.
const STEP: u64 = 256 * 1024;
/// Largest common block size of file systems.
const BLOCK: u64 = 64 * 1024;
/// Poll interval. A poll costs microseconds. Between two polls the fastest writer writes some tens of megabytes.
const POLL: Duration = Duration::from_millis(20);

/// An output file and its hole.
#[derive(Debug)]
pub(in crate::process) struct FileOutput {
    file: File,
    /// End of the hole, which begins after the head.
    hole_end: u64,
    /// Bytes that were removed without a hole.
    lost: u64,
    failed: bool,
}

impl FileOutput {
    /// Creates the file. The second handle is for the program.
    pub(super) fn create(path: &Path) -> io::Result<(Self, File)> {
        let file = create_private(path)?;
        let end = file.try_clone()?;
        Ok((Self::new(file), end))
    }

    fn new(file: File) -> Self {
        Self { file, hole_end: HEAD, lost: 0, failed: false }
    }

    pub(super) async fn drain(&mut self) -> std::convert::Infallible {
        loop {
            tokio::time::sleep(POLL).await;
            if self.failed {
                return std::future::pending().await;
            }
            if let Err(error) = self.trim() {
                self.failed = true;
                tracing::warn!(%error, "cannot limit the output of a program");
            }
        }
    }

    /// Frees the space between head and tail.
    fn trim(&mut self) -> io::Result<()> {
        let size = self.file.metadata()?.len();
        let until = size.saturating_sub(TAIL) / BLOCK * BLOCK;
        if until < self.hole_end + STEP {
            return Ok(());
        }
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, hole, self.hole_end, until - self.hole_end) {
            Ok(()) => {
                self.hole_end = until;
                Ok(())
            }
            // A file system without holes: truncate to the head, which loses the end.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                self.file.set_len(HEAD)?;
                self.lost += size - HEAD;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the hole, in place, because a service may continue to write to this file.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.trim()?;
        if self.hole_end == HEAD && self.lost == 0 {
            return Ok(());
        }
        let (mut head, mut tail) = (Vec::new(), Vec::new());
        self.file.rewind()?;
        (&self.file).take(HEAD).read_to_end(&mut head)?;
        self.file.seek(SeekFrom::Start(self.hole_end))?;
        // Limited, because a service may write as fast as this reads.
        (&self.file).take(TAIL + STEP + BLOCK).read_to_end(&mut tail)?;
        let text = join_ends(&head, self.hole_end - HEAD + self.lost, &tail);
        self.file.set_len(0)?;
        self.file.write_all(&text)
    }
}

/// Truncates the output of an earlier run, to which services may still write. A missing file is no error.
pub fn truncate(path: &Path) -> io::Result<()> {
    let file = match fs::OpenOptions::new().read(true).append(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    FileOutput::new(file).finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    /// Numbered lines of 16 bytes.
    fn lines(from: u64, to: u64) -> String {
        (from..to).map(|number| format!("line {number:010}\n")).collect()
    }

    #[test]
    fn long_output_keeps_its_ends_and_frees_its_middle() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("output.log");
        let (mut output, mut program) = FileOutput::create(&path).unwrap();
        for part in 0..64 {
            program.write_all(lines(part * 16_384, (part + 1) * 16_384).as_bytes()).unwrap();
            output.trim().unwrap();
            let used = fs::metadata(&path).unwrap().blocks() * 512;
            assert!(used <= HEAD + TAIL + STEP + 2 * BLOCK + 256 * 1024, "{used} bytes after part {part}");
        }
        assert_eq!(fs::metadata(&path).unwrap().len(), 16 * 1024 * 1024, "a reader can follow it by its length");
        output.finish().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("line 0000000000\nline 0000000001\n"));
        assert!(text.ends_with("line 0001048574\nline 0001048575\n"));
        let note = text.lines().find(|line| line.starts_with('…')).unwrap();
        let left_out: u64 = note.split(' ').nth(1).unwrap().parse().unwrap();
        assert_eq!(left_out + text.len() as u64 - note.len() as u64 - 1, 16 * 1024 * 1024);
    }

    #[test]
    fn output_of_a_service_is_truncated_in_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("output.log");
        let (output, mut service) = FileOutput::create(&path).unwrap();
        service.write_all(lines(0, 200_000).as_bytes()).unwrap();
        output.finish().unwrap();
        service.write_all(b"still here\n").unwrap();
        assert!(fs::read_to_string(&path).unwrap().ends_with("line 0000199999\nstill here\n"));
        service.write_all(lines(0, 200_000).as_bytes()).unwrap();
        truncate(&path).unwrap();
        assert!(fs::metadata(&path).unwrap().len() <= HEAD + TAIL + STEP + BLOCK + 100);
        service.write_all(b"and here\n").unwrap();
        assert!(fs::read_to_string(&path).unwrap().ends_with("line 0000199999\nand here\n"));
        truncate(Path::new("/nonexistent")).unwrap();
    }

    #[test]
    fn short_output_is_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("output.log");
        let (output, mut program) = FileOutput::create(&path).unwrap();
        program.write_all(b"a\nb\n").unwrap();
        output.finish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a\nb\n");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }
}
