//! Downloads of large blobs to many clients, in pieces. A piece is read when the previous one is sent: a slow client delays
//! only itself, and memory does not grow with the blob.
//!
//! At most 32 downloads are served at once; at most 8192 more wait in order, each for at most 60 seconds.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::Stream;
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::store::BlobReader;

/// Size of a piece. Large enough that a thread is not woken for a few bytes.
pub(crate) const PIECE: usize = 64 * 1024;
/// Downloads that are served at once. A connection buffers at most half a megabyte for a slow client: all together stay
/// well below 32 MiB.
const SERVED: usize = 32;
/// Downloads that may wait. Each costs a connection; this exceeds the nodes of a large fleet.
const WAITING: usize = 8192;
/// Longest wait in the queue before the client gets a response to retry.
const TURN: Duration = Duration::from_secs(60);
/// A client that reads nothing for this long loses its turn.
const STALLED: Duration = Duration::from_secs(30);

#[derive(Debug, Error)]
#[error("{served} downloads are being served and {waiting} more wait for their turn")]
pub(crate) struct DownloadsOverloaded {
    served: usize,
    waiting: usize,
}

/// All downloads of this server.
#[derive(Debug)]
pub struct Downloads {
    slots: Arc<Semaphore>,
    waiting: AtomicUsize,
    sending: Mutex<JoinSet<()>>,
}

impl Default for Downloads {
    fn default() -> Self {
        let (waiting, sending) = (AtomicUsize::new(0), Mutex::default());
        Self { slots: Arc::new(Semaphore::new(SERVED)), waiting, sending }
    }
}

/// Permit of one download.
#[derive(Debug)]
pub(crate) struct DownloadPermit {
    _slot: OwnedSemaphorePermit,
}

impl Downloads {
    /// Waits for a turn, in order.
    pub(crate) async fn turn(&self) -> Result<DownloadPermit, DownloadsOverloaded> {
        if let Ok(slot) = self.slots.clone().try_acquire_owned() {
            return Ok(DownloadPermit { _slot: slot });
        }
        let waits = QueuedDownload::begin(&self.waiting);
        let overloaded = || DownloadsOverloaded { served: SERVED, waiting: waits.before };
        if waits.before >= WAITING {
            return Err(overloaded());
        }
        match timeout(TURN, self.slots.clone().acquire_owned()).await {
            Ok(Ok(slot)) => Ok(DownloadPermit { _slot: slot }),
            Ok(Err(_)) | Err(_) => Err(overloaded()),
        }
    }

    /// Streams a range of a blob. The stream ends with an error if the blob cannot be read.
    pub(crate) fn send(
        &self,
        turn: DownloadPermit,
        what: Arc<dyn BlobReader>,
        part: Range<u64>,
    ) -> impl Stream<Item = io::Result<Bytes>> + use<> {
        // One piece is read while the previous one waits for the socket.
        let (to, from) = mpsc::channel(1);
        let mut sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        while sending.try_join_next().is_some() {}
        sending.spawn(async move {
            send_pieces(what, part, to).await;
            drop(turn);
        });
        futures::stream::unfold(from, |mut from| async { Some((from.recv().await?, from)) })
    }
}

/// Counts a waiting download until it is dropped.
struct QueuedDownload<'a> {
    all: &'a AtomicUsize,
    before: usize,
}

impl<'a> QueuedDownload<'a> {
    fn begin(all: &'a AtomicUsize) -> Self {
        Self { all, before: all.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for QueuedDownload<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn send_pieces(what: Arc<dyn BlobReader>, part: Range<u64>, to: mpsc::Sender<io::Result<Bytes>>) {
    let mut place = part.start;
    while place < part.end {
        let size = usize::try_from(part.end - place).unwrap_or(PIECE).min(PIECE);
        // Allocated here and not on the reading thread: allocators keep a heap for each thread, and there are many.
        let mut buffer = BytesMut::zeroed(size);
        let from = what.clone();
        let read = tokio::task::spawn_blocking(move || {
            let read = from.read_at(&mut buffer, place)?;
            buffer.truncate(read);
            io::Result::Ok(buffer.freeze())
        });
        let piece = match read.await {
            Ok(Ok(piece)) if piece.is_empty() => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            Ok(piece) => piece,
            Err(panicked) => Err(io::Error::other(panicked)),
        };
        if let Err(error) = &piece {
            tracing::warn!(%error, place, "a blob that is being downloaded cannot be read");
        }
        let (failed, length) = (piece.is_err(), piece.as_ref().map_or(0, Bytes::len));
        match timeout(STALLED, to.send(piece)).await {
            Ok(Ok(())) if !failed => place += length as u64,
            Ok(Ok(()) | Err(_)) => return,
            Err(_) => {
                tracing::debug!(place, "a download was aborted: its client reads nothing");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;

    #[derive(Debug)]
    struct Numbers(u64);

    impl BlobReader for Numbers {
        fn size(&self) -> u64 {
            self.0
        }

        fn read_at(&self, buffer: &mut [u8], place: u64) -> io::Result<usize> {
            let left = self.0.saturating_sub(place).min(buffer.len() as u64);
            for (byte, at) in buffer.iter_mut().zip(place..place + left) {
                *byte = (at % 251) as u8;
            }
            Ok(left as usize)
        }
    }

    #[tokio::test]
    async fn range_arrives_unchanged() {
        let downloads = Downloads::default();
        for part in [0..0, 0..1, 5..PIECE as u64 + 7, 100_000..300_000] {
            let turn = downloads.turn().await.unwrap();
            let pieces = downloads.send(turn, Arc::new(Numbers(300_000)), part.clone());
            let pieces: Vec<_> = pieces.collect().await;
            let bytes: Vec<u8> = pieces.into_iter().flat_map(Result::unwrap).collect();
            let expected: Vec<u8> = part.map(|at| (at % 251) as u8).collect();
            assert_eq!(bytes, expected);
        }
    }

    #[tokio::test]
    async fn truncated_blob_ends_with_an_error() {
        let downloads = Downloads::default();
        let turn = downloads.turn().await.unwrap();
        let pieces: Vec<_> = downloads.send(turn, Arc::new(Numbers(10)), 0..20).collect().await;
        assert_eq!(pieces.len(), 2);
        assert!(pieces[0].is_ok() && pieces[1].is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn stalled_client_loses_its_turn() {
        let downloads = Downloads::default();
        let mut stalled = Vec::new();
        for _ in 0..SERVED {
            let turn = downloads.turn().await.unwrap();
            stalled.push(downloads.send(turn, Arc::new(Numbers(10 * PIECE as u64)), 0..10 * PIECE as u64));
        }
        // All turns are held by clients that read nothing: the next waits until one times out.
        let turn = downloads.turn().await.unwrap();
        assert_eq!(downloads.waiting.load(Ordering::Relaxed), 0);
        drop(turn);
    }

    #[tokio::test(start_paused = true)]
    async fn long_wait_for_a_turn_fails() {
        let downloads = Downloads::default();
        let mut turns = Vec::new();
        for _ in 0..SERVED {
            turns.push(downloads.turn().await.unwrap());
        }
        let overloaded = downloads.turn().await.unwrap_err();
        assert_eq!(overloaded.to_string(), "32 downloads are being served and 0 more wait for their turn");
        turns.pop();
        assert!(downloads.turn().await.is_ok());
    }
}
