//! Files of a design: a list that is cheap to change and to store again.
//!
//! ```text
//! design/<revision> ──▶ manifest: sources in their order ──▶ parts: some dozens of files each ──▶ files
//! ```
//!
//! Each of these is a blob, named by its digest. A source's files are sorted by path and divided into parts; the path of a
//! file alone decides whether a part ends there. The same files are therefore always divided in the same way, and a change
//! of one file rewrites one part: a change of a design with thousands of documents writes a few kilobytes. A source of one
//! part has it in the manifest itself, which saves one sync to disk.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::sync::Arc;

use muster_core::names::Role;
use serde::{Deserialize, Serialize};

use crate::blobs::Blobs;

/// Format of the manifests that this version writes, and the newest that it reads.
const FORMAT: u32 = 1;
/// One path in 64 ends a part: a part is a few kilobytes, and 5,000 files are some eighty parts.
const PART: u64 = 64;

/// Files of a design.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesignTree {
    /// Number of nodes of roles, in place of the environment file.
    pub cardinality: BTreeMap<Role, u32>,
    /// In order; a later source wins.
    pub sources: Vec<SourceTree>,
}

/// Files of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTree {
    pub name: String,
    parts: Vec<Arc<TreePart>>,
}

#[derive(Debug, PartialEq, Eq)]
struct TreePart {
    digest: String,
    files: Vec<FileRef>,
}

/// File, and the digest of its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRef {
    pub path: String,
    pub digest: String,
}

/// Files by path: put, or removed (none).
pub type SourceEdits = BTreeMap<String, Option<FileRef>>;

/// Blob that must be stored before the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewBlob {
    pub digest: String,
    pub bytes: Vec<u8>,
}

#[derive(Debug, Serialize, Deserialize)]
struct TreeManifest {
    format: u32,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    cardinality: BTreeMap<Role, u32>,
    sources: Vec<ManifestSource>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ManifestSource {
    name: String,
    #[serde(flatten)]
    content: PartContent,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PartContent {
    /// The only part, or none.
    Files(Vec<FileRef>),
    /// Digests of several parts.
    Parts(Vec<String>),
}

/// Reason why the files of a revision cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DesignTreeError {
    #[error("the blob {digest} ({what}) is missing, or is not what its digest says")]
    Missing { digest: String, what: String },
    #[error("the blob {digest} ({what}) cannot be read now: {why}")]
    Unanswered { digest: String, what: String, why: String },
    #[error("the blob {digest} ({what}) is invalid: {why}")]
    NotUnderstood { digest: String, what: String, why: String },
    #[error("the manifest {digest} has format {format}, and this version reads {FORMAT} at most: use a newer Muster")]
    Newer { digest: String, format: u32 },
}

impl DesignTree {
    /// Reads the tree of a manifest.
    pub fn read(blobs: &Blobs, digest: &str) -> Result<Self, DesignTreeError> {
        let manifest = manifest(blobs, digest)?;
        let sources = manifest.sources.into_iter().map(|source| {
            let parts = match source.content {
                PartContent::Files(files) => return Ok(SourceTree::new(source.name, files)),
                PartContent::Parts(parts) => parts,
            };
            let parts = parts.iter().map(|part| read_part(blobs, part).map(Arc::new));
            Ok(SourceTree { name: source.name, parts: parts.collect::<Result<_, _>>()? })
        });
        Ok(Self { cardinality: manifest.cardinality, sources: sources.collect::<Result<_, _>>()? })
    }

    pub fn source(&self, name: &str) -> Option<&SourceTree> {
        self.sources.iter().find(|source| source.name == name)
    }

    /// Differences to another tree by source: files that were put, or removed (none). None if more than `most` files differ, or
    /// the sources themselves.
    pub fn edits_from(&self, other: &DesignTree, most: usize) -> Option<Vec<(String, SourceEdits)>> {
        let same_sources = self.sources.len() == other.sources.len()
            && self.sources.iter().zip(&other.sources).all(|(mine, theirs)| mine.name == theirs.name);
        if !same_sources || self.cardinality != other.cardinality {
            return None;
        }
        let mut count = 0;
        let mut all = Vec::new();
        for (mine, theirs) in self.sources.iter().zip(&other.sources) {
            let edits = mine.edits_from(theirs);
            count += edits.len();
            if count > most {
                return None;
            }
            if !edits.is_empty() {
                all.push((mine.name.clone(), edits));
            }
        }
        Some(all)
    }

    /// Digest of the manifest, which names the tree.
    pub fn digest(&self) -> String {
        Blobs::digest(&self.manifest())
    }

