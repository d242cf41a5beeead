//! Rules about out-of-band access and drivers.

pub(super) mod driver_without_name;
pub(super) mod libvirt_uri;
pub(super) mod libvirt_without_mac;
pub(super) mod no_type;
pub(super) mod oob_incomplete;
pub(super) mod oob_without_address;
pub(super) mod type_unknown;

use crate::rules::view::Placed;
use crate::yaml::Node;

/// What Muster knows.
const TYPES: &[&str] = &["ipmi", "redfish", "libvirt", "manual"];

/// The type of an access, if it is one that is reached over a network with a password.
fn remote_type(oob: &Node) -> Option<Placed<&str>> {
    Placed::text(oob, "type").filter(|access| matches!(access.value, "ipmi" | "redfish"))
}

fn is_libvirt(oob: &Node) -> bool {
    Placed::text(oob, "type").is_some_and(|access| access.value == "libvirt")
}

/// Whether something is said at a key.
fn says(node: &Node, key: &str) -> bool {
    node.get(key).is_some_and(|value| !value.is_null())
}
