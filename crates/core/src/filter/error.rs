//! What is wrong with a filter, where, and what would be right.

use thiserror::Error;

use super::MAX_LENGTH;

/// A filter that cannot be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("cannot read the filter at character {at}, {term:?}: {trouble}")]
pub struct FilterError {
    /// The character at which it is wrong, from 1.
    pub at: usize,
    /// The term in which it is wrong.
    pub term: String,
    pub trouble: FilterProblem,
}

/// What is wrong with a term.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FilterProblem {
    #[error("there is no key {key:?}")]
    UnknownKey {
        key: String,
        /// What was probably meant.
        meant: Option<String>,
        /// All that can be asked for, for people.
        known: String,
    },
    #[error("a term begins with a key")]
    NoKey,
    #[error("there is no value after {before:?}")]
    NoValue {
        /// The sign after which it is missing.
        before: &'static str,
        key: String,
    },
    #[error("{found:?} cannot stand there")]
    UnexpectedSign { found: char },
    #[error("{key:?} is said to be not set, and to have a value")]
    NotSetAndEqual { key: String },
    #[error("the quote {quote} is not closed")]
    Unclosed { quote: char },
    #[error("a filter has {MAX_LENGTH} characters at most")]
    TooLong,
}

impl FilterError {
    /// What to write instead.
    pub fn hint(&self) -> String {
        match &self.trouble {
            FilterProblem::UnknownKey { key, .. } if ["and", "or", "not"].contains(&key.to_lowercase().as_str()) => {
                "terms are joined by spaces, and all of them must hold; alternatives are written key=a,b, and the opposite \
                 key!=a"
                    .to_owned()
            }
            FilterProblem::UnknownKey { meant: Some(meant), known, .. } => {
                format!("did you mean {meant}? there is {known}")
            }
            FilterProblem::UnknownKey { meant: None, known, .. } => {
                format!("there is {known}; a value that holds a space is quoted: key=\"two words\"")
            }
            FilterProblem::NoKey => "a term is key=value, key!=value, key or !key".to_owned(),
            FilterProblem::NoValue { before: ",", .. } => {
                "alternatives are joined by commas without spaces: key=a,b".to_owned()
            }
            FilterProblem::NoValue { key, .. } => {
                format!("{key} alone asks whether it is set, !{key} whether it is not, and {key}=\"\" whether it is empty")
            }
            FilterProblem::UnexpectedSign { found: '<' | '>' | '~' | '=' } => {
                "values are compared with = and !=, and * stands for any text: name=web*".to_owned()
            }
            FilterProblem::UnexpectedSign { .. } => {
                "a term is key=value, key!=value, key or !key; a key with other signs is quoted".to_owned()
            }
            FilterProblem::NotSetAndEqual { key } => format!("the opposite of {key}=value is {key}!=value"),
            FilterProblem::Unclosed { quote } => {
                format!("close it with {quote}; on a command line the shell takes quotes away, so quote the whole term too")
            }
            FilterProblem::TooLong => "choose with fewer terms, or with * in a value".to_owned(),
        }
    }
}
