//! The output of a supervised program: a file, limited to its beginning and its end. An endless output does not fill the
//! disk, and never blocks the program.
//!
//! The program may start services, which may hold its output open for years. A pipe would kill or block such a service when
//! its reader has ended, so these programs write to a file. While the program runs, the supervisor polls the file and frees
//! the space of its middle. The fastest writers exceed the limit by some tens of megabytes between two polls. What services
//! write after the run is truncated by the agent.
//!
//! A kernel limit (`RLIMIT_FSIZE`) is no option, because it ends the program.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// Creates a file that only the agent's user may read: programs may print secrets.
pub fn create_private(path: &Path) -> io::Result<File> {
    let file = fs::OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    file.set_len(0)?;
    Ok(file)
}

/// Joins both ends of an output with a note on the omitted bytes. Cuts at line ends if there are any.
pub fn join_ends(head: &[u8], left_out: u64, tail: &[u8]) -> Vec<u8> {
    let kept_head = head.iter().rposition(|byte| *byte == b'\n').map_or(head, |end| &head[..=end]);
    let kept_tail = match tail.iter().position(|byte| *byte == b'\n') {
        Some(end) if end + 1 < tail.len() => &tail[end + 1..],
        Some(_) | None => tail,
    };
    let left_out = left_out + (head.len() - kept_head.len() + tail.len() - kept_tail.len()) as u64;
    let line = if kept_head.ends_with(b"\n") { "" } else { "\n" };
    [kept_head, format!("{line}… {left_out} bytes left out …\n").as_bytes(), kept_tail].concat()
}

/// Size of each end that is kept on the node. The report has less. Errors are mostly at the end.
const FILE_HEAD: u64 = 256 * 1024;
const FILE_TAIL: u64 = 768 * 1024;
/// Minimum size to free at once.
const STEP: u64 = 256 * 1024;
/// Largest common block size of file systems.
const BLOCK: u64 = 64 * 1024;

/// Output file of a program that may leave services behind, and its hole.
///
/// Programs append to the file (`O_APPEND`), so it can be truncated while they write. During the run the freed part becomes
/// a hole, which reads as zeros: offsets do not change, and the live log can follow the file by its length. At the end the
/// hole is removed.
#[derive(Debug)]
pub struct OutputFile {
    file: File,
    /// End of the hole, which begins after the head.
    hole_end: u64,
    /// Bytes that were removed without a hole.
    lost: u64,
    failed: bool,
}

impl OutputFile {
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self::new(create_private(path)?))
    }

    fn new(file: File) -> Self {
        Self { file, hole_end: FILE_HEAD, lost: 0, failed: false }
    }

    /// A handle for the program.
    pub fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Frees the space between head and tail. After an error the output is no longer limited.
    pub fn trim(&mut self) {
        self.failed = self.failed || self.try_trim().is_err();
    }

    fn try_trim(&mut self) -> io::Result<()> {
        let size = self.file.metadata()?.len();
        let until = size.saturating_sub(FILE_TAIL) / BLOCK * BLOCK;
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
                self.file.set_len(FILE_HEAD)?;
                self.lost += size - FILE_HEAD;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the hole, in place, because a service may continue to write to this file.
    pub fn finish(mut self) -> io::Result<()> {
        self.try_trim()?;
        if self.hole_end == FILE_HEAD && self.lost == 0 {
            return Ok(());
        }
        let (mut head, mut tail) = (Vec::new(), Vec::new());
        self.file.rewind()?;
        (&self.file).take(FILE_HEAD).read_to_end(&mut head)?;
        self.file.seek(SeekFrom::Start(self.hole_end))?;
        // Limited, because a service may write as fast as this reads.
        (&self.file).take(FILE_TAIL + STEP + BLOCK).read_to_end(&mut tail)?;
        let text = join_ends(&head, self.hole_end - FILE_HEAD + self.lost, &tail);
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
    OutputFile::new(file).finish()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn omitted_bytes_are_counted_and_lines_stay_complete() {
        let text = |head: &str, left_out, tail: &str| {
            String::from_utf8(join_ends(head.as_bytes(), left_out, tail.as_bytes())).unwrap()
        };
        assert_eq!(text("a\nb\nha", 10, "lf\nc\nd\n"), "a\nb\n… 15 bytes left out …\nc\nd\n");
        assert_eq!(text("aaa", 10, "bbb"), "aaa\n… 10 bytes left out …\nbbb");
        assert_eq!(text("aaa\n", 10, "bbb\n"), "aaa\n… 10 bytes left out …\nbbb\n");
    }

    /// Numbered lines of 16 bytes.
    fn lines(from: u64, to: u64) -> String {
        (from..to).map(|number| format!("line {number:010}\n")).collect()
    }

    #[test]
    fn long_output_keeps_its_ends_and_frees_its_middle() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("output.log");
        let mut output = OutputFile::create(&path).unwrap();
        let mut program = output.handle().unwrap();
        for part in 0..64 {
            program.write_all(lines(part * 16_384, (part + 1) * 16_384).as_bytes()).unwrap();
            output.trim();
            let used = fs::metadata(&path).unwrap().blocks() * 512;
            assert!(used <= FILE_HEAD + FILE_TAIL + STEP + 2 * BLOCK + 256 * 1024, "{used} bytes after part {part}");
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
        let output = OutputFile::create(&path).unwrap();
        let mut service = output.handle().unwrap();
        service.write_all(lines(0, 200_000).as_bytes()).unwrap();
        output.finish().unwrap();
        service.write_all(b"still here\n").unwrap();
        assert!(fs::read_to_string(&path).unwrap().ends_with("line 0000199999\nstill here\n"));
        service.write_all(lines(0, 200_000).as_bytes()).unwrap();
        truncate(&path).unwrap();
        assert!(fs::metadata(&path).unwrap().len() <= FILE_HEAD + FILE_TAIL + STEP + BLOCK + 100);
        service.write_all(b"and here\n").unwrap();
        assert!(fs::read_to_string(&path).unwrap().ends_with("line 0000199999\nand here\n"));
        truncate(Path::new("/nonexistent")).unwrap();
    }

    #[test]
    fn short_output_is_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("output.log");
        let output = OutputFile::create(&path).unwrap();
        let mut program = output.handle().unwrap();
        program.write_all(b"a\nb\n").unwrap();
        output.finish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a\nb\n");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }
}
