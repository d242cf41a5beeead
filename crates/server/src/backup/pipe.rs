//! From a thread that writes to a body that is sent: bounded, so that a slow reader slows the writer down.

use std::io::{self, Write};

use bytes::Bytes;
use futures::Stream;
use tokio::sync::mpsc;

/// Large enough that a thread is not woken for nothing.
const PIECE: usize = 64 * 1024;
/// How many pieces may wait to be sent.
const AHEAD: usize = 4;

/// The end that is written to. What was written is complete only after `flush`.
#[derive(Debug)]
pub(crate) struct Pipe {
    to: mpsc::Sender<io::Result<Bytes>>,
    piece: Vec<u8>,
}

/// Both ends, and a way to end the stream with an error: without one it ends when the pipe is dropped.
pub(crate) fn pipe() -> (Pipe, mpsc::Sender<io::Result<Bytes>>, impl Stream<Item = io::Result<Bytes>>) {
    let (to, from) = mpsc::channel(AHEAD);
    let pieces = futures::stream::unfold(from, |mut from| async { Some((from.recv().await?, from)) });
    (Pipe { to: to.clone(), piece: Vec::with_capacity(PIECE) }, to, pieces)
}

impl Pipe {
    fn send(&mut self) -> io::Result<()> {
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE));
        // Whoever asked for it has gone.
        self.to.blocking_send(Ok(piece.into())).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE {
            self.send()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() { Ok(()) } else { self.send() }
    }
}
