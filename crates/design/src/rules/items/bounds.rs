//! How much work a schema can make.
//!
//! A schema may apply others to the same value (`$ref`, `allOf`, …) and to the members of a value (`properties`, `items`, …).
//! The first must not go round in a circle: that would never end. Both may branch, and what branches at every level doubles
//! at every level. So the schemas that are reached are made into a graph, and the steps are counted over it, for values
//! nested so and so deep, without ever running anything.

use std::collections::HashMap;

use serde_json::Value;

/// A schema of a real program has some hundreds of parts, a large one some thousands.
const MOST_SCHEMAS: usize = 20_000;
/// Each is compiled, and may take this many bytes.
const MOST_PATTERNS: usize = 500;
pub(super) const MOST_PATTERN_BYTES: usize = 128 << 10;
/// Values are looked at by recursion, so this bounds the stack.
const MOST_NESTED: u64 = 250;

/// Steps over the schemas that apply to one value, and to what is in it, by how deep that is nested.
#[derive(Debug)]
pub(super) struct Bounds {
    schemas: Vec<Schema>,
    /// Each behind all that apply to the same value.
    order: Vec<usize>,
}

/// Why a schema is not used.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused {
    /// A JSON pointer into the schema.
    pub at: String,
    pub message: String,
    pub help: &'static str,
}

#[derive(Debug)]
struct Schema {
    at: String,
    /// What it looks at by itself.
    own: u64,
    /// Applied to the same value.
    inside: Vec<usize>,
    /// Applied to members of it: of these, one to a member.
    one_a_member: Vec<usize>,
    /// Applied to members of it: of these, all to a member.
    all_a_member: Vec<usize>,
}

/// What a value costs at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    pub steps: u64,
    pub nested: u64,
}

impl Bounds {
    pub(super) fn of(root: &Value) -> Result<Self, Refused> {
        let mut walk = Walk { root, schemas: Vec::new(), known: HashMap::new(), waiting: Vec::new(), patterns: 0 };
        no_identities(root)?;
        walk.add(root, String::new())?;
        while let Some((number, value)) = walk.waiting.pop() {
            walk.look(number, value)?;
        }
        let schemas = walk.schemas;
        let order = in_order(&schemas)?;
        let bounds = Bounds { schemas, order };
        if bounds.cost(0).is_too_nested() {
            let message = format!("more than {MOST_NESTED} schemas apply one another to the same value");
            return Err(refused("", message, "make the chain of references shorter"));
        }
        Ok(bounds)
    }

    /// What a value costs that is nested so deep. Multiply the steps by the number of values in it.
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
        self.nested > MOST_NESTED
    }
}

struct Walk<'s> {
    root: &'s Value,
    schemas: Vec<Schema>,
    /// By where they are in memory: the schema is not moved meanwhile.
    known: HashMap<*const Value, usize>,
    waiting: Vec<(usize, &'s Value)>,
    patterns: usize,
}

impl<'s> Walk<'s> {
    fn add(&mut self, value: &'s Value, at: String) -> Result<usize, Refused> {
        if let Some(known) = self.known.get(&std::ptr::from_ref(value)) {
            return Ok(*known);
        }
        let number = self.schemas.len();
        if number >= MOST_SCHEMAS {
            let message = format!("the schema consists of more than {MOST_SCHEMAS} parts");
            return Err(refused(&at, message, "divide the kind into several"));
        }
        self.known.insert(value, number);
        let empty = Schema { at, own: 1, inside: vec![], one_a_member: vec![], all_a_member: vec![] };
        self.schemas.push(empty);
        self.waiting.push((number, value));
        Ok(number)
    }

