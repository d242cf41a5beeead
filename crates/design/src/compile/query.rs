//! Queries of a compiled design: written documents, layers, and the provenance of values.

use std::sync::Arc;

use thiserror::Error;

use crate::compile::compose::verbatim;
use crate::compile::design::Design;
use crate::documents::{Document, DocumentOrigin};
use crate::inherit::merge::{copy, merge};
use crate::inherit::provenance::{LayerEvent, LayerStep, StepRecorder, find};
use crate::inherit::{Provenance, ValuePath};
use crate::kinds::{AnyKind, Kind};
use crate::yaml::YamlNode;

/// One document as a source wrote it, without the excerpt of its line.
#[derive(Clone, Copy, Debug)]
pub struct SourceDocument<'d> {
    pub kind: &'d AnyKind,
    pub name: &'d str,
    pub source: &'d str,
    pub file: &'d str,
    pub line: u32,
    document: &'d Document,
}

impl<'d> SourceDocument<'d> {
    /// The spec with the labels.
    pub fn body(&self) -> &'d YamlNode {
        &self.document.body
    }

    pub fn extends(&self) -> impl Iterator<Item = &'d str> {
        self.document.extends.iter().flatten().map(|parent| &*parent.name)
    }

    /// Reports whether it overlays a document of an earlier source.
    pub fn is_overlay(&self) -> bool {
        self.document.overlay.is_some()
    }
}

impl Design {
    /// Documents as written, without generated ones.
    pub fn written(&self) -> impl Iterator<Item = SourceDocument<'_>> {
        self.inner.documents.iter().flatten().filter_map(|document| self.as_written(document))
    }

    /// Source of each node that an environment file generates, with or without a document of its own.
    pub fn generated_nodes(&self) -> impl Iterator<Item = &str> {
        let generated = |document: &&Arc<Document>| {
            document.origin == DocumentOrigin::Environment && document.kind == AnyKind::Known(Kind::Node)
        };
        let documents = self.inner.documents.iter().flatten().filter(generated);
        documents.filter_map(|document| self.inner.sources.get(document.source).map(String::as_str))
    }

    /// Documents of one kind and name, in the order of the sources: the last one wins.
    pub fn layers(&self, kind: &str, name: &str) -> impl DoubleEndedIterator<Item = SourceDocument<'_>> {
        let subject = self.inner.index.find(&AnyKind::new(kind), name);
        let stack = subject.and_then(|at| self.inner.subjects.get(at)).map(|subject| subject.stack.as_slice());
        let documents = stack.unwrap_or_default().iter().filter_map(|at| self.inner.documents.get(*at)?.as_ref());
        documents.filter_map(|document| self.as_written(document))
    }

    /// Documents of one file.
    pub fn written_in(&self, source: &str, file: &str) -> impl Iterator<Item = SourceDocument<'_>> {
        let number = self.inner.sources.iter().position(|name| name == source);
        let slot = number.and_then(|number| self.inner.slots.get(&(number, file.to_owned())));
        let numbers = slot.map(|slot| slot.documents.as_slice()).unwrap_or_default();
        numbers.iter().filter_map(|at| self.as_written(self.inner.documents.get(*at)?.as_ref()?))
    }

    fn as_written<'d>(&'d self, document: &'d Document) -> Option<SourceDocument<'d>> {
        if document.origin == DocumentOrigin::Environment {
            return None;
        }
        let file = self.inner.files.get(document.name_at.file).map_or("", |file| file.name());
        Some(SourceDocument {
            kind: &document.kind,
            name: &document.name,
            source: self.inner.sources.get(document.source)?,
            file,
            line: document.name_at.start.line,
            document,
        })
    }
}

/// Error of a provenance query.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ProvenanceError {
    #[error("there is no {kind} {name:?}{}", suggestion(.near))]
    NoDocument { kind: String, name: String, near: Option<String> },
    /// The path never had a value; `keys` exist at `upto`, its longest existing prefix.
    #[error("{kind} {name:?} has no \"{path}\"{}", existing(.upto, .keys))]
    NoValue { kind: String, name: String, path: String, upto: String, keys: Vec<String> },
}

fn suggestion(near: &Option<String>) -> String {
    near.as_ref().map(|near| format!(": did you mean {near:?}?")).unwrap_or_default()
}

fn existing(upto: &str, keys: &[String]) -> String {
    let at = if upto.is_empty() { "there is".to_owned() } else { format!("at \"{upto}\" there is") };
    if keys.is_empty() { format!(": {at} nothing below") } else { format!(": {at} {}", keys.join(", ")) }
}

impl Design {
    /// Explains a value of a document: every layer that affected it.
    pub fn provenance(&self, kind: &str, name: &str, path: &ValuePath) -> Result<Provenance, ProvenanceError> {
        let inner = &*self.inner;
        let kind = AnyKind::new(kind);
        let Some(at) = inner.index.find(&kind, name) else {
            let near = inner.index.nearest(&kind, name).map(str::to_owned);
            return Err(ProvenanceError::NoDocument { kind: kind.to_string(), name: name.to_owned(), near });
        };
        let ty = kind.body();
        let mut recorder = StepRecorder::new(path, ty);
        let lineage = inner.subjects[at].lineage.iter().copied().chain([at]);
        let layers: Vec<usize> = lineage.flat_map(|subject| inner.subjects[subject].stack.iter().copied()).collect();
        let mut value: Option<YamlNode> = None;
        for &layer in &layers {
            let Some(document) = &inner.documents[layer] else { continue };
            recorder.begin(layer, value.as_ref());
            value = match verbatim(&inner.subjects[at], &inner.documents) {
                Some(_) => Some(copy(&document.body, &mut recorder)),
                None => merge(value.as_ref(), &document.body, &ty, &mut recorder),
            };
        }
        let found = value.as_ref().and_then(|value| find(value, ty, &path.0));
        if found.is_none() && recorder.events.is_empty() {
            return Err(self.no_value(&kind, name, path, value.as_ref()));
        }
        let steps = recorder.events.into_iter().filter_map(|event| self.step(event)).collect();
        Ok(Provenance { value: found, steps })
    }

    fn step(&self, event: LayerEvent) -> Option<LayerStep> {
        let document = self.inner.documents[event.layer].as_ref()?;
        Some(LayerStep {
            source: self.inner.sources[document.source].clone(),
            kind: document.kind.to_string(),
            name: document.name.to_string(),
            location: self.inner.files.location(event.span),
            path: event.path,
            action: event.action,
        })
    }

    fn no_value(&self, kind: &AnyKind, name: &str, path: &ValuePath, value: Option<&YamlNode>) -> ProvenanceError {
        let value_at = |upto: usize| value.and_then(|value| find(value, kind.body(), &path.0[..upto]));
        let (upto, last) = (0..path.0.len()).rev().find_map(|upto| Some((upto, value_at(upto)?))).unzip();
        let upto = ValuePath(path.0[..upto.unwrap_or(0)].to_vec());
        let ty = upto.0.iter().fold(kind.body(), |ty, step| ty.below(step).unwrap_or(crate::types::Type::Any));
        let keys = last.map(|last| crate::inherit::provenance::steps_below(&last, ty)).unwrap_or_default();
        ProvenanceError::NoValue {
            kind: kind.to_string(),
            name: name.to_owned(),
            path: path.to_string(),
            upto: upto.to_string(),
            keys,
        }
    }
}
