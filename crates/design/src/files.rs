//! All files of a design, by number.

use std::sync::Arc;

use crate::file_text::FileText;
use crate::finding::Location;
use crate::span::{FileId, Span};

/// The texts that the spans of a design lead into.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// A file that is no longer part of the design leaves a gap: numbers stay what they are.
    texts: Vec<Option<Arc<FileText>>>,
}

impl Files {
    /// Takes a file in, under the next number.
    pub fn add(&mut self, text: FileText) -> Arc<FileText> {
        let id = FileId(u32::try_from(self.texts.len()).unwrap_or(u32::MAX));
        let text = Arc::new(text.numbered(id));
        self.texts.push(Some(text.clone()));
        text
    }

    /// Forgets a file. Places in it are still named, without the line.
    pub fn forget(&mut self, id: FileId) {
        if let Some(text) = self.texts.get_mut(id.0 as usize) {
            *text = None;
        }
    }

    pub fn get(&self, id: FileId) -> Option<&Arc<FileText>> {
        self.texts.get(id.0 as usize)?.as_ref()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<FileText>> {
        self.texts.iter().flatten()
    }

    /// The numbers given out so far, those of forgotten files too.
    pub fn given_out(&self) -> usize {
        self.texts.len()
    }

    /// The place of a span, with the line to show.
    pub fn place(&self, span: Span) -> Location {
        match self.get(span.file) {
            Some(text) => text.place(span),
            None => Location { span: Some(span.range()), file_number: span.file.0, ..Location::file("") },
        }
    }
}
