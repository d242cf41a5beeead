//! Networks and links: one file a rule.

pub(super) mod bond_delay;
pub(super) mod bond_option_of_other_mode;
pub(super) mod bond_options_without_bond;
pub(super) mod bond_unwatched;
pub(super) mod default_not_allowed;
pub(super) mod empty_routedomain;
pub(super) mod gateway_of_no_host;
pub(super) mod gateway_of_other_family;
pub(super) mod gateway_outside;
pub(super) mod host_bits_set;
pub(super) mod mtu_above_link;
pub(super) mod mtu_range;
pub(super) mod network_on_two_links;
pub(super) mod networks_overlap;
pub(super) mod no_cidr;
pub(super) mod range_backwards;
pub(super) mod range_incomplete;
pub(super) mod range_outside;
pub(super) mod ranges_overlap;
pub(super) mod ranges_repeat;
pub(super) mod relay_outside;
pub(super) mod route_without_gateway;
pub(super) mod several_untagged;
pub(super) mod tagged_without_trunk;
pub(super) mod trunking_needed;
pub(super) mod vlan_twice;
