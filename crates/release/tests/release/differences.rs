//! Compares the contents of directories and bundles.

use std::collections::BTreeSet;
use std::fs;

use muster_release::contents::{ContentsError, ReleaseSource};
use muster_release::contents::{FileChangeKind, diff};
use muster_release::pack::pack_into;
use muster_release::tree::Tree;

use crate::support::{small_release, write};

#[test]
fn bundle_equals_its_directory_until_a_change() {
    let (dir, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    small_release(dir.path());
    let tree = Tree::read(dir.path()).unwrap();
    let bundle = ReleaseSource::Bundle(pack_into(&tree, out.path()).unwrap().0);
    let before = bundle.contents().unwrap();
    assert_eq!(diff(&before, &ReleaseSource::Directory(tree).contents().unwrap()), []);

    write(dir.path(), "apply", b"#!/bin/sh\nexit 2\n", 0o755);
    write(dir.path(), "new", b"\0\x01", 0o644);
    write(dir.path(), "release.yaml", b"applier: script\nmanifest: apply\n", 0o755);
    fs::remove_file(dir.path().join("data/empty")).unwrap();
    let after = ReleaseSource::Directory(Tree::read(dir.path()).unwrap());
    let changes = diff(&before, &after.contents().unwrap());

    let changed: Vec<_> = changes.iter().map(|change| (change.path.as_str(), &change.what)).collect();
    assert!(
        matches!(
            changed[..],
            [
                ("apply", FileChangeKind::Changed { .. }),
                ("data/empty", FileChangeKind::Removed { .. }),
                ("new", FileChangeKind::Added { .. }),
                ("release.yaml", FileChangeKind::Changed { .. })
            ]
        ),
        "{changed:?}"
    );
    let paths = BTreeSet::from(["apply", "new"]);
    assert_eq!(bundle.texts(&paths).unwrap()["apply"], "#!/bin/sh\nexit 0\n");
    let texts = after.texts(&paths).unwrap();
    assert_eq!(texts["apply"], "#!/bin/sh\nexit 2\n");
    assert!(!texts.contains_key("new"), "binary files are not shown as text");
}

#[test]
fn invalid_bundle_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "x.tar.zst", b"nonsense", 0o644);
    let refused = ReleaseSource::Bundle(dir.path().join("x.tar.zst")).contents().unwrap_err();
    assert!(matches!(refused, ContentsError::Bundle { .. }), "{refused:?}");
}
