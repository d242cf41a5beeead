//! Parser of the filter language: one pass over the characters, errors with position and hint.

use thiserror::Error;

use crate::spelling;

use super::{FilterKeys, KEY_SIGNS, MAX_LENGTH, Pattern, Term, Test};

/// Values of a key in a hint. An environment may have hundreds of releases.
const LISTED: usize = 20;

pub(super) fn filter(text: &str, keys: &FilterKeys<'_>) -> Result<Vec<Term>, FilterError> {
    if text.chars().nth(MAX_LENGTH).is_some() {
        let start = text.chars().take(20).chain(['…']).collect();
        return Err(FilterError { at: MAX_LENGTH + 1, term: start, trouble: FilterProblem::TooLong });
    }
    let mut reader = FilterReader { text, at: 0, term: 0 };
    let mut terms = Vec::new();
    while reader.skip_spaces() {
        terms.push(reader.term(keys)?);
    }
    Ok(terms)
}

struct FilterReader<'t> {
    text: &'t str,
    /// Byte position of the next character.
    at: usize,
    /// Byte position of the current term.
    term: usize,
}

impl FilterReader<'_> {
    /// Advances to the next term. Returns false at the end.
    fn skip_spaces(&mut self) -> bool {
        while self.next_if(char::is_whitespace).is_some() {}
        self.term = self.at;
        self.peek().is_some()
    }

    fn term(&mut self, keys: &FilterKeys<'_>) -> Result<Term, FilterError> {
        let is_not_set = self.consume('!');
        let start = self.at;
        let key = self.key()?;
        if key.is_empty() {
            return Err(self.wrong(start, FilterProblem::NoKey));
        }
        let not_equal = match self.peek() {
            None => return self.set(keys, start, key, is_not_set),
            Some(c) if c.is_whitespace() => return self.set(keys, start, key, is_not_set),
            Some('=') => false,
            Some('!') => true,
            Some(found) => return Err(self.wrong(self.at, FilterProblem::UnexpectedSign { found })),
        };
        let sign = self.at;
        if not_equal {
            self.next();
        }
        if !self.consume('=') {
            return Err(self.wrong(sign, FilterProblem::UnexpectedSign { found: '!' }));
        }
        if is_not_set {
            return Err(self.wrong(self.term, FilterProblem::NotSetAndEqual { key }));
        }
        if self.peek() == Some('=') {
            return Err(self.wrong(self.at, FilterProblem::UnexpectedSign { found: '=' }));
        }
        self.known(keys, start, &key)?;
        let test = Test::IsLike(self.alternatives(&key, if not_equal { "!=" } else { "=" }, keys)?);
        Ok(Term { key: key.into(), test, not: not_equal })
    }

    fn set(&self, keys: &FilterKeys<'_>, start: usize, key: String, not: bool) -> Result<Term, FilterError> {
        self.known(keys, start, &key)?;
        Ok(Term { key: key.into(), test: Test::IsSet, not })
    }

    /// Letters, digits and a few signs. Anything else must be quoted.
    fn key(&mut self) -> Result<String, FilterError> {
        let mut key = String::new();
        while let Some(c) = self.peek() {
            match c {
                '"' | '\'' => self.quoted(&mut key)?,
                c if c.is_alphanumeric() || KEY_SIGNS.contains(&c) => {
                    key.push(c);
                    self.next();
                }
                '=' | '!' => break,
                c if c.is_whitespace() => break,
                found => return Err(self.wrong(self.at, FilterProblem::UnexpectedSign { found })),
            }
        }
        Ok(key)
    }

    /// Values of a term. One that matches none of the values of a closed key can never match, and is an error.
    fn alternatives(
        &mut self,
        key: &str,
        sign: &'static str,
        keys: &FilterKeys<'_>,
    ) -> Result<Vec<Pattern>, FilterError> {
        let known = keys.values(key);
        let mut alternatives = Vec::new();
        let mut before = sign;
        loop {
            let start = self.at;
            let parts = self.value()?;
            if self.at == start {
                return Err(self.wrong(start, FilterProblem::NoValue { before, key: key.to_owned() }));
            }
            let written = parts.join("*");
            let pattern = Pattern::new(parts);
            let is_known = |known: &[&str]| known.iter().any(|value| pattern.matches(value));
            if let Some(known) = known.filter(|known| !is_known(known) && !keys.is_alias(key, &pattern)) {
                let meant = nearest_value(&written, known).map(str::to_owned);
                let (key, known) = (key.to_owned(), listed(known));
                return Err(self.wrong(start, FilterProblem::UnknownValue { key, meant, known }));
            }
            alternatives.push(pattern);
            if !self.consume(',') {
                return Ok(alternatives);
            }
            before = ",";
        }
    }

    /// Text between the stars, up to a comma or the end of the term.
    fn value(&mut self) -> Result<Vec<String>, FilterError> {
        let (mut parts, mut part) = (Vec::new(), String::new());
        while let Some(c) = self.peek() {
            match c {
                '"' | '\'' => {
                    self.quoted(&mut part)?;
                    continue;
                }
                ',' => break,
                c if c.is_whitespace() => break,
                '*' => parts.push(std::mem::take(&mut part)),
                c => part.push(c),
            }
            self.next();
        }
        parts.push(part);
        Ok(parts)
    }

    /// Quoted text. In double quotes a backslash escapes a quote or a backslash.
    fn quoted(&mut self, into: &mut String) -> Result<(), FilterError> {
        let start = self.at;
        let Some(quote) = self.next() else { return Ok(()) };
        while let Some(c) = self.next() {
            match c {
                c if c == quote => return Ok(()),
                '\\' if quote == '"' => into.push(self.next_if(|c| matches!(c, '"' | '\\')).unwrap_or('\\')),
                c => into.push(c),
            }
        }
        Err(self.wrong(start, FilterProblem::Unclosed { quote }))
    }

    fn known(&self, keys: &FilterKeys<'_>, start: usize, key: &str) -> Result<(), FilterError> {
        if keys.knows(key) {
            return Ok(());
        }
        let patterns: Vec<String> = keys.open.iter().map(|start| format!("{start}NAME")).collect();
        let all: Vec<&str> = keys.fixed.iter().copied().chain(patterns.iter().map(String::as_str)).collect();
        let bare = keys.open.iter().position(|start| key.trim_end_matches('.') == start.trim_end_matches('.'));
        let meant = match bare {
            Some(at) => Some(patterns[at].as_str()),
            None => spelling::nearest(key, keys.fixed.iter().copied()),
        };
        let meant = meant.map(str::to_owned);
        Err(self.wrong(start, FilterProblem::UnknownKey { key: key.to_owned(), meant, known: all.join(", ") }))
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn next(&mut self) -> Option<char> {
        self.next_if(|_| true)
    }

    fn next_if(&mut self, wanted: impl FnOnce(char) -> bool) -> Option<char> {
        let c = self.peek().filter(|c| wanted(*c))?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn consume(&mut self, sign: char) -> bool {
        self.next_if(|c| c == sign).is_some()
    }

    fn wrong(&self, at: usize, trouble: FilterProblem) -> FilterError {
        let term = &self.text[self.term..];
        // The end of an unclosed quote is unknown, so the rest of the filter is shown.
        let is_unclosed = matches!(trouble, FilterProblem::Unclosed { .. });
        let term = if is_unclosed { term } else { term.split(char::is_whitespace).next().unwrap_or(term) };
        FilterError { at: self.text[..at].chars().count() + 1, term: term.to_owned(), trouble }
    }
}

/// The value that was most likely meant: the nearest one, or else the only one that begins like it.
fn nearest_value<'k>(written: &str, known: &[&'k str]) -> Option<&'k str> {
    let mut begin_alike = known.iter().filter(|value| !written.is_empty() && value.starts_with(written));
    let only = begin_alike.next().filter(|_| begin_alike.next().is_none());
    spelling::nearest(written, known.iter().copied()).or(only.copied())
}

/// The first values on one line.
fn listed(values: &[&str]) -> String {
    let first: Vec<&str> = values.iter().take(LISTED).copied().collect();
    let more = values.len().saturating_sub(LISTED);
    if more > 0 { format!("{} and {more} more", first.join(", ")) } else { first.join(", ") }
}

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
    #[error("this value of {key} never matches")]
    UnknownValue {
        key: String,
        /// Closest value of the key.
        meant: Option<String>,
        /// All values of the key, for the message.
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
            FilterProblem::UnknownValue { key, meant: Some(meant), known, .. } => {
                format!("did you mean {key}={meant}? values of {key}: {known}")
            }
            FilterProblem::UnknownValue { key, meant: None, known, .. } => format!("values of {key}: {known}"),
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
