//! Output of checks, limited to its beginning and its end. An endless output fills neither the disk nor the memory, and
//! never blocks the program.
//!
//! A check leaves no processes behind. It writes to a pipe that the agent reads. The limit is strict, and if the agent is
//! killed the check ends at its next write. Appliers and hooks write to a file; see [`muster_supervisor::output`].

use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::{fs, io};

use muster_supervisor::output::{create_private, join_ends};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

/// Size of each end that is kept. Checks print a few lines, a release may have dozens of checks, and the last runs stay on
/// the node.
const PIPE_HEAD: usize = 16 * 1024;
const PIPE_TAIL: usize = 48 * 1024;
/// Capacity of a pipe.
const PIECE: usize = 64 * 1024;
/// Maximum number of pieces to read at the end. Two are enough, unless an escaped process still writes.
const LAST_PIECES: usize = 4;

/// Output pipe of a program that leaves no processes behind.
#[derive(Debug)]
pub(super) struct PipeOutput {
    path: PathBuf,
    end: pipe::Receiver,
    piece: Vec<u8>,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    left_out: u64,
}

impl PipeOutput {
    /// Opens the output that ends up in the file at `path`. The second handle is for the program.
    pub(super) fn open(path: &Path) -> io::Result<(Self, OwnedFd)> {
        // Removes an old output, and fails before the program starts if the file cannot be written.
        create_private(path)?;
        let (theirs, ours) = pipe::pipe()?;
        let output = Self {
            path: path.to_owned(),
            end: ours,
            piece: vec![0; PIECE],
            head: Vec::new(),
            tail: VecDeque::new(),
            left_out: 0,
        };
        // Programs do not expect a non-blocking output.
        Ok((output, theirs.into_blocking_fd()?))
    }

    /// Reads the output, for ever. The future can be dropped at any time and started again.
    pub(super) async fn drain(&mut self) -> std::convert::Infallible {
        loop {
            match self.end.read(&mut self.piece).await {
                Ok(0) | Err(_) => return std::future::pending().await,
                Ok(length) => self.push(length),
            }
        }
    }

    fn push(&mut self, length: usize) {
        let mut rest = &self.piece[..length];
        let to_head = rest.len().min(PIPE_HEAD.saturating_sub(self.head.len()));
        self.head.extend_from_slice(&rest[..to_head]);
        rest = &rest[to_head..];
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(PIPE_TAIL);
        self.tail.drain(..over);
        self.left_out += over as u64;
    }

    /// Completes the file. Output of escaped processes is not waited for.
    pub(super) fn finish(mut self) -> io::Result<()> {
        for _ in 0..LAST_PIECES {
            match self.end.try_read(&mut self.piece) {
                Ok(0) | Err(_) => break,
                Ok(length) => self.push(length),
            }
        }
        let tail = self.tail.make_contiguous();
        let bytes = match self.left_out {
            0 => [&self.head[..], tail].concat(),
            left_out => join_ends(&self.head, left_out, tail),
        };
        fs::OpenOptions::new().write(true).truncate(true).open(&self.path)?.write_all(&bytes)
    }
}
