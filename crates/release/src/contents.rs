//! What is in a release, file by file: of a directory, or of a bundle that nobody needs to unpack.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use muster_core::release_manifest::Digest;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::entries::{EntryError, EntryKind, VisitError, visit};
use crate::hashing::digest_of;
use crate::tree::{Tree, TreeError};

/// A longer text is not shown line by line: nobody reads it.
const TEXT_LIMIT: u64 = 256 * 1024;
/// So much text is held at a time.
const TEXTS_LIMIT: u64 = 16 * 1024 * 1024;

#[derive(Debug, Error)]
pub enum ContentsError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is not a bundle that could be used", path.display())]
    Bundle {
        path: PathBuf,
        #[source]
        source: EntryError,
    },
    #[error(transparent)]
    Tree(#[from] TreeError),
}

/// One file of a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFacts {
    pub size: u64,
    pub executable: bool,
    pub digest: Digest,
}

/// Files by their paths.
pub type Contents = BTreeMap<String, FileFacts>;

/// Where a release's files are.
#[derive(Clone, Debug)]
pub enum Source {
    Directory(Tree),
    /// A `tar.zst`. It is read with all limits; whether somebody stands for it is another question.
    Bundle(PathBuf),
}

impl Source {
    pub fn contents(&self) -> Result<Contents, ContentsError> {
        let mut contents = Contents::new();
        self.each(|path, executable, content| {
            let (digest, size) = digest_of(content)?;
            contents.insert(path.to_owned(), FileFacts { size, executable, digest });
            Ok(())
        })?;
        Ok(contents)
    }

    /// The text of those files, as far as it is text and small enough to be read by a person.
    pub fn texts(&self, wanted: &BTreeSet<&str>) -> Result<BTreeMap<String, String>, ContentsError> {
        let mut texts = BTreeMap::new();
        let mut left = TEXTS_LIMIT;
        self.each(|path, _, content| {
            let mut bytes = Vec::new();
            if wanted.contains(path) && left > 0 {
                Read::take(&mut *content, TEXT_LIMIT + 1).read_to_end(&mut bytes)?;
                left = left.saturating_sub(bytes.len() as u64);
                if bytes.len() as u64 <= TEXT_LIMIT
                    && !bytes.contains(&0)
                    && let Ok(text) = String::from_utf8(bytes)
                {
                    texts.insert(path.to_owned(), text);
                }
            }
            io::copy(content, &mut io::sink()).map(drop)
        })?;
        Ok(texts)
    }

    fn each(&self, mut take: impl FnMut(&str, bool, &mut dyn Read) -> io::Result<()>) -> Result<(), ContentsError> {
        match self {
            Source::Directory(tree) => tree.files().try_for_each(|(path, file)| {
                let read = File::open(&file.source).and_then(|mut opened| take(path, file.executable, &mut opened));
                read.map_err(|source| ContentsError::Read { path: file.source.clone(), source })
            }),
            Source::Bundle(bundle) => each_of_bundle(bundle, take),
        }
    }
}

fn each_of_bundle(
    bundle: &Path,
    mut take: impl FnMut(&str, bool, &mut dyn Read) -> io::Result<()>,
) -> Result<(), ContentsError> {
    let failed = |source| ContentsError::Read { path: bundle.to_owned(), source };
    let file = File::open(bundle).map_err(failed)?;
    let visited = visit(BufReader::new(file), |entry, content| match entry.kind {
        EntryKind::Directory => Ok(()),
        EntryKind::File { executable, .. } => take(&entry.path, executable, content),
    });
    visited.map_err(|error| match error {
        VisitError::Bundle(source) => ContentsError::Bundle { path: bundle.to_owned(), source },
        VisitError::Visitor(source) => failed(source),
    })
}
