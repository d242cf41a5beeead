//! The files of a release: bundle and manifest find each other, a second build is a no-op, and contents are compared.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use muster_release::bundle::pack_into;
use muster_release::contents::{ContentsError, FileChangeKind, ReleaseSource, diff};
use muster_release::key::SigningKey;
use muster_release::manifest::ReleaseLabel;
use muster_release::release_files::{BuiltRelease, FindReleaseError, build, find};
use muster_release::tree::ReleaseTree;

use crate::support::{label, small_release, write};

fn built(from: &Path, out: &Path, label: ReleaseLabel, keys: &[SigningKey]) -> BuiltRelease {
    build(&ReleaseTree::read(from).unwrap(), out, label, false, keys).unwrap()
}

#[test]
fn either_file_finds_the_other() {
    let (from, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    small_release(from.path());
    let key = SigningKey::generate("").unwrap();
    let built = built(from.path(), out.path(), label("v1"), &[key]);
    let by_manifest = find(&built.manifest_file).unwrap();
    assert_eq!(by_manifest, find(&built.bundle).unwrap());
    assert_eq!(by_manifest.bundle, built.bundle);
    assert_eq!(by_manifest.signed.unwrap().signed, built.signed);
    // A renamed bundle is found by its content.
    let renamed = out.path().join("v1.tar.zst");
    fs::rename(&built.bundle, &renamed).unwrap();
    assert_eq!(find(&renamed).unwrap().signed.unwrap().path, built.manifest_file);
    assert!(matches!(find(&built.manifest_file), Err(FindReleaseError::NoBundle { .. })));
}

#[test]
fn ambiguous_files_are_refused() {
    let (from, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    small_release(from.path());
    let one = built(from.path(), out.path(), label("v1"), &[]);
    let other = built(from.path(), out.path(), label("v2"), &[]);
    assert_eq!(one.bundle, other.bundle, "two versions of the same content are one bundle");
    let refused = find(&one.bundle).unwrap_err().to_string();
    assert!(refused.contains("v1.release.json") && refused.contains("v2.release.json"), "{refused}");
    assert_eq!(find(&other.manifest_file).unwrap().signed.unwrap().manifest.version.as_str(), "v2");
    for (name, content) in [("a.json", &b"{}"[..]), ("b", b"text"), ("c", b""), ("d.json", br#"{"format":"other"}"#)] {
        write(out.path(), name, content, 0o644);
        assert!(matches!(find(&out.path().join(name)), Err(FindReleaseError::NotARelease { .. })), "{name}");
    }
}

#[test]
fn unchanged_release_is_not_signed_again() {
    let (from, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    small_release(from.path());
    let keys = [SigningKey::generate("").unwrap()];
    let first = built(from.path(), out.path(), label("v1"), &keys);
    assert!(!first.unchanged);
    let later = ReleaseLabel { serial: 9, created: "2026-05-01T00:00:00Z".parse().unwrap(), ..label("v1") };
    let again = built(from.path(), out.path(), later.clone(), &keys);
    assert!(again.unchanged);
    assert_eq!((again.manifest, again.signed), (first.manifest, first.signed));
    let fixed = build(&ReleaseTree::read(from.path()).unwrap(), out.path(), later.clone(), true, &keys).unwrap();
    assert_eq!((fixed.unchanged, fixed.manifest.serial), (false, 9));
    assert!(!built(from.path(), out.path(), later.clone(), &[]).unchanged, "other signers");
    write(from.path(), "apply", b"#!/bin/sh\nexit 2\n", 0o755);
    assert!(!built(from.path(), out.path(), later, &[]).unchanged, "other content");
    let left: Vec<_> = fs::read_dir(out.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "two bundles, a manifest, and no partial files: {left:?}");
}

#[test]
fn bundle_equals_its_directory_until_a_change() {
    let (dir, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    small_release(dir.path());
    let tree = ReleaseTree::read(dir.path()).unwrap();
    let bundle = ReleaseSource::Bundle(pack_into(&tree, out.path()).unwrap().0);
    let before = bundle.contents().unwrap();
    assert_eq!(diff(&before, &ReleaseSource::Directory(tree).contents().unwrap()), []);

    write(dir.path(), "apply", b"#!/bin/sh\nexit 2\n", 0o755);
    write(dir.path(), "new", b"\0\x01", 0o644);
    write(dir.path(), "release.yaml", b"applier: script\nmanifest: apply\n", 0o755);
    fs::remove_file(dir.path().join("data/empty")).unwrap();
    let after = ReleaseSource::Directory(ReleaseTree::read(dir.path()).unwrap());
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
