//! Fields of nodes, host profiles, hardware profiles and boot actions.

use crate::kinds::sites::{MAX_MTU, NETWORKS};
use crate::kinds::{Kind, LABELS};
use crate::types::{ANY_MAP, Field, Object, TEXT, TEXT_MAP, TEXTS, TextFormat, Type, closed, field, integer};

pub(super) const HOST_PROFILE_BODY: Object = closed("a host profile", &[HOST_PROFILE_FIELDS, LABELS]);

/// Fields of host profiles, which nodes have too.
pub(super) const HOST_PROFILE_FIELDS: &[Field] = &[
    field("hardware_profile", Type::Reference(Kind::HardwareProfile), "The hardware profile of the machine."),
    field(
        "primary_network",
        Type::Reference(Kind::Network),
        "The network that gives the node its domain and name servers.",
    ),
    field("flavor", TEXT, "The size of machine, a name that the driver or the cloud's map file defines."),
    field("failure_domain", TEXT, "The failure domain of the node."),
    field("rack", Type::Reference(Kind::Rack), "The rack of the machine."),
    field("tags", TEXTS, "Tags to select nodes by."),
    field("owner_data", TEXT_MAP, "Labels for the owner of the machine."),
    field("boot_mac", Type::Text(TextFormat::Mac), "The MAC address of the interface that it is installed through."),
    field("oob", Type::Object(&OUT_OF_BAND), "The out-of-band access: power control without a running system."),
    field("driver", Type::Object(&DRIVER), "The driver that provisions it."),
    field("storage", Type::Object(&STORAGE), "The layout of its disks."),
    field("platform", Type::Object(&PLATFORM), "The operating system and its parameters."),
    field("interfaces", Type::Map(&INTERFACE), "Its network interfaces, by name."),
];

const OUT_OF_BAND: Object = Object {
    what: "an out-of-band access",
    groups: &[&[
        field("type", TEXT, "`ipmi`, `redfish`, `libvirt`, `manual`, or a type of a custom driver."),
        field("network", Type::Reference(Kind::Network), "The network that it is reached on."),
        field("account", TEXT, "The account's name."),
        field("credential", Type::Secret, "Name of the secret with the password: `{secret: NAME}`."),
    ]],
    // Parameters depend on the driver.
    open: true,
};

const DRIVER: Object = closed(
    "a driver",
    &[&[
        field("name", TEXT, "Name of the driver."),
        field("parameters", ANY_MAP, "Parameters of the driver, which checks them."),
    ]],
);

const STORAGE: Object = closed(
    "a storage layout",
    &[&[
        field("boot_drive", TEXT, "The disk that the machine starts from: an alias or a name."),
        field("layout", Type::OneOf(&["custom", "flat", "lvm"]), "Layout of disks that are not described."),
        field("disks", Type::Map(&DISK), "The disks, by alias or name."),
        field("volume_groups", Type::Map(&VOLUME_GROUP), "The volume groups, by name."),
    ]],
);

const DISK: Type = Type::Object(&closed(
    "a disk",
    &[&[
        field("labels", TEXT_MAP, "Labels of the disk."),
        field("volume_group", TEXT, "The volume group that the complete disk belongs to."),
        field("partitions", Type::Keyed { key: "name", item: &PARTITION }, "Its partitions, in order."),
    ]],
));

const PARTITION: Object = closed(
    "a partition",
    &[&[
        field("name", TEXT, "Its name."),
        field("size", Type::Text(TextFormat::Size), "`20g`, `30%`, or `>20g` for at least that and all that is left."),
        field("part_uuid", Type::Text(TextFormat::Uuid), "Its UUID."),
        field("bootable", Type::Bool, "True if the machine boots from it."),
        field("volume_group", TEXT, "The volume group that it belongs to."),
        field("labels", TEXT_MAP, "Labels of the partition."),
        field("filesystem", Type::Object(&FILESYSTEM), "Its file system."),
    ]],
);

const FILESYSTEM: Object = closed(
    "a file system",
    &[&[
        field("mountpoint", Type::Text(TextFormat::AbsolutePath), "The mount point; `none` for swap."),
        field("fstype", TEXT, "`ext4`, `xfs`, …"),
        field("mount_options", TEXT, "Options of mount."),
        field("fs_uuid", Type::Text(TextFormat::Uuid), "Its UUID."),
        field("fs_label", TEXT, "Its label."),
    ]],
);

const VOLUME_GROUP: Type = Type::Object(&closed(
    "a volume group",
    &[&[
        field("vg_uuid", Type::Text(TextFormat::Uuid), "Its UUID."),
        field("logical_volumes", Type::Keyed { key: "name", item: &LOGICAL_VOLUME }, "Its volumes, in order."),
    ]],
));