    /// Returns true if the tree has no files.
    pub fn is_empty(&self) -> bool {
        self.sources.iter().all(SourceTree::is_empty)
    }

    /// Digests of all files.
    pub fn digests(&self) -> HashSet<&str> {
        self.sources.iter().flat_map(SourceTree::files).map(|file| file.digest.as_str()).collect()
    }

    /// Manifest and parts that `before` does not have, without the files.
    pub fn new_blobs(&self, before: Option<&DesignTree>) -> Vec<NewBlob> {
        let several = |tree: &DesignTree| {
            tree.sources.iter().filter(|source| source.parts.len() > 1).cloned().collect::<Vec<_>>()
        };
        let parts = |tree: &DesignTree| several(tree).into_iter().flat_map(|source| source.parts).collect::<Vec<_>>();
        let known: HashSet<String> = before.map(parts).into_iter().flatten().map(|part| part.digest.clone()).collect();
        let mut seen = HashSet::new();
        let new =
            parts(self).into_iter().filter(|part| !known.contains(&part.digest) && seen.insert(part.digest.clone()));
        let mut blobs: Vec<NewBlob> =
            new.map(|part| NewBlob { digest: part.digest.clone(), bytes: text(&part.files) }).collect();
        let bytes = self.manifest();
        blobs.push(NewBlob { digest: Blobs::digest(&bytes), bytes });
        blobs
    }

    fn manifest(&self) -> Vec<u8> {
        let source = |source: &SourceTree| ManifestSource {
            name: source.name.clone(),
            content: match source.parts.as_slice() {
                [] | [_] => PartContent::Files(source.files().cloned().collect()),
                several => PartContent::Parts(several.iter().map(|part| part.digest.clone()).collect()),
            },
        };
        let sources = self.sources.iter().map(source).collect();
        text(&TreeManifest { format: FORMAT, cardinality: self.cardinality.clone(), sources })
    }
}

impl SourceTree {
    pub fn new(name: impl Into<String>, files: impl IntoIterator<Item = FileRef>) -> Self {
        let files: BTreeMap<String, Option<String>> =
            files.into_iter().map(|file| (file.path, Some(file.digest))).collect();
        Self { name: name.into(), parts: Vec::new() }.with(&files)
    }

    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.files.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Files in the order of their paths.
    pub fn files(&self) -> impl Iterator<Item = &FileRef> {
        self.parts.iter().flat_map(|part| &part.files)
    }

    pub fn get(&self, path: &str) -> Option<&FileRef> {
        let at = self.parts.partition_point(|part| part.files.last().is_some_and(|last| last.path.as_str() < path));
        let part = self.parts.get(at)?;
        part.files.binary_search_by(|file| file.path.as_str().cmp(path)).ok().and_then(|at| part.files.get(at))
    }

    fn edits_from(&self, other: &SourceTree) -> SourceEdits {
        let digests = |parts: &[Arc<TreePart>]| parts.iter().map(|part| part.digest.clone()).collect::<HashSet<_>>();
        let (mine, theirs) = (digests(&self.parts), digests(&other.parts));
        // Parts that both trees have are equal.
        let own = |parts: &[Arc<TreePart>], shared: &HashSet<String>| -> BTreeMap<String, FileRef> {
            let own = parts.iter().filter(|part| !shared.contains(&part.digest));
            own.flat_map(|part| part.files.iter().map(|file| (file.path.clone(), file.clone()))).collect()
        };
        let (mine, theirs) = (own(&self.parts, &theirs), own(&other.parts, &mine));
        let removed = theirs.keys().filter(|path| !mine.contains_key(*path)).map(|path| (path.clone(), None));
        let put = mine.iter().filter(|(path, file)| theirs.get(*path) != Some(*file));
        removed.chain(put.map(|(path, file)| (path.clone(), Some(file.clone())))).collect()
    }

    /// This source with files put (a digest) or removed (none). Unchanged parts are shared.
    #[must_use]
    pub fn with(&self, edits: &BTreeMap<String, Option<String>>) -> Self {
        let mut parts = Vec::with_capacity(self.parts.len() + 1);
        let mut edits = edits.iter().peekable();
        // Files of parts that are rewritten and not closed yet.
        let mut open: BTreeMap<&str, &str> = BTreeMap::new();
        for (at, part) in self.parts.iter().enumerate() {
            let end = part.files.last().map(|file| file.path.as_str()).filter(|_| at + 1 < self.parts.len());
            let mut mine = Vec::new();
            while let Some(edit) = edits.next_if(|(path, _)| end.is_none_or(|end| path.as_str() <= end)) {
                mine.push(edit);
            }
            if mine.is_empty() && open.is_empty() {
                parts.push(part.clone());
                continue;
            }
            open.extend(part.files.iter().map(|file| (file.path.as_str(), file.digest.as_str())));
            edit(&mut open, mine);
            close(&mut open, &mut parts);
        }
        edit(&mut open, edits.collect());
        close(&mut open, &mut parts);
        parts.extend(part_of(open));
        Self { name: self.name.clone(), parts }
    }
}

fn edit<'a>(open: &mut BTreeMap<&'a str, &'a str>, edits: Vec<(&'a String, &'a Option<String>)>) {
    for (path, digest) in edits {
        match digest {
            Some(digest) => open.insert(path, digest),
            None => open.remove(path.as_str()),
        };
    }
}

