//! What became of a rollout, node by node. While it decides, that is worked out from the keys; the grants of the next one
//! overwrite them. So it is kept as a blob when it is over.

use muster_core::rollout::progress::Progress;

use super::plans::KeepPlanError;
use crate::App;
use crate::blobs::Blobs;

/// Keeps it for good. Returns its name.
pub(crate) async fn keep(app: &App, stood: &Progress) -> Result<String, KeepPlanError> {
    let bytes = serde_json::to_vec(stood)?;
    let (blobs, digest) = (app.blobs.clone(), Blobs::digest(&bytes));
    let name = digest.clone();
    let writing = tokio::task::spawn_blocking(move || blobs.keep_for_good([(name.as_str(), bytes.as_slice())]));
    writing.await.map_err(|_| KeepPlanError::CutOff)??;
    Ok(digest)
}

/// None if it is not there, or not understood: then what the keys still say is shown.
pub(crate) async fn read(app: &App, digest: String) -> Option<Progress> {
    let blobs = app.blobs.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let bytes = blobs.get(&digest)?;
        serde_json::from_slice(&bytes).ok()
    });
    reading.await.ok().flatten()
}
