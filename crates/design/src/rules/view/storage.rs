//! How the disks of a node are laid out.

use super::{Placed, entries, items};
use crate::span::Span;
use crate::types::{Size, size};
use crate::yaml::{Key, Kind, Node};

#[derive(Debug)]
pub(crate) struct Storage<'n> {
    pub boot_drive: Option<Placed<&'n str>>,
    /// Whether disks about which nothing is said are divided all the same.
    pub divides_the_rest: bool,
    pub disks: Vec<Disk<'n>>,
    pub groups: Vec<Group<'n>>,
}

#[derive(Debug)]
pub(crate) struct Disk<'n> {
    pub key: &'n Key,
    /// The volume group that all of it belongs to.
    pub volume_group: Option<Placed<&'n str>>,
    pub partitions: Vec<Volume<'n>>,
    /// Whether something is said about what it is for.
    pub has_labels: bool,
}

/// A volume group.
#[derive(Debug)]
pub(crate) struct Group<'n> {
    pub key: &'n Key,
    pub uuid: Option<Placed<&'n str>>,
    pub volumes: Vec<Volume<'n>>,
}

/// A part of a disk or of a volume group: a partition or a logical volume.
#[derive(Debug)]
pub(crate) struct Volume<'n> {
    pub name: Placed<&'n str>,
    /// None if nothing is said, or nothing that can be read.
    pub size: Option<(Size, Span)>,
    pub says_size: bool,
    /// The volume group that a partition belongs to.
    pub volume_group: Option<Placed<&'n str>>,
    pub filesystem: Option<&'n Node>,
    pub mountpoint: Option<Placed<&'n str>>,
    /// Where it says that the machine starts from it.
    pub bootable: Option<Span>,
    pub has_labels: bool,
    pub uuids: [Option<Placed<&'n str>>; 2],
}

impl<'n> Storage<'n> {
    pub(crate) fn read(node: &'n Node) -> Self {
        let disk = |entry: &'n crate::yaml::Entry| Disk {
            key: &entry.key,
            volume_group: Placed::text(&entry.value, "volume_group"),
            partitions: items(&entry.value, "partitions").iter().filter_map(Volume::read).collect(),
            has_labels: entry
                .value
                .get("labels")
                .and_then(Node::map)
                .is_some_and(|labels| !labels.entries().is_empty()),
        };
        let group = |entry: &'n crate::yaml::Entry| Group {
            key: &entry.key,
            uuid: Placed::text(&entry.value, "vg_uuid"),
            volumes: items(&entry.value, "logical_volumes").iter().filter_map(Volume::read).collect(),
        };
        Storage {
            boot_drive: Placed::text(node, "boot_drive"),
            divides_the_rest: Placed::text(node, "layout").is_some_and(|layout| layout.value != "custom"),
            disks: entries(node, "disks").iter().map(disk).collect(),
            groups: entries(node, "volume_groups").iter().map(group).collect(),
        }
    }

    /// All partitions and logical volumes.
    pub(crate) fn volumes(&self) -> impl Iterator<Item = &Volume<'n>> {
        let partitions = self.disks.iter().flat_map(|disk| &disk.partitions);
        partitions.chain(self.groups.iter().flat_map(|group| &group.volumes))
    }

    /// Everything that is given to volume groups, by the name of the group.
    pub(crate) fn physical_volumes(&self) -> impl Iterator<Item = Placed<&'n str>> {
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
            name: Placed::text(node, "name")?,
            size: Placed::text(node, "size").and_then(|text| Some((size(text.value)?, text.span))),
            says_size: node.get("size").is_some(),
            volume_group: Placed::text(node, "volume_group"),
            filesystem,
            mountpoint: filesystem.and_then(|filesystem| Placed::text(filesystem, "mountpoint")),
            bootable: node.get("bootable").filter(|value| value.kind() == Some(Kind::Bool(true))).map(|it| it.span),
            has_labels: !entries(node, "labels").is_empty(),
            uuids: [
                Placed::text(node, "part_uuid").or_else(|| Placed::text(node, "lv_uuid")),
                filesystem.and_then(|filesystem| Placed::text(filesystem, "fs_uuid")),
            ],
        })
    }

    /// Whether it is mounted there, however the path is spelt.
    pub(crate) fn is_mounted_at(&self, path: &str) -> bool {
        self.mountpoint.is_some_and(|mountpoint| same_path(mountpoint.value) == path)
    }
}

/// A path without the slashes that mean nothing: `/var/` and `//var` are `/var`.
pub(crate) fn same_path(path: &str) -> String {
    let steps: Vec<&str> = path.split('/').filter(|step| !step.is_empty()).collect();
    format!("/{}", steps.join("/"))
}
