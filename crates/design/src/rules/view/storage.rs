//! Storage layout of a node, as rules read it, and the capacity of disks and volume groups from the sizes in the hardware
//! profile.

use std::collections::HashMap;

use crate::file_text::Span;
use crate::kinds::Kind;
use crate::rules::{DocumentView, SiteView};
use crate::types::{VolumeSize, size};
use crate::yaml::{ScalarKind, YamlKey, YamlNode};

use super::{Spanned, entries, items};

/// Fields of a node that sizes depend on.
pub(crate) const CAPACITY_PARTS: &[&str] = &["storage", "hardware_profile"];

#[derive(Debug)]
pub(crate) struct Storage<'n> {
    pub boot_drive: Option<Spanned<&'n str>>,
    /// Disks that are not described are partitioned by the driver.
    pub partitions_the_rest: bool,
    pub disks: Vec<DiskLayout<'n>>,
    pub groups: Vec<VolumeGroup<'n>>,
}

#[derive(Debug)]
pub(crate) struct DiskLayout<'n> {
    pub key: &'n YamlKey,
    /// Volume group that owns the whole disk.
    pub volume_group: Option<Spanned<&'n str>>,
    pub partitions: Vec<Volume<'n>>,
    pub has_labels: bool,
}

/// A volume group.
#[derive(Debug)]
pub(crate) struct VolumeGroup<'n> {
    pub key: &'n YamlKey,
    pub uuid: Option<Spanned<&'n str>>,
    pub volumes: Vec<Volume<'n>>,
}

/// A part of a disk or of a volume group: a partition or a logical volume.
#[derive(Debug)]
pub(crate) struct Volume<'n> {
    pub name: Spanned<&'n str>,
    /// None if absent or malformed.
    pub size: Option<(VolumeSize, Span)>,
    pub has_size: bool,
    /// Volume group of a partition.
    pub volume_group: Option<Spanned<&'n str>>,
    pub filesystem: Option<&'n YamlNode>,
    pub mountpoint: Option<Spanned<&'n str>>,
    /// Span of `bootable: true`.
    pub bootable: Option<Span>,
    pub has_labels: bool,
    pub uuids: [Option<Spanned<&'n str>>; 2],
}

impl<'n> Storage<'n> {
    pub(crate) fn read(node: &'n YamlNode) -> Self {
        let disk = |entry: &'n crate::yaml::YamlEntry| DiskLayout {
            key: &entry.key,
            volume_group: Spanned::text(&entry.value, "volume_group"),
            partitions: items(&entry.value, "partitions").iter().filter_map(Volume::read).collect(),
            has_labels: entry
                .value
                .get("labels")
                .and_then(YamlNode::map)
                .is_some_and(|labels| !labels.entries().is_empty()),
        };
        let group = |entry: &'n crate::yaml::YamlEntry| VolumeGroup {
            key: &entry.key,
            uuid: Spanned::text(&entry.value, "vg_uuid"),
            volumes: items(&entry.value, "logical_volumes").iter().filter_map(Volume::read).collect(),
        };
        Storage {
            boot_drive: Spanned::text(node, "boot_drive"),
            partitions_the_rest: Spanned::text(node, "layout").is_some_and(|layout| layout.value != "custom"),
            disks: entries(node, "disks").iter().map(disk).collect(),
            groups: entries(node, "volume_groups").iter().map(group).collect(),
        }
    }

    /// All partitions and logical volumes.
    pub(crate) fn volumes(&self) -> impl Iterator<Item = &Volume<'n>> {
        let partitions = self.disks.iter().flat_map(|disk| &disk.partitions);
        partitions.chain(self.groups.iter().flat_map(|group| &group.volumes))
    }

    /// Volume groups of all disks and partitions.
    pub(crate) fn physical_volumes(&self) -> impl Iterator<Item = Spanned<&'n str>> {
        self.disks.iter().flat_map(|disk| {
            let of_partitions = disk.partitions.iter().filter_map(|partition| partition.volume_group);
            disk.volume_group.into_iter().chain(of_partitions)
        })
    }
}

impl<'n> Volume<'n> {
    fn read(node: &'n YamlNode) -> Option<Self> {
        let filesystem = node.get("filesystem").filter(|filesystem| !filesystem.is_null());
        Some(Volume {
            name: Spanned::text(node, "name")?,
            size: Spanned::text(node, "size").and_then(|text| Some((size(text.value)?, text.span))),
            has_size: node.get("size").is_some(),
            volume_group: Spanned::text(node, "volume_group"),
            filesystem,
            mountpoint: filesystem.and_then(|filesystem| Spanned::text(filesystem, "mountpoint")),
            bootable: node
                .get("bootable")
                .filter(|value| value.kind() == Some(ScalarKind::Bool(true)))
                .map(|it| it.span),
            has_labels: !entries(node, "labels").is_empty(),
            uuids: [
                Spanned::text(node, "part_uuid").or_else(|| Spanned::text(node, "lv_uuid")),
                filesystem.and_then(|filesystem| Spanned::text(filesystem, "fs_uuid")),
            ],
        })
    }

    /// Reports whether it is mounted at the path, in any spelling.
    pub(crate) fn is_mounted_at(&self, path: &str) -> bool {
        self.mountpoint.is_some_and(|mountpoint| normalized(mountpoint.value) == path)
    }
}

