//! Upper bound for the cost of validating a value against a JSON Schema.
//!
//! A schema may apply other schemas to the same value (`$ref`, `allOf`, …) and to the members of a value (`properties`,
//! `items`, …). References to the same value must not form a cycle: validation would not terminate. Both may branch, and a
//! branch at every level doubles the cost at every level. The reachable schemas form a graph; the steps are counted over
//! that graph for values of a given depth, without running the schema.

use std::collections::HashMap;

use serde_json::Value;

/// Parts of one schema. Real schemas have hundreds, large ones thousands.
const MAX_SCHEMAS: usize = 20_000;
/// Patterns in one schema. Each is compiled and may take [`MAX_PATTERN_BYTES`].
const MAX_PATTERNS: usize = 500;
pub(super) const MAX_PATTERN_BYTES: usize = 128 << 10;
/// Nested applications. Validation is recursive, so this bounds the stack.
const MAX_NESTED: u64 = 250;

/// Graph of the schemas that apply to a value and to its members.
#[derive(Debug)]
pub(super) struct Bounds {
    schemas: Vec<Schema>,
    /// Each schema after the schemas that it applies to the same value.
    order: Vec<usize>,
}

/// Reason for refusing a schema.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SchemaError {
    /// A JSON pointer into the schema.
    pub at: String,
    pub message: String,
    pub help: &'static str,
}

#[derive(Debug)]
struct Schema {
    at: String,
    /// Steps of the schema without its sub-schemas.
    own: u64,
    /// Applied to the same value.
    inside: Vec<usize>,
    /// Applied to members: one of these to each member.
    one_a_member: Vec<usize>,
    /// Applied to members: all of these to each member.
    all_a_member: Vec<usize>,
}

/// Upper bound for one value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    pub steps: u64,
    pub nested: u64,
}

impl Bounds {
    pub(super) fn compute(root: &Value) -> Result<Self, SchemaError> {
        let mut walk =
            SchemaWalk { root, schemas: Vec::new(), known: HashMap::new(), waiting: Vec::new(), patterns: 0 };
        no_identities(root)?;
        walk.add(root, String::new())?;
        while let Some((number, value)) = walk.waiting.pop() {
            walk.visit(number, value)?;
        }
        let schemas = walk.schemas;
        let order = in_order(&schemas)?;
        let bounds = Bounds { schemas, order };
        if bounds.cost(0).is_too_nested() {
            let message = format!("more than {MAX_NESTED} schemas apply one another to the same value");
            return Err(schema_error("", message, "make the chain of references shorter"));
        }
        Ok(bounds)
    }

    /// Cost of a value of this depth. Multiply the steps by the number of values in it.
    pub(super) fn cost(&self, depth: usize) -> Cost {
        let mut below: Vec<Cost> = Vec::new();
        for level in 0..=depth {
            let mut costs = vec![Cost::default(); self.schemas.len()];
            for &number in &self.order {
                let schema = &self.schemas[number];
                let mut cost = Cost { steps: schema.own, nested: 0 };
                let mut add = |other: Cost| {
                    cost.steps = cost.steps.saturating_add(other.steps);
                    cost.nested = cost.nested.max(other.nested);
                };
                schema.inside.iter().for_each(|&inside| add(costs[inside]));
                if level > 0 {
                    schema.all_a_member.iter().for_each(|&member| add(below[member]));
                    let of_one = schema.one_a_member.iter().map(|&member| below[member]);
                    add(of_one.fold(Cost::default(), |a, b| Cost {
                        steps: a.steps.max(b.steps),
                        nested: a.nested.max(b.nested),
                    }));
                }
                cost.nested += 1;
                costs[number] = cost;
            }
            below = costs;
        }
        below.first().copied().unwrap_or_default()
    }
}

impl Cost {
    pub(super) fn is_too_nested(self) -> bool {
        self.nested > MAX_NESTED
    }
}

struct SchemaWalk<'s> {
    root: &'s Value,
    schemas: Vec<Schema>,
    /// Keyed by address: the schema is not moved during the walk.
    known: HashMap<*const Value, usize>,
    waiting: Vec<(usize, &'s Value)>,
    patterns: usize,
}

impl<'s> SchemaWalk<'s> {
    fn add(&mut self, value: &'s Value, at: String) -> Result<usize, SchemaError> {
        if let Some(known) = self.known.get(&std::ptr::from_ref(value)) {
            return Ok(*known);
        }
        let number = self.schemas.len();
        if number >= MAX_SCHEMAS {
            let message = format!("the schema consists of more than {MAX_SCHEMAS} parts");
            return Err(schema_error(&at, message, "divide the kind into several"));
        }
        self.known.insert(value, number);
        let empty = Schema { at, own: 1, inside: vec![], one_a_member: vec![], all_a_member: vec![] };
        self.schemas.push(empty);
        self.waiting.push((number, value));
        Ok(number)
    }

