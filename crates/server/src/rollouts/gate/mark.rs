//! Whose program it is. A server that is killed ends nothing: what it has left running is found by this, and ended when that
//! server starts again, before the same is asked once more.

use std::time::Duration;

use muster_core::replicas::ReplicaRecord;
use muster_marked::end_all;

/// The variable that all processes of a check have.
pub(super) const NAME: &str = "MUSTER_GATE_OF";
/// Nobody waits for what they say any more.
const GRACE: Duration = Duration::from_secs(1);

/// The same for every start of a server, and no other's: two of them cannot listen at one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark(String);

impl Mark {
    pub(crate) fn of(server: &ReplicaRecord) -> Self {
        Self(format!("{} {}", server.url, server.blobs.directory))
    }

    pub(super) fn value(&self) -> &str {
        &self.0
    }

    /// Ends what an earlier start of this server has left running.
    pub(crate) async fn end_leftovers(&self) {
        match end_all(NAME, &self.0, GRACE).await {
            Ok(ended) => {
                let pids = [&ended.asked[..], &ended.killed].concat();
                if !pids.is_empty() {
                    tracing::info!(?pids, "programs of a gate that a killed server had left running were ended");
                }
                if !ended.all() {
                    let left = ended.left;
                    tracing::warn!(?left, "programs of a gate that a killed server had left running cannot be ended");
                }
            }
            Err(error) => tracing::warn!(%error, "it cannot be told whether programs of a gate were left running"),
        }
    }
}
