//! What is wrong with a script, or with what came of it.

use std::fmt;

/// One line of a script that cannot be read, or did not come true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub file: String,
    /// From 1; 0 is the file as a whole.
    pub line: usize,
    pub what: String,
    /// What could be done about it.
    pub help: Option<String>,
}

/// The same, before it is known of which line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Complaint {
    pub(super) what: String,
    pub(super) help: Option<String>,
}

impl Complaint {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), help: None }
    }

    pub(super) fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    pub(super) fn at(self, file: &str, line: usize) -> Trouble {
        Trouble { file: file.to_owned(), line, what: self.what, help: self.help }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.what)?,
            line => write!(f, "{}:{line}: {}", self.file, self.what)?,
        }
        self.help.as_ref().map_or(Ok(()), |help| write!(f, "\n  help: {help}"))
    }
}

impl std::error::Error for Trouble {}
