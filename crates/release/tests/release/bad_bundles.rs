//! Malicious and damaged bundles: each is refused, names the entry, and leaves no files.

use std::path::Path;
use std::{fs, io};

use muster_core::release::manifest::Manifest;
use muster_release::bundle::{OpenBundleError, UnpackError, pack_into, unpack};
use muster_release::entries::EntryError;
use muster_release::manifest::create;
use muster_release::tree::{ReleaseTree, SIZE_LIMIT};
use proptest::prelude::*;
use tar::EntryType;

use crate::support::{bundle_by_hand, header, label, manifest_of, small_release, write};

type Tar = tar::Builder<zstd::Encoder<'static, fs::File>>;

fn refused(entries: impl FnOnce(&mut Tar)) -> UnpackError {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let bundle = bundle_by_hand(dir.path(), entries);
    let error = unpack(&bundle, &manifest_of(&bundle), &inner.join("target")).unwrap_err();
    assert_eq!(fs::read_dir(&inner).unwrap().count(), 0, "files were left");
    let mut names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["bad.tar.zst", "inner"], "files were written outside of the target");
    error
}

fn entry_error(entries: impl FnOnce(&mut Tar)) -> EntryError {
    let error = refused(entries);
    let UnpackError::Entry(error) = error else { panic!("refused for another reason: {error:?}") };
    error
}

fn put(tar: &mut Tar, name: &[u8], kind: EntryType, content: &[u8]) {
    tar.append(&header(name, kind, content.len() as u64), content).unwrap();
}

#[test]
fn paths_outside_of_the_release_are_refused() {
    for (name, problem) in [
        (&b"../evil"[..], "leads out of the release"),
        (b"modules/../../evil", "leads out of the release"),
        (b"/etc/cron.d/evil", "is absolute"),
        (b"./evil", "is not written in its shortest form"),
        (b"a//evil", "is not written in its shortest form"),
        (b"", "is empty"),
    ] {
        for kind in [EntryType::Regular, EntryType::Directory] {
            let error = entry_error(|tar| put(tar, name, kind, b""));
            let shown = String::from_utf8(name.to_vec()).unwrap();
            assert_eq!(error.to_string(), format!("the path {shown:?} {problem}"));
        }
    }
    let long = [b'x'; 600];
    let error = entry_error(|tar| {
        tar.append(&header(b"././@LongLink", EntryType::GNULongName, 600), &long[..]).unwrap();
        put(tar, b"short", EntryType::Regular, b"");
    });
    assert!(error.to_string().ends_with("is longer than 512 bytes"), "{error}");
    let out = b"modules/../../evil\0";
    let error = entry_error(|tar| {
        tar.append(&header(b"././@LongLink", EntryType::GNULongName, out.len() as u64), &out[..]).unwrap();
        put(tar, b"harmless", EntryType::Regular, b"");
    });
    assert_eq!(error.to_string(), "the path \"modules/../../evil\" leads out of the release");
}

