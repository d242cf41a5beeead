//! Lines of a script as words, and errors with their position. A quoted text, or the text after a colon, is one word.

use std::fmt;
use std::time::Duration;

use muster_core::spelling::nearest;

/// The words of a line. A text keeps its opening quote, which distinguishes it from a name.
pub(super) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix('"') {
            let (text, after) = quoted.split_once('"').unwrap_or((quoted, ""));
            words.push(format!("\"{text}"));
            rest = after.trim_start();
            continue;
        }
        let (word, after) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        rest = after.trim_start();
        if let Some(word) = word.strip_suffix(':') {
            words.push(word.to_owned());
            words.push(format!("\"{}", rest.trim_matches('"')));
            rest = "";
        } else {
            words.push(word.trim_end_matches(',').to_owned());
        }
    }
    words
}

/// A text without its quote.
pub(super) fn text(word: &str) -> Option<String> {
    word.strip_prefix('"').map(ToOwned::to_owned)
}

/// A line without its comment.
pub(super) fn without_comment(line: &str) -> &str {
    if line.starts_with('#') {
        return "";
    }
    line.find(" #").map_or(line, |at| &line[..at]).trim_end()
}

/// `30s`, `1m30s`, `2h`, `500ms`.
pub(super) fn duration(word: &str) -> Result<Duration, ScriptError> {
    let wrong = || {
        ScriptError::new(format!("{word:?} is not a duration"))
            .help("write a number and a unit, such as 500ms, 30s, 5m, 1h or 1m30s")
    };
    let mut total = Duration::ZERO;
    let mut rest = word;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let unit = rest.find(|letter: char| letter.is_ascii_digit()).unwrap_or(rest.len());
        let milliseconds = match &rest[..unit] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(wrong()),
        };
        total += Duration::from_millis(number.checked_mul(milliseconds).ok_or_else(wrong)?);
        rest = &rest[unit..];
    }
    if word.is_empty() { Err(wrong()) } else { Ok(total) }
}

/// The error for an unknown sentence, with a guess for its most likely typo, or all sentences that are allowed there.
pub(super) fn unknown(kind: &str, line: &[&str], sentences: &[&str], names: &[String]) -> ScriptError {
    let known: Vec<&str> = sentences.iter().flat_map(|sentence| sentence.split_whitespace()).collect();
    let is_known = |word: &str| known.contains(&word) || names.iter().any(|name| name == word) || word.starts_with('"');
    // Longest words first: short ones are names of operators, and similar to anything.
    let mut strange: Vec<&&str> = line.iter().filter(|word| word.len() > 3 && !is_known(word)).collect();
    strange.sort_by_key(|word| std::cmp::Reverse(word.len()));
    let meant = strange.into_iter().find_map(|word| {
        let spoken = known.iter().copied().filter(|word| word.chars().all(|letter| letter.is_ascii_lowercase()));
        nearest(word, spoken.chain(names.iter().map(String::as_str))).map(|meant| (*word, meant))
    });
    let error = ScriptError::new(format!("unknown {kind}: {}", line.join(" ")));
    match meant {
        Some((word, meant)) => error.help(format!("did you mean {meant:?} instead of {word:?}?")),
        None => error.help(format!("expected one of:\n    {}", sentences.join("\n    "))),
    }
}

/// A line of a script that cannot be parsed, or whose assertion failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptFailure {
    pub file: String,
    /// From 1; 0 for the file itself.
    pub line: usize,
    pub what: String,
    /// A suggested correction.
    pub help: Option<String>,
}

/// An error without its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ScriptError {
    pub(super) what: String,
    pub(super) help: Option<String>,
}

impl ScriptError {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), help: None }
    }

    pub(super) fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    pub(super) fn at(self, file: &str, line: usize) -> ScriptFailure {
        ScriptFailure { file: file.to_owned(), line, what: self.what, help: self.help }
    }
}

impl fmt::Display for ScriptFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.what)?,
            line => write!(f, "{}:{line}: {}", self.file, self.what)?,
        }
        self.help.as_ref().map_or(Ok(()), |help| write!(f, "\n  help: {help}"))
    }
}

impl std::error::Error for ScriptFailure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_one_word() {
        assert_eq!(words(r#"ada pauses "out for lunch""#), ["ada", "pauses", "\"out for lunch"]);
        assert_eq!(words("the gate fails: 3 of 5 fail"), ["the", "gate", "fails", "\"3 of 5 fail"]);
        assert_eq!(words("web: 4 nodes, after db"), ["web", "\"4 nodes, after db"]);
        assert_eq!(without_comment("at 0s ada starts v2   # it begins"), "at 0s ada starts v2");
    }

    #[test]
    fn durations_are_numbers_with_units() {
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        for wrong in ["", "30", "s", "3 s", "5d", "99999999999999999999s", "18446744073709551615h"] {
            assert!(duration(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn misspelt_word_is_guessed() {
        let error = unknown("action", &["ada", "strats", "v2"], &["NAME starts VERSION"], &[]);
        assert_eq!(error.help.as_deref(), Some("did you mean \"starts\" instead of \"strats\"?"));
    }
}
