//! A boot action: what is put on machines when they are first started.

use super::LABELS;
use crate::types::{Field, Format, Object, TEXT, TEXT_MAP, TEXTS, Type, closed, field};

pub(super) const BODY: Object = closed("a boot action", &[FIELDS, LABELS]);

const FIELDS: &[Field] = &[
    field("signaling", Type::Bool, "Whether the machine says how it went; true if it is not said."),
    field("assets", Type::Keyed { key: "name", item: &ASSET }, "What is put there, in order."),
    field("node_filter", Type::Object(&NODE_FILTER), "Which nodes get it; without it, all of them."),
];

const ASSET: Object = closed(
    "an asset",
    &[&[
        field("name", TEXT, "Its name within the boot action."),
        field("type", Type::OneOf(&["unit", "file", "pkg_list"]), "A systemd unit, a file, or packages."),
        field("path", Type::Text(Format::AbsolutePath), "Where it goes."),
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
        field("permissions", Type::Text(Format::Permissions), "The file's mode: `0644`."),
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