    fn visit(&mut self, number: usize, value: &'s Value) -> Result<(), SchemaError> {
        let Value::Object(keywords) = value else { return Ok(()) };
        let at = self.schemas[number].at.clone();
        for (keyword, value) in keywords {
            let here = format!("{at}/{}", escaped(keyword));
            let children = match keyword.as_str() {
                "$ref" => self.reference(value, &here)?,
                "$dynamicRef" | "$recursiveRef" => {
                    let help = "name the schema with $ref: '#/…'";
                    return Err(schema_error(&here, format!("{keyword} is not supported"), help));
                }
                "allOf" | "anyOf" | "oneOf" | "prefixItems" => self.list(value, &here)?,
                "not"
                | "if"
                | "then"
                | "else"
                | "additionalProperties"
                | "additionalItems"
                | "contains"
                | "propertyNames"
                | "unevaluatedItems"
                | "unevaluatedProperties" => self.single(value, here)?,
                "items" if value.is_array() => self.list(value, &here)?,
                "items" => self.single(value, here)?,
                "properties" | "patternProperties" | "dependentSchemas" | "dependencies" => self.map(value, &here)?,
                _ => {
                    self.schemas[number].own += value.as_array().map_or(1, |values| values.len() as u64);
                    self.patterns += usize::from(keyword == "pattern");
                    continue;
                }
            };
            if keyword == "patternProperties" {
                self.patterns += children.len();
            }
            let schema = &mut self.schemas[number];
            schema.own += children.len() as u64;
            match keyword.as_str() {
                "properties" | "additionalProperties" | "items" | "prefixItems" | "additionalItems" => {
                    schema.one_a_member.extend(children);
                }
                "patternProperties" | "contains" | "propertyNames" | "unevaluatedItems" | "unevaluatedProperties" => {
                    schema.all_a_member.extend(children);
                }
                _ => schema.inside.extend(children),
            }
        }
        if self.patterns > MAX_PATTERNS {
            let message = format!("the schema has more than {MAX_PATTERNS} patterns");
            return Err(schema_error(&at, message, "use fewer of them"));
        }
        Ok(())
    }

    fn reference(&mut self, value: &'s Value, here: &str) -> Result<Vec<usize>, SchemaError> {
        let Some(reference) = value.as_str() else { return Ok(Vec::new()) };
        let pointer = reference.strip_prefix('#').filter(|pointer| pointer.is_empty() || pointer.starts_with('/'));
        // Percent-encoding could make the validator resolve the pointer to another schema than this code does.
        let pointer = pointer.filter(|pointer| !pointer.contains('%'));
        let Some(pointer) = pointer else {
            let message = format!("the schema refers to {}, which is not in it", crate::finding::quote(reference));
            let help = "everything must be in one document: put it under $defs, and refer to it with '#/$defs/NAME'";
            return Err(schema_error(here, message, help));
        };
        let Some(target) = self.root.pointer(pointer) else {
            let message =
                format!("the schema refers to {}, and there is no such part", crate::finding::quote(reference));
            return Err(schema_error(
                here,
                message,
                "look at the spelling; a / in a name is written ~1, and a ~ is ~0",
            ));
        };
        Ok(vec![self.add(target, pointer.to_owned())?])
    }

    fn single(&mut self, value: &'s Value, here: String) -> Result<Vec<usize>, SchemaError> {
        Ok(vec![self.add(value, here)?])
    }

    fn list(&mut self, value: &'s Value, here: &str) -> Result<Vec<usize>, SchemaError> {
        let values = value.as_array().map(Vec::as_slice).unwrap_or_default();
        values.iter().enumerate().map(|(number, value)| self.add(value, format!("{here}/{number}"))).collect()
    }

    fn map(&mut self, value: &'s Value, here: &str) -> Result<Vec<usize>, SchemaError> {
        let entries = value.as_object().into_iter().flatten();
        entries.map(|(name, value)| self.add(value, format!("{here}/{}", escaped(name)))).collect()
    }
}

/// Refuses parts with an `$id`: inside such a part `#` would refer to the part.
fn no_identities(root: &Value) -> Result<(), SchemaError> {
    let dialect = root.get("$schema").and_then(Value::as_str).unwrap_or_default();
    // Draft 4 calls it `id`.
    let keywords: &[&str] = if dialect.contains("draft-04") { &["$id", "$schema", "id"] } else { &["$id", "$schema"] };
    below(root, "", &mut |value, at| no_identity(value, at, keywords))
}

