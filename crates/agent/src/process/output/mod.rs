//! Output of programs, limited to its beginning and its end. An endless output fills neither the disk nor the memory, and
//! never blocks the program.
//!
//! There are two kinds:
//!
//! - A check leaves no processes behind. It writes to a *pipe* that the agent reads ([`pipe`]). The limit is strict, and if
//!   the agent is killed the check ends at its next write.
//! - An applier or a hook may start services, which may hold its output open for years. A pipe would kill or block such a
//!   service when the agent has ended. These programs write to a *file* ([`file`]). While the program runs, the agent polls
//!   the file and frees the space of its middle. The fastest writers exceed the limit by some tens of megabytes between two
//!   polls. What services write after the run is truncated at each later run.
//!
//! A kernel limit (`RLIMIT_FSIZE`) is no option, because it ends the program.

pub mod file;
mod pipe;

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Stdio;

use crate::process::supervise::Leftovers;

/// Destination of a program's output.
#[derive(Debug)]
pub(super) enum Output {
    Pipe(pipe::PipeOutput),
    File(file::FileOutput),
}

/// Handles for the program.
#[derive(Debug)]
pub(super) struct OutputHandles {
    pub(super) out: Stdio,
    pub(super) err: Stdio,
}

impl Output {
    /// Opens the output that ends up in the file at `path`.
    pub(super) fn open(path: &Path, leftovers: Leftovers) -> io::Result<(Self, OutputHandles)> {
        match leftovers {
            Leftovers::End => {
                let (pipe, end) = pipe::PipeOutput::open(path)?;
                Ok((Self::Pipe(pipe), OutputHandles { out: end.try_clone()?.into(), err: end.into() }))
            }
            Leftovers::Keep => {
                let (file, end) = file::FileOutput::create(path)?;
                Ok((Self::File(file), OutputHandles { out: end.try_clone()?.into(), err: end.into() }))
            }
        }
    }

    /// Reads or truncates the output, for ever. The future can be dropped at any time and started again.
    pub(super) async fn drain(&mut self) -> std::convert::Infallible {
        match self {
            Self::Pipe(pipe) => pipe.drain().await,
            Self::File(file) => file.drain().await,
        }
    }

    /// Completes the file. Output of escaped processes is not waited for.
    pub(super) fn finish(self, path: &Path) {
        let finished = match self {
            Self::Pipe(pipe) => pipe.finish(),
            Self::File(file) => file.finish(),
        };
        if let Err(error) = finished {
            tracing::warn!(file = %path.display(), %error, "cannot store the output of a program");
        }
    }
}

/// Creates a file that only the agent's user may read: programs may print secrets.
fn create_private(path: &Path) -> io::Result<File> {
    let file = std::fs::OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    file.set_len(0)?;
    Ok(file)
}

/// Joins both ends of an output with a note on the omitted bytes. Cuts at line ends if there are any.
fn join_ends(head: &[u8], left_out: u64, tail: &[u8]) -> Vec<u8> {
    let kept_head = head.iter().rposition(|byte| *byte == b'\n').map_or(head, |end| &head[..=end]);
    let kept_tail = match tail.iter().position(|byte| *byte == b'\n') {
        Some(end) if end + 1 < tail.len() => &tail[end + 1..],
        Some(_) | None => tail,
    };
    let left_out = left_out + (head.len() - kept_head.len() + tail.len() - kept_tail.len()) as u64;
    let line = if kept_head.ends_with(b"\n") { "" } else { "\n" };
    [kept_head, format!("{line}… {left_out} bytes left out …\n").as_bytes(), kept_tail].concat()
}

#[cfg(test)]
mod tests {
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
}
