//! Bundles with flipped bits are never accepted.

use std::fs;

use muster_release::manifest::create;
use muster_release::pack::pack_into;
use muster_release::tree::Tree;
use muster_release::unpack::{BundleError, UnpackError, unpack};
use proptest::prelude::*;

use crate::support::{label, manifest_of, small_release, write};

#[test]
fn flipped_bit_is_found_before_unpacking() {
    let (from, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    small_release(from.path());
    // Data that does not compress, for a large bundle.
    let noise = std::iter::successors(Some(1u64), |n| Some(n ^ n << 13).map(|n| n ^ n >> 7).map(|n| n ^ n << 17));
    let noise: Vec<u8> = noise.map(|n| (n >> 32) as u8).take(200_000).collect();
    write(from.path(), "noise", &noise, 0o644);
    let (bundle, packed) = pack_into(&Tree::read(from.path()).unwrap(), out.path()).unwrap();
    let manifest = create(label("v1"), &packed);
    let bytes = fs::read(&bundle).unwrap();
    assert!(bytes.len() > 50_000, "{} bytes are too few for this test", bytes.len());
    let target = out.path().join("target");
    for place in (0..bytes.len()).step_by(1000) {
        let mut damaged = bytes.clone();
        damaged[place] ^= 1 << (place / 1000 % 8);
        fs::write(&bundle, &damaged).unwrap();
        let error = unpack(&bundle, &manifest, &target).unwrap_err();
        assert!(matches!(error, UnpackError::Bundle(BundleError::Digest { .. })), "byte {place}: {error:?}");
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
        let (bundle, packed) = pack_into(&Tree::read(from.path()).unwrap(), out.path()).unwrap();
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
        let (bundle, packed) = pack_into(&Tree::read(from.path()).unwrap(), out.path()).unwrap();
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
