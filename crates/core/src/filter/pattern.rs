//! Patterns: values in which `*` matches any text.

use std::fmt;

/// Characters allowed in an unquoted key besides letters and digits.
pub(super) const KEY_SIGNS: [char; 5] = ['.', '_', '-', '/', ':'];

/// A value in which `*` matches any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Text between the stars: one part without a star, two parts with one star. Only the first and last part may be
    /// empty, so each pattern has one representation.
    parts: Vec<Box<str>>,
}

impl Pattern {
    /// Builds a pattern from the text between the stars.
    pub fn new(parts: Vec<String>) -> Self {
        let last = parts.len().saturating_sub(1);
        let kept = |(at, part): (usize, String)| (at == 0 || at == last || !part.is_empty()).then(|| part.into());
        Self { parts: parts.into_iter().enumerate().filter_map(kept).collect() }
    }

    /// The text, if there is no star.
    pub fn exact(&self) -> Option<&str> {
        if let [text] = &self.parts[..] { Some(text) } else { None }
    }

    /// Matches each part at its first occurrence. A later occurrence never matches better when the only wildcard is
    /// `*`.
    pub fn matches(&self, value: &str) -> bool {
        let (first, middle, last) = match &self.parts[..] {
            [] => return value.is_empty(),
            [text] => return **text == *value,
            [first, middle @ .., last] => (first, middle, last),
        };
        let Some(rest) = value.strip_prefix(&**first) else { return false };
        let Some(mut rest) = rest.strip_suffix(&**last) else { return false };
        middle.iter().all(|part| match rest.find(&**part) {
            Some(at) => {
                rest = &rest[at + part.len()..];
                true
            }
            None => false,
        })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.exact() == Some("") {
            return f.write_str("\"\"");
        }
        for (at, part) in self.parts.iter().enumerate() {
            if at > 0 {
                f.write_str("*")?;
            }
            let plain = |c: char| !(c.is_whitespace() || c.is_control() || matches!(c, ',' | '*' | '"' | '\'' | '\\'));
            let begins_the_value = at == 0;
            if part.chars().all(plain) && !(begins_the_value && part.starts_with('=')) {
                f.write_str(part)?;
            } else {
                quoted(f, part)?;
            }
        }
        Ok(())
    }
}

pub(super) fn write_key(f: &mut fmt::Formatter<'_>, key: &str) -> fmt::Result {
    let plain = |c: char| c.is_alphanumeric() || KEY_SIGNS.contains(&c);
    if key.chars().all(plain) { f.write_str(key) } else { quoted(f, key) }
}

fn quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            f.write_str("\\")?;
        }
        write!(f, "{c}")?;
    }
    f.write_str("\"")
}
