//! Compiled designs: files, resolved documents and findings, and a cache of the designs that were used last.
//!
//! The digest of its manifest names a design, so a cached design is never stale. A missing design is compiled from the most recent
//! one of the environment, file by file where they differ: a replica follows a change at the cost of the change.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use muster_core::design::DesignRevision;
use muster_core::fleet::Fleet;
use muster_core::lookup::self_values::bounded_text;
use muster_core::names::{EnvName, NodeName};
use muster_core::node::record::NodeRecord;
use muster_design::file_text::FileText;
use muster_design::finding::{Findings, Severity};
use muster_design::source::DesignSource;
use muster_design::{CheckedDesign, CompileOptions, Design, SourceFileChange};
use thiserror::Error;
use tokio::sync::Semaphore;

use crate::blobs::Blobs;

use super::tree::{DesignTree, DesignTreeError, FileRef, SourceTree, present};

/// A design that differs from another one in more files than this is compiled from scratch, which shares work between files.
const FEW_CHANGES: usize = 64;

/// A compiled design.
#[derive(Debug)]
pub struct CompiledDesign {
    /// Digest of the manifest.
    pub manifest: String,
    pub tree: DesignTree,
    pub design: Design,
    pub findings: Findings,
    records: OnceLock<Arc<BTreeMap<NodeName, NodeRecord>>>,
    self_texts: OnceLock<Arc<BTreeMap<NodeName, String>>>,
}

/// Texts in memory, by digest.
pub type Texts = HashMap<String, Arc<str>>;

impl CompiledDesign {
    /// Design of an environment that has none.
    pub fn empty(env: &EnvName) -> Self {
        let checked = Design::compile(Vec::new(), &options(env, &DesignTree::default()));
        Self::new(DesignTree::default(), checked)
    }

    /// Reads a design from its blobs, and compiles it, starting from `near` if that is similar.
    pub fn read(
        blobs: &Blobs,
        env: &EnvName,
        manifest: &str,
        near: Option<&CompiledDesign>,
    ) -> Result<Self, DesignTreeError> {
        Self::make(blobs, env, DesignTree::read(blobs, manifest)?, near, &Texts::new())
    }

    /// Compiles a tree of files. Texts that are not in `texts` are read from blobs.
    pub fn make(
        blobs: &Blobs,
        env: &EnvName,
        tree: DesignTree,
        near: Option<&CompiledDesign>,
        texts: &Texts,
    ) -> Result<Self, DesignTreeError> {
        let text = |file: &FileRef| file_text(blobs, file, texts);
        if let Some((near, edits)) = near.and_then(|near| Some((near, tree.edits_from(&near.tree, FEW_CHANGES)?))) {
            let mut checked = CheckedDesign { design: near.design.clone(), findings: near.findings.clone() };
            for (source, files) in edits {
                let change = |(path, file): (String, Option<FileRef>)| match file {
                    Some(file) => text(&file).map(SourceFileChange::Put),
                    None => Ok(SourceFileChange::Remove { file: path }),
                };
                let changes: Vec<SourceFileChange> = files.into_iter().map(change).collect::<Result<_, _>>()?;
                checked = checked.design.with(&source, changes);
            }
            return Ok(Self::new(tree, checked));
        }
        let texts = &prefetch(blobs, &tree, texts)?;
        let text = |file: &FileRef| file_text(blobs, file, texts);
        let bundle = |source: &SourceTree| {
            let files = source.files().map(text).collect::<Result<_, _>>()?;
            Ok(DesignSource { name: source.name.clone(), files })
        };
        let bundles = tree.sources.iter().map(bundle).collect::<Result<_, DesignTreeError>>()?;
        let checked = Design::compile(bundles, &options(env, &tree));
        Ok(Self::new(tree, checked))
    }

    fn new(tree: DesignTree, checked: CheckedDesign) -> Self {
        let CheckedDesign { design, findings } = checked;
        let (records, self_texts) = (OnceLock::new(), OnceLock::new());
        Self { manifest: tree.digest(), tree, design, findings, records, self_texts }
    }

    /// Returns true if the design can be applied: none of its findings is an error.
    pub fn is_usable(&self) -> bool {
        !self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }

    /// Node records that the design defines.
    pub fn records(&self) -> Arc<BTreeMap<NodeName, NodeRecord>> {
        let records = || self.design.nodes().iter().map(|node| (node.name.clone(), node.record.clone())).collect();
        self.records.get_or_init(|| Arc::new(records())).clone()
    }

    /// Resolved values of each node, as they are stored.
    pub fn self_texts(&self) -> Arc<BTreeMap<NodeName, String>> {
        let text = |(name, resolved): (NodeName, serde_json::Value)| {
            let values = serde_json::from_value(resolved).unwrap_or_default();
            Some((name, bounded_text(values).ok()?))
        };
        let texts = || self.design.resolved_nodes().into_iter().filter_map(text).collect();
        self.self_texts.get_or_init(|| Arc::new(texts())).clone()
    }
}

fn options(env: &EnvName, tree: &DesignTree) -> CompileOptions {
    CompileOptions { env: Some(env.clone()), cardinality: tree.cardinality.clone() }
}

