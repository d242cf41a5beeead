//! Errors of the filter language, with position and hint.

use thiserror::Error;

use super::MAX_LENGTH;

/// A filter that cannot be parsed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("invalid filter at character {at}, {term:?}: {trouble}")]
pub struct FilterError {
    /// Position of the error in characters, from 1.
    pub at: usize,
    /// Term that contains the error.
    pub term: String,
    pub trouble: FilterProblem,
}

/// Problem with a term.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FilterProblem {
    #[error("unknown key {key:?}")]
    UnknownKey {
        key: String,
        /// Closest known key.
        meant: Option<String>,
        /// All known keys, for the message.
        known: String,
    },
    #[error("a term begins with a key")]
    NoKey,
    #[error("missing value after {before:?}")]
    NoValue {
        /// Sign that the value is missing after.
        before: &'static str,
        key: String,
    },
    #[error("unexpected {found:?}")]
    UnexpectedSign { found: char },
    #[error("{key:?} cannot be unset and have a value")]
    NotSetAndEqual { key: String },
    #[error("the quote {quote} is not closed")]
    Unclosed { quote: char },
    #[error("a filter has at most {MAX_LENGTH} characters")]
    TooLong,
}

impl FilterError {
    /// Suggested correction.
    pub fn hint(&self) -> String {
        match &self.trouble {
            FilterProblem::UnknownKey { key, .. } if ["and", "or", "not"].contains(&key.to_lowercase().as_str()) => {
                "terms are joined by spaces, and all of them must hold; alternatives are written key=a,b, and the opposite \
                 key!=a"
                    .to_owned()
            }
            FilterProblem::UnknownKey { meant: Some(meant), known, .. } => {
                format!("did you mean {meant}? known keys: {known}")
            }
            FilterProblem::UnknownKey { meant: None, known, .. } => {
                format!("known keys: {known}; quote a value with spaces: key=\"two words\"")
            }
            FilterProblem::NoKey => "a term is key=value, key!=value, key or !key".to_owned(),
            FilterProblem::NoValue { before: ",", .. } => {
                "alternatives are joined by commas without spaces: key=a,b".to_owned()
            }
            FilterProblem::NoValue { key, .. } => {
                format!("{key} alone tests that it is set, !{key} that it is not set, and {key}=\"\" that it is empty")
            }
            FilterProblem::UnexpectedSign { found: '<' | '>' | '~' | '=' } => {
                "values are compared with = and !=, and * stands for any text: name=web*".to_owned()
            }
            FilterProblem::UnexpectedSign { .. } => {
                "a term is key=value, key!=value, key or !key; a key with other signs is quoted".to_owned()
            }
            FilterProblem::NotSetAndEqual { key } => format!("the opposite of {key}=value is {key}!=value"),
            FilterProblem::Unclosed { quote } => {
                format!("close it with {quote}; the shell removes quotes on a command line, so quote the whole term too")
            }
            FilterProblem::TooLong => "use fewer terms, or * in a value".to_owned(),
        }
    }
}
