//! Lists the files of a release, from a directory or from a bundle without unpacking it, and compares two releases.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use muster_core::release::manifest::Digest;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::bundle::digest_of;
use crate::entries::{EntryError, EntryKind, VisitError, visit};
use crate::tree::{ReleaseTree, ReleaseTreeError};

/// Bytes of a text file that is compared line by line; larger files are compared by digest only.
const FILE_TEXT_LIMIT: u64 = 256 * 1024;
/// Bytes of text that are held in memory at a time.
const TOTAL_TEXT_LIMIT: u64 = 16 * 1024 * 1024;

#[derive(Debug, Error)]
pub enum ContentsError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is not a valid bundle", path.display())]
    Bundle {
        path: PathBuf,
        #[source]
        source: EntryError,
    },
    #[error(transparent)]
    Tree(#[from] ReleaseTreeError),
}

/// Properties of one file of a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileInfo {
    pub size: u64,
    pub executable: bool,
    pub digest: Digest,
}

/// The files of a release by path.
pub type ReleaseContents = BTreeMap<String, FileInfo>;

/// Location of the files of a release.
#[derive(Clone, Debug)]
pub enum ReleaseSource {
    Directory(ReleaseTree),
    /// A `tar.zst`. All limits are checked; signatures are not.
    Bundle(PathBuf),
}

impl ReleaseSource {
    pub fn contents(&self) -> Result<ReleaseContents, ContentsError> {
        let mut contents = ReleaseContents::new();
        self.visit_files(|path, executable, content| {
            let (digest, size) = digest_of(content)?;
            contents.insert(path.to_owned(), FileInfo { size, executable, digest });
            Ok(())
        })?;
        Ok(contents)
    }

