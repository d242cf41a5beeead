//! `muster up --fresh`: removes the state of an earlier fleet, so that the next one starts from nothing.

use std::path::Path;

use anyhow::Context;
use muster_provision::local::{power_off_all, running_owner};
use muster_removal::OwnedDir;

use crate::connect::{FindServerError, FoundServer, find_by_state};
use crate::failure::Failure;
use crate::output::Notes;

use super::check_all_off;

/// Entries of a state directory that belong to a fleet. Keys and the token are kept: other servers and scripts may use them.
const ENTRIES: [&str; 9] = [
    "store",
    "store.revision",
    "blobs",
    "nodes",
    "network",
    "server.log",
    "server.log.old",
    "server.sock",
    "server.json",
];

/// Removes the state of the fleet of a directory, after a question. Refuses while a server or a fleet runs there.
pub(super) async fn forget_state(state: &Path, yes: bool, notes: &mut Notes) -> Result<(), Failure> {
    if ENTRIES.iter().all(|entry| state.join(entry).symlink_metadata().is_err()) {
        return Ok(());
    }
    let server = match find_by_state(state) {
        Ok(FoundServer::Announced { announcement, .. }) => Some(announcement.pid),
        Ok(FoundServer::Explicit { .. }) | Err(FindServerError::Stopped { .. } | FindServerError::NotFound(_)) => None,
        Err(
            error @ (FindServerError::Ambiguous(_)
            | FindServerError::Unreadable { .. }
            | FindServerError::CurrentDir(_)),
        ) => {
            return Err(error.into());
        }
    };
    if let Some(pid) = server.or(running_owner(state).map_err(Failure::failed)?) {
        let error = anyhow::anyhow!("a fleet is running on {} (process {pid}): its state is kept", state.display());
        return Err(Failure::failed(error).hint("stop it with `muster down`"));
    }
    if !yes {
        let question = "will be removed: store, releases, reports, and the files of its nodes. Continue?";
        notes.confirm(format_args!("the state of the fleet in {} {question}", state.display()), "--yes")?;
    }
    // Agents of a `muster up` that was killed.
    check_all_off(power_off_all(state).await.map_err(Failure::failed)?).map_err(Failure::failed)?;
    let failed = || format!("cannot remove the state in {}", state.display());
    let owned = OwnedDir::open(state).with_context(failed).map_err(Failure::failed)?;
    for entry in ENTRIES {
        owned.remove(entry).with_context(failed).map_err(Failure::failed)?;
    }
    Ok(())
}
