//! Fields of nodes, host profiles, hardware profiles and boot actions.

use crate::kinds::sites::{MAX_MTU, NETWORKS};
use crate::kinds::{Kind, LABELS};
use crate::types::{ANY_MAP, Field, Object, TEXT, TEXT_MAP, TEXTS, TextFormat, Type, closed, field, integer};

pub(super) const HOST_PROFILE_BODY: Object = closed("a host profile", &[HOST_PROFILE_FIELDS, LABELS]);

/// Fields of host profiles, which nodes have too.
pub(super) const HOST_PROFILE_FIELDS: &[Field] = &[
    field("hardware_profile", Type::Reference(Kind::HardwareProfile), "The sort of machine."),
    field(
        "primary_network",
        Type::Reference(Kind::Network),
        "The network that gives the node its domain and name servers.",
    ),
    field("flavor", TEXT, "What machine it needs, in a word that a driver or a cloud's map file knows."),
    field("failure_domain", TEXT, "What the node fails together with."),
    field("rack", Type::Reference(Kind::Rack), "The rack that it stands in."),
    field("tags", TEXTS, "Tags to select nodes by."),
    field("owner_data", TEXT_MAP, "Labels for the owner of the machine."),
    field("boot_mac", Type::Text(TextFormat::Mac), "The hardware address that it is installed through."),
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
    // Parameters depend on the driver.
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
        field("labels", TEXT_MAP, "Labels of the disk."),
        field("volume_group", TEXT, "The volume group that all of it belongs to."),
        field("partitions", Type::Keyed { key: "name", item: &PARTITION }, "Its partitions, in order."),
    ]],
));

const PARTITION: Object = closed(
    "a partition",
    &[&[
        field("name", TEXT, "Its name."),
        field("size", Type::Text(TextFormat::Size), "`20g`, `30%`, or `>20g` for at least that and all that is left."),
        field("part_uuid", Type::Text(TextFormat::Uuid), "Its identity."),
        field("bootable", Type::Bool, "Whether the machine starts from it."),
        field("volume_group", TEXT, "The volume group that it belongs to."),
        field("labels", TEXT_MAP, "Labels of the partition."),
        field("filesystem", Type::Object(&FILESYSTEM), "What is on it."),
    ]],
);

const FILESYSTEM: Object = closed(
    "a file system",
    &[&[
        field("mountpoint", Type::Text(TextFormat::AbsolutePath), "Where it is mounted; `none` for swap."),
        field("fstype", TEXT, "`ext4`, `xfs`, …"),
        field("mount_options", TEXT, "Options of mount."),
        field("fs_uuid", Type::Text(TextFormat::Uuid), "Its identity."),
        field("fs_label", TEXT, "Its label."),
    ]],
);

const VOLUME_GROUP: Type = Type::Object(&closed(
    "a volume group",
    &[&[
        field("vg_uuid", Type::Text(TextFormat::Uuid), "Its identity."),
        field("logical_volumes", Type::Keyed { key: "name", item: &LOGICAL_VOLUME }, "Its volumes, in order."),
    ]],
));