    /// Reads the given files, without those that are not text or are too large to show.
    pub fn texts(&self, paths: &BTreeSet<&str>) -> Result<BTreeMap<String, String>, ContentsError> {
        let mut texts = BTreeMap::new();
        let mut left = TOTAL_TEXT_LIMIT;
        self.visit_files(|path, _, content| {
            let mut bytes = Vec::new();
            if paths.contains(path) && left > 0 {
                Read::take(&mut *content, FILE_TEXT_LIMIT + 1).read_to_end(&mut bytes)?;
                left = left.saturating_sub(bytes.len() as u64);
                if bytes.len() as u64 <= FILE_TEXT_LIMIT
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

    /// Finds the files of Hiera data that have a key at their top, in the order of their paths.
    pub fn data_with_key(&self, key: &str) -> Result<Vec<KeyPlace>, ContentsError> {
        let mut places = Vec::new();
        self.visit_files(|path, _, content| {
            let mut bytes = Vec::new();
            if is_data(path) {
                Read::take(&mut *content, FILE_TEXT_LIMIT).read_to_end(&mut bytes)?;
                let line = line_of_key(&String::from_utf8_lossy(&bytes), key);
                places.extend(line.map(|line| KeyPlace { file: path.to_owned(), line }));
            }
            io::copy(content, &mut io::sink()).map(drop)
        })?;
        Ok(places)
    }

    fn visit_files(
        &self,
        mut visit: impl FnMut(&str, bool, &mut dyn Read) -> io::Result<()>,
    ) -> Result<(), ContentsError> {
        match self {
            ReleaseSource::Directory(tree) => tree.files().try_for_each(|(path, file)| {
                let read = File::open(&file.source).and_then(|mut opened| visit(path, file.executable, &mut opened));
                read.map_err(|source| ContentsError::Read { path: file.source.clone(), source })
            }),
            ReleaseSource::Bundle(bundle) => visit_bundle(bundle, visit),
        }
    }
}

/// A file of a release that has a key, and the line of the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyPlace {
    pub file: String,
    pub line: usize,
}

/// True for a YAML file that a hierarchy may name.
fn is_data(path: &str) -> bool {
    let (directories, name) = path.rsplit_once('/').unwrap_or(("", path));
    let is_yaml = [".yaml", ".yml", ".eyaml"].iter().any(|suffix| name.ends_with(suffix));
    is_yaml && !directories.split('/').any(|part| matches!(part, "files" | "templates" | "spec"))
}

/// The line of a key at the top of a YAML text. A dot in the key is a step into its value.
pub fn line_of_key(text: &str, key: &str) -> Option<usize> {
    let root = key.split('.').next().unwrap_or(key);
    let is_key = |line: &str, key: &str| {
        let rest = ["\"", "'", ""].iter().find_map(|quote| line.strip_prefix(&format!("{quote}{key}{quote}")));
        rest.is_some_and(|rest| rest.trim_start().starts_with(':') && !rest.trim_start().starts_with("::"))
    };
    [key, root].iter().find_map(|key| text.lines().position(|line| is_key(line, key))).map(|line| line + 1)
}

/// The files of a bundle that is read from its first byte. All limits are checked; signatures are not.
pub fn bundle_contents(bundle: impl Read) -> Result<ReleaseContents, EntryError> {
    let mut contents = ReleaseContents::new();
    let visited = visit(BufReader::new(bundle), None, |entry, content| {
        if let EntryKind::File { executable, .. } = entry.kind {
            let (digest, size) = digest_of(content)?;
            contents.insert(entry.path.clone(), FileInfo { size, executable, digest });
        }
        Ok(())
    });
    visited.map_err(|error| match error {
        VisitError::Bundle(error) => error,
        VisitError::Visitor(error) => EntryError::Damaged(error),
    })?;
    Ok(contents)
}

fn visit_bundle(
    bundle: &Path,
    mut visitor: impl FnMut(&str, bool, &mut dyn Read) -> io::Result<()>,
) -> Result<(), ContentsError> {
    let failed = |source| ContentsError::Read { path: bundle.to_owned(), source };
    let file = File::open(bundle).map_err(failed)?;
    let visited = visit(BufReader::new(file), None, |entry, content| match entry.kind {
        EntryKind::Directory => Ok(()),
        EntryKind::File { executable, .. } => visitor(&entry.path, executable, content),
    });
    visited.map_err(|error| match error {
        VisitError::Bundle(source) => ContentsError::Bundle { path: bundle.to_owned(), source },
        VisitError::Visitor(source) => failed(source),
    })
}

/// A file that differs between two releases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileChange {
    pub path: String,
    #[serde(flatten)]
    pub what: FileChangeKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum FileChangeKind {
    Added { after: FileInfo },
    Removed { before: FileInfo },
    Changed { before: FileInfo, after: FileInfo },
}

/// Lists the files that differ, in the order of their paths.
pub fn diff(before: &ReleaseContents, after: &ReleaseContents) -> Vec<FileChange> {
    let paths: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let change = |path: &String| {
        let what = match (before.get(path).cloned(), after.get(path).cloned()) {
            (None, None) => return None,
            (None, Some(after)) => FileChangeKind::Added { after },
            (Some(before), None) => FileChangeKind::Removed { before },
            (Some(before), Some(after)) if before == after => return None,
            (Some(before), Some(after)) => FileChangeKind::Changed { before, after },
        };
        Some(FileChange { path: path.clone(), what })
    };
    paths.into_iter().filter_map(change).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn key_is_found_at_the_start_of_a_line() {
        let text = "# ntp: no\nother:\n  ntp: 1\n'ntp::servers' : []\nntp: {a: 1}\n";
        assert_eq!(line_of_key(text, "ntp"), Some(5));
        assert_eq!(line_of_key(text, "ntp.a"), Some(5));
        assert_eq!(line_of_key(text, "ntp::servers"), Some(4));
        assert_eq!(line_of_key(text, "absent"), None);
    }

    #[test]
    fn files_of_data_with_a_key_are_found() {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("data/common.yaml", "a: 1\nntp: 2\n"),
            ("data/nodes/web1.eyaml", "ntp: 3\n"),
            ("modules/x/files/sample.yaml", "ntp: 4\n"),
            ("ntp.txt", "ntp: 5\n"),
        ] {
            fs::create_dir_all(dir.path().join(path).parent().unwrap()).unwrap();
            fs::write(dir.path().join(path), text).unwrap();
        }
        let source = ReleaseSource::Directory(ReleaseTree::read(dir.path()).unwrap());
        let places: Vec<_> =
            source.data_with_key("ntp").unwrap().into_iter().map(|place| (place.file, place.line)).collect();
        assert_eq!(places, [("data/common.yaml".to_owned(), 2), ("data/nodes/web1.eyaml".to_owned(), 1)]);
    }
}
