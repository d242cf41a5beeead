//! Texts of the files of a design, with line and span lookup, and the positions of values in them.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use muster_core::finding::TextRange;

use crate::finding::{Code, Finding, Findings, Location, excerpt, holds_secret, one_line};

pub use muster_core::finding::Position;

/// Text of a file, indexed by line. Clones share the text: a design that is compiled for several environments has it once.
#[derive(Clone, Debug)]
pub struct FileText {
    id: FileId,
    content: Arc<FileContent>,
}

#[derive(Debug)]
struct FileContent {
    name: String,
    text: String,
    /// Number of lines. A line ends with `\n`, `\r\n` or `\r` as in YAML, so that the line numbers of the parser match.
    lines: usize,
    /// Byte offset of the first character of each line, computed on first use: files without findings need none.
    line_starts: OnceLock<Vec<usize>>,
}

impl FileText {
    /// Creates a text with a name. A byte order mark is dropped, as in the columns of the parser.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        let mut text = text.into();
        if text.starts_with('\u{feff}') {
            text.drain(..'\u{feff}'.len_utf8());
        }
        let lines = count_lines(text.as_bytes());
        let content = FileContent { name: name.into(), text, lines, line_starts: OnceLock::new() };
        FileText { id: FileId::default(), content: Arc::new(content) }
    }

    /// Creates a text from bytes, which must be UTF-8.
    pub fn from_bytes(name: impl Into<String>, bytes: Vec<u8>) -> Result<Self, Findings> {
        match String::from_utf8(bytes) {
            Ok(text) => Ok(FileText::new(name, text)),
            Err(error) => Err(not_utf8(name.into(), error.as_bytes(), error.utf8_error().valid_up_to()).into()),
        }
    }

    /// Reads a file of at most `limit` bytes. The limit applies while reading, so a growing file or a device cannot exhaust
    /// the memory.
    pub fn read(path: &Path, limit: u64) -> Result<Self, Findings> {
        let name = path.display().to_string();
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| {
            // A file whose size exceeds the limit is not read.
            let size = file.metadata()?.len();
            if size > limit {
                return Ok(size);
            }
            bytes.reserve_exact(usize::try_from(size).unwrap_or(0) + 1);
            file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map(|read| read as u64)
        });
        match read {
            Err(error) => Err(unreadable(name, &error).into()),
            Ok(size) if size > limit => Err(too_large(name, limit).into()),
            Ok(_) => FileText::from_bytes(name, bytes),
        }
    }

    /// Sets the number of the file, which all its spans carry.
    #[must_use]
    pub fn numbered(mut self, id: FileId) -> Self {
        self.id = id;
        self
    }

    pub fn id(&self) -> FileId {
        self.id
    }

    pub fn name(&self) -> &str {
        &self.content.name
    }

    pub fn text(&self) -> &str {
        &self.content.text
    }

    fn line_starts(&self) -> &[usize] {
        self.content.line_starts.get_or_init(|| line_starts(self.text().as_bytes()))
    }

    /// Number of lines; an empty text has one.
    pub fn lines(&self) -> usize {
        self.content.lines
    }

    /// A line by its number from 1, without its line ending.
    pub fn line(&self, number: u32) -> Option<&str> {
        let start = *self.line_starts().get((number as usize).checked_sub(1)?)?;
        let end = self.line_starts().get(number as usize).copied().unwrap_or(self.text().len());
        Some(self.text().get(start..end)?.trim_end_matches(['\n', '\r']))
    }

    /// Position behind the last character.
    pub(crate) fn end(&self) -> Position {
        let line = self.lines() as u32;
        Position { line, column: self.line(line).unwrap_or_default().chars().count() as u32 + 1 }
    }

    /// Numbers of all lines.
    pub(crate) fn all_lines(&self) -> Range<u32> {
        1..u32::try_from(self.lines()).unwrap_or(u32::MAX - 1) + 1
    }

    /// Text of a range of lines.
    pub(crate) fn text_of(&self, lines: &Range<u32>) -> &str {
        self.text().get(self.offset(lines.start)..self.offset(lines.end)).unwrap_or_default()
    }

    /// Byte offset of a line; the end of the text behind the last line.
    pub(crate) fn offset(&self, line: u32) -> usize {
        let start = (line as usize).checked_sub(1).and_then(|line| self.line_starts().get(line));
        start.copied().unwrap_or(self.text().len())
    }

    /// Line of a byte offset; none behind the end.
    pub(crate) fn line_at(&self, offset: usize) -> Option<u32> {
        let line = self.line_starts().partition_point(|start| *start <= offset);
        (offset < self.text().len()).then(|| u32::try_from(line).ok())?
    }

    /// Location of a span in this file, with an excerpt.
    pub(crate) fn location(&self, span: Span) -> Location {
        let line = self.line(span.start.line).unwrap_or_default();
        let excerpt = (!holds_secret(line)).then(|| excerpt(line, span));
        Location { file: self.name().to_owned(), span: Some(span.range()), excerpt, file_number: span.file.0 }
    }

    /// Location of the whole file.
    pub(crate) fn whole(&self) -> Location {
        Location::file(self.name().to_owned())
    }
}

