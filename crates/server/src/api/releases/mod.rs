//! Releases: bundles come in by their digest, and are registered under a version; nodes download them by that.

pub(crate) mod bundles;
pub(crate) mod download;
pub(crate) mod list;
mod range;
pub(crate) mod release;
pub(crate) mod trust;

use std::io;

use muster_wire::problem::{Code, Problem};

use super::answer::{Refusal, chain};
use crate::blobs::ReceiveError;
use crate::blobs::outgoing::Overloaded;

/// When somebody who was sent away may come back, in seconds.
const RETRY_AFTER: u16 = 5;

impl From<Overloaded> for Refusal {
    fn from(error: Overloaded) -> Self {
        let problem = Problem::new(Code::Busy, error.to_string());
        Self(problem.retry_after(RETRY_AFTER).hint("ask again in a few seconds"))
    }
}

impl From<ReceiveError> for Refusal {
    fn from(error: ReceiveError) -> Self {
        let text = format!("the bundle was not taken: {}", chain(&error));
        match error {
            ReceiveError::TooLarge { .. } => {
                Self(Problem::new(Code::TooLarge, text).hint("packages and images do not belong into a release"))
            }
            ReceiveError::Another { .. } => Self(
                Problem::new(Code::ReleaseRefused, text).hint("it was damaged on its way, or before: send it again"),
            ),
            ReceiveError::Io(error) => not_kept(&error, text),
        }
    }
}

/// What is said when the place for blobs fails.
fn not_kept(error: &io::Error, text: String) -> Refusal {
    if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        return Refusal(Problem::new(Code::StoreFull, text).hint("make room where the server keeps its blobs"));
    }
    Refusal(Problem::new(Code::StoreUnavailable, text).hint("look at the directory that --blobs names"))
}

/// Does something that blocks.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Refusal(Problem::new(Code::Internal, chain(&error))))
}
