//! Where something stands in a file.

use serde::Serialize;

/// A place in a text, as editors count: lines and columns from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Position {
    pub line: u32,
    pub column: u32,
}

impl Position {
    /// The first character of a file.
    pub const START: Position = Position { line: 1, column: 1 };
}

/// One of the files of a design, by its number in the order in which they were taken. A value that is inherited stands
/// in another file than what inherits it, so every span says in which one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// A stretch of text: from its first character to just behind its last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Span {
    /// Whoever reads a finding is told the file's name instead.
    #[serde(skip)]
    pub file: FileId,
    pub start: Position,
    pub end: Position,
}

impl Span {
    /// Whether another one begins in this one.
    pub fn holds(&self, other: Span) -> bool {
        self.file == other.file && self.start <= other.start && other.start <= self.end
    }

    /// A place without extent, such as where something is missing.
    pub fn at(file: FileId, position: Position) -> Self {
        Span { file, start: position, end: position }
    }
}
