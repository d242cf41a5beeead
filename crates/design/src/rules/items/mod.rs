//! Rules about configuration items: documents of kinds that are not Muster's, of which a schema says what they hold.
//!
//! A schema comes from an operator, and a library compiles and runs it. [`bounds`] looks at it before: what would not end,
//! or not soon, or reach out for other documents, never gets as far.

mod bounds;
pub(super) mod item_does_not_fit;
pub(super) mod not_a_schema;
mod prepare;

use crate::yaml::{Map, Node, Value};

/// The spec of a document as data: its body without the labels.
fn spec(body: &Node) -> Option<serde_json::Value> {
    let mut spec = serde_json::to_value(body).ok()?;
    if let serde_json::Value::Object(fields) = &mut spec {
        fields.remove("labels");
    }
    Some(spec)
}

/// The value at a JSON pointer; the nearest one above it if there is none.
fn at_pointer<'n>(node: &'n Node, pointer: &str) -> &'n Node {
    let mut at = node;
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        let below = match &at.value {
            Value::Map(map) => Map::get(map, &step).map(|entry| &entry.value),
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
