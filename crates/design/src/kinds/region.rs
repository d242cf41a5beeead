//! A region: what all machines of a site have in common.

use super::LABELS;
use crate::types::{ANY_MAP, Field, Object, TEXT, TEXTS, Type, closed, field};

pub(super) const BODY: Object = closed("a region", &[FIELDS, LABELS]);

const FIELDS: &[Field] = &[
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
