//! Documents of a design, and the readers that make them from YAML trees.
//!
//! Each reader handles one syntax: [`native`] documents, [`environment`] files, and Drydock's documents.

pub(crate) mod environment;
pub(crate) mod native;

pub(crate) use environment::generate;
pub use environment::is_environment_file;

use std::sync::Arc;

use crate::drydock;
use crate::environment::Environment;
use crate::file_text::{FileText, Span};
use crate::finding::FindingCollector;
use crate::kinds::AnyKind;
use crate::types::Dialect;
use crate::yaml::YamlNode;
use muster_core::finding::Severity;

/// One document: one layer of a subject, from one source.
#[derive(Clone, Debug)]
pub struct Document {
    pub kind: AnyKind,
    pub name: Arc<str>,
    /// Span of the name; for a generated document, of the value that it was generated from.
    pub name_at: Span,
    /// Documents that it extends; none if the key is absent.
    pub extends: Option<Vec<Parent>>,
    /// Span of `overlay: true`: the document overlays one of an earlier source.
    pub overlay: Option<Span>,
    /// The spec with the labels: everything that is inherited.
    pub body: YamlNode,
    pub span: Span,
    /// Number of the source; a later source wins.
    pub source: usize,
    pub origin: DocumentOrigin,
}

/// A document that another one extends.
#[derive(Clone, Debug)]
pub struct Parent {
    pub name: Arc<str>,
    pub span: Span,
}

/// Origin of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DocumentOrigin {
    /// Defaults of a syntax: values for fields that no document sets.
    Default,
    /// Generated from an environment file. Written documents of the same node override it without a warning.
    Environment,
    Native,
    Drydock,
}

impl DocumentOrigin {
    /// Reports whether an operator wrote the document.
    pub fn is_written(self) -> bool {
        self.level() == Level::Written
    }

    /// Level of the document; the order of sources counts within a level.
    pub(crate) fn level(self) -> Level {
        match self {
            DocumentOrigin::Default => Level::Default,
            DocumentOrigin::Environment => Level::Generated,
            DocumentOrigin::Native | DocumentOrigin::Drydock => Level::Written,
        }
    }
}

/// Documents of a higher level override those of a lower level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Default,
    Generated,
    Written,
}

/// Kind and name for messages: `HostProfile "compute"`.
pub fn title(kind: &AnyKind, name: &str) -> String {
    format!("{kind} {}", crate::finding::quote(name))
}

/// Reads documents of one syntax.
pub trait DocumentReader: Sync {
    /// `native`, `environment`, `drydock`.
    fn name(&self) -> &'static str;

    /// Reports whether this reader handles a tree of the file; `None` stands for a file without trees.
    fn claims(&self, file: &FileText, tree: Option<&YamlNode>) -> bool;

    /// Reads the claimed trees of one file.
    fn read(&self, file: &FileText, trees: &[YamlNode], made: &mut ReaderOutput<'_, '_>);
}

/// Documents and findings of one file.
#[derive(Debug)]
pub struct ReaderOutput<'m, 'r> {
    pub(crate) source: usize,
    pub(crate) documents: &'m mut Vec<Document>,
    pub(crate) environments: &'m mut Vec<Environment>,
    pub(crate) report: &'m mut FindingCollector<'r>,
}

/// All readers. The first that claims a tree reads it; the native reader claims everything.
const READERS: &[&dyn DocumentReader] =
    &[&environment::EnvironmentFiles, &drydock::DrydockDocuments, &native::NativeDocuments];

/// Syntax of a document, for its findings.
pub(crate) fn dialect(origin: DocumentOrigin) -> Dialect {
    match origin {
        DocumentOrigin::Default | DocumentOrigin::Drydock => {
            Dialect { key_name: drydock::drydock_key, accepted_elsewhere: Severity::Warning }
        }
        DocumentOrigin::Environment | DocumentOrigin::Native => {
            Dialect { key_name: |native| native, accepted_elsewhere: Severity::Error }
        }
    }
}

/// Passes the trees of a file to the readers that claim them.
pub(crate) fn read_trees(file: &FileText, trees: &[YamlNode], made: &mut ReaderOutput<'_, '_>) {
    let claimant = |tree: Option<&YamlNode>| READERS.iter().position(|reader| reader.claims(file, tree));
    if trees.is_empty() {
        if let Some(reader) = claimant(None).and_then(|at| READERS.get(at)) {
            reader.read(file, trees, made);
        }
        return;
    }
    let holds_any = trees.iter().any(|tree| !tree.is_null());
    for run in trees.chunk_by(|a, b| claimant(Some(a)) == claimant(Some(b))) {
        // Empty documents are ignored, unless the file holds nothing else.
        if holds_any && run.iter().all(YamlNode::is_null) {
            continue;
        }
        if let Some(reader) = claimant(run.first()).and_then(|at| READERS.get(at)) {
            reader.read(file, run, made);
        }
    }
}
