//! Damaged backup files are refused, and interrupted restores are completed by the same file.

use std::io::{Read, Write};

use muster_core::keys::Keys;
use muster_core::txn::{Guard, Op, Txn};
use muster_server::backup::{BackupError, BackupReadError, RestoreError, read_environment, verify};

use crate::stores::{BackupFixture, CrashingStore, env, now};

async fn backup() -> Vec<u8> {
    let fixture = BackupFixture::embedded().await;
    fixture.found(20).await;
    fixture.backup().await
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
async fn truncated_backup_is_refused() {
    let complete = backup().await;
    verify(&complete[..]).unwrap();
    for length in (0..complete.len()).step_by(7) {
        let error = verify(&complete[..length]).unwrap_err();
        assert!(matches!(error, BackupReadError::Truncated | BackupReadError::Foreign(_)), "{length}: {error:?}");
    }
    // Cut between blocks of the archive: only the missing ending shows it.
    let tar = unpacked(&complete);
    for length in (0..tar.len() - 3 * 512).step_by(512) {
        let error = verify(&packed(&tar[..length])[..]).unwrap_err();
        assert!(matches!(error, BackupReadError::Truncated | BackupReadError::Foreign(_)), "{length}: {error:?}");
    }
}

#[tokio::test]
async fn flipped_byte_is_detected() {
    let complete = backup().await;
    let original = verify(&complete[..]).unwrap();
    for at in (0..complete.len()).step_by(11) {
        let mut flipped = complete.clone();
        flipped[at] ^= 0x10;
        // A flipped byte in padding or in the compression header changes no saved data.
        if let Ok(contents) = verify(&flipped[..]) {
            assert_eq!(contents.ending, original.ending, "a flipped byte at {at}");
            assert_eq!(contents.manifest, original.manifest, "a flipped byte at {at}");
        }
    }
    // Flipped before compression, to pass the checksum of the compression.
    let tar = unpacked(&complete);
    let last = tar.len() - 1024;
    for at in (0..last).step_by(101) {
        let mut flipped = tar.clone();
        flipped[at] ^= 0x01;
        let is_padding = tar[at] == 0;
        assert!(is_padding || verify(&packed(&flipped)[..]).is_err(), "a flipped byte at {at} was not noticed");
    }
}

#[tokio::test]
async fn newer_and_foreign_formats_are_distinguished() {
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
        assert!(matches!(error, BackupReadError::Foreign(_)), "{error:?}");
    }
}

#[tokio::test]
async fn forged_archive_is_refused() {
    let tar = unpacked(&backup().await);
    // An archive that is appended to itself, and a key that no backup holds.
    let doubled = [&tar[..tar.len() - 1024], &tar[..]].concat();
    assert!(matches!(verify(&packed(&doubled)[..]), Err(BackupReadError::Damaged { .. })));
    let text = String::from_utf8_lossy(&tar);
    let at = text.find("releases/v1").unwrap();
    let mut evil = tar.clone();
    evil[at..at + 11].copy_from_slice(b"replicas/v1");
    let error = verify(&packed(&evil)[..]).unwrap_err();
    assert!(error.to_string().contains("is not a key that a backup holds"), "{error}");
}

/// A store that already holds another state of the environment.
async fn in_the_way() -> BackupFixture {
    let fixture = BackupFixture::embedded().await;
    fixture.found(70).await;
    fixture.put("current_version", "v2").await;
    fixture.put("status/configured/failure/v2/web1", "{}").await;
    fixture
}

