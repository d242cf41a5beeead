//! Deltas between two releases: unchanged files are linked, and the result is verified as after unpacking a bundle.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use muster_core::release::manifest::Manifest;
use muster_release::bundle::{UnpackError, pack_into, unpack};
use muster_release::contents::bundle_contents;
use muster_release::delta::{DeltaInfo, UnpackDeltaError, pack_delta, unpack_delta};
use muster_release::manifest::create;
use muster_release::tree::ReleaseTree;
use tar::EntryType;

use crate::support::{bundle_by_hand, header, label, small_release, write};

/// Two releases, the first one unpacked, and the delta between them.
struct Fixture {
    dir: tempfile::TempDir,
    manifest: Manifest,
    packed: DeltaInfo,
}

impl Fixture {
    fn new(change: impl FnOnce(&Path)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        small_release(&source);
        let (before, first) = pack(&source, dir.path());
        unpack(&before, &first, &dir.path().join("base")).unwrap();
        change(&source);
        let (after, manifest) = pack(&source, dir.path());
        let open = |path: &PathBuf| File::open(path).unwrap();
        let (base, target) = (bundle_contents(open(&before)).unwrap(), bundle_contents(open(&after)).unwrap());
        let delta = File::create_new(dir.path().join("delta")).unwrap();
        let packed = pack_delta(&base, &target, open(&after), delta).unwrap();
        Self { dir, manifest, packed }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn unpack(&self, delta: &Path) -> Result<DeltaInfo, UnpackDeltaError> {
        let target = self.path("target");
        let unpacked = unpack_delta(delta, &self.path("base"), &self.manifest, &target);
        assert_eq!(target.exists(), unpacked.is_ok(), "a failure leaves nothing");
        unpacked
    }
}

fn pack(source: &Path, dir: &Path) -> (PathBuf, Manifest) {
    let (bundle, info) = pack_into(&ReleaseTree::read(source).unwrap(), dir).unwrap();
    (bundle, create(label("v1"), &info))
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

#[test]
fn unchanged_and_moved_files_are_links() {
    let fixture = Fixture::new(|source| {
        write(source, "apply", b"#!/bin/sh\nexit 2\n", 0o755);
        write(source, "files/new", b"new\n", 0o644);
        fs::create_dir(source.join("moved")).unwrap();
        fs::rename(source.join("release.yaml"), source.join("moved/release.yaml")).unwrap();
        write(source, "unchanged", b"a file with the name of the list\n", 0o644);
    });
    let unpacked = fixture.unpack(&fixture.path("delta")).unwrap();
    assert_eq!(unpacked, DeltaInfo { unchanged: 3, changed: 3, changed_size: 54 });
    assert_eq!(unpacked, fixture.packed);
    let (base, target) = (fixture.path("base"), fixture.path("target"));
    let long = format!("data/{}/{}.yaml", "d".repeat(90), "f".repeat(90));
    for (before, after) in [("release.yaml", "moved/release.yaml"), (&long, &long), ("data/empty", "data/empty")] {
        assert_eq!(inode(&base.join(before)), inode(&target.join(after)), "{after}");
    }
    assert_eq!(fs::read(target.join("apply")).unwrap(), b"#!/bin/sh\nexit 2\n");
    assert_ne!(inode(&base.join("apply")), inode(&target.join("apply")));
    assert!(!target.join("release.yaml").exists());
}

#[test]
fn file_that_becomes_executable_is_changed() {
    let fixture = Fixture::new(|source| write(source, "release.yaml", b"applier: script\nmanifest: apply\n", 0o755));
    assert_eq!(fixture.unpack(&fixture.path("delta")).unwrap().changed, 1);
    assert_eq!(fs::metadata(fixture.path("base/release.yaml")).unwrap().mode() & 0o777, 0o644);
}

#[test]
fn damaged_base_is_noticed() {
    let fixture = Fixture::new(|source| write(source, "files/new", b"new\n", 0o644));
    fs::write(fixture.path("base/apply"), "#!/bin/sh\nrm -rf important\n").unwrap();
    let error = fixture.unpack(&fixture.path("delta")).unwrap_err();
    assert!(matches!(error, UnpackDeltaError::Unpack(UnpackError::Content { .. })), "{error:?}");
    fs::remove_file(fixture.path("base/apply")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", fixture.path("base/apply")).unwrap();
    let error = fixture.unpack(&fixture.path("delta")).unwrap_err();
    assert!(matches!(error, UnpackDeltaError::Base { .. }), "{error:?}");
    fs::remove_file(fixture.path("base/apply")).unwrap();
    assert!(matches!(fixture.unpack(&fixture.path("delta")).unwrap_err(), UnpackDeltaError::Base { .. }));
}

#[test]
fn invalid_deltas_are_refused() {
    let fixture = Fixture::new(|_| {});
    let secret = fixture.path("secret");
    fs::write(&secret, "secret").unwrap();
    let with_list = |list: &[u8]| {
        let delta = bundle_by_hand(fixture.dir.path(), |tar| {
            tar.append(&header(b"unchanged", EntryType::Regular, list.len() as u64), list).unwrap();
        });
        fixture.unpack(&delta).unwrap_err().to_string()
    };
    let list = "the list of unchanged files of the delta is not valid: ";
    assert_eq!(with_list(b"x\t../secret\n"), format!("{list}\"x\\t../secret\" leads out of the release"));
    assert_eq!(with_list(b"../x\tapply\n"), format!("{list}\"../x\\tapply\" leads out of the release"));
    assert_eq!(with_list(b"/etc/x\tapply\n"), format!("{list}\"/etc/x\\tapply\" is absolute"));
    assert!(with_list(b"x\tapply\nx\tapply\n").starts_with("cannot take "), "the same path twice");
    assert!(with_list(b"\xff\n").starts_with(list));
    assert!(
        with_list(b"apply\n").starts_with("the unpacked files are not those that were signed"),
        "files are missing"
    );
    let unknown = bundle_by_hand(fixture.dir.path(), |tar| {
        tar.append(&header(b"else", EntryType::Regular, 0), &b""[..]).unwrap();
    });
    assert_eq!(fixture.unpack(&unknown).unwrap_err().to_string(), "the delta has the unknown entry \"else\"");
    fs::write(fixture.path("delta"), "not a delta").unwrap();
    fixture.unpack(&fixture.path("delta")).unwrap_err();
    assert_eq!(fs::read(&secret).unwrap(), b"secret");
}
