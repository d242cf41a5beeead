//! What a program prints, kept within bounds: its beginning and its end. A program that prints for ever fills neither the
//! disk nor the memory, and is never made to wait.
//!
//! There are two ways, and which one it is depends on what becomes of the processes that the program leaves behind:
//!
//! - Nothing may be left of a check, so it writes to a *pipe* that the agent reads ([`pipe`]): the bound is strict, and
//!   when the agent is killed the check ends at its next word, as it should.
//! - An applier or a hook may start services, and a service may hold the applier's output open for years. With a pipe it
//!   would die of its next word once the agent has gone, or stop at it when nobody reads. So these write to a *file*
//!   ([`file`]), which nothing has to read; while the program runs the agent looks at the file again and again and gives
//!   the space of its middle back. That bound is as strict as the agent is quick: a few tens of megabytes for the fastest
//!   of writers. What services write to it after the run is cut back in the same way at each later run.
//!
//! A limit of the kernel (`RLIMIT_FSIZE`) would be no way: it ends the program.

pub mod file;
mod pipe;

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Stdio;

use crate::process::supervise::Leftovers;

/// Where a program's output goes.
#[derive(Debug)]
pub(super) enum Output {
    Pipe(pipe::Gathered),
    File(file::Trimmed),
}

/// The ends that the program is given.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) out: Stdio,
    pub(super) err: Stdio,
}

impl Output {
    /// Makes the way from a program to the file at `path`.
    pub(super) fn open(path: &Path, leftovers: Leftovers) -> io::Result<(Self, Ends)> {
        match leftovers {
            Leftovers::End => {
                let (gathered, end) = pipe::Gathered::open(path)?;
                Ok((Self::Pipe(gathered), Ends { out: end.try_clone()?.into(), err: end.into() }))
            }
            Leftovers::Stay => {
                let (trimmed, end) = file::Trimmed::create(path)?;
                Ok((Self::File(trimmed), Ends { out: end.try_clone()?.into(), err: end.into() }))
            }
        }
    }

    /// Takes what is printed, or makes room for it, for ever. It can be dropped at any time, and called again.
    pub(super) async fn keep_up(&mut self) -> std::convert::Infallible {
        match self {
            Self::Pipe(gathered) => gathered.keep_up().await,
            Self::File(trimmed) => trimmed.keep_up().await,
        }
    }

    /// Leaves the file as it is to be read. What is still on its way from processes that have got away is not waited for.
    pub(super) fn finish(self, path: &Path) {
        let finished = match self {
            Self::Pipe(gathered) => gathered.finish(),
            Self::File(trimmed) => trimmed.finish(),
        };
        if let Err(error) = finished {
            tracing::warn!(file = %path.display(), %error, "the output of a program could not be kept");
        }
    }
}

/// Opens a file that nobody else may read: programs print what they should not.
fn private(path: &Path) -> io::Result<File> {
    let file = std::fs::OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    file.set_len(0)?;
    Ok(file)
}

/// Both ends of an output, with a word on what is missing between; cut at the ends of lines where there are any.
fn shortened(head: &[u8], left_out: u64, tail: &[u8]) -> Vec<u8> {
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
    fn lines_stay_whole_and_every_byte_is_accounted_for() {
        let text = |head: &str, left_out, tail: &str| {
            String::from_utf8(shortened(head.as_bytes(), left_out, tail.as_bytes())).unwrap()
        };
        assert_eq!(text("a\nb\nha", 10, "lf\nc\nd\n"), "a\nb\n… 15 bytes left out …\nc\nd\n");
        assert_eq!(text("aaa", 10, "bbb"), "aaa\n… 10 bytes left out …\nbbb");
        assert_eq!(text("aaa\n", 10, "bbb\n"), "aaa\n… 10 bytes left out …\nbbb\n");
    }
}
