//! Values of a node's own design: `self/<node>`, resolved by the design controller and looked up as `self::<path>`.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::lookup::{Tag, interface_in_key, stable_text, text_tag};

/// Longest text of `self/<node>`, in bytes. A value in the store has at most 16 KiB.
pub const MAX_TEXT: usize = 12 * 1024;
/// Member that names the members that were left out.
pub const OMITTED: &str = "omitted";

/// Members of a node's own design.
pub type SelfValues = BTreeMap<String, Value>;

/// Text of the values in the store. The largest members are left out until it fits, and named in `omitted`.
pub fn bounded_text(mut values: SelfValues) -> Result<String, serde_json::Error> {
    let mut omitted: Vec<String> = Vec::new();
    loop {
        let text = serde_json::to_string(&values)?;
        let largest =
            values.iter().filter(|(name, _)| *name != OMITTED).max_by_key(|(_, value)| value.to_string().len());
        let Some(largest) = largest.map(|(name, _)| name.clone()).filter(|_| text.len() > MAX_TEXT) else {
            return Ok(text);
        };
        values.remove(&largest);
        omitted.push(largest);
        values.insert(OMITTED.to_owned(), omitted.clone().into());
    }
}

/// Value at a path, whose parts are separated by `::`. A `.` in the name of a member is `_` in a path, since Hiera reads it as
/// access into a hash. An empty path is the whole.
pub fn at_path(values: &SelfValues, path: &str) -> Option<Value> {
    let mut parts = path.split("::").filter(|_| !path.is_empty());
    let Some(first) = parts.next() else { return (!values.is_empty()).then(|| serde_json::json!(values)) };
    let named = |wanted: &str, name: &str| name == wanted || interface_in_key(name) == wanted;
    let mut value = values.iter().find(|(name, _)| named(first, name)).map(|(_, value)| value)?;
    for part in parts {
        value = match value {
            Value::Object(members) => members.iter().find(|(name, _)| named(part, name)).map(|(_, value)| value)?,
            Value::Array(items) => items.get(part.parse::<usize>().ok()?)?,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
        };
    }
    Some(value.clone())
}

/// Tag of the value at a path.
pub fn tag_at(values: &SelfValues, path: &str) -> Option<Tag> {
    at_path(values, path).map(|value| text_tag(&["self", &stable_text(&value)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn values() -> SelfValues {
        let value =
            json!({"fqdn": "web1.example.org", "dns": {"servers": ["10.0.0.53"]}, "addresses": {"eth0.5": "10.0.0.1"}});
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn paths_reach_members_and_items() {
        let at = |path: &str| at_path(&values(), path);
        assert_eq!(at("fqdn"), Some(json!("web1.example.org")));
        assert_eq!(at("dns::servers::0"), Some(json!("10.0.0.53")));
        assert_eq!(at("addresses::eth0_5"), Some(json!("10.0.0.1")));
        assert_eq!(at(""), Some(json!(values())));
        for absent in ["fqdn::x", "dns::servers::1", "dns::servers::x", "dns::", "::", "nothing"] {
            assert_eq!(at(absent), None, "{absent}");
        }
        assert_eq!(at_path(&SelfValues::new(), ""), None);
        assert_ne!(tag_at(&values(), "fqdn"), tag_at(&values(), "dns"));
    }

    #[test]
    fn largest_members_are_omitted() {
        let mut large = values();
        large.insert("routes".into(), json!(vec!["x".repeat(100); 200]));
        let read: SelfValues = serde_json::from_str(&bounded_text(large).unwrap()).unwrap();
        assert_eq!(read.get(OMITTED), Some(&json!(["routes"])));
        assert_eq!(read.get("fqdn"), Some(&json!("web1.example.org")));
        let small: SelfValues = serde_json::from_str(&bounded_text(values()).unwrap()).unwrap();
        assert_eq!(small, values());
    }
}
