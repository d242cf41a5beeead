//! Rules for disks, partitions, volume groups and file systems.
//!
//! Thousands of nodes share a storage layout through a profile, so each layout is checked once. Nodes without a layout
//! are not checked: their driver decides.

pub(super) use super::view::storage::CAPACITY_PARTS;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use super::view::storage::{Capacity, format_bytes, least_bytes, mounted_sizes};
use crate::finding::{Code, quote};
use crate::rules::view::storage::{Storage, Volume, normalized};
use crate::rules::{DocumentView, RuleOutput, SiteView};
use crate::types::VolumeSize;
use crate::yaml::YamlNode;
use muster_core::spelling;

/// Reports a boot drive that is not one of the described disks.
pub(super) fn boot_drive_unknown(_: &SiteView<'_>, node: &YamlNode, out: &mut RuleOutput) {
    let storage = Storage::read(node);
    let Some(drive) = storage.boot_drive else { return };
    let names = || storage.disks.iter().map(|disk| &*disk.key.text);
    // Without disks, or with a layout for the rest, the boot drive may be a disk that is not described.
    if storage.disks.is_empty() || storage.partitions_the_rest || names().any(|name| name == drive.value) {
        return;
    }
    let message = format!("the boot drive {} is not one of the disks", quote(drive.value));
    let help = match spelling::nearest(drive.value, names()) {
        Some(near) => format!("did you mean {}?", quote(near)),
        None => "describe it under \"disks\", or set \"layout: flat\" or \"layout: lvm\" to partition it automatically"
            .to_owned(),
    };
    out.add(drive.span, Code::BootDriveUnknown.finding(message).help(help));
}

/// The minimum of Drydock.
const MIN_BOOT_BYTES: u64 = 1_000_000_000;

/// Reports a file system at `/boot` without room for several kernels.
pub(super) fn boot_too_small(site: &SiteView<'_>, host: &DocumentView<'_>, out: &mut RuleOutput) {
    for (bytes, at) in mounted_sizes(site, host, "/boot").into_iter().filter(|(bytes, _)| *bytes < MIN_BOOT_BYTES) {
        let message = format!("the file system at /boot has {}, which is too small", format_bytes(bytes));
        let finding =
            Code::BootTooSmall.finding(message).expected(format!("expected at least {}", format_bytes(MIN_BOOT_BYTES)));
        out.add(at, finding.help("an update of the kernel fails when the next one does not fit beside the last"));
    }
}

/// Reports a disk that has partitions and belongs to a volume group as a whole.
pub(super) fn disk_has_two_uses(_: &SiteView<'_>, node: &YamlNode, out: &mut RuleOutput) {
    for disk in Storage::read(node).disks {
        let (Some(group), Some(first)) = (disk.volume_group, disk.partitions.first()) else { continue };
        let message = format!(
            "disk {} belongs to volume group {} as a whole, and has partitions too",
            quote(&disk.key.text),
            quote(group.value)
        );
        let finding = Code::DiskHasTwoUses.finding(message);
        let help = "keep one; a profile below can remove what it inherits: \"volume_group: null\" or \"partitions: ['!NAME']\"";
        out.add_with_note(group.span, finding.help(help), "the first partition is here", first.name.span);
    }
}

/// Reports a disk that is described and not used.
pub(super) fn disk_unused(_: &SiteView<'_>, node: &YamlNode, out: &mut RuleOutput) {
    let storage = Storage::read(node);
    if storage.partitions_the_rest {
        return;
    }
    for disk in storage
        .disks
        .iter()
        .filter(|disk| disk.volume_group.is_none() && disk.partitions.is_empty() && !disk.has_labels)
    {
        let message = format!("disk {} has no partitions and belongs to no volume group", quote(&disk.key.text));
        let help = "nothing will be on it: give it one or the other, or remove it";
        out.add(disk.key.span, Code::DiskUnused.finding(message).help(help));
    }
}

