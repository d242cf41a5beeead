//! Storage layout of a node, as rules read it.

use super::{Spanned, entries, items};
use crate::span::Span;
use crate::types::{Size, size};
use crate::yaml::{Key, Kind, Node};

#[derive(Debug)]
pub(crate) struct Storage<'n> {
    pub boot_drive: Option<Spanned<&'n str>>,
    /// Disks that are not described are partitioned by the driver.
    pub partitions_the_rest: bool,
    pub disks: Vec<Disk<'n>>,
    pub groups: Vec<Group<'n>>,
}

#[derive(Debug)]
pub(crate) struct Disk<'n> {
    pub key: &'n Key,
    /// Volume group that owns the whole disk.
    pub volume_group: Option<Spanned<&'n str>>,
    pub partitions: Vec<Volume<'n>>,
    pub has_labels: bool,
}

/// A volume group.
#[derive(Debug)]
pub(crate) struct Group<'n> {
    pub key: &'n Key,
    pub uuid: Option<Spanned<&'n str>>,
    pub volumes: Vec<Volume<'n>>,
}

/// A part of a disk or of a volume group: a partition or a logical volume.
#[derive(Debug)]
pub(crate) struct Volume<'n> {
    pub name: Spanned<&'n str>,
    /// None if absent or malformed.
    pub size: Option<(Size, Span)>,
    pub has_size: bool,
    /// Volume group of a partition.
    pub volume_group: Option<Spanned<&'n str>>,
    pub filesystem: Option<&'n Node>,
    pub mountpoint: Option<Spanned<&'n str>>,
    /// Span of `bootable: true`.
    pub bootable: Option<Span>,
    pub has_labels: bool,
    pub uuids: [Option<Spanned<&'n str>>; 2],
}

impl<'n> Storage<'n> {
    pub(crate) fn read(node: &'n Node) -> Self {
        let disk = |entry: &'n crate::yaml::Entry| Disk {
            key: &entry.key,
            volume_group: Spanned::text(&entry.value, "volume_group"),
            partitions: items(&entry.value, "partitions").iter().filter_map(Volume::read).collect(),
            has_labels: entry
                .value
                .get("labels")
                .and_then(Node::map)
                .is_some_and(|labels| !labels.entries().is_empty()),
        };
        let group = |entry: &'n crate::yaml::Entry| Group {
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
    fn read(node: &'n Node) -> Option<Self> {
        let filesystem = node.get("filesystem").filter(|filesystem| !filesystem.is_null());
        Some(Volume {
            name: Spanned::text(node, "name")?,
            size: Spanned::text(node, "size").and_then(|text| Some((size(text.value)?, text.span))),
            has_size: node.get("size").is_some(),
            volume_group: Spanned::text(node, "volume_group"),
            filesystem,
            mountpoint: filesystem.and_then(|filesystem| Spanned::text(filesystem, "mountpoint")),
            bootable: node.get("bootable").filter(|value| value.kind() == Some(Kind::Bool(true))).map(|it| it.span),
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