fn no_identity(value: &Value, at: &str, keywords: &[&str]) -> Result<(), SchemaError> {
    if keywords.iter().any(|keyword| value.get(keyword).is_some_and(Value::is_string)) {
        let message = "a part of the schema has its own identity, which is not supported".to_owned();
        return Err(schema_error(at, message, "remove it, and refer to the part with $ref: '#/…'"));
    }
    below(value, at, &mut |value, at| no_identity(value, at, keywords))
}

/// Calls `visit` for everything directly below a value.
fn below(
    value: &Value,
    at: &str,
    visit: &mut dyn FnMut(&Value, &str) -> Result<(), SchemaError>,
) -> Result<(), SchemaError> {
    match value {
        Value::Object(entries) => {
            let mut entries = entries.iter();
            entries.try_for_each(|(key, value)| visit(value, &format!("{at}/{}", escaped(key))))
        }
        Value::Array(values) => {
            let mut values = values.iter().enumerate();
            values.try_for_each(|(number, value)| visit(value, &format!("{at}/{number}")))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

/// Orders schemas after those that they apply to the same value. Fails on a cycle.
fn in_order(schemas: &[Schema]) -> Result<Vec<usize>, SchemaError> {
    let mut waits_for: Vec<usize> = schemas.iter().map(|schema| schema.inside.len()).collect();
    let mut appliers: Vec<Vec<usize>> = vec![Vec::new(); schemas.len()];
    for (number, schema) in schemas.iter().enumerate() {
        schema.inside.iter().for_each(|&inside| appliers[inside].push(number));
    }
    let mut order: Vec<usize> = (0..schemas.len()).filter(|&number| waits_for[number] == 0).collect();
    let mut done = 0;
    while let Some(&number) = order.get(done) {
        done += 1;
        for &applier in &appliers[number] {
            waits_for[applier] -= 1;
            if waits_for[applier] == 0 {
                order.push(applier);
            }
        }
    }
    match (0..schemas.len()).find(|&number| waits_for[number] > 0) {
        None => Ok(order),
        Some(stuck) => {
            let message = "the schema applies itself to the same value, without end".to_owned();
            let help = "a schema may refer to itself only below a member, such as in properties or items";
            Err(schema_error(&schemas[stuck].at, message, help))
        }
    }
}

fn schema_error(at: &str, message: String, help: &'static str) -> SchemaError {
    SchemaError { at: at.to_owned(), message, help }
}

fn escaped(step: &str) -> String {
    step.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::json;

    fn refusal(schema: Value) -> String {
        Bounds::compute(&schema).unwrap_err().message
    }

    #[test]
    fn cycles_and_external_references_are_refused() {
        for schema in [
            json!({"$ref": "#"}),
            json!({"allOf": [{"anyOf": [{"$ref": "#"}]}]}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"$ref": "#/$defs/a"}}}),
        ] {
            assert!(refusal(schema.clone()).contains("without end"), "{schema}");
        }
        for reference in ["https://example.org/s.json", "file:///etc/passwd", "other.json#/a", "#name"] {
            assert!(refusal(json!({"properties": {"a": {"$ref": reference}}})).contains("not in it"), "{reference}");
        }
        assert!(refusal(json!({"$ref": "#/$defs/a"})).contains("no such part"));
        assert!(refusal(json!({"$dynamicRef": "#"})).contains("not supported"));
        assert!(refusal(json!({"properties": {"a": {"$id": "x:y"}}})).contains("identity"));
        let old = |id: Value| json!({"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"a": id}});
        assert!(refusal(old(json!({"id": "x:y"}))).contains("identity"));
        assert!(Bounds::compute(&old(json!({"properties": {"id": {"type": "string"}}}))).is_ok());
    }

    #[test]
    fn recursion_below_a_member_costs_the_depth() {
        let tree = json!({"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "$ref": {"type": "string"}}});
        let bounds = Bounds::compute(&tree).unwrap();
        let costs = [0, 1, 60].map(|depth| bounds.cost(depth).steps);
        assert!(costs[0] < costs[1] && costs[2] < 60 * costs[1] + costs[0], "{costs:?}");
    }

    #[test]
    fn branching_below_members_is_counted() {
        let twice = json!({"properties": {"a": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}});
        let bounds = Bounds::compute(&twice).unwrap();
        assert!(bounds.cost(40).steps > 1 << 40);
        assert!(bounds.cost(200).is_too_nested());
    }

    #[test]
    fn branching_on_the_same_value_is_counted() {
        let mut defs = serde_json::Map::new();
        for level in 0..60 {
            let next = format!("#/$defs/d{}", level + 1);
            defs.insert(format!("d{level}"), json!({"allOf": [{"$ref": next}, {"$ref": next}]}));
        }
        defs.insert("d60".into(), json!(true));
        let bounds = Bounds::compute(&json!({"$ref": "#/$defs/d0", "$defs": defs})).unwrap();
        assert!(bounds.cost(0).steps > 1 << 60);
    }
}
