//! Rules for configuration items: documents of kinds that are not built in, checked against the JSON Schema of their kind.
//!
//! Operators write the schemas, and a library compiles and runs them. [`bounds`] refuses a schema that would not
//! terminate, would take too long, or would load other documents.

mod bounds;

use std::collections::HashMap;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, Validator};

use self::bounds::{Bounds, Cost, MAX_PATTERN_BYTES, SchemaError};
use crate::file_text::Span;
use crate::finding::{Code, quote, shortened};
use crate::kinds::{AnyKind, Kind};
use crate::rules::{DocumentView, RuleOutput, SiteView};
use crate::yaml::{Value, YamlMap, YamlNode};

/// A schema that passed the checks of [`bounds`].
struct CompiledSchema {
    pub validator: Validator,
    pub bounds: Bounds,
}

fn compile_schema(schema: &DocumentView<'_>) -> Result<CompiledSchema, SchemaError> {
    let unreadable = || SchemaError { at: String::new(), message: "it cannot be read".to_owned(), help: "" };
    let schema = spec(schema.tree).ok_or_else(unreadable)?;
    let bounds = Bounds::compute(&schema)?;
    // Matching is linear in the text, and nothing is loaded over a network.
    let patterns = PatternOptions::regex().size_limit(MAX_PATTERN_BYTES).dfa_size_limit(MAX_PATTERN_BYTES);
    let validator = jsonschema::options().offline().with_pattern_options(patterns).build(&schema);
    let validator = validator.map_err(|error| SchemaError {
        at: error.instance_path().as_str().to_owned(),
        message: format!("this is no JSON Schema: {}", shortened(&error.masked().to_string(), 200)),
        help: "see https://json-schema.org; without \"$schema\" it is read as of draft 2020-12",
    })?;
    Ok(CompiledSchema { validator, bounds })
}

/// Reports a document of kind Schema that holds no usable JSON Schema.
pub(super) fn not_a_schema(site: &SiteView<'_>, out: &mut RuleOutput) {
    for schema in site.all(Kind::Schema) {
        if let Err(error) = compile_schema(&schema) {
            let finding = Code::NotASchema.finding(error.message);
            out.add(at_pointer(schema.tree, &error.at).span, finding.help(error.help));
        }
    }
}

const MAX_FINDINGS_PER_ITEM: usize = 20;
/// Steps of validation for one item. A step takes tens of nanoseconds; real items take thousands of steps.
const MAX_STEPS: u64 = 20_000_000;

/// Reports an item that violates the schema of its kind.
pub(super) fn item_does_not_fit(site: &SiteView<'_>, out: &mut RuleOutput) {
    // A schema that cannot be used is reported by itself.
    let mut schemas: HashMap<&str, Option<CompiledSchema>> = HashMap::new();
    let mut costs: HashMap<(&str, usize), Cost> = HashMap::new();
    for (number, subject) in site.subjects.iter().enumerate() {
        let AnyKind::Item(kind) = &subject.kind else { continue };
        let schema =
            schemas.entry(kind).or_insert_with(|| site.get(Kind::Schema, kind).and_then(|it| compile_schema(&it).ok()));
        if let (Some(schema), Some(item)) = (schema, site.view(number)) {
            let (values, depth) = extent(item.tree);
            let cost = *costs.entry((kind, depth)).or_insert_with(|| schema.bounds.cost(depth));
            let is_too_large = cost.is_too_nested() || cost.steps.saturating_mul(values) > MAX_STEPS;
            if is_too_large {
                too_large(kind, &item, out);
            } else {
                check_item(schema, kind, &item, out);
            }
        }
    }
}

fn too_large(kind: &str, item: &DocumentView<'_>, out: &mut RuleOutput) {
    let message = format!("the item is too large for the schema of {}: to check it would take too long", quote(kind));
    let help = "make the item smaller or less nested, or the schema simpler where it branches";
    out.add(item.at, Code::ItemDoesNotFit.finding(message).help(help));
}

fn check_item(schema: &CompiledSchema, kind: &str, item: &DocumentView<'_>, out: &mut RuleOutput) {
    let Some(spec) = spec(item.tree) else { return };
    for error in schema.validator.iter_errors(&spec).take(MAX_FINDINGS_PER_ITEM) {
        let node = at_pointer(item.tree, error.instance_path().as_str());
        let message =
            format!("it does not fit the schema of {}: {}", quote(kind), shortened(&error.masked().to_string(), 200));
        let finding = Code::ItemDoesNotFit.finding(message);
        let pointer = error.instance_path().as_str();
        let where_in = if pointer.is_empty() { "the spec".to_owned() } else { shortened(pointer, 120) };
        out.add(error_span(error.kind(), node, item), finding.help(format!("it is about {where_in}")));
    }
}

/// Span of the unexpected key, if there is one; the name of the item if the error is about the whole spec.
fn error_span(kind: &ValidationErrorKind, node: &YamlNode, item: &DocumentView<'_>) -> Span {
    let unexpected = if let ValidationErrorKind::AdditionalProperties { unexpected } = kind {
        let first = unexpected.first().and_then(|key| node.map()?.get(key));
        first.map(|entry| entry.key.span)
    } else {
        None
    };
    unexpected.unwrap_or(if std::ptr::eq(node, item.tree) { item.at } else { node.span })
}

/// Number of values in a value, and their depth.
fn extent(node: &YamlNode) -> (u64, usize) {
    let below = |nodes: &mut dyn Iterator<Item = &YamlNode>| {
        nodes.map(extent).fold((1, 0), |(values, depth), (more, deeper)| (values + more, depth.max(deeper + 1)))
    };
    match &node.value {
        Value::Scalar(_) => (1, 0),
        Value::Seq(items) => below(&mut items.iter()),
        Value::Map(map) => below(&mut map.entries().iter().map(|entry| &entry.value)),
    }
}

/// Spec of a document as JSON: its body without the labels.
fn spec(body: &YamlNode) -> Option<serde_json::Value> {
    let mut spec = serde_json::to_value(body).ok()?;
    if let serde_json::Value::Object(fields) = &mut spec {
        fields.remove("labels");
    }
    Some(spec)
}

/// Value at a JSON pointer, or its nearest ancestor.
fn at_pointer<'n>(node: &'n YamlNode, pointer: &str) -> &'n YamlNode {
    let mut at = node;
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        let below = match &at.value {
            Value::Map(map) => YamlMap::get(map, &step).map(|entry| &entry.value),
            Value::Seq(items) => step.parse::<usize>().ok().and_then(|number| items.get(number)),
            Value::Scalar(_) => None,
        };
        match below {
            Some(below) => at = below,
            None => break,
        }
    }
    at
}
