//! Edits of single documents in the source `api`, with their preconditions.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_wire::design::{API_SOURCE, DocumentChange, DocumentText, api_file};
use thiserror::Error;

use super::compiled::{Compiled, Texts};
use super::tree::{SourceTree, Tree};
use crate::blobs::Blobs;

/// Longest kind or name, in bytes. Both become part of a file name.
const LONGEST: usize = 256;

/// Reason why an edit is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EditError {
    #[error("{0:?} is no kind or name of a document: expected 1 to {LONGEST} characters without control characters")]
    Name(String),
    #[error("{kind} {name} is changed twice in one request")]
    Twice { kind: String, name: String },
    #[error("the document cannot be written as YAML")]
    Unwritable,
    #[error("there is no {kind} {name} in the design")]
    Unknown { kind: String, name: String },
    #[error("{kind} {name} was not written through the API: the source {source_name:?} brings it, in {place}")]
    RemoteActivities { kind: String, name: String, source_name: String, place: String },
    #[error("{kind} {name} is made by the environment file, and cannot be deleted on its own")]
    Generated { kind: String, name: String },
    #[error("{kind} {name} is not what was expected: {found}")]
    NotAsExpected { kind: String, name: String, found: Found },
}

/// Current state of a document whose precondition failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Found {
    #[error("it is not there")]
    Nothing,
    #[error("it is there, with the etag {0}")]
    Etag(String),
}

/// Kind and name of a document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DocumentName {
    pub kind: String,
    pub name: String,
}

/// Result of edits.
#[derive(Debug)]
pub struct Edited {
    pub tree: Tree,
    pub texts: Texts,
    /// Files that were put, each with the document that it must hold, and its etag.
    pub put: Vec<(String, DocumentName, String)>,
}

/// Applies edits to the source `api`.
pub fn edit(base: &Compiled, changes: &[DocumentChange]) -> Result<Edited, EditError> {
    let mut files: BTreeMap<String, Option<String>> = BTreeMap::new();
    let mut texts = Texts::new();
    let mut put = Vec::new();
    for change in changes {
        let (kind, name) = match change {
            DocumentChange::Put { kind, name, .. } | DocumentChange::Delete { kind, name, .. } => (kind, name),
        };
        let document = DocumentName::new(kind, name)?;
        let path = document.path();
        let etag = etag(base, &document);
        expect(change, &document, etag)?;
        let digest = match change {
            DocumentChange::Put { document: text, .. } => {
                let text = written(&document, text)?;
                let digest = Blobs::digest(text.as_bytes());
                texts.insert(digest.clone(), text);
                put.push((path.clone(), document.clone(), digest.clone()));
                Some(digest)
            }
            DocumentChange::Delete { .. } => {
                deletable(base, &document)?;
                None
            }
        };
        if files.insert(path, digest).is_some() {
            return Err(EditError::Twice { kind: kind.clone(), name: name.clone() });
        }
    }
    let mut tree = base.tree.clone();
    match tree.sources.iter_mut().find(|source| source.name == API_SOURCE) {
        Some(source) => *source = source.with(&files),
        None => tree.sources.push(SourceTree::new(API_SOURCE, []).with(&files)),
    }
    Ok(Edited { tree, texts, put })
}

impl DocumentName {
    pub fn new(kind: &str, name: &str) -> Result<Self, EditError> {
        for text in [kind, name] {
            if text.is_empty() || text.len() > LONGEST || text.chars().any(char::is_control) {
                return Err(EditError::Name(text.to_owned()));
            }
        }
        Ok(Self { kind: kind.to_owned(), name: name.to_owned() })
    }

    /// File of the document in the source `api`.
    pub fn path(&self) -> String {
        api_file(&self.kind, &self.name)
    }
}

/// Etag that `If-Match` compares: the digest of the document as the last source wrote it.
pub fn etag(design: &Compiled, document: &DocumentName) -> Option<String> {
    let written = design.tree.source(API_SOURCE).and_then(|source| source.get(&document.path()));
    if let Some(file) = written {
        return Some(file.digest.clone());
    }
    let last = design.design.layers(&document.kind, &document.name).next_back();
    let text = match last {
        Some(last) => {
            let extends: Vec<&str> = last.extends().collect();
            serde_json::to_vec(&(last.source, extends, last.is_overlay(), last.body()))
        }
        // Nodes that an environment file generates have no document.
        None => serde_json::to_vec(design.design.effective(&document.kind, &document.name)?),
    };
    Some(Blobs::digest(&text.unwrap_or_default()))
}

fn expect(change: &DocumentChange, document: &DocumentName, etag: Option<String>) -> Result<(), EditError> {
    let (if_match, if_none_match) = match change {
        DocumentChange::Put { if_match, if_none_match, .. } => (if_match, *if_none_match),
        DocumentChange::Delete { if_match, .. } => (if_match, false),
    };
    let holds = match (if_match.as_deref(), &etag) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some("*"), Some(_)) => true,
        (Some(expected), Some(etag)) => expected == etag,
    };
    if holds && !(if_none_match && etag.is_some()) {
        return Ok(());
    }
    let DocumentName { kind, name } = document.clone();
    Err(EditError::NotAsExpected { kind, name, found: etag.map_or(Found::Nothing, Found::Etag) })
}

/// Checks that a document was written through the API: only those can be deleted through it.
fn deletable(base: &Compiled, document: &DocumentName) -> Result<(), EditError> {
    let is_ours = base.tree.source(API_SOURCE).is_some_and(|source| source.get(&document.path()).is_some());
    if is_ours {
        return Ok(());
    }
    let DocumentName { kind, name } = document.clone();
    let last = base.design.layers(&kind, &name).next_back();
    let place = last.map(|found| (found.source.to_owned(), format!("{}:{}", found.file, found.line)));
    Err(match place {
        Some((source_name, place)) => EditError::RemoteActivities { kind, name, source_name, place },
        None if base.design.effective(&kind, &name).is_some() => EditError::Generated { kind, name },
        None => EditError::Unknown { kind, name },
    })
}

/// Text of a document. YAML is kept unchanged; a JSON value becomes YAML, with kind and name added if they are missing.
fn written(document: &DocumentName, text: &DocumentText) -> Result<Arc<str>, EditError> {
    match text {
        DocumentText::Yaml(text) => Ok(Arc::from(text.as_str())),
        DocumentText::Json(value) => {
            let mut whole = serde_json::Map::new();
            whole.insert("kind".into(), document.kind.clone().into());
            whole.insert("name".into(), document.name.clone().into());
            // Kind and name in the value take precedence. A mismatch is found when the document is compiled.
            whole.extend(value.clone());
            if value.contains_key("schema") || value.contains_key("apiVersion") {
                whole.clone_from(value);
            }
            let text = serde_saphyr::to_string(&whole).map_err(|_| EditError::Unwritable)?;
            Ok(Arc::from(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_has_one_file_whatever_it_is_called() {
        let path = |kind: &str, name: &str| DocumentName::new(kind, name).unwrap().path();
        assert_eq!(path("Node", "web1"), "Node/web1.yaml");
        assert_eq!(path("promenade/Docker/v1", "docker"), "promenade%2FDocker%2Fv1/docker.yaml");
        assert_ne!(path("a/b", "c"), path("a", "b/c"));
        assert_eq!(path("Node", "%2F ü"), "Node/%252F%20%C3%BC.yaml");
        for bad in ["", "a\nb", &"x".repeat(300)] {
            assert!(DocumentName::new("Node", bad).is_err(), "{bad:?}");
        }
    }
}
