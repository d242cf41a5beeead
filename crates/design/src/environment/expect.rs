//! Takes typed values out of an environment file or a strategy, and says what was expected where something else stands.
//!
//! Each function returns `None` only after it has reported why.

use crate::finding::{Code, Report, quote};
use crate::span::Span;
use crate::spelling;
use crate::types::wrong_type;
use crate::yaml::{Entry, Kind, Map, Node, Value};

/// The keys of a mapping, held against those that are known there.
pub(crate) struct Fields<'m, 'o> {
    map: &'m Map,
    /// What the mapping describes, for messages: `role "web"`.
    of: &'o str,
    /// Where to point when something is missing from it.
    at: Span,
    /// The known keys that others were probably misspelt for.
    meant: Vec<&'static str>,
    has_unknown: bool,
}

impl<'m, 'o> Fields<'m, 'o> {
    /// Reports every key that is not known.
    pub(crate) fn check(
        map: &'m Map,
        of: &'o str,
        at: Span,
        known: &'static [&'static str],
        report: &mut Report<'_>,
    ) -> Self {
        let (mut meant, mut has_unknown) = (Vec::new(), map.has_refused());
        for Entry { key, .. } in map.entries() {
            if known.contains(&&*key.text) {
                continue;
            }
            let near = spelling::nearest(&key.text, known.iter().copied());
            let help = match near {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("known here: {}", known.join(", ")),
            };
            has_unknown = true;
            meant.extend(near.filter(|near| !meant.contains(near)));
            let message = format!("unknown key {} in {of}", quote(&key.text));
            report.add(key.span, Code::UnknownKey.finding(message).help(help));
        }
        Fields { map, of, at, meant, has_unknown }
    }

    /// The value of a key that must be there.
    pub(crate) fn required(&self, key: &str, example: &str, report: &mut Report<'_>) -> Option<&'m Node> {
        let node = self.optional(key);
        // A key that is there but misspelt or refused has been reported; that it is missing would be the same mistake
        // again.
        if node.is_none() && !self.meant.contains(&key) && !self.map.has_refused() {
            let finding = Code::MissingKey.finding(format!("{} has no \"{key}\"", self.of));
            report.add(self.at, finding.help(format!("add it, for instance: {key}: {example}")));
        }
        node
    }

    /// Whether there are keys that are not known: that something is missing cannot be said then.
    pub(crate) fn has_unknown(&self) -> bool {
        self.has_unknown
    }

    /// The value of a key that may be left out.
    pub(crate) fn optional(&self, key: &str) -> Option<&'m Node> {
        self.map.get(key).map(|entry| &entry.value)
    }
}

pub(crate) fn mapping<'n>(node: &'n Node, what: &str, expected: &str, report: &mut Report<'_>) -> Option<&'n Map> {
    match &node.value {
        Value::Map(map) => Some(map),
        Value::Scalar(_) | Value::Seq(_) => wrong_type(node, what, expected, report),
    }
}

pub(crate) fn list<'n>(node: &'n Node, what: &str, expected: &str, report: &mut Report<'_>) -> Option<&'n [Node]> {
    match &node.value {
        Value::Seq(items) => Some(items),
        Value::Scalar(_) | Value::Map(_) => wrong_type(node, what, expected, report),
    }
}

pub(crate) fn integer(node: &Node, what: &str, expected: &str, report: &mut Report<'_>) -> Option<i64> {
    match node.kind() {
        Some(Kind::Int(value)) => Some(value),
        _ => wrong_type(node, what, expected, report),
    }
}

pub(crate) fn boolean(node: &Node, what: &str, report: &mut Report<'_>) -> Option<bool> {
    match node.kind() {
        Some(Kind::Bool(value)) => Some(value),
        _ => wrong_type(node, what, "true or false", report),
    }
}

/// A text, which may be empty.
pub(crate) fn text<'n>(node: &'n Node, what: &str, report: &mut Report<'_>) -> Option<&'n str> {
    match &node.value {
        Value::Scalar(scalar) if scalar.kind() == Kind::Text => Some(scalar.text()),
        Value::Scalar(_) | Value::Seq(_) | Value::Map(_) => wrong_type(node, what, "a text", report),
    }
}

/// A text that says something.
pub(crate) fn filled_text<'n>(node: &'n Node, what: &str, report: &mut Report<'_>) -> Option<&'n str> {
    let text = text(node, what, report)?;
    if text.trim().is_empty() {
        report.add(node.span, Code::EmptyText.finding(format!("{what} is empty")).expected("expected a text"));
        return None;
    }
    Some(text)
}
