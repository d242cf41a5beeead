//! Fields of regions, racks and clouds.

use crate::kinds::{Kind, LABELS};
use crate::types::{ANY_MAP, Field, Format, Object, TEXT, TEXT_MAP, TEXTS, Type, closed, field};

pub(super) const REGION_BODY: Object = closed("a region", &[REGION_FIELDS, LABELS]);

const REGION_FIELDS: &[Field] = &[
    field(
        "tag_definitions",
        Type::Keyed { key: "tag", item: &TAG_DEFINITION },
        "Tags that a machine gets by what its hardware is.",
    ),
    field("authorized_keys", TEXTS, "SSH public keys that may log in to every machine."),
    field("repositories", Type::Map(&REPOSITORY), "Package repositories, by name."),
    field("remove_unlisted_repositories", Type::Bool, "Whether other repositories are taken out of a machine."),
];

const TAG_DEFINITION: Object = closed(
    "a tag definition",
    &[&[
        field("tag", TEXT, "The tag."),
        field("type", Type::OneOf(&["lshw_xpath"]), "In what language the definition is written."),
        field("definition", TEXT, "What the hardware must be for the machine to get the tag."),
    ]],
);

const REPOSITORY: Type = Type::Object(&closed(
    "a repository",
    &[&[
        field("type", Type::OneOf(&["apt", "rpm"]), "Which package manager it is for."),
        field("url", TEXT, "Where it is."),
        field("distributions", TEXTS, "Its distributions: `bookworm`."),
        field("subrepos", TEXTS, "What is added to a distribution's name: `security`."),
        field("components", TEXTS, "Its components: `main`."),
        field("gpgkey", TEXT, "The public key that signs it."),
        field("arches", TEXTS, "The architectures that it has packages for."),
        field("options", ANY_MAP, "Options of the package manager."),
    ]],
));

pub(super) const RACK_BODY: Object = closed("a rack", &[RACK_FIELDS, LABELS]);

const RACK_FIELDS: &[Field] = &[
    field("region", Type::Reference(Kind::Region), "The region that the rack is in."),
    field("tor_switches", Type::Map(&SWITCH), "The switches at the top of the rack, by name."),
    field("location", Type::Object(&LOCATION), "Where the rack stands."),
    field("local_networks", Type::List(&Type::Reference(Kind::Network)), "The networks that do not leave the rack."),
];

const SWITCH: Type = Type::Object(&closed(
    "a switch",
    &[&[
        field("mgmt_ip", Type::Text(Format::Address), "The address that the switch is managed at."),
        field("sdn_api_uri", TEXT, "Where the switch is programmed."),
    ]],
));

const LOCATION: Object = closed(
    "a location",
    &[&[field("clli", TEXT, "The code of the building."), field("grid", TEXT, "The place on the floor.")]],
);

pub(super) const CLOUD_BODY: Object = closed("a cloud", &[CLOUD_FIELDS, LABELS]);

const CLOUD_FIELDS: &[Field] = &[
    field("flavor", TEXT_MAP, "What a flavor is called there."),
    field("image", TEXT_MAP, "What an image is called there."),
];
