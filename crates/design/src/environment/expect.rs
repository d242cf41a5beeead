//! Reads typed values from environment files and strategies.
//!
//! Each function returns `None` only after reporting a finding.

use crate::file_text::Span;
use crate::finding::{Code, FindingCollector, quote};
use crate::types::wrong_type;
use crate::yaml::{ScalarKind, Value, YamlEntry, YamlMap, YamlNode};
use muster_core::spelling;

/// A mapping whose keys were checked against the known ones.
pub(crate) struct MapFields<'m, 'o> {
    map: &'m YamlMap,
    /// Name of the mapping for messages: `role "web"`.
    of: &'o str,
    /// Span for findings about missing keys.
    at: Span,
    /// Known keys that were probably misspelt.
    misspelt: Vec<&'static str>,
    has_unknown: bool,
}

impl<'m, 'o> MapFields<'m, 'o> {
    /// Reports every unknown key.
    pub(crate) fn check(
        map: &'m YamlMap,
        of: &'o str,
        at: Span,
        known: &'static [&'static str],
        report: &mut FindingCollector<'_>,
    ) -> Self {
        let (mut misspelt, mut has_unknown) = (Vec::new(), map.has_refused());
        for YamlEntry { key, .. } in map.entries() {
            if known.contains(&&*key.text) {
                continue;
            }
            let near = spelling::nearest(&key.text, known.iter().copied());
            let help = match near {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("known here: {}", known.join(", ")),
            };
            has_unknown = true;
            misspelt.extend(near.filter(|near| !misspelt.contains(near)));
            let message = format!("unknown key {} in {of}", quote(&key.text));
            report.add(key.span, Code::UnknownKey.finding(message).help(help));
        }
        MapFields { map, of, at, misspelt, has_unknown }
    }

    /// Value of a required key.
    pub(crate) fn required(&self, key: &str, example: &str, report: &mut FindingCollector<'_>) -> Option<&'m YamlNode> {
        let node = self.optional(key);
        // A misspelt or refused key was reported; do not report it as missing too.
        if node.is_none() && !self.misspelt.contains(&key) && !self.map.has_refused() {
            let finding = Code::MissingKey.finding(format!("{} has no \"{key}\"", self.of));
            report.add(self.at, finding.help(format!("add it, for instance: {key}: {example}")));
        }
        node
    }

    /// Reports whether there are unknown keys. A missing key may then be a misspelt one.
    pub(crate) fn has_unknown(&self) -> bool {
        self.has_unknown
    }

    /// Value of an optional key.
    pub(crate) fn optional(&self, key: &str) -> Option<&'m YamlNode> {
        self.map.get(key).map(|entry| &entry.value)
    }
}

pub(crate) fn mapping<'n>(
    node: &'n YamlNode,
    what: &str,
    expected: &str,
    report: &mut FindingCollector<'_>,
) -> Option<&'n YamlMap> {
    match &node.value {
        Value::Map(map) => Some(map),
        Value::Scalar(_) | Value::Seq(_) => wrong_type(node, what, expected, report),
    }
}

pub(crate) fn list<'n>(
    node: &'n YamlNode,
    what: &str,
    expected: &str,
    report: &mut FindingCollector<'_>,
) -> Option<&'n [YamlNode]> {
    match &node.value {
        Value::Seq(items) => Some(items),
        Value::Scalar(_) | Value::Map(_) => wrong_type(node, what, expected, report),
    }
}

pub(crate) fn integer(node: &YamlNode, what: &str, expected: &str, report: &mut FindingCollector<'_>) -> Option<i64> {
    match node.kind() {
        Some(ScalarKind::Int(value)) => Some(value),
        _ => wrong_type(node, what, expected, report),
    }
}

pub(crate) fn boolean(node: &YamlNode, what: &str, report: &mut FindingCollector<'_>) -> Option<bool> {
    match node.kind() {
        Some(ScalarKind::Bool(value)) => Some(value),
        _ => wrong_type(node, what, "true or false", report),
    }
}

/// A text, which may be empty.
pub(crate) fn text<'n>(node: &'n YamlNode, what: &str, report: &mut FindingCollector<'_>) -> Option<&'n str> {
    match &node.value {
        Value::Scalar(scalar) if scalar.kind() == ScalarKind::Text => Some(scalar.text()),
        Value::Scalar(_) | Value::Seq(_) | Value::Map(_) => wrong_type(node, what, "a text", report),
    }
}

/// A text that is not empty.
pub(crate) fn filled_text<'n>(node: &'n YamlNode, what: &str, report: &mut FindingCollector<'_>) -> Option<&'n str> {
    let text = text(node, what, report)?;
    if text.trim().is_empty() {
        report.add(node.span, Code::EmptyText.finding(format!("{what} is empty")).expected("expected a text"));
        return None;
    }
    Some(text)
}