/// Reads the texts that are not known, all at once: in a bucket each blob costs a request.
fn prefetch(blobs: &Blobs, tree: &DesignTree, known: &Texts) -> Result<Texts, DesignTreeError> {
    let files = tree.sources.iter().flat_map(SourceTree::files);
    let unknown: Vec<&FileRef> = files.filter(|file| !known.contains_key(&file.digest)).collect();
    let digests: Vec<&str> = unknown.iter().map(|file| file.digest.as_str()).collect();
    let mut texts = known.clone();
    for (FileRef { path, digest }, found) in unknown.into_iter().zip(blobs.find_all(&digests)) {
        texts.insert(digest.clone(), text_of(path, digest, found)?.into());
    }
    Ok(texts)
}

fn file_text(blobs: &Blobs, file: &FileRef, texts: &Texts) -> Result<FileText, DesignTreeError> {
    if let Some(text) = texts.get(&file.digest) {
        return Ok(FileText::new(file.path.clone(), text.as_ref()));
    }
    Ok(FileText::new(file.path.clone(), text_of(&file.path, &file.digest, blobs.find(&file.digest))?))
}

fn text_of(path: &str, digest: &str, found: io::Result<Option<Vec<u8>>>) -> Result<String, DesignTreeError> {
    String::from_utf8(present(digest, path, found)?).map_err(|error| DesignTreeError::NotUnderstood {
        digest: digest.to_owned(),
        what: path.to_owned(),
        why: error.to_string(),
    })
}

/// The newest revision, the applied one, and two that are compared.
const KEPT: usize = 4;
/// Designs that are compiled at the same time. Each takes one processor, and memory.
const AT_ONCE: usize = 1;

/// Reason why a revision of a design cannot be read.
#[derive(Debug, Error)]
pub enum ReadDesignError {
    #[error("environment {env} has no design yet")]
    None { env: EnvName },
    #[error("the design of {env} has no revision {number}")]
    Unknown { env: EnvName, number: DesignRevision, newest: Option<DesignRevision> },
    #[error("revision {number} of the design of {env} cannot be read")]
    Tree {
        env: EnvName,
        number: DesignRevision,
        #[source]
        source: DesignTreeError,
    },
    #[error("the server stopped during the work")]
    CutOff,
}

#[derive(Debug)]
pub struct Designs {
    blobs: Arc<Blobs>,
    /// Most recently used first.
    kept: Mutex<BTreeMap<EnvName, VecDeque<Arc<CompiledDesign>>>>,
    making: Semaphore,
}

/// Reference to a revision of a design: its number, and the digest of its manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesignRef {
    pub number: DesignRevision,
    pub manifest: String,
}

impl DesignRef {
    /// Finds a revision by its number; without a number, the newest.
    pub fn find(fleet: &Fleet, number: Option<DesignRevision>) -> Result<Self, ReadDesignError> {
        let design = fleet.design();
        let Some(newest) = design.head() else { return Err(ReadDesignError::None { env: fleet.env.clone() }) };
        let number = number.unwrap_or(newest);
        match design.revisions.get(&number) {
            Some(record) => Ok(Self { number, manifest: record.manifest.clone() }),
            None => Err(ReadDesignError::Unknown { env: fleet.env.clone(), number, newest: Some(newest) }),
        }
    }
}

impl Designs {
    pub fn new(blobs: Arc<Blobs>) -> Self {
        Self { blobs, kept: Mutex::default(), making: Semaphore::new(AT_ONCE) }
    }

    /// Returns a revision of an environment's design.
    pub async fn get(&self, env: &EnvName, design_ref: &DesignRef) -> Result<Arc<CompiledDesign>, ReadDesignError> {
        if let Some(found) = self.find(env, &design_ref.manifest) {
            return Ok(found);
        }
        let _turn = self.making.acquire().await.map_err(|_| ReadDesignError::CutOff)?;
        // The task before this one may have compiled it.
        if let Some(found) = self.find(env, &design_ref.manifest) {
            return Ok(found);
        }
        let near = self.kept().get(env).and_then(|kept| kept.front().cloned());
        let (blobs, manifest, of) = (self.blobs.clone(), design_ref.manifest.clone(), env.clone());
        let making = tokio::task::spawn_blocking(move || CompiledDesign::read(&blobs, &of, &manifest, near.as_deref()));
        let made: Result<CompiledDesign, DesignTreeError> = making.await.map_err(|_| ReadDesignError::CutOff)?;
        let unreadable = |source| ReadDesignError::Tree { env: env.clone(), number: design_ref.number, source };
        let made = Arc::new(made.map_err(unreadable)?);
        self.keep(env, made.clone());
        Ok(made)
    }

    /// Adds a design that was compiled elsewhere and is about to be used.
    pub fn keep(&self, env: &EnvName, design: Arc<CompiledDesign>) {
        let mut kept = self.kept();
        let kept = kept.entry(env.clone()).or_default();
        kept.retain(|other| other.manifest != design.manifest);
        kept.push_front(design);
        kept.truncate(KEPT);
    }

    /// Removes the designs of an environment that is gone.
    pub fn forget(&self, env: &EnvName) {
        self.kept().remove(env);
    }

    fn find(&self, env: &EnvName, manifest: &str) -> Option<Arc<CompiledDesign>> {
        let mut kept = self.kept();
        let kept = kept.get_mut(env)?;
        let at = kept.iter().position(|design| design.manifest == manifest)?;
        let found = kept.remove(at)?;
        kept.push_front(found.clone());
        Some(found)
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<EnvName, VecDeque<Arc<CompiledDesign>>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
