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

/// A stretch of text: from its first character to just behind its last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Span {
    pub start: Position,
    pub end: Position,
}

impl Span {
    /// A place without extent, such as where something is missing.
    pub fn at(position: Position) -> Self {
        Span { start: position, end: position }
    }
}
