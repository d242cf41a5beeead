//! Rules that an effective design must satisfy. Each family of rules has one file; [`RULES`] lists them all.
//!
//! Rules read values after inheritance, through [`SiteView`]. Types were checked before, where the values are written: a value
//! of the wrong type counts as absent here and is not reported again. A rule therefore neither fails on the mistakes that
//! another rule reports nor hides them.

mod addresses;
mod boot_actions;
mod claims;
mod hardware;
mod interfaces;
mod items;
mod links;
mod networks;
mod nodes;
mod run;
mod storage;
pub(crate) mod view;

pub(crate) use claims::{Claim, ClaimConflict, Claims};
pub(crate) use run::{NodeResults, RuleFinding, RuleOutput, check_fleet, check_nodes, check_site};
pub(crate) use view::{DocumentView, InterfaceView, NetworkView, NodeAddress, SiteView, Topology, attached};

use crate::finding::Code;
use crate::yaml::YamlNode;

/// One rule: the code of its findings and the function that reports them.
#[derive(Debug)]
pub(crate) struct Rule {
    pub code: Code,
    pub check: RuleCheck,
}

/// Function of a rule, by what it reads. That decides how often the rule runs.
#[derive(Debug)]
pub(crate) enum RuleCheck {
    /// Everything except nodes; runs once.
    Site(fn(&SiteView<'_>, &mut RuleOutput)),
    /// One node.
    Node(fn(&SiteView<'_>, &DocumentView<'_>, &mut RuleOutput)),
    /// One field of a node, independent of the rest of the node. Thousands of nodes share an inherited value; each
    /// distinct value is checked once.
    Part(&'static str, fn(&SiteView<'_>, &YamlNode, &mut RuleOutput)),
    /// Several fields of a node, independent of its name and its other fields. Nodes that share all of them, such as
    /// storage and hardware profile, are checked once.
    Parts(&'static [&'static str], fn(&SiteView<'_>, &DocumentView<'_>, &mut RuleOutput)),
    /// The interfaces of a node, like [`RuleCheck::Part`], parsed once for all rules.
    Interfaces(fn(&SiteView<'_>, &[InterfaceView<'_>], &mut RuleOutput)),
    /// One static address of a node with its network, parsed once for all rules.
    Address(fn(&NodeAddress<'_>, &mut RuleOutput)),
    /// Everything including all nodes; runs once, and again after any change.
    Fleet(fn(&SiteView<'_>, &mut RuleOutput)),
    /// A value that no two nodes may have: `claim` returns the values of one node, `conflict` the message.
    Unique { claim: fn(&SiteView<'_>, &DocumentView<'_>, &mut Claims), conflict: fn(&ClaimConflict<'_>) -> String },
}

const fn rule(code: Code, check: RuleCheck) -> Rule {
    Rule { code, check }
}

/// All rules, by family. The order has no effect.
pub(crate) const RULES: &[Rule] = &[
    rule(Code::HostBitsSet, RuleCheck::Site(networks::host_bits_set)),
    rule(Code::NoCidr, RuleCheck::Site(networks::no_cidr)),
    rule(Code::NetworksOverlap, RuleCheck::Site(networks::networks_overlap)),
    rule(Code::RangeIncomplete, RuleCheck::Site(networks::range_incomplete)),
    rule(Code::RangeBackwards, RuleCheck::Site(networks::range_backwards)),
    rule(Code::RangeOutside, RuleCheck::Site(networks::range_outside)),
    rule(Code::RangesOverlap, RuleCheck::Site(networks::ranges_overlap)),
    rule(Code::RangesRepeat, RuleCheck::Site(networks::ranges_repeat)),
    rule(Code::RouteWithoutGateway, RuleCheck::Site(networks::route_without_gateway)),
    rule(Code::GatewayOutside, RuleCheck::Site(networks::gateway_outside)),
    rule(Code::GatewayOfNoHost, RuleCheck::Site(networks::gateway_of_no_host)),
    rule(Code::GatewayOfOtherFamily, RuleCheck::Site(networks::gateway_of_other_family)),
    rule(Code::EmptyRoutedomain, RuleCheck::Site(networks::empty_routedomain)),
    rule(Code::RelayOutside, RuleCheck::Site(networks::relay_outside)),
    rule(Code::MtuRange, RuleCheck::Site(links::mtu_range)),
    rule(Code::MtuRange, RuleCheck::Interfaces(links::interface_mtu_range)),
    rule(Code::MtuAboveLink, RuleCheck::Site(links::mtu_above_link)),
    rule(Code::NetworkOnTwoLinks, RuleCheck::Site(links::network_on_two_links)),
    rule(Code::BondOptionsWithoutBond, RuleCheck::Site(links::bond_options_without_bond)),
    rule(Code::BondDelay, RuleCheck::Site(links::bond_delay)),
    rule(Code::BondUnwatched, RuleCheck::Site(links::bond_unwatched)),
    rule(Code::BondOptionOfOtherMode, RuleCheck::Site(links::bond_option_of_other_mode)),
    rule(Code::TrunkingNeeded, RuleCheck::Site(links::trunking_needed)),
    rule(Code::TaggedWithoutTrunk, RuleCheck::Site(links::tagged_without_trunk)),
    rule(Code::SeveralUntagged, RuleCheck::Site(links::several_untagged)),
    rule(Code::DefaultNotAllowed, RuleCheck::Site(links::default_not_allowed)),
    rule(Code::VlanTwice, RuleCheck::Site(links::vlan_twice)),
    rule(Code::NetworkNotAllowed, RuleCheck::Interfaces(interfaces::network_not_allowed)),
    rule(Code::InterfaceWithoutLink, RuleCheck::Interfaces(interfaces::interface_without_link)),
    rule(Code::InterfaceMtuAboveLink, RuleCheck::Interfaces(interfaces::interface_mtu_above_link)),
    rule(Code::NetworkMtuAboveInterface, RuleCheck::Interfaces(interfaces::network_mtu_above_interface)),
    rule(Code::DevicesWithoutBond, RuleCheck::Interfaces(interfaces::devices_without_bond)),
    rule(Code::BondOfOne, RuleCheck::Interfaces(interfaces::bond_of_one)),
    rule(Code::DeviceInTwoBonds, RuleCheck::Interfaces(interfaces::device_in_two_bonds)),
    rule(Code::DeviceTwice, RuleCheck::Interfaces(interfaces::device_twice)),
    rule(Code::NetworkTwice, RuleCheck::Interfaces(interfaces::network_twice)),
    rule(Code::NetworksOverlapOnNode, RuleCheck::Interfaces(interfaces::networks_overlap_on_node)),
    rule(Code::NetworkOfOtherRack, RuleCheck::Parts(&["interfaces", "rack"], interfaces::network_of_other_rack)),
    rule(Code::AddressMissing, RuleCheck::Node(addresses::address_missing)),
    rule(Code::AddressOutside, RuleCheck::Address(addresses::address_outside)),
    rule(Code::AddressWithoutCidr, RuleCheck::Address(addresses::address_without_cidr)),
    rule(Code::AddressOfNoHost, RuleCheck::Address(addresses::address_of_no_host)),
    rule(Code::AddressOfRouter, RuleCheck::Address(addresses::address_of_router)),
    rule(Code::AddressInDhcpRange, RuleCheck::Address(addresses::address_in_dhcp_range)),
    rule(Code::AddressInReservedRange, RuleCheck::Address(addresses::address_in_reserved_range)),
    rule(Code::AddressInNoRange, RuleCheck::Address(addresses::address_in_no_range)),
    rule(
        Code::DuplicateAddress,
        RuleCheck::Unique { claim: addresses::claim_addresses, conflict: addresses::address_conflict },
    ),
    rule(Code::AddressWithoutInterface, RuleCheck::Node(addresses::address_without_interface)),
    rule(Code::PrimaryNotAttached, RuleCheck::Node(addresses::primary_not_attached)),
    rule(Code::PrimaryWithoutAddress, RuleCheck::Node(addresses::primary_without_address)),
    rule(Code::DuplicateMac, RuleCheck::Unique { claim: nodes::claim_mac, conflict: nodes::mac_conflict }),
    rule(
        Code::DuplicateHostName,
        RuleCheck::Unique { claim: nodes::claim_host_name, conflict: nodes::host_name_conflict },
    ),
    rule(Code::NodeHostNameTooLong, RuleCheck::Node(nodes::host_name_too_long)),
    rule(Code::FqdnTooLong, RuleCheck::Node(nodes::fqdn_too_long)),
    rule(Code::MacOfNoDevice, RuleCheck::Node(nodes::mac_of_no_device)),
    rule(Code::BootDriveUnknown, RuleCheck::Part("storage", storage::boot_drive_unknown)),
    rule(Code::BootTooSmall, RuleCheck::Parts(storage::CAPACITY_PARTS, storage::boot_too_small)),
    rule(Code::DiskHasTwoUses, RuleCheck::Part("storage", storage::disk_has_two_uses)),
    rule(Code::DiskUnused, RuleCheck::Part("storage", storage::disk_unused)),
    rule(Code::DoesNotFit, RuleCheck::Parts(storage::CAPACITY_PARTS, storage::does_not_fit)),
    rule(Code::GroupUnknown, RuleCheck::Part("storage", storage::group_unknown)),
    rule(Code::GroupWithoutDisk, RuleCheck::Part("storage", storage::group_without_disk)),
    rule(Code::MountpointTwice, RuleCheck::Part("storage", storage::mountpoint_twice)),
    rule(Code::NoRoot, RuleCheck::Part("storage", storage::no_root)),
    rule(Code::NoSize, RuleCheck::Part("storage", storage::no_size)),
    rule(Code::PartitionHasTwoUses, RuleCheck::Part("storage", storage::partition_has_two_uses)),
    rule(Code::PartitionUnused, RuleCheck::Part("storage", storage::partition_unused)),
    rule(Code::Percents, RuleCheck::Part("storage", storage::percents)),
    rule(Code::RootTooSmall, RuleCheck::Parts(storage::CAPACITY_PARTS, storage::root_too_small)),
    rule(Code::SeveralBootable, RuleCheck::Part("storage", storage::several_bootable)),
    rule(Code::TwoRemainders, RuleCheck::Part("storage", storage::two_remainders)),
    rule(Code::UuidTwice, RuleCheck::Part("storage", storage::uuid_twice)),
    rule(Code::AddressMalformed, RuleCheck::Site(hardware::address_malformed)),
    rule(Code::AliasIncomplete, RuleCheck::Parts(&["hardware_profile"], hardware::alias_incomplete)),
    rule(Code::AliasTwice, RuleCheck::Site(hardware::alias_twice)),
    rule(
        Code::DeviceUnknown,
        RuleCheck::Parts(&["interfaces", "storage", "hardware_profile"], hardware::device_unknown),
    ),
    rule(Code::HugepagesAlone, RuleCheck::Part("platform", hardware::hugepages_alone)),
    rule(Code::ImageUnknown, RuleCheck::Part("platform", hardware::image_unknown)),
    rule(Code::KernelParamText, RuleCheck::Part("platform", hardware::kernel_param_text)),
    rule(Code::KernelReference, RuleCheck::Parts(&["platform", "hardware_profile"], hardware::kernel_reference)),
    rule(Code::PxeInterface, RuleCheck::Parts(&["hardware_profile"], hardware::pxe_interface)),
    rule(Code::AssetIncomplete, RuleCheck::Site(boot_actions::asset_incomplete)),
    rule(Code::AssetContentTwice, RuleCheck::Site(boot_actions::asset_content_twice)),
    rule(Code::FilterNameUnknown, RuleCheck::Fleet(boot_actions::filter_name_unknown)),
    rule(Code::NodeWithoutBootAction, RuleCheck::Fleet(boot_actions::node_without_boot_action)),
    rule(Code::PackageVersion, RuleCheck::Site(boot_actions::package_version)),
    rule(Code::AssetPathTwice, RuleCheck::Site(boot_actions::asset_path_twice)),
    rule(Code::SelectsNothing, RuleCheck::Fleet(boot_actions::selects_nothing)),
    rule(Code::UnitName, RuleCheck::Site(boot_actions::unit_name)),
    rule(Code::DriverWithoutName, RuleCheck::Part("driver", nodes::driver_without_name)),
    rule(Code::DriverUnavailable, RuleCheck::Part("driver", nodes::driver_unavailable)),
    rule(Code::LibvirtUri, RuleCheck::Part("oob", nodes::libvirt_uri)),
    rule(Code::LibvirtWithoutMac, RuleCheck::Node(nodes::libvirt_without_mac)),
    rule(Code::NoOobType, RuleCheck::Part("oob", nodes::no_oob_type)),
    rule(Code::OobIncomplete, RuleCheck::Part("oob", nodes::oob_incomplete)),
    rule(Code::OobWithoutAddress, RuleCheck::Node(nodes::oob_without_address)),
    rule(Code::OobTypeUnknown, RuleCheck::Parts(&["oob", "driver"], nodes::oob_type_unknown)),
    rule(Code::BudgetLabelUnused, RuleCheck::Fleet(nodes::budget_label_unknown)),
    rule(Code::ItemDoesNotFit, RuleCheck::Site(items::item_does_not_fit)),
    rule(Code::NotASchema, RuleCheck::Site(items::not_a_schema)),
];
