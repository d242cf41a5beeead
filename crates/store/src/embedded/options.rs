//! What can be chosen about an embedded store.

use std::sync::Arc;

use crate::clock::{Clock, SystemClock};

/// How much history is kept, how much memory is used, and whose time counts.
#[derive(Clone, Debug)]
pub struct Options {
    /// Revisions that stay readable. A view that reconnects is seconds behind, and a busy fleet makes some hundred
    /// revisions a second.
    pub keep_revisions: u64,
    /// Bytes of history that are kept at most, however few revisions that is: what bounds the file.
    pub keep_bytes: u64,
    /// Pages that are kept in memory. redb's own default is a whole gigabyte.
    pub cache_bytes: usize,
    /// The clock that leases run on.
    pub clock: Arc<dyn Clock>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            keep_revisions: 10_000,
            keep_bytes: 64 * 1024 * 1024,
            cache_bytes: 32 * 1024 * 1024,
            clock: Arc::new(SystemClock::new()),
        }
    }
}