/// A path without redundant slashes: `/var/` and `//var` become `/var`.
pub(crate) fn normalized(path: &str) -> String {
    let steps: Vec<&str> = path.split('/').filter(|step| !step.is_empty()).collect();
    format!("/{}", steps.join("/"))
}

/// Known capacities in bytes, by name.
pub(crate) struct Capacity<'n> {
    pub disks: HashMap<&'n str, u64>,
    pub groups: HashMap<&'n str, u64>,
}

impl<'n> Capacity<'n> {
    pub(crate) fn compute(site: &SiteView<'n>, host: &DocumentView<'n>, storage: &Storage<'n>) -> Self {
        let profile = host.text("hardware_profile").and_then(|name| site.get(Kind::HardwareProfile, name));
        let aliases = profile.map(|profile| entries(profile.tree, "device_aliases")).unwrap_or_default();
        let held = |entry: &'n crate::yaml::YamlEntry| match size(Spanned::text(&entry.value, "size")?.value)? {
            VolumeSize::Bytes(bytes) => Some((&*entry.key.text, bytes)),
            VolumeSize::Percent(_) | VolumeSize::AtLeast(_) => None,
        };
        let disks: HashMap<&str, u64> = aliases.iter().filter_map(held).collect();
        let groups = groups(storage, &disks);
        Capacity { disks, groups }
    }
}

/// Capacity of volume groups whose members all have a known size.
fn groups<'n>(storage: &Storage<'n>, disks: &HashMap<&str, u64>) -> HashMap<&'n str, u64> {
    let mut groups: HashMap<&str, Option<u64>> = HashMap::new();
    let mut add = |group: &'n str, bytes: Option<u64>| {
        let held = groups.entry(group).or_insert(Some(0));
        *held = held.zip(bytes).map(|(held, bytes)| held.saturating_add(bytes));
    };
    for disk in &storage.disks {
        let capacity = disks.get(&*disk.key.text).copied();
        if let Some(group) = disk.volume_group {
            add(group.value, capacity);
        }
        let shares = Shares::compute(&disk.partitions, capacity);
        for partition in &disk.partitions {
            if let Some(group) = partition.volume_group {
                add(group.value, shares.get(partition));
            }
        }
    }
    groups.into_iter().filter_map(|(group, held)| Some((group, held?))).collect()
}

/// Sizes of the volumes of one disk or volume group.
struct Shares {
    capacity: Option<u64>,
    /// Minimum of all volumes together, if known.
    least: Option<u64>,
}

impl Shares {
    fn compute(volumes: &[Volume<'_>], capacity: Option<u64>) -> Self {
        let least = |volume: &Volume<'_>| least_bytes(volume.size?.0, capacity);
        let sum = volumes.iter().try_fold(0u64, |sum, volume| Some(sum.saturating_add(least(volume)?)));
        Shares { capacity, least: sum }
    }

    fn get(&self, one: &Volume<'_>) -> Option<u64> {
        match one.size?.0 {
            VolumeSize::Bytes(bytes) => Some(bytes),
            VolumeSize::Percent(percent) => Some(percent_of(percent, self.capacity?)),
            VolumeSize::AtLeast(least) => Some(least.saturating_add(self.capacity?.saturating_sub(self.least?))),
        }
    }
}

/// Known sizes of the file systems mounted at a path, on disks and in volume groups.
pub(crate) fn mounted_sizes(site: &SiteView<'_>, host: &DocumentView<'_>, path: &str) -> Vec<(u64, Span)> {
    let Some(node) = host.get("storage") else { return Vec::new() };
    let storage = Storage::read(node);
    let capacity = Capacity::compute(site, host, &storage);
    let mut sizes = Vec::new();
    let mut collect = |volumes: &[Volume<'_>], size: Option<&u64>| {
        let shares = Shares::compute(volumes, size.copied());
        let mounted = volumes.iter().filter(|volume| volume.is_mounted_at(path));
        sizes.extend(mounted.filter_map(|volume| Some((shares.get(volume)?, volume.size?.1))));
    };
    for disk in &storage.disks {
        collect(&disk.partitions, capacity.disks.get(&*disk.key.text));
    }
    for group in &storage.groups {
        collect(&group.volumes, capacity.groups.get(&*group.key.text));
    }
    sizes
}

/// Minimum of a size in bytes; none for a percentage of an unknown capacity.
pub(crate) fn least_bytes(size: VolumeSize, capacity: Option<u64>) -> Option<u64> {
    match size {
        VolumeSize::Bytes(bytes) | VolumeSize::AtLeast(bytes) => Some(bytes),
        VolumeSize::Percent(percent) => Some(percent_of(percent, capacity?)),
    }
}

fn percent_of(percent: f64, capacity: u64) -> u64 {
    (percent / 100.0 * capacity as f64) as u64
}

/// Formats a number of bytes: `480 GB`.
pub(crate) fn format_bytes(bytes: u64) -> String {
    let units = [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    let (unit, name) = units.into_iter().find(|(unit, _)| bytes >= *unit).unwrap_or((1, "bytes"));
    let tenths = (bytes as f64 / unit as f64 * 10.0).round() / 10.0;
    format!("{tenths} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_formatted_with_units() {
        let shown = [0, 999, 20_000_000_000, 1_920_000_000_000, 21_474_836_480].map(format_bytes);
        assert_eq!(shown, ["0 bytes", "999 bytes", "20 GB", "1.9 TB", "21.5 GB"]);
    }
}