#[test]
fn special_files_are_refused() {
    for (kind, what) in [
        (EntryType::Symlink, "a link"),
        (EntryType::Link, "a link"),
        (EntryType::Char, "a device"),
        (EntryType::Block, "a device"),
        (EntryType::Fifo, "a named pipe"),
        (EntryType::GNUSparse, "a special kind of file"),
        (EntryType::XHeader, "an extended header"),
        (EntryType::XGlobalHeader, "an extended header"),
        (EntryType::GNULongLink, "an extended header"),
        (EntryType::new(b'Z'), "of an unknown kind"),
    ] {
        let error = entry_error(|tar| {
            let mut header = header(b"thing", kind, 0);
            if kind == EntryType::Symlink {
                header.set_link_name("/etc/passwd").unwrap();
                header.set_cksum();
            }
            tar.append(&header, io::empty()).unwrap();
        });
        let expected = format!("\"thing\" is {what}: a release contains files and directories only");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn duplicate_paths_are_refused() {
    let twice = entry_error(|tar| {
        put(tar, b"a", EntryType::Regular, b"1");
        put(tar, b"a", EntryType::Regular, b"2");
    });
    assert!(matches!(twice, EntryError::Duplicate { entry } if entry == "a"));
    let over = entry_error(|tar| {
        put(tar, b"a/b", EntryType::Regular, b"1");
        put(tar, b"a", EntryType::Regular, b"2");
    });
    assert!(matches!(over, EntryError::Duplicate { entry } if entry == "a"));
    let through = entry_error(|tar| {
        put(tar, b"a", EntryType::Regular, b"1");
        put(tar, b"a/b", EntryType::Regular, b"2");
    });
    assert!(matches!(through, EntryError::ThroughFile { entry, file } if entry == "a/b" && file == "a"));
}

#[test]
fn invalid_names_are_refused() {
    let error = entry_error(|tar| put(tar, b"caf\xe9", EntryType::Regular, b""));
    assert!(matches!(error, EntryError::NotUtf8 { .. }), "{error}");
    for name in [&b"a\x1b[2J"[..], b"a\nb", b"tab\t", "c1\u{9b}".as_bytes()] {
        let error = entry_error(|tar| put(tar, name, EntryType::Regular, b""));
        assert!(error.to_string().ends_with("contains a control character"), "{error}");
        assert!(!error.to_string().chars().any(char::is_control), "{error}");
    }
    let error = entry_error(|tar| put(tar, ["d"; 33].join("/").as_bytes(), EntryType::Regular, b""));
    assert!(error.to_string().ends_with("has more than 32 parts"), "{error}");
}

/// A header of 10 GiB is refused without reading the content.
#[test]
fn large_file_is_refused_by_its_header() {
    let huge = 10 * 1024 * 1024 * 1024;
    let error = entry_error(|tar| tar.append(&header(b"zeros", EntryType::Regular, huge), io::empty()).unwrap());
    assert!(matches!(error, EntryError::TooLarge { entry } if entry == "zeros"));
}

/// Each header is refused before its content: there is none in these bundles.
#[test]
fn content_of_other_entries_is_refused_by_their_header() {
    for size in [1, 200 * 1024 * 1024, u64::MAX / 4] {
        let error = entry_error(|tar| tar.append(&header(b"d/", EntryType::Directory, size), io::empty()).unwrap());
        let expected = format!("the directory \"d/\" declares {size} bytes of content: directories have none");
        assert_eq!(error.to_string(), expected);
        for kind in [EntryType::Symlink, EntryType::Fifo, EntryType::XHeader, EntryType::GNUSparse] {
            let error = entry_error(|tar| tar.append(&header(b"thing", kind, size), io::empty()).unwrap());
            assert!(matches!(error, EntryError::NotAFile { .. }), "{error:?}");
        }
    }
}

/// A directory entry with 2 GiB of zeros in a bundle of less than 1 MiB. Its content is not decompressed: the frame with the
/// content is damaged, which reading it would show.
#[test]
fn content_of_a_directory_is_not_decompressed() {
    let mut bomb = zstd::encode_all(header(b"d/", EntryType::Directory, 2 << 30).as_bytes().as_slice(), 1).unwrap();
    bomb.extend(b"no frame of zstd");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bomb.tar.zst");
    fs::write(&path, bomb).unwrap();
    let error = unpack(&path, &manifest_of(&path), &dir.path().join("target")).unwrap_err();
    assert!(matches!(error, UnpackError::Entry(EntryError::DirectoryWithContent { .. })), "{error:?}");
}

#[test]
fn entry_larger_than_the_manifest_declares_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let bundle = bundle_by_hand(dir.path(), |tar| {
        put(tar, b"a", EntryType::Regular, b"1");
        tar.append(&header(b"b", EntryType::Regular, 100_000), io::empty()).unwrap();
    });
    let refused = |content_size| {
        let manifest = Manifest { content_size, ..manifest_of(&bundle) };
        let error = unpack(&bundle, &manifest, &dir.path().join("target")).unwrap_err();
        let UnpackError::Entry(error) = error else { panic!("refused for another reason: {error:?}") };
        error
    };
    let error = refused(Some(100_000));
    assert!(
        matches!(error, EntryError::MoreThanDeclared { ref entry, declared: 100_000 } if entry == "b"),
        "{error:?}"
    );
    // Without a declared size, the entry is refused where the bundle ends.
    for content_size in [None, Some(100_001)] {
        let error = refused(content_size);
        assert!(matches!(error, EntryError::Truncated { .. } | EntryError::Damaged(_)), "{error:?}");
    }
}

/// 10 GiB of zeros in files below the limit, in a bundle of less than 2 MiB. Unpacking stops at the file that exceeds the
/// total limit, with constant memory.
#[test]
fn zip_bomb_is_stopped_without_memory() {
    let piece = SIZE_LIMIT / 4;
    let frame = |content: &mut dyn io::Read| {
        let mut zstd = zstd::Encoder::new(Vec::new(), 1).unwrap();
        io::copy(content, &mut zstd).unwrap();
        zstd.finish().unwrap()
    };
    let zeros = frame(&mut io::Read::take(io::repeat(0), piece));
    let mut bomb = Vec::new();
    for number in 0..160 {
        let header = header(format!("zeros{number}").as_bytes(), EntryType::Regular, piece);
        bomb.extend(frame(&mut &header.as_bytes()[..]));
        bomb.extend(&zeros);
    }
    assert!(bomb.len() < 2 * 1024 * 1024, "{} bytes", bomb.len());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bomb.tar.zst");
    fs::write(&path, bomb).unwrap();
    let before = peak_memory();
    let error = unpack(&path, &manifest_of(&path), &dir.path().join("target")).unwrap_err();
    assert!(matches!(error, UnpackError::Entry(EntryError::TooLarge { entry }) if entry == "zeros4"));
    let grown = peak_memory() - before;
    assert!(grown < 32 * 1024 * 1024, "unpacking took {grown} bytes of memory");
    assert!(!dir.path().join("target").exists());
}

/// Peak memory of this process, in bytes.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn endless_name_takes_no_memory() {
    let error = entry_error(|tar| {
        let long = 64 * 1024 * 1024;
        let name = io::Read::take(io::repeat(b'x'), long);
        tar.append(&header(b"././@LongLink", EntryType::GNULongName, long), name).unwrap();
    });
    assert!(error.to_string().ends_with("is longer than 512 bytes"), "{error}");
}