const LOGICAL_VOLUME: Object = closed(
    "a logical volume",
    &[&[
        field("name", TEXT, "Its name."),
        field("lv_uuid", Type::Text(TextFormat::Uuid), "Its identity."),
        field("size", Type::Text(TextFormat::Size), "`20g`, `30%`, or `>20g` for at least that and all that is left."),
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
        field("mtu", integer(0, MAX_MTU), "The largest packet, in bytes; else the link's."),
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

pub(super) const NODE_BODY: Object = closed("a node", &[NODE_FIELDS, HOST_PROFILE_FIELDS, LABELS]);

const NODE_FIELDS: &[Field] = &[
    field("role", TEXT, "What it is for."),
    field("environment", TEXT, "The environment that it belongs to, where there are several."),
    field("host_name", Type::Text(TextFormat::HostName), "Its host name, if it is not the node's name."),
    field("addresses", Type::Keyed { key: "network", item: &ADDRESS }, "Its addresses, one a network."),
];

const ADDRESS: Object = closed(
    "an address",
    &[&[
        field("network", Type::Reference(Kind::Network), "The network."),
        field("address", Type::Text(TextFormat::AddressOrDhcp), "The address, or `dhcp`."),
    ]],
);

pub(super) const HARDWARE_PROFILE_BODY: Object = closed("a hardware profile", &[HARDWARE_PROFILE_FIELDS, LABELS]);

const HARDWARE_PROFILE_FIELDS: &[Field] = &[
    field("vendor", TEXT, "Who made it."),
    field("generation", TEXT, "Its generation: `8`."),
    field("hw_version", TEXT, "Its revision: `3`."),
    field("bios_version", TEXT, "The firmware that it must have."),
    field("boot_mode", Type::OneOf(&["bios", "uefi"]), "How the firmware starts a system."),
    field("bootstrap_protocol", Type::OneOf(&["pxe", "usb", "hdd"]), "What it is installed from."),
    field("pxe_interface", TEXT, "The interface that it is installed through: an alias or a name."),
    field("device_aliases", Type::Map(&ALIAS), "Names for devices by where they are plugged in."),
    field(
        "cpu_sets",
        Type::Map(&Type::Text(TextFormat::CpuSet)),
        "Sets of processors, for kernel parameters: `2,4-7`.",
    ),
    field("hugepages", Type::Map(&HUGEPAGES), "Sorts of huge pages, for kernel parameters."),
];

const ALIAS: Type = Type::Object(&closed(
    "a device alias",
    &[&[
        field("address", TEXT, "`0000:00:03.0` on PCI, `2:0.0.0` on SCSI."),
        field("bus_type", Type::OneOf(&["pci", "scsi"]), "The bus that the address is on."),
        field("dev_type", TEXT, "What sits there, as the hardware names itself."),
        field("size", Type::Text(TextFormat::Bytes), "How much a disk holds: `480g`."),
    ]],
));

const HUGEPAGES: Type = Type::Object(&closed(
    "a sort of huge pages",
    &[&[field("size", TEXT, "`2M` or `1G`."), field("count", integer(0, i64::MAX), "How many.")]],
));

pub(super) const BOOT_ACTION_BODY: Object = closed("a boot action", &[BOOT_ACTION_FIELDS, LABELS]);

const BOOT_ACTION_FIELDS: &[Field] = &[
    field("signaling", Type::Bool, "Whether the machine says how it went; true if it is not said."),
    field("assets", Type::Keyed { key: "name", item: &ASSET }, "What is put there, in order."),
    field("node_filter", Type::Object(&NODE_FILTER), "Which nodes get it; without it, all of them."),
];

const ASSET: Object = closed(
    "an asset",
    &[&[
        field("name", TEXT, "Its name within the boot action."),
        field("type", Type::OneOf(&["unit", "file", "pkg_list"]), "A systemd unit, a file, or packages."),
        field("path", Type::Text(TextFormat::AbsolutePath), "Where it goes."),
        field("location", TEXT, "Where its content comes from."),
        field("data", TEXT, "Its content."),
        field("packages", TEXT_MAP, "Packages and their versions."),
        field(
            "location_pipeline",
            Type::Whole(&Type::OneOf(&["template"])),
            "What is done with the location, in order.",
        ),
        field(
            "data_pipeline",
            Type::Whole(&Type::OneOf(&["base64_encode", "base64_decode", "utf8_encode", "utf8_decode", "template"])),
            "What is done with the content, in order.",
        ),
        field("permissions", Type::Text(TextFormat::Permissions), "The file's mode: `0644`."),
    ]],
);

const NODE_FILTER: Object = closed(
    "a node filter",
    &[&[
        field(
            "set",
            Type::OneOf(&["union", "intersection"]),
            "Whether one of the filters must fit, or all; `union` if it is not said.",
        ),
        field("filters", Type::Whole(&Type::Object(&FILTER)), "The filters."),
    ]],
);

const FILTER: Object = closed(
    "a filter",
    &[&[
        field(
            "type",
            Type::OneOf(&["union", "intersection"]),
            "Whether one of the conditions must hold, or all; `intersection` if it is not said.",
        ),
        field("node_names", TEXTS, "Names of nodes."),
        field("node_tags", TEXTS, "Tags of nodes."),
        field("node_labels", TEXT_MAP, "Labels of nodes."),
        field("rack_names", TEXTS, "Names of racks."),
        field("rack_labels", TEXT_MAP, "Labels of racks."),
    ]],
);
