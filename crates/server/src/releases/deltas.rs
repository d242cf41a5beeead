//! Deltas between releases, for agents that have one release and need another: most files of two releases are the same.
//!
//! A delta is computed when the first agent requests it, and kept in memory for the others of a rollout. The memory is bounded:
//! a delta that is not much smaller than the bundle, or too large to keep, is not offered, and agents download the bundle.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use muster_core::release::manifest::Digest;
use muster_release::contents::bundle_contents;
use muster_release::delta::{PackDeltaError, pack_delta};
use tokio::sync::{OnceCell, Semaphore};

use crate::blobs::{BlobReader, BlobStream};

/// Bytes of all deltas in memory.
const TOTAL_LIMIT: usize = 16 * 1024 * 1024;
/// Bytes of one delta.
const DELTA_LIMIT: usize = 4 * 1024 * 1024;
/// Pairs of releases. Those whose delta is not offered take no memory.
const PAIR_LIMIT: usize = 64;

/// The bundles of two releases.
#[derive(Clone, Debug)]
pub(crate) struct DeltaRequest {
    pub base: (Digest, Arc<dyn BlobReader>),
    pub target: (Digest, Arc<dyn BlobReader>),
}

/// A delta, computed once; none if it is not worth a download.
type DeltaCell = Arc<OnceCell<Option<Bytes>>>;

/// The deltas of this server.
#[derive(Debug)]
pub(crate) struct Deltas {
    /// The most recently requested pair is the last.
    pairs: Mutex<Vec<((Digest, Digest), DeltaCell)>>,
    /// One computation at a time: it uses a processor for some hundred milliseconds.
    computing: Semaphore,
}

impl Default for Deltas {
    fn default() -> Self {
        Self { pairs: Mutex::default(), computing: Semaphore::new(1) }
    }
}

impl Deltas {
    /// The delta between two releases, computed if it is not in memory; none if agents should download the bundle.
    pub(crate) async fn get(&self, request: DeltaRequest) -> Option<Bytes> {
        let (base, target) = (request.base.0.clone(), request.target.0.clone());
        let cell = self.cell((base.clone(), target.clone()));
        let computed = cell.get_or_try_init(|| async {
            let _turn = self.computing.acquire().await.map_err(io::Error::other)?;
            let computed = tokio::task::spawn_blocking(move || compute(&request));
            computed.await.map_err(io::Error::other)?.map_err(io::Error::other)
        });
        let computed = computed.await.cloned();
        self.drop_oldest();
        match computed {
            Ok(delta) => delta,
            Err(error) => {
                tracing::warn!(%base, %target, %error, "cannot compute the delta between two releases; agents download the bundle");
                None
            }
        }
    }

    /// The cell of a pair, which becomes the most recent one.
    fn cell(&self, pair: (Digest, Digest)) -> DeltaCell {
        let mut pairs = self.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        let found = pairs.iter().position(|(known, _)| *known == pair);
        let entry = found.map_or_else(|| (pair, DeltaCell::default()), |at| pairs.remove(at));
        let cell = entry.1.clone();
        pairs.push(entry);
        cell
    }

    /// Drops the deltas that were not requested for longest, down to the limits.
    fn drop_oldest(&self) {
        let mut pairs = self.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        let size = |cell: &DeltaCell| cell.get().and_then(Option::as_ref).map_or(0, Bytes::len);
        let mut total: usize = pairs.iter().map(|(_, cell)| size(cell)).sum();
        while total > TOTAL_LIMIT || pairs.len() > PAIR_LIMIT {
            let (_, oldest) = pairs.remove(0);
            total -= size(&oldest);
        }
    }
}

fn compute(request: &DeltaRequest) -> Result<Option<Bytes>, PackDeltaError> {
    let (base, target) = (&*request.base.1, &*request.target.1);
    let limit = usize::try_from(target.size() / 2).unwrap_or(DELTA_LIMIT).min(DELTA_LIMIT);
    let (before, after) = (bundle_contents(BlobStream::new(base))?, bundle_contents(BlobStream::new(target))?);
    let mut delta = LimitedBuffer { bytes: Vec::new(), limit, is_full: false };
    let packed = pack_delta(&before, &after, BlobStream::new(target), &mut delta);
    if delta.is_full {
        return Ok(None);
    }
    let info = packed?;
    tracing::info!(base = %request.base.0, target = %request.target.0, unchanged = info.unchanged, changed = info.changed,
        size = delta.bytes.len(), "computed the delta between two releases");
    Ok(Some(delta.bytes.into()))
}

/// Collects bytes up to a limit.
struct LimitedBuffer {
    bytes: Vec<u8>,
    limit: usize,
    is_full: bool,
}

impl io::Write for LimitedBuffer {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + piece.len() > self.limit {
            self.is_full = true;
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        self.bytes.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes in memory, for a download.
#[derive(Debug)]
pub(crate) struct DeltaReader(pub Bytes);

impl BlobReader for DeltaReader {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, buffer: &mut [u8], place: u64) -> io::Result<usize> {
        let rest = usize::try_from(place).ok().and_then(|place| self.0.get(place..)).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        for (to, from) in buffer.iter_mut().zip(rest) {
            *to = *from;
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn pair(number: usize) -> (Digest, Digest) {
        let digest = |prefix: &str| Digest::new(format!("sha256:{prefix}{number:063x}")).unwrap();
        (digest("a"), digest("b"))
    }

    fn kept(deltas: &Deltas, numbers: usize) -> Vec<usize> {
        let pairs = deltas.pairs.lock().unwrap();
        pairs.iter().filter_map(|(known, _)| (0..numbers).find(|number| pair(*number) == *known)).collect()
    }

    #[test]
    fn deltas_not_requested_for_longest_are_dropped() {
        let deltas = Deltas::default();
        for number in 0..6 {
            deltas.cell(pair(number)).set(Some(Bytes::from(vec![0; DELTA_LIMIT]))).unwrap();
        }
        assert!(deltas.cell(pair(0)).initialized(), "requested again");
        deltas.drop_oldest();
        assert_eq!(kept(&deltas, 6), [3, 4, 5, 0]);
        for number in 6..6 + PAIR_LIMIT {
            deltas.cell(pair(number)).set(None).unwrap();
        }
        deltas.drop_oldest();
        assert_eq!(kept(&deltas, 6 + PAIR_LIMIT), (6..6 + PAIR_LIMIT).collect::<Vec<_>>());
    }

    #[test]
    fn delta_over_its_limit_is_not_collected() {
        let mut buffer = LimitedBuffer { bytes: Vec::new(), limit: 4, is_full: false };
        buffer.write_all(b"1234").unwrap();
        assert!(!buffer.is_full);
        assert!(buffer.write_all(b"5").is_err());
        assert!(buffer.is_full);
        assert_eq!(buffer.bytes, b"1234");
    }
}
