//! JSON Schemas (2020-12) of the types, for editors.

use serde_json::{Map, Value, json};

use super::{Object, Type};
use crate::kinds::Kind;

/// Schema of a document of a kind.
pub fn json_schema(kind: Kind) -> Value {
    let name = json!({"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._+:@/-]{0,127}$"});
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": format!("Muster {kind}"),
        "description": kind.about(),
        "type": "object",
        "required": ["kind", "name"],
        "additionalProperties": false,
        "properties": {
            "kind": {"const": kind.word()},
            "name": name,
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "extends": {"type": "array", "items": name, "description": format!("The documents of kind {} whose values this one begins with, in order: a later one wins.", kind.parents())},
            "overlay": {"type": "boolean", "description": "True: it overrides the document of the same kind and name in an earlier source."},
            "spec": spec_schema(kind),
        },
    })
}

/// Schema of the spec of a kind.
pub fn spec_schema(kind: Kind) -> Value {
    if let Type::Object(object) = kind.body() { mapping(object, &["labels"]) } else { json!({"type": "object"}) }
}

/// Schema of a type. Every key can also be removed, and every value unset.
fn schema(ty: &Type) -> Value {
    match ty {
        Type::Text(format) => match format.pattern() {
            Some(pattern) => json!({"type": ["string", "null"], "pattern": pattern}),
            None => json!({"type": ["string", "null"]}),
        },
        Type::Integer { min, max } => json!({"type": ["integer", "null"], "minimum": min, "maximum": max}),
        Type::Bool => json!({"type": ["boolean", "null"]}),
        Type::OneOf(words) => {
            let words: Vec<Value> = words.iter().map(|word| json!(word)).chain([Value::Null]).collect();
            json!({"enum": words})
        }
        Type::Scalar => json!({"type": ["string", "number", "boolean", "null"]}),
        Type::Reference(kind) => {
            json!({"type": ["string", "null"], "description": format!("The name of a document of kind {kind}.")})
        }
        Type::Secret => json!({
            "type": ["object", "null"],
            "properties": {"secret": {"type": "string"}},
            "required": ["secret"],
            "additionalProperties": false,
        }),
        Type::List(item) => json!({"type": ["array", "null"], "items": members(schema(item))}),
        Type::ReplacedList(item) => json!({"type": ["array", "null"], "items": schema(item)}),
        Type::Keyed { key, item } => {
            let mut member = mapping(item, &[]);
            member["required"] = json!([key]);
            let removal = json!({
                "type": "object",
                "properties": {*key: {"type": "string", "pattern": "^!."}},
                "required": [key],
            });
            json!({"type": ["array", "null"], "items": members(json!({"anyOf": [removal, member]}))})
        }
        Type::Map(value) => json!({
            "type": ["object", "null"],
            "patternProperties": {"^!": {}},
            "additionalProperties": schema(value),
        }),
        Type::Object(object) => mapping(object, &[]),
        Type::Any => json!({}),
    }
}

/// Schema of a member of a list, or of its removal.
fn members(member: Value) -> Value {
    json!({"anyOf": [{"type": "string", "pattern": "^!."}, member]})
}

fn mapping(object: &Object, left_out: &[&str]) -> Value {
    let fields = object.fields().filter(|field| !left_out.contains(&field.name));
    let properties: Map<String, Value> = fields
        .map(|field| {
            let mut value = schema(&field.ty);
            value["description"] = json!(field.about);
            (field.name.to_owned(), value)
        })
        .collect();
    json!({
        "type": ["object", "null"],
        "properties": properties,
        "patternProperties": {"^!": {}},
        "additionalProperties": object.open,
    })
}