/// Number of entries of [`line_starts`], without branches for a text that has no `\r`.
fn count_lines(text: &[u8]) -> usize {
    let count = |wanted: u8| text.iter().filter(|byte| **byte == wanted).count();
    match count(b'\r') {
        0 => 1 + count(b'\n'),
        _ => line_starts(text).len(),
    }
}

fn line_starts(text: &[u8]) -> Vec<usize> {
    let mut starts = vec![0];
    for (at, byte) in text.iter().enumerate() {
        let ends_line = match byte {
            b'\n' => true,
            b'\r' => text.get(at + 1) != Some(&b'\n'),
            _ => false,
        };
        if ends_line {
            starts.push(at + 1);
        }
    }
    starts
}

fn unreadable(name: String, error: &io::Error) -> Finding {
    let message = format!("the file cannot be read: {}", one_line(&error.to_string()));
    Code::Unreadable.finding(message).at(Location::file(name))
}

fn too_large(name: String, limit: u64) -> Finding {
    Code::TooLarge
        .finding(format!("the file is larger than {limit} bytes, the most that is read"))
        .at(Location::file(name))
        .help("is it the right file? A design can be split over several files")
}

fn not_utf8(name: String, bytes: &[u8], valid_up_to: usize) -> Finding {
    // The text before the invalid byte is valid, so its lines and characters can be counted.
    let before = FileText::new("", String::from_utf8_lossy(&bytes[..valid_up_to]));
    let bad = bytes.get(valid_up_to).copied().unwrap_or_default();
    let lossy = FileText::new(name, String::from_utf8_lossy(bytes));
    Code::NotUtf8
        .finding(format!("the file is not UTF-8: the byte 0x{bad:02x} begins no character"))
        .at(lossy.location(Span::at(FileId::default(), before.end())))
        .help("save the file as UTF-8")
}

/// All files of a design, by number.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// A removed file leaves a gap: numbers do not change.
    texts: Vec<Option<FileText>>,
}

impl Files {
    /// Adds a file under the next number.
    pub fn add(&mut self, text: FileText) -> FileText {
        let id = FileId(u32::try_from(self.texts.len()).unwrap_or(u32::MAX));
        let text = text.numbered(id);
        self.texts.push(Some(text.clone()));
        text
    }

    /// Removes a file. Locations in it keep the position, without an excerpt.
    pub fn remove(&mut self, id: FileId) {
        if let Some(text) = self.texts.get_mut(id.0 as usize) {
            *text = None;
        }
    }

    pub fn get(&self, id: FileId) -> Option<&FileText> {
        self.texts.get(id.0 as usize)?.as_ref()
    }

    pub fn iter(&self) -> impl Iterator<Item = &FileText> {
        self.texts.iter().flatten()
    }

    /// Number of files added so far, including removed ones.
    pub fn numbers_used(&self) -> usize {
        self.texts.len()
    }

    /// Location of a span, with an excerpt.
    pub fn location(&self, span: Span) -> Location {
        match self.get(span.file) {
            Some(text) => text.location(span),
            None => Location { span: Some(span.range()), file_number: span.file.0, ..Location::file("") },
        }
    }
}

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn line_count_equals_the_line_index(text in "[a\r\n]{0,12}") {
            let file = FileText::new("a.yaml", text);
            prop_assert_eq!(file.lines(), file.line_starts().len());
        }
    }
}
