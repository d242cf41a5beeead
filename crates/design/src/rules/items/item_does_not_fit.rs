//! A configuration item must fit the schema of its kind, if there is one.

use std::collections::HashMap;

use jsonschema::error::ValidationErrorKind;

use super::bounds::Cost;
use super::prepare::{Prepared, prepare};
use super::{at_pointer, spec};
use crate::finding::{Code, quote, shortened};
use crate::kinds::{AnyKind, Kind};
use crate::rules::{Check, Out, Rule, Site, Thing};
use crate::span::Span;
use crate::yaml::{Node, Value};

pub(in crate::rules) const RULE: Rule = Rule::new(Code::ItemDoesNotFit, Check::Site(check));

/// So much is told of one item.
const MOST_OF_AN_ITEM: usize = 20;
/// A step takes some tens of nanoseconds. Real items take some thousands.
const MOST_STEPS: u64 = 20_000_000;

fn check(site: &Site<'_>, out: &mut Out) {
    // A schema that cannot be used is reported by itself.
    let mut schemas: HashMap<&str, Option<Prepared>> = HashMap::new();
    let mut costs: HashMap<(&str, usize), Cost> = HashMap::new();
    for (number, subject) in site.subjects.iter().enumerate() {
        let AnyKind::Item(kind) = &subject.kind else { continue };
        let schema =
            schemas.entry(kind).or_insert_with(|| site.get(Kind::Schema, kind).and_then(|it| prepare(&it).ok()));
        if let (Some(schema), Some(item)) = (schema, site.thing(number)) {
            let (values, depth) = extent(item.tree);
            let cost = *costs.entry((kind, depth)).or_insert_with(|| schema.bounds.cost(depth));
            let is_too_large = cost.is_too_nested() || cost.steps.saturating_mul(values) > MOST_STEPS;
            if is_too_large {
                too_large(kind, &item, out);
            } else {
                check_item(schema, kind, &item, out);
            }
        }
    }
}

fn too_large(kind: &str, item: &Thing<'_>, out: &mut Out) {
    let message = format!("the item is too large for the schema of {}: to check it would take too long", quote(kind));
    let help = "make the item smaller or less nested, or the schema simpler where it branches";
    out.add(item.at, Code::ItemDoesNotFit.finding(message).help(help));
}

fn check_item(schema: &Prepared, kind: &str, item: &Thing<'_>, out: &mut Out) {
    let Some(spec) = spec(item.tree) else { return };
    for error in schema.validator.iter_errors(&spec).take(MOST_OF_AN_ITEM) {
        let node = at_pointer(item.tree, error.instance_path().as_str());
        let message =
            format!("it does not fit the schema of {}: {}", quote(kind), shortened(&error.masked().to_string(), 200));
        let finding = Code::ItemDoesNotFit.finding(message);
        let place = error.instance_path().as_str();
        let where_in = if place.is_empty() { "the spec".to_owned() } else { shortened(place, 120) };
        out.add(place_of(error.kind(), node, item), finding.help(format!("it is about {where_in}")));
    }
}

/// The key that is too much, if that is what is wrong; the name of the item where its spec as a whole is meant.
fn place_of(kind: &ValidationErrorKind, node: &Node, item: &Thing<'_>) -> Span {
    let unexpected = if let ValidationErrorKind::AdditionalProperties { unexpected } = kind {
        let first = unexpected.first().and_then(|key| node.map()?.get(key));
        first.map(|entry| entry.key.span)
    } else {
        None
    };
    unexpected.unwrap_or(if std::ptr::eq(node, item.tree) { item.at } else { node.span })
}

/// How many values there are in a value, and how deep.
fn extent(node: &Node) -> (u64, usize) {
    let below = |nodes: &mut dyn Iterator<Item = &Node>| {
        nodes.map(extent).fold((1, 0), |(values, depth), (more, deeper)| (values + more, depth.max(deeper + 1)))
    };
    match &node.value {
        Value::Scalar(_) => (1, 0),
        Value::Seq(items) => below(&mut items.iter()),
        Value::Map(map) => below(&mut map.entries().iter().map(|entry| &entry.value)),
    }
}
