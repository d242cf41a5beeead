//! Fixtures: releases, handmade bundles, and manifests.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use muster_core::names::Version;
use muster_core::release::manifest::{Digest, Manifest, ReleaseEnv};
use muster_release::bundle::digest_of;
use muster_release::manifest::ReleaseLabel;

pub(crate) fn write(root: &Path, path: &str, content: &[u8], mode: u32) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A valid release with a path that needs a GNU long name.
pub(crate) fn small_release(root: &Path) {
    write(root, "release.yaml", b"applier: script\nmanifest: apply\n", 0o644);
    write(root, "apply", b"#!/bin/sh\nexit 0\n", 0o755);
    write(root, &format!("data/{}/{}.yaml", "d".repeat(90), "f".repeat(90)), b"key: value\n", 0o644);
    write(root, "data/empty", b"", 0o644);
}

pub(crate) fn label(version: &str) -> ReleaseLabel {
    ReleaseLabel {
        version: Version::new(version).unwrap(),
        env: ReleaseEnv::Any,
        serial: 1,
        created: "2026-01-01T00:00:00Z".parse().unwrap(),
        expires: None,
        previous: None,
    }
}

/// A manifest with the digest of a bundle on disk, independent of its content.
pub(crate) fn manifest_of(bundle: &Path) -> Manifest {
    let (digest, size) = digest_of(fs::File::open(bundle).unwrap()).unwrap();
    let ReleaseLabel { version, env, serial, created, expires, previous } = label("v1");
    let content = Digest::new(format!("sha256:{}", "0".repeat(64))).unwrap();
    Manifest { format: 1, version, env, serial, digest, size, content, content_size: None, created, expires, previous }
}

/// A bundle with the given entries.
pub(crate) fn bundle_by_hand<W>(dir: &Path, entries: W) -> PathBuf
where
    W: FnOnce(&mut tar::Builder<zstd::Encoder<'static, fs::File>>),
{
    let path = dir.join("bad.tar.zst");
    let zstd = zstd::Encoder::new(fs::File::create(&path).unwrap(), 1).unwrap();
    let mut tar = tar::Builder::new(zstd);
    entries(&mut tar);
    tar.into_inner().unwrap().finish().unwrap().flush().unwrap();
    path
}

/// A header with a name that the tar library would refuse to write.
pub(crate) fn header(name: &[u8], kind: tar::EntryType, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(size);
    header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name);
    header.set_cksum();
    header
}
