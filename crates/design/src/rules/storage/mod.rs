//! Rules about disks, partitions and volume groups.
//!
//! A storage layout mostly stands in a profile and is shared by thousands of nodes, so each is looked at once. Nodes without
//! one are no rule's business: their driver decides.

pub(super) mod boot_drive_unknown;
pub(super) mod boot_too_small;
mod capacity;
pub(super) mod disk_two_ways;
pub(super) mod disk_unused;
pub(super) mod does_not_fit;
pub(super) mod group_unknown;
pub(super) mod group_without_disk;
pub(super) mod mountpoint_twice;
pub(super) mod no_root;
pub(super) mod no_size;
pub(super) mod partition_two_ways;
pub(super) mod partition_unused;
pub(super) mod percents;
pub(super) mod root_too_small;
pub(super) mod several_bootable;
pub(super) mod two_remainders;
pub(super) mod uuid_twice;
