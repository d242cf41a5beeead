//! Rules that an effective design must satisfy. Each family of rules has one file; [`RULES`] lists them all.
//!
//! Rules read values after inheritance, through [`Site`]. Types were checked before, where the values are written: a value
//! of the wrong type counts as absent here and is not reported again. A rule therefore neither fails on the mistakes that
//! another rule reports nor hides them.

mod addresses;
mod boot_actions;
mod hardware;
mod interfaces;
mod items;
mod links;
mod networks;
mod nodes;
mod run;
mod storage;
pub(crate) mod view;

pub(crate) use run::{
    Claim, ClaimConflict, Claims, NodeResults, RuleFinding, RuleOutput, check_fleet, check_nodes, check_site,
};
pub(crate) use view::{DocumentView, Interface, Network, NodeAddress, Site, Topology, attached};

use crate::finding::Code;
use crate::yaml::Node;

/// One rule: the code of its findings and the function that reports them.
#[derive(Debug)]
pub(crate) struct Rule {
    pub code: Code,
    pub check: Check,
}

/// Function of a rule, by what it reads. That decides how often the rule runs.
#[derive(Debug)]
pub(crate) enum Check {
    /// Everything except nodes; runs once.
    Site(fn(&Site<'_>, &mut RuleOutput)),
    /// One node.
    Node(fn(&Site<'_>, &DocumentView<'_>, &mut RuleOutput)),
    /// One field of a node, independent of the rest of the node. Thousands of nodes share an inherited value; each
    /// distinct value is checked once.
    Part(&'static str, fn(&Site<'_>, &Node, &mut RuleOutput)),
    /// Several fields of a node, independent of its name and its other fields. Nodes that share all of them, such as
    /// storage and hardware profile, are checked once.
    Parts(&'static [&'static str], fn(&Site<'_>, &DocumentView<'_>, &mut RuleOutput)),
    /// The interfaces of a node, like [`Check::Part`], parsed once for all rules.
    Interfaces(fn(&Site<'_>, &[Interface<'_>], &mut RuleOutput)),
    /// One static address of a node with its network, parsed once for all rules.
    Address(fn(&NodeAddress<'_>, &mut RuleOutput)),
    /// Everything including all nodes; runs once, and again after any change.
    Fleet(fn(&Site<'_>, &mut RuleOutput)),
    /// A value that no two nodes may have: `claim` returns the values of one node, `conflict` the message.
    Unique { claim: fn(&Site<'_>, &DocumentView<'_>, &mut Claims<'_>), conflict: fn(&ClaimConflict<'_>) -> String },
}

const fn rule(code: Code, check: Check) -> Rule {
    Rule { code, check }
}

/// All rules, by family. The order has no effect.
pub(crate) const RULES: &[Rule] = &[
    rule(Code::HostBitsSet, Check::Site(networks::host_bits_set)),
    rule(Code::NoCidr, Check::Site(networks::no_cidr)),
    rule(Code::NetworksOverlap, Check::Site(networks::networks_overlap)),
    rule(Code::RangeIncomplete, Check::Site(networks::range_incomplete)),
    rule(Code::RangeBackwards, Check::Site(networks::range_backwards)),
    rule(Code::RangeOutside, Check::Site(networks::range_outside)),
    rule(Code::RangesOverlap, Check::Site(networks::ranges_overlap)),
    rule(Code::RangesRepeat, Check::Site(networks::ranges_repeat)),
    rule(Code::RouteWithoutGateway, Check::Site(networks::route_without_gateway)),
    rule(Code::GatewayOutside, Check::Site(networks::gateway_outside)),
    rule(Code::GatewayOfNoHost, Check::Site(networks::gateway_of_no_host)),
    rule(Code::GatewayOfOtherFamily, Check::Site(networks::gateway_of_other_family)),
    rule(Code::EmptyRoutedomain, Check::Site(networks::empty_routedomain)),
    rule(Code::RelayOutside, Check::Site(networks::relay_outside)),
    rule(Code::MtuRange, Check::Site(links::mtu_range)),
    rule(Code::MtuRange, Check::Interfaces(links::interface_mtu_range)),
    rule(Code::MtuAboveLink, Check::Site(links::mtu_above_link)),
    rule(Code::NetworkOnTwoLinks, Check::Site(links::network_on_two_links)),
    rule(Code::BondOptionsWithoutBond, Check::Site(links::bond_options_without_bond)),
    rule(Code::BondDelay, Check::Site(links::bond_delay)),
    rule(Code::BondUnwatched, Check::Site(links::bond_unwatched)),
    rule(Code::BondOptionOfOtherMode, Check::Site(links::bond_option_of_other_mode)),
    rule(Code::TrunkingNeeded, Check::Site(links::trunking_needed)),
    rule(Code::TaggedWithoutTrunk, Check::Site(links::tagged_without_trunk)),
    rule(Code::SeveralUntagged, Check::Site(links::several_untagged)),
    rule(Code::DefaultNotAllowed, Check::Site(links::default_not_allowed)),
    rule(Code::VlanTwice, Check::Site(links::vlan_twice)),
    rule(Code::NetworkNotAllowed, Check::Interfaces(interfaces::network_not_allowed)),
    rule(Code::InterfaceWithoutLink, Check::Interfaces(interfaces::interface_without_link)),
    rule(Code::InterfaceMtuAboveLink, Check::Interfaces(interfaces::interface_mtu_above_link)),
    rule(Code::NetworkMtuAboveInterface, Check::Interfaces(interfaces::network_mtu_above_interface)),
    rule(Code::DevicesWithoutBond, Check::Interfaces(interfaces::devices_without_bond)),
    rule(Code::BondOfOne, Check::Interfaces(interfaces::bond_of_one)),
    rule(Code::DeviceInTwoBonds, Check::Interfaces(interfaces::device_in_two_bonds)),
    rule(Code::DeviceTwice, Check::Interfaces(interfaces::device_twice)),
    rule(Code::NetworkTwice, Check::Interfaces(interfaces::network_twice)),
    rule(Code::NetworksOverlapOnNode, Check::Interfaces(interfaces::networks_overlap_on_node)),
    rule(Code::NetworkOfOtherRack, Check::Parts(&["interfaces", "rack"], interfaces::network_of_other_rack)),
    rule(Code::AddressMissing, Check::Node(addresses::address_missing)),
    rule(Code::AddressOutside, Check::Address(addresses::address_outside)),
    rule(Code::AddressWithoutCidr, Check::Address(addresses::address_without_cidr)),
    rule(Code::AddressOfNoHost, Check::Address(addresses::address_of_no_host)),
    rule(Code::AddressOfRouter, Check::Address(addresses::address_of_router)),
    rule(Code::AddressInDhcpRange, Check::Address(addresses::address_in_dhcp_range)),
    rule(Code::AddressInReservedRange, Check::Address(addresses::address_in_reserved_range)),
    rule(Code::AddressInNoRange, Check::Address(addresses::address_in_no_range)),
    rule(
        Code::DuplicateAddress,
        Check::Unique { claim: addresses::claim_addresses, conflict: addresses::address_conflict },
    ),
    rule(Code::AddressWithoutInterface, Check::Node(addresses::address_without_interface)),
    rule(Code::PrimaryNotAttached, Check::Node(addresses::primary_not_attached)),
    rule(Code::PrimaryWithoutAddress, Check::Node(addresses::primary_without_address)),
    rule(Code::DuplicateMac, Check::Unique { claim: nodes::claim_mac, conflict: nodes::mac_conflict }),
    rule(Code::DuplicateHostName, Check::Unique { claim: nodes::claim_host_name, conflict: nodes::host_name_conflict }),
    rule(Code::HostNameOfNode, Check::Node(nodes::host_name_too_long)),
    rule(Code::FqdnTooLong, Check::Node(nodes::fqdn_too_long)),
    rule(Code::MacOfNoDevice, Check::Node(nodes::mac_of_no_device)),
    rule(Code::BootDriveUnknown, Check::Part("storage", storage::boot_drive_unknown)),
    rule(Code::BootTooSmall, Check::Parts(storage::CAPACITY_PARTS, storage::boot_too_small)),
    rule(Code::DiskTwoWays, Check::Part("storage", storage::disk_two_ways)),
    rule(Code::DiskUnused, Check::Part("storage", storage::disk_unused)),
    rule(Code::DoesNotFit, Check::Parts(storage::CAPACITY_PARTS, storage::does_not_fit)),
    rule(Code::GroupUnknown, Check::Part("storage", storage::group_unknown)),
    rule(Code::GroupWithoutDisk, Check::Part("storage", storage::group_without_disk)),
    rule(Code::MountpointTwice, Check::Part("storage", storage::mountpoint_twice)),
    rule(Code::NoRoot, Check::Part("storage", storage::no_root)),
    rule(Code::NoSize, Check::Part("storage", storage::no_size)),
    rule(Code::PartitionTwoWays, Check::Part("storage", storage::partition_two_ways)),
    rule(Code::PartitionUnused, Check::Part("storage", storage::partition_unused)),
    rule(Code::Percents, Check::Part("storage", storage::percents)),
    rule(Code::RootTooSmall, Check::Parts(storage::CAPACITY_PARTS, storage::root_too_small)),
    rule(Code::SeveralBootable, Check::Part("storage", storage::several_bootable)),
    rule(Code::TwoRemainders, Check::Part("storage", storage::two_remainders)),
    rule(Code::UuidTwice, Check::Part("storage", storage::uuid_twice)),
    rule(Code::AddressMalformed, Check::Site(hardware::address_malformed)),
    rule(Code::AliasIncomplete, Check::Parts(&["hardware_profile"], hardware::alias_incomplete)),
    rule(Code::AliasTwice, Check::Site(hardware::alias_twice)),
    rule(Code::DeviceUnknown, Check::Parts(&["interfaces", "storage", "hardware_profile"], hardware::device_unknown)),
    rule(Code::HugepagesAlone, Check::Part("platform", hardware::hugepages_alone)),
    rule(Code::ImageUnknown, Check::Part("platform", hardware::image_unknown)),
    rule(Code::KernelParamText, Check::Part("platform", hardware::kernel_param_text)),
    rule(Code::KernelReference, Check::Parts(&["platform", "hardware_profile"], hardware::kernel_reference)),
    rule(Code::PxeInterface, Check::Parts(&["hardware_profile"], hardware::pxe_interface)),
    rule(Code::AssetIncomplete, Check::Site(boot_actions::asset_incomplete)),
    rule(Code::AssetContentTwice, Check::Site(boot_actions::asset_content_twice)),
    rule(Code::FilterNameUnknown, Check::Fleet(boot_actions::filter_name_unknown)),
    rule(Code::NodeWithoutBootAction, Check::Fleet(boot_actions::node_without_boot_action)),
    rule(Code::PackageVersion, Check::Site(boot_actions::package_version)),
    rule(Code::AssetPathTwice, Check::Site(boot_actions::asset_path_twice)),
    rule(Code::SelectsNothing, Check::Fleet(boot_actions::selects_nothing)),
    rule(Code::UnitName, Check::Site(boot_actions::unit_name)),
    rule(Code::DriverWithoutName, Check::Part("driver", nodes::driver_without_name)),
    rule(Code::LibvirtUri, Check::Part("oob", nodes::libvirt_uri)),
    rule(Code::LibvirtWithoutMac, Check::Node(nodes::libvirt_without_mac)),
    rule(Code::NoOobType, Check::Part("oob", nodes::no_oob_type)),
    rule(Code::OobIncomplete, Check::Part("oob", nodes::oob_incomplete)),
    rule(Code::OobWithoutAddress, Check::Node(nodes::oob_without_address)),
    rule(Code::OobTypeUnknown, Check::Parts(&["oob", "driver"], nodes::oob_type_unknown)),
    rule(Code::LabelOfNobody, Check::Fleet(nodes::budget_label_unknown)),
    rule(Code::ItemDoesNotFit, Check::Site(items::item_does_not_fit)),
    rule(Code::NotASchema, Check::Site(items::not_a_schema)),
];
