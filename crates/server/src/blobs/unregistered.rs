//! Bundles that were uploaded and not registered, and uploads in progress. Any client can upload, so their number and bytes
//! are limited.
//!
//! The directory has a mark for each of them, which all replicas see. An upload that is never registered is removed by a
//! sweep, at most two hours later; its mark goes with it, or when it is registered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_release::tree::BUNDLE_LIMIT;
use thiserror::Error;

use super::store::UnfinishedFiles;

/// Bytes of unregistered blobs: 16 of the largest bundles.
pub(crate) const MAX_BYTES: u64 = 16 * BUNDLE_LIMIT;
/// Number of unregistered blobs. It bounds the memory of the count.
pub(crate) const MAX_COUNT: usize = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "too many bundles are being uploaded or not registered: {count} with {bytes} bytes, and at most {MAX_COUNT} with \
     {MAX_BYTES} bytes are stored"
)]
pub(crate) struct UploadsFull {
    count: usize,
    bytes: u64,
}

/// Unregistered blobs in use, and counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnregisteredUsage {
    pub(crate) count: usize,
    pub(crate) bytes: u64,
    /// Uploads that were refused.
    pub(crate) refused: u64,
    /// Blobs that sweeps have removed.
    pub(crate) swept: u64,
}

#[derive(Debug, Default)]
pub(crate) struct UnregisteredBundles(Mutex<UnregisteredState>);

#[derive(Debug, Default)]
struct UnregisteredState {
    /// Sizes by digest.
    stored: HashMap<String, u64>,
    /// Files of uploads to other replicas, and of uploads that killed servers have left.
    unfinished: UnfinishedFiles,
    /// Uploads in progress, and the bytes that they may have.
    uploads: usize,
    reserved: u64,
    refused: u64,
    swept: u64,
}

impl UnregisteredState {
    fn usage(&self) -> UnregisteredUsage {
        let bytes = self.stored.values().sum::<u64>() + self.unfinished.bytes + self.reserved;
        let count = self.stored.len() + self.unfinished.count + self.uploads;
        UnregisteredUsage { count, bytes, refused: self.refused, swept: self.swept }
    }
}

impl UnregisteredBundles {
    /// Reserves room for an upload, beside these unregistered bundles and unfinished files.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        bytes: u64,
        stored: HashMap<String, u64>,
        unfinished: UnfinishedFiles,
    ) -> Result<UploadReservation, UploadsFull> {
        let mut state = self.state();
        (state.stored, state.unfinished) = (stored, unfinished);
        let UnregisteredUsage { count, bytes: used, .. } = state.usage();
        if count >= MAX_COUNT || used.saturating_add(bytes) > MAX_BYTES {
            state.refused += 1;
            return Err(UploadsFull { count, bytes: used });
        }
        state.uploads += 1;
        state.reserved += bytes;
        Ok(UploadReservation { bundles: Arc::clone(self), bytes })
    }

    /// Records what a sweep has removed, and the unregistered bundles and unfinished files that are left.
    pub(crate) fn swept(&self, removed: usize, left: HashMap<String, u64>, unfinished: UnfinishedFiles) {
        let mut state = self.state();
        state.swept += removed as u64;
        (state.stored, state.unfinished) = (left, unfinished);
    }

    pub(crate) fn usage(&self) -> UnregisteredUsage {
        self.state().usage()
    }

    fn state(&self) -> MutexGuard<'_, UnregisteredState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Room for an upload. Dropped before its end, it is free again.
#[derive(Debug)]
pub(crate) struct UploadReservation {
    bundles: Arc<UnregisteredBundles>,
    bytes: u64,
}

impl UploadReservation {
    /// The upload is stored, and counts until it is registered or removed.
    pub(crate) fn stored(self, digest: &str, size: u64) {
        self.bundles.state().stored.insert(digest.to_owned(), size);
    }
}

impl Drop for UploadReservation {
    fn drop(&mut self) {
        let mut state = self.bundles.state();
        state.uploads -= 1;
        state.reserved -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: UnfinishedFiles = UnfinishedFiles { count: 0, bytes: 0 };

    #[test]
    fn unregistered_bundles_are_limited_by_bytes_and_number() {
        let bundles = Arc::new(UnregisteredBundles::default());
        let stored = |count: usize, bytes| (0..count).map(|number| (number.to_string(), bytes)).collect();
        bundles.reserve(10, stored(0, 0), NONE).unwrap().stored("a", 7);
        assert_eq!(bundles.usage(), UnregisteredUsage { count: 1, bytes: 7, ..Default::default() });

        let refused = bundles.reserve(MAX_BYTES - 6, stored(1, 7), NONE).unwrap_err();
        assert_eq!(refused, UploadsFull { count: 1, bytes: 7 });
        let upload = bundles.reserve(MAX_BYTES - 7, stored(1, 7), NONE).unwrap();
        assert!(bundles.reserve(1, stored(1, 7), NONE).is_err(), "the upload in progress counts");
        drop(upload);
        bundles.reserve(MAX_BYTES - 7, stored(1, 7), NONE).unwrap();
        assert!(bundles.reserve(0, stored(MAX_COUNT, 0), NONE).is_err());
        let unfinished = UnfinishedFiles { count: 1, bytes: MAX_BYTES - 6 };
        assert!(bundles.reserve(0, stored(1, 7), unfinished).is_err(), "unfinished files count");
        bundles.swept(999, stored(1, 3), NONE);
        assert_eq!(bundles.usage(), UnregisteredUsage { count: 1, bytes: 3, refused: 4, swept: 999 });
    }
}
