//! Packing is reproducible, and round-trips.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::symlink;
use std::time::{Duration, SystemTime};

use muster_core::release::dir;
use muster_core::release::manifest::{Digest, Manifest};
use muster_release::bundle::{file_name, pack, pack_into, unpack};
use muster_release::check_bundle;
use muster_release::tree::{ReleaseTree, ReleaseTreeError};

use crate::support::{bundle_by_hand, header, label, manifest_of, small_release, write};

#[test]
fn bundle_ignores_location_modes_and_times() {
    let here = tempfile::tempdir().unwrap();
    small_release(here.path());
    let there = tempfile::tempdir().unwrap();
    let there = there.path().join("a/much/deeper/directory");
    let mut paths: Vec<_> = ReleaseTree::read(here.path()).unwrap().files().map(|(path, _)| path.to_owned()).collect();
    paths.reverse();
    for (number, path) in paths.iter().enumerate() {
        let mode = if path == "apply" { 0o700 } else { 0o600 };
        write(&there, path, &fs::read(here.path().join(path)).unwrap(), mode);
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 * number as u64);
        File::open(there.join(path)).unwrap().set_modified(then).unwrap();
    }
    write(&there, ".git/HEAD", b"ref: refs/heads/main\n", 0o644);
    fs::create_dir_all(there.join("an/empty/directory")).unwrap();

    let one = pack(&ReleaseTree::read(here.path()).unwrap(), io::sink()).unwrap();
    let other = pack(&ReleaseTree::read(&there).unwrap(), io::sink()).unwrap();

    assert_eq!(one, other);
    assert_eq!(one.content.as_str(), dir::digest(here.path()).unwrap());
}

/// A failure means that the bundle format has changed: every release gets another digest in the next build.
#[test]
fn bundle_format_is_stable() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "release.yaml", b"applier: script\nmanifest: apply\n", 0o644);
    write(dir.path(), "apply", b"#!/bin/sh\nexit 0\n", 0o755);
    let packed = pack(&ReleaseTree::read(dir.path()).unwrap(), io::sink()).unwrap();
    assert_eq!(packed.content.as_str(), "sha256:2d6103bef40dc4826d98691c46094b357cf549b6de8236f147581414ae5b645d");
    assert_eq!(packed.digest.as_str(), "sha256:5a11d195051cff8d975d65b1f79f36f765c3da0ebd025e5d76c47038321dbbbf");
}

/// The number of reads depends on the size of the bundle, and not on the number of its directories.
#[test]
fn bundle_is_checked_as_a_stream_of_few_reads() {
    struct CountedReads<'c>(&'c [u8], &'c Cell<usize>);
    impl Read for CountedReads<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1.set(self.1.get() + 1);
            self.0.read(buffer)
        }
    }
    let from = tempfile::tempdir().unwrap();
    small_release(from.path());
    for number in 0..300 {
        write(from.path(), &format!("modules/m{number}/file"), b"x", 0o644);
    }
    let mut bundle = Vec::new();
    let packed = pack(&ReleaseTree::read(from.path()).unwrap(), &mut bundle).unwrap();
    let manifest = muster_release::manifest::create(label("v1"), &packed);
    let reads = Cell::new(0);
    let check = |manifest: &Manifest| {
        check_bundle(|| CountedReads(&bundle, &reads), bundle.len() as u64, manifest).map_err(|error| error.to_string())
    };
    assert_eq!(check(&manifest).unwrap().executable(), "apply");
    assert!(reads.get() <= 2 * (bundle.len() / 8192 + 2), "{} reads of {} bytes", reads.get(), bundle.len());

    let other = Digest::new(format!("sha256:{}", "0".repeat(64))).unwrap();
    let refused = check(&Manifest { content: other.clone(), ..manifest.clone() }).unwrap_err();
    assert!(refused.starts_with("the unpacked files are not those that were signed"), "{refused}");
    let refused = check(&Manifest { digest: other, ..manifest.clone() }).unwrap_err();
    assert!(refused.starts_with("the bundle is not the one that was signed"), "{refused}");
    let refused = check(&Manifest { size: 1, ..manifest }).unwrap_err();
    assert!(refused.starts_with("the bundle has"), "{refused}");
}

#[test]
fn entries_out_of_order_are_refused_by_the_check() {
    let dir = tempfile::tempdir().unwrap();
    let bundle = bundle_by_hand(dir.path(), |tar| {
        for name in [&b"release.yaml"[..], b"apply"] {
            tar.append(&header(name, tar::EntryType::Regular, 0), io::empty()).unwrap();
        }
    });
    let manifest = manifest_of(&bundle);
    let refused = check_bundle(|| File::open(&bundle).unwrap(), manifest.size, &manifest).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "\"apply\" is not in the order of the paths: build the bundle with `muster release build`"
    );
}

