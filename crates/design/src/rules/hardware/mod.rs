//! Rules about hardware profiles, and about what nodes take from them: devices, processors, memory; and the platform.

pub(super) mod address_malformed;
pub(super) mod alias_incomplete;
pub(super) mod alias_twice;
pub(super) mod device_unknown;
pub(super) mod hugepages_alone;
pub(super) mod image_unknown;
pub(super) mod kernel_param_text;
pub(super) mod kernel_reference;
pub(super) mod pxe_interface;
mod system_name;