/// Closes the parts that are complete.
fn close<'a>(open: &mut BTreeMap<&'a str, &'a str>, parts: &mut Vec<Arc<TreePart>>) {
    while let Some(end) = open.keys().copied().find(|path| ends_part(path)) {
        let mut after = open.split_off(end);
        let last = after.remove_entry(end);
        let mut full = std::mem::replace(open, after);
        full.extend(last);
        parts.extend(part_of(full));
    }
}

fn part_of(files: BTreeMap<&str, &str>) -> Option<Arc<TreePart>> {
    let file = |(path, digest): (&str, &str)| FileRef { path: path.to_owned(), digest: digest.to_owned() };
    let files: Vec<FileRef> = files.into_iter().map(file).collect();
    (!files.is_empty()).then(|| Arc::new(TreePart { digest: Blobs::digest(&text(&files)), files }))
}

/// FNV-1a: the same on every machine and in every version.
fn ends_part(path: &str) -> bool {
    let hash = path
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    (hash >> 32) % PART == 0
}

/// Adds all digests of a manifest to a set, including its own. Manifests and parts in the set are not read again.
pub fn add_references(blobs: &Blobs, digest: &str, named: &mut HashSet<String>) -> Result<(), DesignTreeError> {
    if !named.insert(digest.to_owned()) {
        return Ok(());
    }
    for source in manifest(blobs, digest)?.sources {
        let parts = match source.content {
            PartContent::Files(files) => {
                named.extend(files.into_iter().map(|file| file.digest));
                continue;
            }
            PartContent::Parts(parts) => parts,
        };
        for part in parts {
            if named.insert(part.clone()) {
                named.extend(read_part(blobs, &part)?.files.into_iter().map(|file| file.digest));
            }
        }
    }
    Ok(())
}

fn manifest(blobs: &Blobs, digest: &str) -> Result<TreeManifest, DesignTreeError> {
    let manifest: TreeManifest = parse_blob(blobs, digest, "the list of sources")?;
    if manifest.format > FORMAT {
        return Err(DesignTreeError::Newer { digest: digest.to_owned(), format: manifest.format });
    }
    Ok(manifest)
}

fn read_part(blobs: &Blobs, digest: &str) -> Result<TreePart, DesignTreeError> {
    Ok(TreePart { digest: digest.to_owned(), files: parse_blob(blobs, digest, "a list of files")? })
}

fn parse_blob<T: serde::de::DeserializeOwned>(blobs: &Blobs, digest: &str, what: &str) -> Result<T, DesignTreeError> {
    let (digest, what) = (digest.to_owned(), what.to_owned());
    let bytes = present(&digest, &what, blobs.find(&digest))?;
    serde_json::from_slice(&bytes).map_err(|error| DesignTreeError::NotUnderstood {
        digest,
        what,
        why: error.to_string(),
    })
}

/// Content of a blob that was read, or the reason why there is none.
pub(super) fn present(
    digest: &str,
    what: &str,
    found: io::Result<Option<Vec<u8>>>,
) -> Result<Vec<u8>, DesignTreeError> {
    let (digest, what) = (digest.to_owned(), what.to_owned());
    match found {
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => Err(DesignTreeError::Missing { digest, what }),
        Err(error) => Err(DesignTreeError::Unanswered { digest, what, why: error.to_string() }),
    }
}

