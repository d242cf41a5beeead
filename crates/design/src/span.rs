//! Positions of values in the files of a design.

pub use muster_core::finding::Position;
use muster_core::finding::TextRange;

/// Number of a file of a design, in the order in which the files were added. An inherited value is in another file than
/// the document that inherits it, so every span names its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// A range of text in one file: from its first character to just behind its last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    pub file: FileId,
    pub start: Position,
    pub end: Position,
}

impl Span {
    /// Reports whether `other` begins in this span.
    pub fn holds(&self, other: Span) -> bool {
        self.file == other.file && self.start <= other.start && other.start <= self.end
    }

    /// An empty span, such as the position of something that is missing.
    pub fn at(file: FileId, position: Position) -> Self {
        Span { file, start: position, end: position }
    }

    /// The range without the file.
    pub fn range(self) -> TextRange {
        TextRange { start: self.start, end: self.end }
    }
}