#[test]
fn pack_and_unpack_round_trip() {
    let (from, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    small_release(from.path());
    let (bundle, packed) = pack_into(&ReleaseTree::read(from.path()).unwrap(), out.path()).unwrap();
    assert_eq!(bundle.file_name().unwrap().to_str().unwrap(), file_name(&packed.digest));
    let manifest = muster_release::manifest::create(label("v1"), &packed);
    let target = out.path().join("tree");

    unpack(&bundle, &manifest, &target).unwrap();

    assert_eq!(dir::digest(&target).unwrap(), dir::digest(from.path()).unwrap());
    assert_eq!(dir::list(&target).unwrap(), dir::list(from.path()).unwrap());
    assert!(unpack(&bundle, &manifest, &target).is_err(), "an existing directory is refused");
    assert!(target.exists(), "and kept");
}

#[test]
fn links_inside_the_release_are_followed() {
    let dir = tempfile::tempdir().unwrap();
    small_release(dir.path());
    write(dir.path(), "modules/web/files/motd", b"hello\n", 0o644);
    symlink("release.yaml", dir.path().join("again.yaml")).unwrap();
    symlink("../modules/web/files", dir.path().join("data/files")).unwrap();
    symlink("web", dir.path().join("modules/alias")).unwrap();

    let tree = ReleaseTree::read(dir.path()).unwrap();

    for path in ["again.yaml", "data/files/motd", "modules/alias/files/motd"] {
        assert!(tree.file(path).is_some(), "{path}: {:?}", tree.paths());
    }
    let (mut bundle, mut again) = (Vec::new(), Vec::new());
    assert_eq!(pack(&tree, &mut bundle).unwrap(), pack(&ReleaseTree::read(dir.path()).unwrap(), &mut again).unwrap());
    assert_eq!(bundle, again);
}

#[test]
fn links_out_of_the_release_and_loops_are_refused() {
    for (links, expected) in [
        (&[("etc", "/etc")][..], r#""etc" points to /etc, which is outside of the release"#),
        (&[("d/up", "../..")], r#""d/up" points to ../.., which is outside of the release"#),
        (&[("gone", "nothing")], r#""gone" points to nothing, which does not exist"#),
        (&[("self", "self")], r#""self" points to self, which is a loop of links"#),
        (&[("d/loop", "..")], r#""d/loop" points to .., which contains the link itself"#),
        (&[("a/x", "../b"), ("b/y", "../a")], ", which contains the link itself"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        for (link, target) in links {
            let link = dir.path().join(link);
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            symlink(target, link).unwrap();
        }
        let refused = ReleaseTree::read(dir.path()).unwrap_err().to_string();
        assert!(refused.contains(expected), "{expected:?} is not in: {refused}");
    }
}

#[test]
fn deep_paths_and_control_characters_are_refused() {
    let deep = tempfile::tempdir().unwrap();
    write(deep.path(), &["d"; 33].join("/"), b"", 0o644);
    assert!(matches!(
        ReleaseTree::read(deep.path()),
        Err(ReleaseTreeError::Path { problem: "has more than 32 parts", .. })
    ));
    let control = tempfile::tempdir().unwrap();
    write(control.path(), "a/b\u{1b}[2J", b"", 0o644);
    let refused = ReleaseTree::read(control.path()).unwrap_err().to_string();
    assert_eq!(refused, r#""a/b\u{1b}[2J" cannot be in a release: it contains a control character"#);
}

#[test]
fn tree_is_added_at_a_free_path() {
    let (base, more) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(base.path(), "modules/web/init.pp", b"", 0o644);
    write(base.path(), "file", b"", 0o644);
    write(more.path(), "manifests/init.pp", b"", 0o644);
    let more = ReleaseTree::read(more.path()).unwrap();
    let mut tree = ReleaseTree::read(base.path()).unwrap();
    tree.add("modules/nova", more.clone()).unwrap();
    assert!(tree.file("modules/nova/manifests/init.pp").is_some());
    for (directory, taken) in [("modules/web", "modules/web/init.pp"), ("file", "file"), ("file/deeper", "file")] {
        let refused = tree.clone().add(directory, more.clone());
        assert!(matches!(refused, Err(ReleaseTreeError::PathInUse { path }) if path == taken), "{directory}");
    }
}