/// A frame with a large window is refused before the memory is allocated.
#[test]
fn large_compression_window_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("wide.tar.zst");
    let mut zstd = zstd::Encoder::new(fs::File::create(&path).unwrap(), 1).unwrap();
    zstd.window_log(27).unwrap();
    let mut tar = tar::Builder::new(zstd);
    // More than the window: the frame would have a smaller window otherwise.
    let size = 200 * 1024 * 1024;
    tar.append(&header(b"zeros", EntryType::Regular, size), io::Read::take(io::repeat(0), size)).unwrap();
    tar.into_inner().unwrap().finish().unwrap();
    let error = unpack(&path, &manifest_of(&path), &dir.path().join("target")).unwrap_err();
    assert!(matches!(error, UnpackError::Entry(EntryError::Damaged(_))), "{error:?}");
}

#[test]
fn truncated_bundle_is_refused() {
    let cut = entry_error(|tar| tar.append(&header(b"half", EntryType::Regular, 100_000), &b"only this"[..]).unwrap());
    assert!(matches!(cut, EntryError::Truncated { .. } | EntryError::Damaged(_)), "{cut:?}");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("no.tar.zst");
    fs::write(&path, "#!/bin/sh\n").unwrap();
    let error = unpack(&path, &manifest_of(&path), &dir.path().join("target")).unwrap_err();
    assert!(matches!(error, UnpackError::Entry(EntryError::Damaged(_))), "{error:?}");
}

