//! Makes a validator of a schema, or says why not.

use jsonschema::{PatternOptions, Validator};

use super::bounds::{Bounds, MOST_PATTERN_BYTES, Refused};
use crate::finding::shortened;
use crate::rules::Thing;

/// A schema that can be used.
pub(super) struct Prepared {
    pub validator: Validator,
    pub bounds: Bounds,
}

pub(super) fn prepare(schema: &Thing<'_>) -> Result<Prepared, Refused> {
    let unreadable = || Refused { at: String::new(), message: "it cannot be read".to_owned(), help: "" };
    let schema = super::spec(schema.tree).ok_or_else(unreadable)?;
    let bounds = Bounds::of(&schema)?;
    // Patterns take time in proportion to the text, whoever wrote them; nothing is fetched from anywhere.
    let patterns = PatternOptions::regex().size_limit(MOST_PATTERN_BYTES).dfa_size_limit(MOST_PATTERN_BYTES);
    let validator = jsonschema::options().offline().with_pattern_options(patterns).build(&schema);
    let validator = validator.map_err(|error| Refused {
        at: error.instance_path().as_str().to_owned(),
        message: format!("this is no JSON Schema: {}", shortened(&error.masked().to_string(), 200)),
        help: "see https://json-schema.org; without \"$schema\" it is read as of draft 2020-12",
    })?;
    Ok(Prepared { validator, bounds })
}
