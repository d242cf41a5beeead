//! What must hold in an effective design: one file a rule, a code of its own each.
//!
//! A rule looks at values after inheritance, through [`Site`]. Types have been checked before, where they were written:
//! a value of the wrong type is as good as absent here, and no rule says it again. So a rule never crashes on what
//! another has found, and never hides what another will find.

mod access;
mod boot_action;
mod claims;
mod hardware;
mod items;
mod networks;
mod nodes;
mod out;
mod rollout;
mod run;
mod site;
mod storage;
pub(crate) mod view;

pub(crate) use claims::{Claim, Claims, Taken};
pub(crate) use out::{Out, Raw};
pub(crate) use run::{Results, check_fleet, check_hosts, check_site};
pub(crate) use site::{Site, Thing};
pub(crate) use view::{Interface, Network, Placement, Topology, attached};

use crate::finding::Code;
use crate::yaml::Node;

/// One thing that must hold.
#[derive(Debug)]
pub(crate) struct Rule {
    pub code: Code,
    pub check: Check,
}

/// What a rule looks at; with it goes how often.
#[derive(Debug)]
pub(crate) enum Check {
    /// Everything but the nodes, once.
    Site(fn(&Site<'_>, &mut Out)),
    /// Each node.
    Node(fn(&Site<'_>, &Thing<'_>, &mut Out)),
    /// A part of a node, by its key, that depends on nothing else in the node. Thousands of nodes share what they inherit:
    /// it is looked at once for each that is different.
    Part(&'static str, fn(&Site<'_>, &Node, &mut Out)),
    /// Several parts of a node, by their keys, that are looked at together, and nothing else in it: not its name either.
    /// Nodes that share all of them, such as their storage and their hardware profile, are looked at once.
    Parts(&'static [&'static str], fn(&Site<'_>, &Thing<'_>, &mut Out)),
    /// The interfaces of a node, and nothing else in it: as a part, but read once for all rules about them.
    Interfaces(fn(&Site<'_>, &[Interface<'_>], &mut Out)),
    /// Each address of a node that is written out, with its network: read once for all rules about them.
    Address(fn(&Placement<'_>, &mut Out)),
    /// Everything with all of the nodes, once; again when any of it changes.
    Fleet(fn(&Site<'_>, &mut Out)),
    /// Something that no two nodes may have: what each of them claims, and how to say that another has it.
    Unique { claim: fn(&Site<'_>, &Thing<'_>, &mut Claims<'_>), taken: fn(&Taken<'_>) -> String },
}

/// All rules. The order does not matter.
pub(crate) const RULES: &[&Rule] = &[
    &networks::host_bits_set::RULE,
    &networks::no_cidr::RULE,
    &networks::networks_overlap::RULE,
    &networks::range_incomplete::RULE,
    &networks::range_backwards::RULE,
    &networks::range_outside::RULE,
    &networks::ranges_overlap::RULE,
    &networks::ranges_repeat::RULE,
    &networks::route_without_gateway::RULE,
    &networks::gateway_outside::RULE,
    &networks::gateway_of_no_host::RULE,
    &networks::gateway_of_other_family::RULE,
    &networks::empty_routedomain::RULE,
    &networks::relay_outside::RULE,
    &networks::mtu_range::RULE,
    &networks::mtu_range::OF_INTERFACES,
    &networks::mtu_above_link::RULE,
    &networks::network_on_two_links::RULE,
    &networks::bond_options_without_bond::RULE,
    &networks::bond_delay::RULE,
    &networks::bond_unwatched::RULE,
    &networks::bond_option_of_other_mode::RULE,
    &networks::trunking_needed::RULE,
    &networks::tagged_without_trunk::RULE,
    &networks::several_untagged::RULE,
    &networks::default_not_allowed::RULE,
    &networks::vlan_twice::RULE,
    &nodes::network_not_allowed::RULE,
    &nodes::interface_without_link::RULE,
    &nodes::interface_mtu_above_link::RULE,
    &nodes::network_mtu_above_interface::RULE,
    &nodes::devices_without_bond::RULE,
    &nodes::bond_of_one::RULE,
    &nodes::device_in_two_bonds::RULE,
    &nodes::device_twice::RULE,
    &nodes::network_twice::RULE,
    &nodes::networks_overlap_on_node::RULE,
    &nodes::address_missing::RULE,
    &nodes::address_outside::RULE,
    &nodes::address_without_cidr::RULE,
    &nodes::address_of_no_host::RULE,
    &nodes::address_of_router::RULE,
    &nodes::address_in_dhcp_range::RULE,
    &nodes::address_in_reserved_range::RULE,
    &nodes::address_in_no_range::RULE,
    &nodes::duplicate_address::RULE,
    &nodes::duplicate_mac::RULE,
    &nodes::duplicate_host_name::RULE,
    &nodes::host_name_too_long::RULE,
    &nodes::fqdn_too_long::RULE,
    &nodes::address_without_interface::RULE,
    &nodes::primary_not_attached::RULE,
    &nodes::primary_without_address::RULE,
    &nodes::network_of_other_rack::RULE,
    &nodes::mac_of_no_device::RULE,
    &storage::boot_drive_unknown::RULE,
    &storage::boot_too_small::RULE,
    &storage::disk_two_ways::RULE,
    &storage::disk_unused::RULE,
    &storage::does_not_fit::RULE,
    &storage::group_unknown::RULE,
    &storage::group_without_disk::RULE,
    &storage::mountpoint_twice::RULE,
    &storage::no_root::RULE,
    &storage::no_size::RULE,
    &storage::partition_two_ways::RULE,
    &storage::partition_unused::RULE,
    &storage::percents::RULE,
    &storage::root_too_small::RULE,
    &storage::several_bootable::RULE,
    &storage::two_remainders::RULE,
    &storage::uuid_twice::RULE,
    &hardware::address_malformed::RULE,
    &hardware::alias_incomplete::RULE,
    &hardware::alias_twice::RULE,
    &hardware::device_unknown::RULE,
    &hardware::hugepages_alone::RULE,
    &hardware::image_unknown::RULE,
    &hardware::kernel_param_text::RULE,
    &hardware::kernel_reference::RULE,
    &hardware::pxe_interface::RULE,
    &boot_action::asset_incomplete::RULE,
    &boot_action::content_twice::RULE,
    &boot_action::name_unknown::RULE,
    &boot_action::node_without::RULE,
    &boot_action::package_version::RULE,
    &boot_action::path_twice::RULE,
    &boot_action::selects_nothing::RULE,
    &boot_action::unit_name::RULE,
    &items::item_does_not_fit::RULE,
    &items::not_a_schema::RULE,
    &access::driver_without_name::RULE,
    &access::libvirt_uri::RULE,
    &access::libvirt_without_mac::RULE,
    &access::no_type::RULE,
    &access::oob_incomplete::RULE,
    &access::oob_without_address::RULE,
    &access::type_unknown::RULE,
    &rollout::label_of_nobody::RULE,
];
