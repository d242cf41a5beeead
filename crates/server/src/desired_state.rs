//! What a node is told to run, on a stream and when it asks: the version that was chosen for it, with what its builder signed.

use muster_core::fleet::Fleet;
use muster_core::names::NodeName;
use muster_wire::sync::DesiredState;

/// None before a version was chosen, or while its release is not registered.
pub(crate) fn of(fleet: &Fleet, node: &NodeName) -> Option<DesiredState> {
    let desired = fleet.desired_of(node)?;
    let release = fleet.releases().get(&desired.version)?;
    Some(DesiredState {
        generation: desired.generation,
        version: desired.version,
        digest: release.digest.clone(),
        serial: release.serial,
        allow_older: desired.allow_older,
        confirm_within: desired.confirm_within,
        manifest: release.signed.clone(),
    })
}