const LOGICAL_VOLUME: Object = closed(
    "a logical volume",
    &[&[
        field("name", TEXT, "Its name."),
        field("lv_uuid", Type::Text(TextFormat::Uuid), "Its UUID."),
        field("size", Type::Text(TextFormat::Size), "`20g`, `30%`, or `>20g` for at least that and all that is left."),
        field("filesystem", Type::Object(&FILESYSTEM), "Its file system."),
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
        field("device_link", Type::Reference(Kind::NetworkLink), "The link that it is connected to."),
        field("devices", TEXTS, "The devices that it consists of: aliases or names; several make a bond."),
        field("networks", NETWORKS, "The networks that it is in."),
        field("mtu", integer(0, MAX_MTU), "The MTU in bytes; default: the link's."),
        field("sriov", Type::Object(&SRIOV), "Virtual functions."),
    ]],
));

const SRIOV: Object = closed(
    "an SR-IOV section",
    &[&[
        field("vf_count", integer(0, 1024), "Number of virtual functions."),
        field("trusted_mode", Type::Bool, "True if virtual functions may change settings of the card."),
    ]],
);

pub(super) const NODE_BODY: Object = closed("a node", &[NODE_FIELDS, HOST_PROFILE_FIELDS, LABELS]);

const NODE_FIELDS: &[Field] = &[
    field("role", TEXT, "The role of the node."),
    field("environment", TEXT, "The environment that it belongs to, where there are several."),
    field("host_name", Type::Text(TextFormat::HostName), "Its host name, if it is not the node's name."),
    field("addresses", Type::Keyed { key: "network", item: &ADDRESS }, "Its addresses, one per network."),
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
    field("vendor", TEXT, "Vendor of the machine."),
    field("generation", TEXT, "Its generation: `8`."),
    field("hw_version", TEXT, "Its revision: `3`."),
    field("bios_version", TEXT, "The firmware that it must have."),
    field("boot_mode", Type::OneOf(&["bios", "uefi"]), "The boot mode of the firmware."),
    field("bootstrap_protocol", Type::OneOf(&["pxe", "usb", "hdd"]), "The boot medium of the installation."),
    field("pxe_interface", TEXT, "The interface that it is installed through: an alias or a name."),
    field("device_aliases", Type::Map(&ALIAS), "Names for devices, by bus and address."),
    field(
        "cpu_sets",
        Type::Map(&Type::Text(TextFormat::CpuSet)),
        "Sets of processors, for kernel parameters: `2,4-7`.",
    ),
    field("hugepages", Type::Map(&HUGEPAGES), "Sizes and counts of huge pages, for kernel parameters."),
];

const ALIAS: Type = Type::Object(&closed(
    "a device alias",
    &[&[
        field(
            "address",
            TEXT,
            "`0000:00:03.0` on PCI, `2:0.0.0` on SCSI; or `regexp:` and an expression that it matches.",
        ),
        field("bus_type", Type::OneOf(&["pci", "scsi"]), "The bus that the address is on."),
        field("dev_type", TEXT, "The type of the device, as reported by the hardware."),
        field("size", Type::Text(TextFormat::Bytes), "The capacity of a disk: `480g`."),
    ]],
));

const HUGEPAGES: Type = Type::Object(&closed(
    "a sort of huge pages",
    &[&[field("size", TEXT, "`2M` or `1G`."), field("count", integer(0, i64::MAX), "How many.")]],
));

pub(super) const BOOT_ACTION_BODY: Object = closed("a boot action", &[BOOT_ACTION_FIELDS, LABELS]);

const BOOT_ACTION_FIELDS: &[Field] = &[
    field("signaling", Type::Bool, "True if the machine reports the result; default: true."),
    field("assets", Type::Keyed { key: "name", item: &ASSET }, "Files, units and packages, in order."),
    field("node_filter", Type::Object(&NODE_FILTER), "The nodes that it applies to; default: all."),
];

const ASSET: Object = closed(
    "an asset",
    &[&[
        field("name", TEXT, "Its name within the boot action."),
        field("type", Type::OneOf(&["unit", "file", "pkg_list"]), "A systemd unit, a file, or packages."),
        field("path", Type::Text(TextFormat::AbsolutePath), "The path on the machine."),
        field("location", TEXT, "The URL of its content."),
        field("data", TEXT, "Its content."),
        field("packages", TEXT_MAP, "Packages and their versions."),
        field(
            "location_pipeline",
            Type::ReplacedList(&Type::OneOf(&["template"])),
            "Processing steps of the location, in order.",
        ),
        field(
            "data_pipeline",
            Type::ReplacedList(&Type::OneOf(&[
                "base64_encode",
                "base64_decode",
                "utf8_encode",
                "utf8_decode",
                "template",
            ])),
            "Processing steps of the content, in order.",
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
            "`union`: one filter must match; `intersection`: all. Default: `union`.",
        ),
        field("filters", Type::ReplacedList(&Type::Object(&FILTER)), "The filters."),
    ]],
);

const FILTER: Object = closed(
    "a filter",
    &[&[
        field(
            "type",
            Type::OneOf(&["union", "intersection"]),
            "`union`: one condition must hold; `intersection`: all. Default: `intersection`.",
        ),
        field("node_names", TEXTS, "Names of nodes."),
        field("node_tags", TEXTS, "Tags of nodes."),
        field("node_labels", TEXT_MAP, "Labels of nodes."),
        field("rack_names", TEXTS, "Names of racks."),
        field("rack_labels", TEXT_MAP, "Labels of racks."),
    ]],
);
