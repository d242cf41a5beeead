//! What nodes are told to run, on a stream and to whoever asks: the version that was chosen, with what its builder signed.

use muster_core::fleet::Fleet;
use muster_wire::sync::DesiredState;

/// None before a version was chosen, or while its release is not registered.
pub(crate) fn of(fleet: &Fleet) -> Option<DesiredState> {
    let desired = fleet.desired()?;
    let release = fleet.releases().get(&desired.version)?;
    Some(DesiredState {
        generation: desired.generation,
        version: desired.version,
        digest: release.digest.clone(),
        serial: release.serial,
        allow_older: desired.allow_older,
        confirm_within: None,
        manifest: release.signed.clone(),
    })
}