#[tokio::test]
async fn killed_restore_is_completed_by_the_same_file() {
    let origin = BackupFixture::embedded().await;
    origin.found(60).await;
    let (backup, expected) = (origin.backup().await, origin.keys().await);
    let mut cut_off = 0;
    for (transactions, carries_out) in (0..10).flat_map(|count| [(count, false), (count, true)]) {
        let fixture = in_the_way().await;
        let before = fixture.keys().await;
        match CrashingStore::after(&fixture, transactions, carries_out).restore(&backup, true).await {
            Ok(_) => {
                assert_eq!(fixture.keys().await, expected);
                continue;
            }
            Err(RestoreError::Store(_)) => cut_off += 1,
            Err(other) => panic!("{other:?}"),
        }
        let marked = fixture.store.get(&Keys::new(&env()).restoring()).await.unwrap().is_some();
        let keys = fixture.keys().await;
        assert!(marked || keys == before || keys == expected, "half restored, and no mark after {transactions}");
        if marked {
            let taken = read_environment(fixture.store.as_ref(), &env(), now()).await;
            assert!(matches!(taken, Err(BackupError::Restoring { .. })), "half of it is no backup");
        }
        // With the mark of an interrupted restore, no permission to replace is needed.
        let restored = fixture.restore(&backup, !marked).await.unwrap();
        assert_eq!(restored.resumed, marked);
        assert_eq!(fixture.keys().await, expected, "after {transactions}");
        assert!(fixture.store.get(&Keys::new(&env()).restoring()).await.unwrap().is_none());
    }
    assert!(cut_off >= 10, "only {cut_off} of them were cut off: the restore has become one of few transactions");
}

#[tokio::test]
async fn report_from_before_a_restore_is_refused() {
    let origin = BackupFixture::embedded().await;
    origin.found(60).await;
    let (backup, expected) = (origin.backup().await, origin.keys().await);
    for transactions in 0..10 {
        let fixture = in_the_way().await;
        let prefix = Keys::new(&env()).prefix().to_owned();
        let key = |name: &str| format!("{prefix}{name}");
        let at = async |name: &str| fixture.store.get(&key(name)).await.unwrap().unwrap().revision;
        // The transaction of a report, with guards that a server read before the restore began.
        let report = Txn::new()
            .guard(Guard::Unchanged { key: key("nodes/web2"), since: at("nodes/web2").await })
            .guard(Guard::Unchanged { key: key("observed/web2"), since: at("observed/web2").await })
            .op(Op::delete(key("status/validated/success/v1/web2")))
            .op(Op::put(key("status/configured/failure/v2/web2"), "{}"))
            .op(Op::put(key("observed/web2"), r#"{"incarnation":1,"seq":3}"#));
        CrashingStore::not(&fixture, transactions, report).restore(&backup, true).await.unwrap();
        assert_eq!(fixture.keys().await, expected, "it came before transaction {transactions}");
    }
}

#[tokio::test]
async fn other_backup_does_not_complete_an_interrupted_restore() {
    let (one, other) = (BackupFixture::embedded().await, BackupFixture::embedded().await);
    one.found(40).await;
    other.found(50).await;
    let fixture = BackupFixture::embedded().await;
    CrashingStore::after(&fixture, 2, false).restore(&one.backup().await, false).await.unwrap_err();
    let refused = fixture.restore(&other.backup().await, false).await.unwrap_err();
    let expected = "environment prod is being restored from another backup since 2027-01-15T08:00:00Z, by a test";
    assert_eq!(refused.to_string(), expected);
    fixture.restore(&other.backup().await, true).await.unwrap();
    assert_eq!(fixture.keys().await, other.keys().await);
}

#[tokio::test]
async fn concurrent_restores_leave_a_complete_environment() {
    let origin = BackupFixture::embedded().await;
    origin.found(60).await;
    let backup = origin.backup().await;
    let fixture = BackupFixture::embedded().await;
    let (first, second) = tokio::join!(fixture.restore(&backup, false), fixture.restore(&backup, true));
    let done = [&first, &second].iter().filter(|restored| restored.is_ok()).count();
    assert!(done >= 1, "{first:?} {second:?}");
    for failed in [first, second].into_iter().filter_map(Result::err) {
        assert!(matches!(failed, RestoreError::Overtaken { .. } | RestoreError::Refused(_)), "{failed:?}");
    }
    assert_eq!(fixture.keys().await, origin.keys().await);
}
