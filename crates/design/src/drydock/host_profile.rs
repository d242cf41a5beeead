//! Translation of host profiles. Nodes share most of their fields.

use super::DrydockKind;
use super::draft::{Draft, generated_entry};
use super::envelope::Envelope;
use super::translate::{DrydockField, Shape, ValueShape, ignored, inherited, renamed, same};
use crate::documents::Parent;
use crate::finding::{Code, FindingCollector};
use crate::kinds::Kind;
use crate::yaml::{YamlEntry, YamlKey, YamlNode};

pub(super) const KIND: DrydockKind =
    DrydockKind { word: "HostProfile", becomes: Kind::HostProfile, shape: &HOST_PROFILE, finish };

const HOST_PROFILE: Shape = inherited("a host profile", HOST_FIELDS);

pub(super) const HOST_FIELDS: &[DrydockField] = &[
    same(PARENT, ValueShape::Text),
    same("hardware_profile", ValueShape::Text),
    same("primary_network", ValueShape::Text),
    same("oob", ValueShape::Object(&OUT_OF_BAND)),
    same(STORAGE_KEY, ValueShape::Object(&STORAGE)),
    same("platform", ValueShape::Object(&PLATFORM)),
    same("metadata", ValueShape::Beside(&METADATA)),
    same("interfaces", ValueShape::NamedOrListed(&INTERFACE, "device_name")),
];

const PARENT: &str = "host_profile";
const STORAGE_KEY: &str = "storage";
const DISKS: &str = "disks";

/// Parameters depend on the driver, so unknown keys are accepted.
const OUT_OF_BAND: Shape = Shape {
    what: "an out-of-band access",
    fields: &[
        same("type", ValueShape::Text),
        same("network", ValueShape::Text),
        same("account", ValueShape::Text),
        same("credential", ValueShape::Secret),
    ],
    more: &[],
    others: Some(ValueShape::Anything),
    inherits: true,
};

const STORAGE: Shape = inherited(
    "a storage layout",
    &[
        renamed("physical_devices", DISKS, ValueShape::Named(&DEVICE)),
        same("volume_groups", ValueShape::Named(&VOLUME_GROUP)),
    ],
);

const DEVICE: Shape = inherited(
    "a physical device",
    &[
        same("labels", ValueShape::Words),
        same("volume_group", ValueShape::Text),
        same("partitions", ValueShape::Members(&PARTITION)),
    ],
);

const PARTITION: Shape = inherited(
    "a partition",
    &[
        same("name", ValueShape::Text),
        same("size", ValueShape::Text),
        same("part_uuid", ValueShape::Text),
        same("bootable", ValueShape::Bool),
        same("volume_group", ValueShape::Text),
        // Drydock's schema has the long name; its code reads this one.
        renamed("vg", "volume_group", ValueShape::Text),
        same("labels", ValueShape::Words),
        same("filesystem", ValueShape::Object(&FILESYSTEM)),
    ],
);

const FILESYSTEM: Shape = inherited(
    "a file system",
    &[
        same("mountpoint", ValueShape::Text),
        same("fstype", ValueShape::Text),
        same("mount_options", ValueShape::Text),
        same("fs_uuid", ValueShape::Text),
        same("fs_label", ValueShape::Text),
    ],
);

const VOLUME_GROUP: Shape = inherited(
    "a volume group",
    &[same("vg_uuid", ValueShape::Text), same("logical_volumes", ValueShape::Members(&LOGICAL_VOLUME))],
);

const LOGICAL_VOLUME: Shape = inherited(
    "a logical volume",
    &[
        same("name", ValueShape::Text),
        same("lv_uuid", ValueShape::Text),
        same("size", ValueShape::Text),
        same("filesystem", ValueShape::Object(&FILESYSTEM)),
    ],
);

const PLATFORM: Shape = inherited(
    "a platform",
    &[same("image", ValueShape::Text), same("kernel", ValueShape::Text), same("kernel_params", ValueShape::Values)],
);

/// Metadata of the machine, not of the document.
const METADATA: Shape = inherited(
    "a host's metadata",
    &[
        same("tags", ValueShape::Texts),
        same(OWNER_DATA, ValueShape::Words),
        same("rack", ValueShape::Text),
        same(BOOT_MAC, ValueShape::Text),
    ],
);

const OWNER_DATA: &str = "owner_data";
const BOOT_MAC: &str = "boot_mac";

const INTERFACE: Shape = inherited(
    "an interface",
    &[
        same("device_link", ValueShape::Text),
        renamed("slaves", "devices", ValueShape::Texts),
        same("networks", ValueShape::Texts),
        same("sriov", ValueShape::Object(&SRIOV)),
        // Used in the examples of Drydock's manual.
        ignored("labels"),
        // The name of a member, where older documents have a list.
        ignored("device_name"),
    ],
);

const SRIOV: Shape = inherited(
    "an SR-IOV section",
    &[
        same("vf_count", ValueShape::Integer),
        renamed("trustedmode", "trusted_mode", ValueShape::Bool),
        // Spelling of Drydock's schema.
        renamed("trustmode", "trusted_mode", ValueShape::Bool),
    ],
);

fn finish(draft: &mut Draft, _: &Envelope<'_>, report: &mut FindingCollector<'_>) {
    finish_host(draft);
    if let Some(mac) = draft.remove(BOOT_MAC) {
        let finding = Code::NotInherited.finding("no node inherits \"boot_mac\" from a profile");
        report.add(mac.key.span, finding.help("one machine has it: move it to the document of that node"));
    }
}

/// Completes the translation of profiles and nodes.
pub(super) fn finish_host(draft: &mut Draft) {
    if let Some(parent) = draft.remove(PARENT) {
        let name = parent.value.scalar().filter(|_| !parent.value.is_null()).map(|name| name.shared_text());
        draft.extends = Some(name.map(|name| Parent { name, span: parent.value.span }).into_iter().collect());
    }
    boot_drive(draft);
    // Boot actions select nodes by their owner data, under the name of labels.
    let labels = draft.get(OWNER_DATA).map(|YamlEntry { key, value }| YamlEntry {
        key: YamlKey { text: "labels".into(), span: key.span },
        value: value.clone(),
    });
    draft.entries.extend(labels);
}

/// Adds the boot drive: the disk with the label `bootdrive: true`.
fn boot_drive(draft: &mut Draft) {
    let Some(storage) = draft.entries.iter_mut().find(|entry| &*entry.key.text == STORAGE_KEY) else { return };
    let entries = |node: &YamlNode| node.map().map(|map| map.entries().to_vec()).unwrap_or_default();
    let is_labelled = |disk: &YamlEntry| {
        let label = disk.value.get("labels").and_then(|labels| labels.get("bootdrive"));
        label.and_then(YamlNode::text).is_some_and(|label| label.eq_ignore_ascii_case("true"))
    };
    let disks = storage.value.get(DISKS).map(entries).unwrap_or_default();
    let Some(disk) = disks.iter().find(|disk| is_labelled(disk)) else { return };
    let drive = generated_entry("boot_drive", YamlNode::from_text(disk.key.text.clone(), disk.key.span));
    let all = [drive].into_iter().chain(entries(&storage.value)).collect();
    storage.value = YamlNode::from_entries(all, storage.value.span);
}
