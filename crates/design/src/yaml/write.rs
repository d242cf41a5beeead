//! Serialization of trees. Keys keep the order of the file.

use serde::ser::{Error, Serialize, SerializeMap, SerializeSeq, Serializer};

use super::{Kind, Node, Value};

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.value {
            Value::Map(map) => {
                let mut out = serializer.serialize_map(Some(map.entries().len()))?;
                for entry in map.entries() {
                    out.serialize_entry(&*entry.key.text, &entry.value)?;
                }
                out.end()
            }
            Value::Seq(items) => {
                let mut out = serializer.serialize_seq(Some(items.len()))?;
                items.iter().try_for_each(|item| out.serialize_element(item))?;
                out.end()
            }
            Value::Scalar(scalar) => match scalar.kind() {
                Kind::Null => serializer.serialize_unit(),
                Kind::Bool(value) => serializer.serialize_bool(value),
                Kind::Int(value) => serializer.serialize_i64(value),
                Kind::Float => match scalar.as_float() {
                    Some(value) => serializer.serialize_f64(value),
                    None => Err(S::Error::custom("a number that has no value")),
                },
                Kind::Text => serializer.serialize_str(scalar.text()),
            },
        }
    }
}
