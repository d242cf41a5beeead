//! Filter language of lists, for the command line, the API and the dashboard.
//!
//! ```text
//! kind=Node role=web,db label.rack=r1 state!=validated !reason name=web*
//! ```
//!
//! Terms are separated by spaces, and all of them must hold:
//!
//! - `key=value`: a value of the field is equal; `key=a,b`: equal to one of these.
//! - `key!=value`, `key!=a,b`: no value of the field is equal. This holds for a field that is not set.
//! - `key`: the field is set; `!key`: it is not set.
//! - `*` in a value matches any text, also the empty one. In quotes it is a plain star.
//! - Values with a space, a comma, a star or a quote are quoted: `label.owner="the web team"`. In double quotes `\"` and
//!   `\\` stand for the character after the backslash.
//!
//! A field may have several values. `=` matches one of them, and `!=` is the exact opposite of `=`.

mod parse;
#[cfg(test)]
mod tests;

use std::fmt;

pub use parse::{FilterError, FilterProblem};

/// Longest filter in characters. A filter is matched against every item of a list, so its cost is bounded.
pub const MAX_LENGTH: usize = 4096;

/// An item that can be filtered by its fields.
pub trait FilterFields {
    /// Calls `test` with the values of a field until it returns true. Returns whether it did. A field that is not set
    /// has no value.
    fn any(&self, key: &str, test: &mut dyn FnMut(&str) -> bool) -> bool;
}

/// Keys that a filter may use.
#[derive(Clone, Copy, Debug)]
pub struct FilterKeys<'k> {
    /// Keys with a fixed name.
    pub fixed: &'k [&'k str],
    /// Prefixes of open keys, such as `label.`.
    pub open: &'k [&'k str],
    /// Fixed keys that have no other values than these.
    pub closed: &'k [(&'k str, &'k [&'k str])],
    /// Earlier values of closed keys: accepted, and not suggested.
    pub aliases: &'k [(&'k str, &'k [&'k str])],
}

impl<'k> FilterKeys<'k> {
    /// All values of a key; none if its values are open.
    fn values(&self, key: &str) -> Option<&'k [&'k str]> {
        self.closed.iter().find(|(closed, _)| *closed == key).map(|(_, values)| *values)
    }

    /// Returns whether a pattern matches an earlier value of a key.
    fn is_alias(&self, key: &str, pattern: &Pattern) -> bool {
        let mut aliases = self.aliases.iter().filter(|(of, _)| *of == key).flat_map(|(_, aliases)| aliases.iter());
        aliases.any(|alias| pattern.matches(alias))
    }

    fn knows(&self, key: &str) -> bool {
        let in_open = |start: &&str| key.len() > start.len() && key.starts_with(*start);
        self.fixed.contains(&key) || self.open.iter().any(in_open)
    }
}

/// Filter of a list. The empty filter matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    terms: Vec<Term>,
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    pub key: Box<str>,
    pub test: Test,
    /// Inverts the test.
    pub not: bool,
}

/// Test of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    IsSet,
    /// A value matches one of these patterns. At least one.
    IsLike(Vec<Pattern>),
}

impl Filter {
    /// Parses a filter. All keys must be known.
    pub fn parse(text: &str, keys: &FilterKeys<'_>) -> Result<Self, FilterError> {
        parse::filter(text, keys).map(|terms| Self { terms })
    }

    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    pub fn matches(&self, item: &impl FilterFields) -> bool {
        self.terms.iter().all(|term| term.holds(item))
    }
}

impl Term {
    fn holds(&self, item: &impl FilterFields) -> bool {
        let found = item.any(&self.key, &mut |value| match &self.test {
            Test::IsSet => true,
            Test::IsLike(patterns) => patterns.iter().any(|pattern| pattern.matches(value)),
        });
        found != self.not
    }
}

/// As it would be typed. Parsing the output gives the same filter.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, term) in self.terms.iter().enumerate() {
            if at > 0 {
                f.write_str(" ")?;
            }
            term.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = if self.not { "!" } else { "" };
        match &self.test {
            Test::IsSet => {
                f.write_str(not)?;
                write_key(f, &self.key)
            }
            Test::IsLike(patterns) => {
                write_key(f, &self.key)?;
                write!(f, "{not}=")?;
                for (at, pattern) in patterns.iter().enumerate() {
                    if at > 0 {
                        f.write_str(",")?;
                    }
                    pattern.fmt(f)?;
                }
                Ok(())
            }
        }
    }
}

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
