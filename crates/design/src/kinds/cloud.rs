//! A cloud: what generic names mean in it, from a map file `environments/<cloud>.map.yaml`.

use super::LABELS;
use crate::types::{Field, Object, TEXT_MAP, closed, field};

pub(super) const BODY: Object = closed("a cloud", &[FIELDS, LABELS]);

const FIELDS: &[Field] = &[
    field("flavor", TEXT_MAP, "What a flavor is called there."),
    field("image", TEXT_MAP, "What an image is called there."),
];
