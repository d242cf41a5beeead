//! Damaged backup files are refused.

use std::io::{Read, Write};

use muster_server::backup::{ReadError, verify};

use crate::stores::Place;

async fn backup() -> Vec<u8> {
    let place = Place::embedded().await;
    place.found(20).await;
    place.backup().await
}

/// The uncompressed archive of a backup.
fn unpacked(backup: &[u8]) -> Vec<u8> {
    let mut tar = Vec::new();
    zstd::Decoder::new(backup).unwrap().read_to_end(&mut tar).unwrap();
    tar
}

fn packed(tar: &[u8]) -> Vec<u8> {
    let mut zstd = zstd::Encoder::new(Vec::new(), 1).unwrap();
    zstd.write_all(tar).unwrap();
    zstd.finish().unwrap()
}

#[tokio::test]
async fn a_file_that_was_cut_off_anywhere_is_refused() {
    let whole = backup().await;
    verify(&whole[..]).unwrap();
    for length in (0..whole.len()).step_by(7) {
        let error = verify(&whole[..length]).unwrap_err();
        assert!(matches!(error, ReadError::Truncated | ReadError::Foreign(_)), "{length}: {error:?}");
    }
    // Cut between blocks of the archive: only the missing ending shows it.
    let tar = unpacked(&whole);
    for length in (0..tar.len() - 3 * 512).step_by(512) {
        let error = verify(&packed(&tar[..length])[..]).unwrap_err();
        assert!(matches!(error, ReadError::Truncated | ReadError::Foreign(_)), "{length}: {error:?}");
    }
}

#[tokio::test]
async fn a_byte_that_was_flipped_anywhere_is_noticed() {
    let whole = backup().await;
    let original = verify(&whole[..]).unwrap();
    for at in (0..whole.len()).step_by(11) {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x10;
        // A flipped byte in padding or in the compression header changes no saved data.
        if let Ok(contents) = verify(&flipped[..]) {
            assert_eq!(contents.ending, original.ending, "a flipped byte at {at}");
            assert_eq!(contents.manifest, original.manifest, "a flipped byte at {at}");
        }
    }
    // Flipped before compression, to pass the checksum of the compression.
    let tar = unpacked(&whole);
    let last = tar.len() - 1024;
    for at in (0..last).step_by(101) {
        let mut flipped = tar.clone();
        flipped[at] ^= 0x01;
        let is_padding = tar[at] == 0;
        assert!(is_padding || verify(&packed(&flipped)[..]).is_err(), "a flipped byte at {at} was not noticed");
    }
}

#[tokio::test]
async fn what_is_of_another_form_is_told_apart() {
    let tar = unpacked(&backup().await);
    let text = String::from_utf8_lossy(&tar);
    let at = text.find("\"format\": 1").unwrap() + "\"format\": ".len();
    let mut newer = tar.clone();
    newer[at] = b'7';
    let error = verify(&packed(&newer)[..]).unwrap_err();
    let expected = "the backup has format 7, and this version of Muster reads format 1: use a newer one";
    assert_eq!(error.to_string(), expected);
    for foreign in [&b""[..], b"PK\x03\x04", b"hello", &packed(b"hello"), &packed(&[0; 2048])] {
        let error = verify(foreign).unwrap_err();
        assert!(matches!(error, ReadError::Foreign(_)), "{error:?}");
    }
}

#[tokio::test]
async fn an_archive_that_somebody_made_up_is_refused() {
    let tar = unpacked(&backup().await);
    // An archive that is appended to itself, and a key that no backup holds.
    let doubled = [&tar[..tar.len() - 1024], &tar[..]].concat();
    assert!(matches!(verify(&packed(&doubled)[..]), Err(ReadError::Damaged { .. })));
    let text = String::from_utf8_lossy(&tar);
    let at = text.find("releases/v1").unwrap();
    let mut evil = tar.clone();
    evil[at..at + 11].copy_from_slice(b"replicas/v1");
    let error = verify(&packed(&evil)[..]).unwrap_err();
    assert!(error.to_string().contains("is not a key that a backup holds"), "{error}");
}
