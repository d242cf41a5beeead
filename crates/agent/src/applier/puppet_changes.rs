//! Changes of a Puppet run or preview: each property with its old and new value.

use serde_json::Value;

use muster_core::report::ResourceChange;
use muster_core::report::summary::clip;

use crate::applier::puppet_log;
use crate::applier::puppet_report::{Event, Reader, Status};

/// Maximum number of changes. The log has all of them.
const MAX_CHANGES: usize = 200;
/// Maximum length of a value. The log has the diff of longer ones.
const MAX_VALUE: usize = 240;

/// Adds the changes of one resource.
pub(super) fn add(changes: &mut Vec<ResourceChange>, reader: &Reader<'_>, resource: &str, status: &Status) {
    let noop = |event: &Event| match event.status.as_deref() {
        Some("success") => Some(false),
        Some("noop") => Some(true),
        _ => None,
    };
    for event in &status.events {
        let Some(noop) = noop(event) else { continue };
        if changes.len() >= MAX_CHANGES {
            return;
        }
        changes.push(ResourceChange {
            resource: clip(&reader.secrets.text(resource), MAX_VALUE),
            property: event.property.clone(),
            old: format_value(&event.previous_value, reader),
            new: format_value(&event.desired_value, reader),
            file: status.file.as_deref().map(|file| puppet_log::in_release(file, reader.release)),
            line: status.line,
            noop,
        });
    }
}

/// Formats a value. Puppet has replaced `Sensitive` values by `[redacted]`.
fn format_value(value: &Value, reader: &Reader<'_>) -> String {
    let text = match value {
        Value::Null => return String::new(),
        Value::String(text) => text.clone(),
        // A property that may have several values is a list also with one value.
        Value::Array(items) => match items.as_slice() {
            [Value::String(text)] => text.clone(),
            _ => value.to_string(),
        },
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
    };
    clip(&reader.secrets.text(&text), MAX_VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::applier::Mode;
    use crate::redact::Redactor;
    use crate::testing::secrets;
    use serde_json::json;
    use std::path::Path;

    fn changes(status: Value, secrets: &Redactor) -> Vec<ResourceChange> {
        let reader = Reader { release: Path::new("/r"), secrets, mode: Mode::Apply };
        let mut changes = Vec::new();
        add(&mut changes, &reader, "File[/hunter2!/x]", &serde_json::from_value(status).unwrap());
        changes
    }

    #[test]
    fn changes_have_values_and_place_without_secrets() {
        let status = json!({"file": "/r/site.pp", "line": 3, "events": [
            {"status": "success", "property": "mode", "previous_value": "0600", "desired_value": "0644"},
            {"status": "success", "property": "returns", "previous_value": "notrun", "desired_value": ["0"]},
            {"status": "noop", "property": "password", "previous_value": null, "desired_value": "is hunter2! now"},
            {"status": "noop", "property": "groups", "previous_value": [], "desired_value": ["a", "b"]},
            {"status": "failure", "property": "content"}, {"status": "audit"},
        ]});
        let changes = changes(status, &secrets(&["hunter2!"]));
        let shown: Vec<_> =
            changes.iter().map(|c| (c.property.as_deref().unwrap(), c.old.as_str(), c.new.as_str(), c.noop)).collect();
        assert_eq!(
            shown,
            [
                ("mode", "0600", "0644", false),
                ("returns", "notrun", "0", false),
                ("password", "", "is [secret] now", true),
                ("groups", "[]", r#"["a","b"]"#, true),
            ]
        );
        assert!(changes.iter().all(|change| change.resource == "File[/[secret]/x]" && change.line == Some(3)));
    }

    #[test]
    fn changes_are_limited_and_redacted_before_cutting() {
        let secret = "0123456789abcdef";
        let long = format!("{}{secret}", "x".repeat(MAX_VALUE - 8));
        let event = json!({"status": "success", "property": "p", "previous_value": "", "desired_value": long});
        let changes = changes(json!({"events": vec![event; 300]}), &secrets(&[secret]));
        assert_eq!(changes.len(), MAX_CHANGES);
        assert!(changes[0].new.len() <= MAX_VALUE && !changes[0].new.contains("0123"), "{}", changes[0].new);
    }
}