/// Strings, numbers and lists: serialisation cannot fail.
fn text(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use muster_core::names::ReplicaId;

    use super::*;

    fn file(number: usize) -> FileRef {
        FileRef { path: format!("Node/web{number}.yaml"), digest: format!("{number:064}") }
    }

    fn source(files: impl Iterator<Item = usize>) -> SourceTree {
        SourceTree::new("api", files.map(file))
    }

    #[test]
    fn parts_depend_on_the_files_alone() {
        let all = source(0..1000);
        assert!(all.parts.len() > 5 && all.len() == 1000, "{} parts", all.parts.len());
        for removed in [0, 7, 500, 999] {
            let path = file(removed).path;
            let without = all.with(&BTreeMap::from([(path.clone(), None)]));
            assert_eq!(without, source((0..1000).filter(|number| *number != removed)));
            assert_eq!(without.get(&path), None);
            let again = without.with(&BTreeMap::from([(path.clone(), Some(file(removed).digest))]));
            assert_eq!(again, all);
            assert_eq!(again.get(&path), Some(&file(removed)));
        }
        // Files that end a part are the edge cases.
        let ends: Vec<usize> = (0..1000).filter(|number| ends_part(&file(*number).path)).collect();
        let edits = ends.iter().map(|number| (file(*number).path, None)).collect();
        let without = all.with(&edits);
        assert_eq!((without.parts.len(), without.len()), (1, 1000 - ends.len()));
        assert_eq!(without, source((0..1000).filter(|number| !ends.contains(number))));
        assert_eq!(source(std::iter::empty()), all.with(&(0..1000).map(|number| (file(number).path, None)).collect()));
    }

    #[test]
    fn one_changed_file_rewrites_one_part_and_the_manifest() {
        let before = DesignTree { sources: vec![source(0..5000)], ..DesignTree::default() };
        let edits = BTreeMap::from([(file(2500).path, Some("f".repeat(64)))]);
        let after = DesignTree { sources: vec![before.sources[0].with(&edits)], ..DesignTree::default() };
        let new = after.new_blobs(Some(&before));
        assert_eq!(new.len(), 2);
        let bytes: usize = new.iter().map(|blob| blob.bytes.len()).sum();
        assert!(bytes < 64 * 1024, "{bytes} bytes");
        assert_eq!(new.last().unwrap().digest, after.digest());
        assert_ne!(before.digest(), after.digest());
    }

    #[test]
    fn edits_between_trees_are_found() {
        let before = DesignTree { sources: vec![source(0..5000)], ..DesignTree::default() };
        let changed = FileRef { path: file(7).path, digest: "f".repeat(64) };
        let edits = BTreeMap::from([(changed.path.clone(), Some(changed.digest.clone())), (file(9).path, None)]);
        let after = DesignTree { sources: vec![before.sources[0].with(&edits)], ..DesignTree::default() };
        let seen = after.edits_from(&before, 2).unwrap();
        let expected = BTreeMap::from([(changed.path.clone(), Some(changed)), (file(9).path, None)]);
        assert_eq!(seen, [("api".to_owned(), expected)]);
        assert_eq!(after.edits_from(&before, 1), None);
        assert_eq!(after.edits_from(&after, 0), Some(Vec::new()));
        let renamed = DesignTree { sources: vec![SourceTree::new("site", [])], ..DesignTree::default() };
        assert_eq!(after.edits_from(&renamed, 10_000), None);
    }

    #[test]
    fn tree_reads_back_and_lists_all_its_blobs() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(dir.path(), ReplicaId::new("one-1").unwrap()).unwrap();
        let cardinality = BTreeMap::from([(Role::new("web").unwrap(), 3)]);
        let tree = DesignTree { cardinality, sources: vec![source(0..1000), SourceTree::new("site", [])] };
        let new = tree.new_blobs(None);
        for blob in &new {
            assert_eq!(blobs.put(&blob.bytes).unwrap(), blob.digest);
        }
        assert_eq!(DesignTree::read(&blobs, &tree.digest()).unwrap(), tree);
        // A small source has no blob of its own, and reads back as well.
        let small = DesignTree { sources: vec![SourceTree::new("api", [file(1), file(2)])], ..DesignTree::default() };
        assert_eq!(small.new_blobs(None).len(), 1);
        blobs.put(&small.new_blobs(None)[0].bytes).unwrap();
        assert_eq!(DesignTree::read(&blobs, &small.digest()).unwrap(), small);
        let mut few = HashSet::new();
        add_references(&blobs, &small.digest(), &mut few).unwrap();
        assert_eq!(few.len(), 3);
        let mut named = HashSet::new();
        add_references(&blobs, &tree.digest(), &mut named).unwrap();
        assert_eq!(named.len(), new.len() + 1000);

        blobs.remove(&new[0].digest);
        let missing = DesignTreeError::Missing { digest: new[0].digest.clone(), what: "a list of files".into() };
        assert_eq!(DesignTree::read(&blobs, &tree.digest()), Err(missing.clone()));
        assert_eq!(add_references(&blobs, &tree.digest(), &mut HashSet::new()), Err(missing));
    }
}