#[test]
fn content_that_was_not_signed_is_refused() {
    let error = refused(|tar| put(tar, b"a", EntryType::Regular, b"1"));
    assert!(matches!(error, UnpackError::Content { .. }), "{error:?}");
    let dir = tempfile::tempdir().unwrap();
    let bundle = bundle_by_hand(dir.path(), |tar| put(tar, b"a", EntryType::Regular, b"1"));
    let manifest = manifest_of(&bundle);
    let missing = unpack(Path::new("/nonexistent"), &manifest, &dir.path().join("t")).unwrap_err();
    assert!(matches!(missing, UnpackError::Bundle(OpenBundleError::Read { .. })), "{missing:?}");
    fs::write(&bundle, [&fs::read(&bundle).unwrap()[..], b"more"].concat()).unwrap();
    let longer = unpack(&bundle, &manifest, &dir.path().join("t")).unwrap_err();
    assert!(matches!(longer, UnpackError::Bundle(OpenBundleError::Size { .. })), "{longer:?}");
}

#[test]
fn flipped_bit_is_found_before_unpacking() {
    let (from, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    small_release(from.path());
    // Data that does not compress, for a large bundle.
    let noise = std::iter::successors(Some(1u64), |n| Some(n ^ n << 13).map(|n| n ^ n >> 7).map(|n| n ^ n << 17));
    let noise: Vec<u8> = noise.map(|n| (n >> 32) as u8).take(200_000).collect();
    write(from.path(), "noise", &noise, 0o644);
    let (bundle, packed) = pack_into(&ReleaseTree::read(from.path()).unwrap(), out.path()).unwrap();
    let manifest = create(label("v1"), &packed);
    let bytes = fs::read(&bundle).unwrap();
    assert!(bytes.len() > 50_000, "{} bytes are too few for this test", bytes.len());
    let target = out.path().join("target");
    for place in (0..bytes.len()).step_by(1000) {
        let mut damaged = bytes.clone();
        damaged[place] ^= 1 << (place / 1000 % 8);
        fs::write(&bundle, &damaged).unwrap();
        let error = unpack(&bundle, &manifest, &target).unwrap_err();
        assert!(matches!(error, UnpackError::Bundle(OpenBundleError::Digest { .. })), "byte {place}: {error:?}");
        assert!(!target.exists());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// With a matching digest, such as after a disk error of the signer: no panic, no leftovers, and no other content.
    #[test]
    fn damaged_bundle_with_matching_digest_is_refused(place in any::<prop::sample::Index>(), bit in 0..8u8) {
        let (from, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        small_release(from.path());
        let (bundle, packed) = pack_into(&ReleaseTree::read(from.path()).unwrap(), out.path()).unwrap();
        let mut bytes = fs::read(&bundle).unwrap();
        let place = place.index(bytes.len());
        bytes[place] ^= 1 << bit;
        fs::write(&bundle, &bytes).unwrap();
        let mut manifest = manifest_of(&bundle);
        manifest.content = packed.content;
        let target = out.path().join("target");
        let accepted = unpack(&bundle, &manifest, &target).is_ok();
        prop_assert_eq!(accepted, target.exists());
    }

    /// Random bytes inside the tar, below the checksum of the compression.
    #[test]
    fn modified_tar_writes_nothing_outside(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let (from, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        small_release(from.path());
        let (bundle, packed) = pack_into(&ReleaseTree::read(from.path()).unwrap(), out.path()).unwrap();
        let mut tar = zstd::decode_all(fs::File::open(&bundle).unwrap()).unwrap();
        for (place, byte) in changes {
            let place = place.index(tar.len());
            tar[place] = byte;
            // With a valid checksum, as an attacker would write it.
            let at = place / 512 * 512;
            if tar.get(at + 257..at + 262) == Some(b"ustar") {
                let mut header = tar::Header::new_old();
                header.as_mut_bytes().copy_from_slice(&tar[at..at + 512]);
                header.set_cksum();
                tar[at..at + 512].copy_from_slice(header.as_bytes());
            }
        }
        fs::write(&bundle, zstd::encode_all(&tar[..], 1).unwrap()).unwrap();
        let mut manifest = manifest_of(&bundle);
        manifest.content = packed.content;
        let inner = out.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let accepted = unpack(&bundle, &manifest, &inner.join("target")).is_ok();
        prop_assert_eq!(fs::read_dir(&inner).unwrap().count(), usize::from(accepted));
        prop_assert_eq!(fs::read_dir(out.path()).unwrap().count(), 2, "files were written outside of the target");
    }
}
