//! One language to choose by, for the command line, the API and the dashboard.
//!
//! ```text
//! kind=Node role=web,db label.rack=r1 state!=validated !reason name=web*
//! ```
//!
//! Terms are joined by spaces, and all of them must hold:
//!
//! - `key=value`: a value of the field is this one; `key=a,b`: one of these.
//! - `key!=value`, `key!=a,b`: no value of the field is. A field that is not set has no value, so this holds for it.
//! - `key`: the field is set; `!key`: it is not.
//! - `*` in a value stands for any text, also for none. In quotes it is a star.
//! - What holds a space, a comma, a star or a quote is quoted: `label.owner="the web team"`. In double quotes `\"` and
//!   `\\` stand for the character after the backslash.
//!
//! A field may have several values: `=` asks for one of them, and `!=` is always the exact opposite of `=`.

mod error;
mod pattern;
mod read;

use std::fmt;

pub use error::{FilterError, FilterProblem};
pub use pattern::Pattern;

/// The longest filter that is read. Nobody types more, and a filter is matched against every item of a list.
pub const MAX_LENGTH: usize = 4096;

/// Something that can be chosen by its fields.
pub trait Fields {
    /// Hands the values of a field to `test`, one after the other, until it says yes; tells whether it did. A field that
    /// is not set has no value.
    fn any(&self, key: &str, test: &mut dyn FnMut(&str) -> bool) -> bool;
}

/// The keys that can be asked for.
#[derive(Clone, Copy, Debug)]
pub struct FilterKeys<'k> {
    /// Those with a name of their own.
    pub fixed: &'k [&'k str],
    /// What the others begin with, such as `label.`; what follows is anybody's choice.
    pub open: &'k [&'k str],
}

impl FilterKeys<'_> {
    fn knows(&self, key: &str) -> bool {
        let in_open = |start: &&str| key.len() > start.len() && key.starts_with(*start);
        self.fixed.contains(&key) || self.open.iter().any(in_open)
    }
}

/// What a list is cut down to. The empty one chooses everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    terms: Vec<Term>,
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    pub key: Box<str>,
    pub test: Test,
    /// Whether it holds exactly when the test does not.
    pub not: bool,
}

/// What a field is tested for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    IsSet,
    /// A value is like one of these; there is at least one.
    IsLike(Vec<Pattern>),
}

impl Filter {
    /// Reads a filter whose keys must be known.
    pub fn parse(text: &str, keys: &FilterKeys<'_>) -> Result<Self, FilterError> {
        read::filter(text, keys).map(|terms| Self { terms })
    }

    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    pub fn matches(&self, item: &impl Fields) -> bool {
        self.terms.iter().all(|term| term.holds(item))
    }
}

impl Term {
    fn holds(&self, item: &impl Fields) -> bool {
        let found = item.any(&self.key, &mut |value| match &self.test {
            Test::IsSet => true,
            Test::IsLike(patterns) => patterns.iter().any(|pattern| pattern.matches(value)),
        });
        found != self.not
    }
}

/// As it would be typed; read again, it is the same filter.
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
                pattern::write_key(f, &self.key)
            }
            Test::IsLike(patterns) => {
                pattern::write_key(f, &self.key)?;
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

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
