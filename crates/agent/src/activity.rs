//! Tells the server what the agent does right now. Only the newest word counts, and a lost one does no harm: the next
//! stream opens with it.
//!
//! That a run is over is told only when its report has arrived: else the server would show, for a moment, a node that
//! does nothing and has not begun.

use std::sync::Arc;

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use muster_core::standing::Activity;

use crate::node::Node;
use crate::servers::Servers;
use crate::sync::chain;

pub async fn run(
    node: Arc<Node>,
    servers: Servers,
    mut activity: watch::Receiver<Activity>,
    mut settled: watch::Receiver<bool>,
    again: Arc<Notify>,
    cancel: CancellationToken,
) {
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            () = again.notified() => {}
            changed = activity.changed() => if changed.is_err() { return },
        }
        let tell = async {
            // Whatever the agent begins meanwhile is told at once, and then this is old.
            tokio::select! {
                waited = settled.wait_for(|settled| *settled) => drop(waited),
                _ = activity.wait_for(is_busy) => {}
            }
            let now = activity.borrow_and_update().clone();
            servers.current().activity(&node.env, &node.name, &now).await
        };
        let told = tokio::select! {
            () = cancel.cancelled() => return,
            told = tell => told,
        };
        if let Err(error) = told {
            tracing::debug!(error = chain(&error), "the server does not know what the agent does");
        }
    }
}

/// Whether the agent does, or is kept from doing, something.
fn is_busy(activity: &Activity) -> bool {
    match activity {
        Activity::Applying { .. } | Activity::Validating { .. } | Activity::Blocked { .. } => true,
        Activity::Idle | Activity::Retrying { .. } => false,
    }
}
