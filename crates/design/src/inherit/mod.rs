//! Inheritance: merges the layers of a document into one value, and explains the result.
//!
//! - [`lineage`]: the documents that a document extends, in order.
//! - [`merge`]: merges one layer over the value below it. One rule for each type, none by kind; the book has an example
//!   of each. The merge reports its steps to a recorder; the one used for compilation does nothing and is optimised away.
//! - [`provenance`]: the layers that set, changed or removed a value.

pub(crate) mod lineage;
pub(crate) mod merge;
pub(crate) mod provenance;

pub use provenance::{LayerAction, LayerStep, Provenance};

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Keys of mappings, and names of list members, from the top down. A step that holds a dot, a quote or nothing is
/// written in quotes: `interfaces."eth0.100".mtu`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValuePath(pub Vec<String>);

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ValuePathError {
    #[error("the path {0:?} has an empty step: write it as interfaces.bond0.mtu")]
    EmptyStep(String),
    #[error(
        "the path {0:?} has a quote that is not closed, or something right behind one: write it as interfaces.\"eth0.100\".mtu"
    )]
    Quote(String),
}

impl ValuePath {
    pub fn steps(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    #[must_use]
    pub fn join(&self, step: &str) -> ValuePath {
        ValuePath(self.0.iter().cloned().chain([step.to_owned()]).collect())
    }
}

impl FromStr for ValuePath {
    type Err = ValuePathError;

    fn from_str(text: &str) -> Result<Self, ValuePathError> {
        let mut steps = Vec::new();
        let mut rest = text;
        loop {
            let (step, after) = if let Some(quoted) = rest.strip_prefix('"') {
                let (step, after) = unquote(quoted).ok_or_else(|| ValuePathError::Quote(text.to_owned()))?;
                if !after.is_empty() && !after.starts_with('.') {
                    return Err(ValuePathError::Quote(text.to_owned()));
                }
                (step, after)
            } else {
                let end = rest.find('.').unwrap_or(rest.len());
                if end == 0 {
                    return Err(ValuePathError::EmptyStep(text.to_owned()));
                }
                (rest[..end].to_owned(), &rest[end..])
            };
            steps.push(step);
            match after.strip_prefix('.') {
                Some(next) => rest = next,
                None => return Ok(ValuePath(steps)),
            }
        }
    }
}

/// The text up to the closing quote, and the rest.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut step = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((step, &text[at + 1..])),
            '\\' => step.push(characters.next()?.1),
            _ => step.push(character),
        }
    }
    None
}

impl fmt::Display for ValuePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(".")?;
            }
            if step.is_empty() || step.contains(['.', '"', '\\']) {
                write!(f, "\"{}\"", step.replace('\\', "\\\\").replace('"', "\\\""))?;
            } else {
                f.write_str(step)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_are_parsed() {
        let steps = |text: &str| text.parse::<ValuePath>().unwrap().0;
        assert_eq!(steps("interfaces.bond0.mtu"), ["interfaces", "bond0", "mtu"]);
        assert_eq!(steps("interfaces.\"eth0.100\".mtu"), ["interfaces", "eth0.100", "mtu"]);
        assert_eq!(steps("\"\""), [""]);
        for bad in ["", ".", "a.", ".a", "a..b"] {
            assert!(matches!(bad.parse::<ValuePath>(), Err(ValuePathError::EmptyStep(_))), "{bad:?}");
        }
        for bad in ["\"a", "\"a\"b", "a.\"b\"\""] {
            assert!(matches!(bad.parse::<ValuePath>(), Err(ValuePathError::Quote(_))), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn formatted_path_round_trips(steps in prop::collection::vec(".{0,6}", 1..5)) {
            let path = ValuePath(steps);
            prop_assert_eq!(path.to_string().parse::<ValuePath>().unwrap(), path);
        }
    }
}
