//! Looking documents up without going through all of them.

use super::design::Design;
use crate::document::{Document, Maker};
use crate::kinds::{AnyKind, Kind};
use crate::yaml::Node;

/// One document as a source wrote it. Cheap: the line to show is not cut out.
#[derive(Clone, Copy, Debug)]
pub struct Written<'d> {
    pub kind: &'d AnyKind,
    pub name: &'d str,
    pub source: &'d str,
    pub file: &'d str,
    pub line: u32,
    document: &'d Document,
}

impl<'d> Written<'d> {
    /// The spec, with the labels among its keys.
    pub fn body(&self) -> &'d Node {
        &self.document.body
    }

    pub fn extends(&self) -> impl Iterator<Item = &'d str> {
        self.document.extends.iter().flatten().map(|parent| &*parent.name)
    }

    /// Whether it says that it is meant to be laid over another source's document.
    pub fn is_overlay(&self) -> bool {
        self.document.overlay.is_some()
    }
}

impl Design {
    /// All documents as they are written, generated ones not included.
    pub fn written(&self) -> impl Iterator<Item = Written<'_>> {
        self.inner.documents.iter().flatten().filter_map(|document| self.as_written(document))
    }

    /// The source of each node that an environment file makes, whether or not somebody wrote more about it.
    pub fn generated_nodes(&self) -> impl Iterator<Item = &str> {
        let generated =
            |document: &&Document| document.maker == Maker::Environment && document.kind == AnyKind::Known(Kind::Node);
        let documents = self.inner.documents.iter().flatten().filter(generated);
        documents.filter_map(|document| self.inner.sources.get(document.source).map(String::as_str))
    }

    /// What the sources say of one thing, in their order: the last one wins.
    pub fn layers(&self, kind: &str, name: &str) -> impl DoubleEndedIterator<Item = Written<'_>> {
        let subject = self.inner.index.find(&AnyKind::new(kind), name);
        let stack = subject.and_then(|at| self.inner.subjects.get(at)).map(|subject| subject.stack.as_slice());
        let documents = stack.unwrap_or_default().iter().filter_map(|at| self.inner.documents.get(*at)?.as_ref());
        documents.filter_map(|document| self.as_written(document))
    }

    /// The documents of one file of a source.
    pub fn written_in(&self, source: &str, file: &str) -> impl Iterator<Item = Written<'_>> {
        let number = self.inner.sources.iter().position(|name| name == source);
        let slot = number.and_then(|number| self.inner.slots.get(&(number, file.to_owned())));
        let numbers = slot.map(|slot| slot.documents.as_slice()).unwrap_or_default();
        numbers.iter().filter_map(|at| self.as_written(self.inner.documents.get(*at)?.as_ref()?))
    }

    fn as_written<'d>(&'d self, document: &'d Document) -> Option<Written<'d>> {
        if document.maker == Maker::Environment {
            return None;
        }
        let file = self.inner.files.get(document.name_at.file).map_or("", |file| file.name());
        Some(Written {
            kind: &document.kind,
            name: &document.name,
            source: self.inner.sources.get(document.source)?,
            file,
            line: document.name_at.start.line,
            document,
        })
    }
}
