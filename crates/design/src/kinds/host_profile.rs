//! A host profile: values that nodes, and other profiles, extend.

use super::network::NETWORKS;
use super::network_link::MOST_MTU;
use super::{Kind, LABELS};
use crate::types::{ANY_MAP, Field, Format, Object, TEXT, TEXT_MAP, TEXTS, Type, closed, field, integer};

pub(super) const BODY: Object = closed("a host profile", &[FIELDS, LABELS]);

/// What a profile says, and a node may say as well.
pub(super) const FIELDS: &[Field] = &[
    field("hardware_profile", Type::Reference(Kind::HardwareProfile), "The sort of machine."),
    field(
        "primary_network",
        Type::Reference(Kind::Network),
        "The network that gives the node its domain and name servers.",
    ),
    field("flavor", TEXT, "What machine it needs, in a word that a driver or a cloud's map file knows."),
    field("failure_domain", TEXT, "What the node fails together with."),
    field("rack", Type::Reference(Kind::Rack), "The rack that it stands in."),
    field("tags", TEXTS, "Words to select nodes by."),
    field("owner_data", TEXT_MAP, "Words that are passed on to whoever owns the machine."),
    field("boot_mac", Type::Text(Format::Mac), "The hardware address that it is installed through."),
    field("oob", Type::Object(&OUT_OF_BAND), "How the machine is switched on and off when nothing runs on it."),
    field("driver", Type::Object(&DRIVER), "The driver that provisions it."),
    field("storage", Type::Object(&STORAGE), "How its disks are laid out."),
    field("platform", Type::Object(&PLATFORM), "What is installed on it."),
    field("interfaces", Type::Map(&INTERFACE), "Its network interfaces, by name."),
];

const OUT_OF_BAND: Object = Object {
    what: "an out-of-band access",
    groups: &[&[
        field("type", TEXT, "`ipmi`, `redfish`, `libvirt`, `manual`, or a driver's own word."),
        field("network", Type::Reference(Kind::Network), "The network that it is reached on."),
        field("account", TEXT, "The account's name."),
        field("credential", Type::Secret, "Where the password is: `{secret: NAME}`."),
    ]],
    // Each driver has parameters of its own.
    open: true,
};

const DRIVER: Object = closed(
    "a driver",
    &[&[field("name", TEXT, "Which driver."), field("parameters", ANY_MAP, "What it needs to know; it checks them.")]],
);

const STORAGE: Object = closed(
    "a storage layout",
    &[&[
        field("boot_drive", TEXT, "The disk that the machine starts from: an alias or a name."),
        field("layout", Type::OneOf(&["custom", "flat", "lvm"]), "How a disk is divided about which nothing is said."),
        field("disks", Type::Map(&DISK), "The disks, by alias or name."),
        field("volume_groups", Type::Map(&VOLUME_GROUP), "The volume groups, by name."),
    ]],
);

const DISK: Type = Type::Object(&closed(
    "a disk",
    &[&[
        field("labels", TEXT_MAP, "Words about the disk."),
        field("volume_group", TEXT, "The volume group that all of it belongs to."),
        field("partitions", Type::Keyed { key: "name", item: &PARTITION }, "Its partitions, in order."),
    ]],
));

const PARTITION: Object = closed(
    "a partition",
    &[&[
        field("name", TEXT, "Its name."),
        field("size", Type::Text(Format::Size), "`20g`, `30%`, or `>20g` for at least that and all that is left."),
        field("part_uuid", Type::Text(Format::Uuid), "Its identity."),
        field("bootable", Type::Bool, "Whether the machine starts from it."),
        field("volume_group", TEXT, "The volume group that it belongs to."),
        field("labels", TEXT_MAP, "Words about the partition."),
        field("filesystem", Type::Object(&FILESYSTEM), "What is on it."),
    ]],
);

const FILESYSTEM: Object = closed(
    "a file system",
    &[&[
        field("mountpoint", Type::Text(Format::AbsolutePath), "Where it is mounted; `none` for swap."),
        field("fstype", TEXT, "`ext4`, `xfs`, …"),
        field("mount_options", TEXT, "Options of mount."),
        field("fs_uuid", Type::Text(Format::Uuid), "Its identity."),
        field("fs_label", TEXT, "Its label."),
    ]],
);

const VOLUME_GROUP: Type = Type::Object(&closed(
    "a volume group",
    &[&[
        field("vg_uuid", Type::Text(Format::Uuid), "Its identity."),
        field("logical_volumes", Type::Keyed { key: "name", item: &LOGICAL_VOLUME }, "Its volumes, in order."),
    ]],
));

const LOGICAL_VOLUME: Object = closed(
    "a logical volume",
    &[&[
        field("name", TEXT, "Its name."),
        field("lv_uuid", Type::Text(Format::Uuid), "Its identity."),
        field("size", Type::Text(Format::Size), "`20g`, `30%`, or `>20g` for at least that and all that is left."),
        field("filesystem", Type::Object(&FILESYSTEM), "What is on it."),
    ]],
);

const PLATFORM: Object = closed(
    "a platform",
    &[&[
        field("image", TEXT, "The operating system."),
        field("kernel", TEXT, "The kernel."),
        field(
            "kernel_params",
            Type::Map(&Type::Scalar),
            "Kernel parameters; `true` is a bare word, `false` leaves it out; `hardwareprofile:cpuset.NAME` and `hardwareprofile:hugepages.NAME.size|count` are looked up.",
        ),
    ]],
);

const INTERFACE: Type = Type::Object(&closed(
    "an interface",
    &[&[
        field("device_link", Type::Reference(Kind::NetworkLink), "The link that it is plugged into."),
        field("devices", TEXTS, "The devices that it consists of: aliases or names; several make a bond."),
        field("networks", NETWORKS, "The networks that it is in."),
        field("mtu", integer(0, MOST_MTU), "The largest packet, in bytes; else the link's."),
        field("sriov", Type::Object(&SRIOV), "Virtual functions."),
    ]],
));

const SRIOV: Object = closed(
    "an SR-IOV section",
    &[&[
        field("vf_count", integer(0, 1024), "How many virtual functions."),
        field("trusted_mode", Type::Bool, "Whether they may change what the card does."),
    ]],
);
