//! Packing is reproducible, and round-trips.

use std::fs::{self, File};
use std::io;
use std::time::{Duration, SystemTime};

use muster_core::release::dir;
use muster_release::bundle::{file_name, pack, pack_into, unpack};
use muster_release::tree::{ReleaseTree, ReleaseTreeError};

use crate::support::{label, small_release, write};

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
fn links_and_deep_paths_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("release.yaml", dir.path().join("link")).unwrap();
    assert!(
        matches!(ReleaseTree::read(dir.path()), Err(ReleaseTreeError::NotAFile { path }) if path.ends_with("link"))
    );
    let deep = tempfile::tempdir().unwrap();
    write(deep.path(), &["d"; 33].join("/"), b"", 0o644);
    assert!(matches!(
        ReleaseTree::read(deep.path()),
        Err(ReleaseTreeError::Path { problem: "has more than 32 parts", .. })
    ));
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