/// Reports partitions or logical volumes that exceed the capacity of their disk or volume group.
pub(super) fn does_not_fit(site: &SiteView<'_>, host: &DocumentView<'_>, out: &mut RuleOutput) {
    let Some(node) = host.get("storage") else { return };
    let storage = Storage::read(node);
    let capacity = Capacity::compute(site, host, &storage);
    for disk in &storage.disks {
        let what = || format!("the partitions of disk {}", quote(&disk.key.text));
        check_capacity(&disk.partitions, capacity.disks.get(&*disk.key.text), what, out);
    }
    for group in &storage.groups {
        let what = || format!("the logical volumes of volume group {}", quote(&group.key.text));
        check_capacity(&group.volumes, capacity.groups.get(&*group.key.text), what, out);
    }
}

fn check_capacity(volumes: &[Volume<'_>], capacity: Option<&u64>, what: impl Fn() -> String, out: &mut RuleOutput) {
    let Some(&capacity) = capacity else { return };
    let mut total: u64 = 0;
    for volume in volumes {
        let Some((size, at)) = volume.size else { continue };
        total = total.saturating_add(least_bytes(size, Some(capacity)).unwrap_or(0));
        if total > capacity && !has_only_percents(volumes) {
            let message = format!(
                "{} do not fit: up to this one they take {} of {}",
                what(),
                format_bytes(total),
                format_bytes(capacity)
            );
            out.add(at, Code::DoesNotFit.finding(message).help("reduce them, or remove some"));
            return;
        }
    }
}

/// Returns whether all sizes are percentages. [`percents`] reports those that exceed 100 in total.
fn has_only_percents(volumes: &[Volume<'_>]) -> bool {
    volumes
        .iter()
        .filter_map(|volume| volume.size)
        .all(|(size, _)| matches!(size, crate::types::VolumeSize::Percent(_)))
}

/// Reports a disk or partition that is assigned to an unknown volume group.
pub(super) fn group_unknown(_: &SiteView<'_>, node: &YamlNode, out: &mut RuleOutput) {
    let storage = Storage::read(node);
    let groups: HashSet<&str> = storage.groups.iter().map(|group| &*group.key.text).collect();
    for group in storage.physical_volumes().filter(|group| !groups.contains(group.value)) {
        let message = format!("there is no volume group {}", quote(group.value));
        let help = match spelling::nearest(group.value, groups.iter().copied()) {
            Some(near) => format!("did you mean {}?", quote(near)),
            None => "describe it under \"volume_groups\", with its logical volumes".to_owned(),
        };
        out.add(group.span, Code::GroupUnknown.finding(message).help(help));
    }
}

/// Reports a volume group without a disk or partition.
pub(super) fn group_without_disk(_: &SiteView<'_>, node: &YamlNode, out: &mut RuleOutput) {
    let storage = Storage::read(node);
    let given: HashSet<&str> = storage.physical_volumes().map(|group| group.value).collect();
    for group in storage.groups.iter().filter(|group| !given.contains(&*group.key.text)) {
        let message = format!("no disk and no partition belongs to volume group {}", quote(&group.key.text));
        let help = format!("give it one: volume_group: {}, at a disk or at a partition", group.key.text);
        out.add(group.key.span, Code::GroupWithoutDisk.finding(message).help(crate::finding::one_line(&help)));
    }
}

/// Mount point of swap.
const NO_MOUNTPOINT: &str = "none";

/// Reports two file systems with the same mount point.
pub(super) fn mountpoint_twice(_: &SiteView<'_>, node: &YamlNode, out: &mut RuleOutput) {
    let storage = Storage::read(node);
    let mut seen = HashMap::new();
    for (volume, at) in storage.volumes().filter_map(|volume| Some((volume, volume.mountpoint?))) {
        if at.value == NO_MOUNTPOINT {
            continue;
        }
        match seen.entry(normalized(at.value)) {
            Entry::Vacant(new) => {
                new.insert(at.span);
            }
            Entry::Occupied(first) => {
                let message =
                    format!("{} is mounted at {}, where another one is", quote(volume.name.value), quote(at.value));
                let finding = Code::MountpointTwice.finding(message).help("mount one of them at another path");
                out.add_with_note(at.span, finding, "the other one is here", *first.get());
            }
        }
    }
}

/// Reports described disks without a file system at `/`.
pub(super) fn no_root(_: &SiteView<'_>, node: &YamlNode, out: &mut RuleOutput) {
    let storage = Storage::read(node);
    // The boot drive may be a disk that is not described.
    if storage.disks.is_empty() || storage.partitions_the_rest {
        return;
    }
    if !storage.volumes().any(|volume| volume.is_mounted_at("/")) {
        let at = node.map().and_then(|map| map.get("disks")).map_or(node.span, |entry| entry.key.span);
        let finding = Code::NoRoot.finding("disks are described, and no file system is mounted at /");
        let help = "give a partition or a logical volume \"filesystem: {mountpoint: /}\", or set \"layout: flat\" or \
                    \"layout: lvm\" to partition the boot drive automatically";
        out.add(at, finding.help(help));
    }
}

/// Reports a partition or logical volume without a size.
pub(super) fn no_size(_: &SiteView<'_>, node: &YamlNode, out: &mut RuleOutput) {
    let storage = Storage::read(node);
    for volume in storage.volumes().filter(|volume| !volume.has_size) {
        let finding = Code::NoSize.finding(format!("{} has no size", quote(volume.name.value)));
        out.add(
            volume.name.span,
            finding.help("add \"size: 20g\", \"size: 30%\", or \"size: '>1g'\" for all that is left"),
        );
    }
}

/// Reports a partition that has a file system and belongs to a volume group.
pub(super) fn partition_has_two_uses(_: &SiteView<'_>, node: &YamlNode, out: &mut RuleOutput) {
    for partition in Storage::read(node).disks.iter().flat_map(|disk| &disk.partitions) {
        let (Some(group), Some(filesystem)) = (partition.volume_group, partition.filesystem) else { continue };
        let message = format!(
            "partition {} belongs to volume group {}, and has a file system too",
            quote(partition.name.value),
            quote(group.value)
        );
        let finding = Code::PartitionHasTwoUses.finding(message);
        let help = "keep one: a file system in a volume group is that of a logical volume";
        out.add_with_note(group.span, finding.help(help), "the file system is here", filesystem.span);
    }
}

/// Reports a partition without a file system, a volume group or labels.
pub(super) fn partition_unused(_: &SiteView<'_>, node: &YamlNode, out: &mut RuleOutput) {
    for partition in Storage::read(node).disks.iter().flat_map(|disk| &disk.partitions) {
        let is_used = partition.filesystem.is_some() || partition.volume_group.is_some();
        // Boot loaders and some programs use a raw partition; a label marks that.
        if is_used || partition.bootable.is_some() || partition.has_labels {
            continue;
        }
        let message =
            format!("partition {} has no file system and belongs to no volume group", quote(partition.name.value));
        let help = "give it one of them; for a raw partition, set its labels: labels: {use: journal}";
        out.add(partition.name.span, Code::PartitionUnused.finding(message).help(help));
    }
}

/// Reports percentages of a disk or volume group that leave no space for the rest, or exceed 100.
pub(super) fn percents(_: &SiteView<'_>, node: &YamlNode, out: &mut RuleOutput) {
    let storage = Storage::read(node);
    for disk in &storage.disks {
        check_percents(&disk.partitions, || format!("disk {}", quote(&disk.key.text)), out);
    }
    for group in &storage.groups {
        check_percents(&group.volumes, || format!("volume group {}", quote(&group.key.text)), out);
    }
}

fn check_percents(volumes: &[Volume<'_>], what: impl Fn() -> String, out: &mut RuleOutput) {
    let sizes = || volumes.iter().filter_map(|volume| volume.size);
    let (mut total, mut last) = (0.0, None);
    for (size, at) in sizes() {
        if let VolumeSize::Percent(percent) = size {
            total += percent;
            last = Some(at);
        }
    }
    let Some(last) = last else { return };
    let others = sizes().any(|(size, _)| match size {
        VolumeSize::Percent(_) => false,
        VolumeSize::Bytes(bytes) | VolumeSize::AtLeast(bytes) => bytes > 0,
    });
    let message = if total > 100.0 {
        format!("{total} percent of {} are allocated", what())
    } else if total == 100.0 && others {
        format!("all of {} is allocated in percents, and nothing is left for what has a fixed size", what())
    } else {
        return;
    };
    let help = "percentages are of the total capacity: reduce them, or let one take all that is left, such as \">20g\"";
    out.add(last, Code::Percents.finding(message).help(help));
}

/// The minimum of Drydock.
const MIN_ROOT_BYTES: u64 = 20_000_000_000;

/// Reports a root file system without room for an operating system and its updates.
pub(super) fn root_too_small(site: &SiteView<'_>, host: &DocumentView<'_>, out: &mut RuleOutput) {
    for (bytes, at) in mounted_sizes(site, host, "/").into_iter().filter(|(bytes, _)| *bytes < MIN_ROOT_BYTES) {
        let message = format!("the root file system has {}, which is too small", format_bytes(bytes));
        let finding =
            Code::RootTooSmall.finding(message).expected(format!("expected at least {}", format_bytes(MIN_ROOT_BYTES)));
        out.add(at, finding.help("system updates and logs fill a small root file system; make it larger"));
    }
}

/// Reports several bootable partitions on one disk. One on each of two disks is common: the machine boots when a disk
/// fails.
pub(super) fn several_bootable(_: &SiteView<'_>, node: &YamlNode, out: &mut RuleOutput) {
    for disk in Storage::read(node).disks {
        let mut bootable = disk.partitions.iter().filter_map(|partition| Some((partition, partition.bootable?)));
        let Some((_, first)) = bootable.next() else { continue };
        for (partition, at) in bootable {
            let message =
                format!("partition {} is bootable, and so is another one of its disk", quote(partition.name.value));
            let finding = Code::SeveralBootable.finding(message).help("the firmware takes one of them: keep that");
            out.add_with_note(at, finding, "the other one is here", first);
        }
    }
}

/// Reports two volumes that both take the remaining space.
pub(super) fn two_remainders(_: &SiteView<'_>, node: &YamlNode, out: &mut RuleOutput) {
    let storage = Storage::read(node);
    for disk in &storage.disks {
        check_remainders(&disk.partitions, || format!("disk {}", quote(&disk.key.text)), out);
    }
    for group in &storage.groups {
        check_remainders(&group.volumes, || format!("volume group {}", quote(&group.key.text)), out);
    }
}

fn check_remainders(volumes: &[Volume<'_>], what: impl Fn() -> String, out: &mut RuleOutput) {
    let remainders = volumes.iter().filter_map(|volume| match volume.size? {
        (VolumeSize::AtLeast(_), at) => Some((volume, at)),
        (VolumeSize::Bytes(_) | VolumeSize::Percent(_), _) => None,
    });
    let mut remainders = remainders.peekable();
    let Some((_, first)) = remainders.next() else { return };
    for (volume, at) in remainders {
        let message =
            format!("{} takes all that is left of {}, and another one does so too", quote(volume.name.value), what());
        let finding = Code::TwoRemainders.finding(message).help("give one of them a size without \">\"");
        out.add_with_note(at, finding, "the other one is here", first);
    }
}

/// Reports a UUID that is used twice on one machine. The same layout on many machines shares its UUIDs.
pub(super) fn uuid_twice(_: &SiteView<'_>, node: &YamlNode, out: &mut RuleOutput) {
    let storage = Storage::read(node);
    let of_volumes = storage.volumes().flat_map(|volume| volume.uuids).flatten();
    let of_groups = storage.groups.iter().filter_map(|group| group.uuid);
    let mut seen = HashMap::new();
    for uuid in of_volumes.chain(of_groups) {
        match seen.entry(uuid.value.to_ascii_lowercase()) {
            Entry::Vacant(new) => {
                new.insert(uuid.span);
            }
            Entry::Occupied(first) => {
                let message = format!("the UUID {} is used twice on one machine", quote(uuid.value));
                let finding = Code::UuidTwice.finding(message).help("give one of them another");
                out.add_with_note(uuid.span, finding, "the first one is here", *first.get());
            }
        }
    }
}
