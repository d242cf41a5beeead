//! A compiled design: its files, the resolved documents and the findings.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use muster_core::names::{EnvName, NodeName};
use muster_core::node::record::NodeRecord;
use muster_design::bundle::Bundle;
use muster_design::file_text::FileText;
use muster_design::finding::{Findings, Severity};
use muster_design::{CheckedDesign, CompileOptions, Design, FileChange};

use super::tree::{FileRef, SourceTree, Tree, TreeError};
use crate::blobs::Blobs;

/// A design that differs from another one in more files than this is compiled from scratch, which shares work between files.
const FEW_CHANGES: usize = 64;

/// A compiled design.
#[derive(Debug)]
pub struct Compiled {
    /// Digest of the manifest.
    pub manifest: String,
    pub tree: Tree,
    pub design: Design,
    pub findings: Findings,
    records: OnceLock<Arc<BTreeMap<NodeName, NodeRecord>>>,
}

/// Texts in memory, by digest.
pub type Texts = HashMap<String, Arc<str>>;

impl Compiled {
    /// Design of an environment that has none.
    pub fn empty(env: &EnvName) -> Self {
        let checked = Design::compile(Vec::new(), &options(env, &Tree::default()));
        Self::of(Tree::default(), checked)
    }

    /// Reads a design from its blobs, and compiles it, starting from `near` if that is similar.
    pub fn read(blobs: &Blobs, env: &EnvName, manifest: &str, near: Option<&Compiled>) -> Result<Self, TreeError> {
        Self::make(blobs, env, Tree::read(blobs, manifest)?, near, &Texts::new())
    }

    /// Compiles a tree of files. Texts that are not in `texts` are read from blobs.
    pub fn make(
        blobs: &Blobs,
        env: &EnvName,
        tree: Tree,
        near: Option<&Compiled>,
        texts: &Texts,
    ) -> Result<Self, TreeError> {
        let text = |file: &FileRef| file_text(blobs, file, texts);
        if let Some((near, edits)) = near.and_then(|near| Some((near, tree.edits_from(&near.tree, FEW_CHANGES)?))) {
            let mut checked = CheckedDesign { design: near.design.clone(), findings: near.findings.clone() };
            for (source, files) in edits {
                let change = |(path, file): (String, Option<FileRef>)| match file {
                    Some(file) => text(&file).map(FileChange::Put),
                    None => Ok(FileChange::Remove { file: path }),
                };
                let changes: Vec<FileChange> = files.into_iter().map(change).collect::<Result<_, _>>()?;
                checked = checked.design.with(&source, changes);
            }
            return Ok(Self::of(tree, checked));
        }
        let bundle = |source: &SourceTree| {
            let files = source.files().map(text).collect::<Result<_, _>>()?;
            Ok(Bundle { name: source.name.clone(), files })
        };
        let bundles = tree.sources.iter().map(bundle).collect::<Result<_, TreeError>>()?;
        let checked = Design::compile(bundles, &options(env, &tree));
        Ok(Self::of(tree, checked))
    }

    fn of(tree: Tree, checked: CheckedDesign) -> Self {
        let CheckedDesign { design, findings } = checked;
        Self { manifest: tree.digest(), tree, design, findings, records: OnceLock::new() }
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
}

fn options(env: &EnvName, tree: &Tree) -> CompileOptions {
    CompileOptions { env: Some(env.clone()), cardinality: tree.cardinality.clone() }
}

fn file_text(blobs: &Blobs, file: &FileRef, texts: &Texts) -> Result<FileText, TreeError> {
    if let Some(text) = texts.get(&file.digest) {
        return Ok(FileText::new(file.path.clone(), text.as_ref()));
    }
    let FileRef { path, digest } = file.clone();
    let Some(bytes) = blobs.get(&digest) else { return Err(TreeError::Missing { digest, what: path }) };
    match String::from_utf8(bytes) {
        Ok(text) => Ok(FileText::new(path, text)),
        Err(error) => Err(TreeError::NotUnderstood { digest, what: path, why: error.to_string() }),
    }
}