    fn look(&mut self, number: usize, value: &'s Value) -> Result<(), Refused> {
        let Value::Object(keywords) = value else { return Ok(()) };
        let at = self.schemas[number].at.clone();
        for (keyword, value) in keywords {
            let here = format!("{at}/{}", escaped(keyword));
            let children = match keyword.as_str() {
                "$ref" => self.reference(value, &here)?,
                "$dynamicRef" | "$recursiveRef" => {
                    let help = "name the schema with $ref: '#/…'";
                    return Err(refused(&here, format!("{keyword} is not supported"), help));
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
        if self.patterns > MOST_PATTERNS {
            let message = format!("the schema holds more than {MOST_PATTERNS} patterns");
            return Err(refused(&at, message, "use fewer of them"));
        }
        Ok(())
    }

    fn reference(&mut self, value: &'s Value, here: &str) -> Result<Vec<usize>, Refused> {
        let Some(reference) = value.as_str() else { return Ok(Vec::new()) };
        let pointer = reference.strip_prefix('#').filter(|pointer| pointer.is_empty() || pointer.starts_with('/'));
        // What is written in another way here than there could lead the one elsewhere than the other.
        let pointer = pointer.filter(|pointer| !pointer.contains('%'));
        let Some(pointer) = pointer else {
            let message = format!("the schema refers to {}, which is not in it", crate::finding::quote(reference));
            let help = "everything must be in one document: put it under $defs, and refer to it with '#/$defs/NAME'";
            return Err(refused(here, message, help));
        };
        let Some(target) = self.root.pointer(pointer) else {
            let message =
                format!("the schema refers to {}, and there is no such part", crate::finding::quote(reference));
            return Err(refused(here, message, "look at the spelling; a / in a name is written ~1, and a ~ is ~0"));
        };
        Ok(vec![self.add(target, pointer.to_owned())?])
    }

    fn single(&mut self, value: &'s Value, here: String) -> Result<Vec<usize>, Refused> {
        Ok(vec![self.add(value, here)?])
    }

    fn list(&mut self, value: &'s Value, here: &str) -> Result<Vec<usize>, Refused> {
        let values = value.as_array().map(Vec::as_slice).unwrap_or_default();
        values.iter().enumerate().map(|(number, value)| self.add(value, format!("{here}/{number}"))).collect()
    }

    fn map(&mut self, value: &'s Value, here: &str) -> Result<Vec<usize>, Refused> {
        let entries = value.as_object().into_iter().flatten();
        entries.map(|(name, value)| self.add(value, format!("{here}/{}", escaped(name)))).collect()
    }
}

/// A part with an identity of its own would make `#` mean that part, for everything in it.
fn no_identities(root: &Value) -> Result<(), Refused> {
    let dialect = root.get("$schema").and_then(Value::as_str).unwrap_or_default();
    // Up to draft 4 it was called `id`.
    let keywords: &[&str] = if dialect.contains("draft-04") { &["$id", "$schema", "id"] } else { &["$id", "$schema"] };
    below(root, "", &mut |value, at| no_identity(value, at, keywords))
}

fn no_identity(value: &Value, at: &str, keywords: &[&str]) -> Result<(), Refused> {
    if keywords.iter().any(|keyword| value.get(keyword).is_some_and(Value::is_string)) {
        let message = "a part of the schema has an identity of its own, which is not supported".to_owned();
        return Err(refused(at, message, "remove it, and refer to the part with $ref: '#/…'"));
    }
    below(value, at, &mut |value, at| no_identity(value, at, keywords))
}

/// Looks at everything directly below a value.
fn below(value: &Value, at: &str, look: &mut dyn FnMut(&Value, &str) -> Result<(), Refused>) -> Result<(), Refused> {
    match value {
        Value::Object(entries) => {
            let mut entries = entries.iter();
            entries.try_for_each(|(key, value)| look(value, &format!("{at}/{}", escaped(key))))
        }
        Value::Array(values) => {
            let mut values = values.iter().enumerate();
            values.try_for_each(|(number, value)| look(value, &format!("{at}/{number}")))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

/// Puts each schema behind those that it applies to the same value. There is no order when they go round in a circle.
fn in_order(schemas: &[Schema]) -> Result<Vec<usize>, Refused> {
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
            Err(refused(&schemas[stuck].at, message, help))
        }
    }
}

fn refused(at: &str, message: String, help: &'static str) -> Refused {
    Refused { at: at.to_owned(), message, help }
}

fn escaped(step: &str) -> String {
    step.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::json;

    fn why(schema: Value) -> String {
        Bounds::of(&schema).unwrap_err().message
    }

    #[test]
    fn circles_and_other_documents_are_refused() {
        for schema in [
            json!({"$ref": "#"}),
            json!({"allOf": [{"anyOf": [{"$ref": "#"}]}]}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"$ref": "#/$defs/a"}}}),
        ] {
            assert!(why(schema.clone()).contains("without end"), "{schema}");
        }
        for reference in ["https://example.org/s.json", "file:///etc/passwd", "other.json#/a", "#name"] {
            assert!(why(json!({"properties": {"a": {"$ref": reference}}})).contains("not in it"), "{reference}");
        }
        assert!(why(json!({"$ref": "#/$defs/a"})).contains("no such part"));
        assert!(why(json!({"$dynamicRef": "#"})).contains("not supported"));
        assert!(why(json!({"properties": {"a": {"$id": "x:y"}}})).contains("identity"));
        let old = |id: Value| json!({"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"a": id}});
        assert!(why(old(json!({"id": "x:y"}))).contains("identity"));
        assert!(Bounds::of(&old(json!({"properties": {"id": {"type": "string"}}}))).is_ok());
    }

    #[test]
    fn what_refers_to_itself_below_a_member_costs_what_is_there() {
        let tree = json!({"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "$ref": {"type": "string"}}});
        let bounds = Bounds::of(&tree).unwrap();
        let costs = [0, 1, 60].map(|depth| bounds.cost(depth).steps);
        assert!(costs[0] < costs[1] && costs[2] < 60 * costs[1] + costs[0], "{costs:?}");
    }

    #[test]
    fn what_branches_at_every_level_is_seen_to() {
        let twice = json!({"properties": {"a": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}});
        let bounds = Bounds::of(&twice).unwrap();
        assert!(bounds.cost(40).steps > 1 << 40);
        assert!(bounds.cost(200).is_too_nested());
    }

    #[test]
    fn what_branches_without_members_is_seen_to() {
        let mut defs = serde_json::Map::new();
        for level in 0..60 {
            let next = format!("#/$defs/d{}", level + 1);
            defs.insert(format!("d{level}"), json!({"allOf": [{"$ref": next}, {"$ref": next}]}));
        }
        defs.insert("d60".into(), json!(true));
        let bounds = Bounds::of(&json!({"$ref": "#/$defs/d0", "$defs": defs})).unwrap();
        assert!(bounds.cost(0).steps > 1 << 60);
    }
}
