//! Blobs on a real directory: sweeps, ownership, damage, uploads and compression.

use std::path::PathBuf;
use std::time::Duration;

use super::directory::{STORE, YOUNG};
use super::*;

fn open(dir: &Path, replica: &str) -> Blobs {
    Blobs::open(dir, ReplicaId::new(replica).unwrap()).unwrap()
}

fn path(dir: &Path, digest: &str) -> PathBuf {
    dir.join(&digest[..2]).join(&digest[2..])
}

#[test]
fn sweep_removes_old_blobs_that_are_not_needed() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = open(dir.path(), "one-1");
    let (needed, orphan) = (blobs.put(b"needed").unwrap(), blobs.put(b"orphan").unwrap());
    let unfinished = dir.path().join("other-2-7.unfinished");
    std::fs::write(&unfinished, b"ha").unwrap();
    let mark = dir.path().join(".replicas").join("other-2");
    std::fs::create_dir(dir.path().join(".replicas")).unwrap();
    std::fs::write(&mark, b"nonce").unwrap();
    let unpacked = dir.path().join(".unpacked-x");
    std::fs::create_dir(&unpacked).unwrap();
    std::fs::write(unpacked.join("bundle"), b"half").unwrap();
    let written = |path: &Path| std::fs::metadata(path).unwrap().modified().unwrap();
    let last = written(&path(dir.path(), &orphan)).max(written(&unfinished)).max(written(&unpacked));

    assert_eq!(blobs.sweep(last, |_| false).unwrap(), 0, "another replica may have written it just now");
    assert!(unfinished.exists() && unpacked.exists());
    let late = last + YOUNG + Duration::from_secs(1);
    assert_eq!(blobs.sweep(late, |digest| digest == needed).unwrap(), 1);
    assert_eq!((blobs.get(&needed).is_some(), blobs.get(&orphan).is_some()), (true, false));
    assert_eq!((unfinished.exists(), unpacked.exists(), mark.exists()), (false, false, true));
}

#[test]
fn renewed_blob_survives_a_sweep() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = open(dir.path(), "one-1");
    let digest = blobs.put(b"a bundle").unwrap();
    let file = std::fs::File::options().append(true).open(path(dir.path(), &digest)).unwrap();
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    file.set_modified(long_ago).unwrap();
    assert!(blobs.renew(&digest).unwrap());
    let renewed = file.metadata().unwrap().modified().unwrap();
    assert_eq!(blobs.sweep(renewed, |_| false).unwrap(), 0);
    assert!(!blobs.renew(&Blobs::digest(b"nothing")).unwrap());
    assert!(!blobs.renew("../x").unwrap());
    assert_eq!(blobs.get(&digest).as_deref(), Some(&b"a bundle"[..]));
}

#[test]
fn directory_belongs_to_its_first_store() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = open(dir.path(), "one-1");
    assert!(blobs.belong_to("embedded:/state/store").unwrap());
    assert!(!blobs.belong_to("etcd://127.0.0.1:2379").unwrap());
    assert!(open(dir.path(), "two-2").belong_to("embedded:/state/store").unwrap());
    for half in ["", "embedded:/st"] {
        std::fs::write(dir.path().join(STORE), half).unwrap();
        assert!(blobs.belong_to("embedded:/state/store").unwrap(), "whoever wrote {half:?} was killed");
        assert!(!blobs.belong_to("etcd://127.0.0.1:2379").unwrap());
    }
}

#[test]
fn damaged_blob_counts_as_missing() {
    let dir = tempfile::tempdir().unwrap();
    let digest = open(dir.path(), "one-1").put(b"a log").unwrap();
    let blobs = open(dir.path(), "other-2");
    assert_eq!(blobs.put(b"a log").unwrap(), digest);
    assert_eq!(blobs.get(&digest).as_deref(), Some(&b"a log"[..]));
    std::fs::write(path(dir.path(), &digest), b"another").unwrap();
    assert_eq!(blobs.get(&digest), None);
    assert_eq!(blobs.put(b"a log").unwrap(), digest);
    assert_eq!(blobs.get(&digest).as_deref(), Some(&b"a log"[..]), "what a killed server left is replaced");
    blobs.remove(&digest);
    blobs.remove(&digest);
    assert_eq!(blobs.get(&digest), None);
    assert_eq!(blobs.get("../../etc/passwd"), None);
}

#[test]
fn upload_is_stored_only_if_its_digest_matches() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = open(dir.path(), "one-1");
    let bytes = vec![7; 300_000];
    let digest = Blobs::digest(&bytes);
    let files = || walk(dir.path());

    let mut cut_off = blobs.receive(1 << 20).unwrap();
    cut_off.take(&bytes[..1000]).unwrap();
    assert_eq!(files(), 1);
    drop(cut_off);
    assert_eq!(files(), 0, "what did not arrive whole leaves nothing behind");

    let mut flipped = bytes.clone();
    flipped[150_000] ^= 1;
    let refused = blobs.keep_all(&digest, 1 << 20, flipped.as_slice()).unwrap_err();
    assert!(matches!(refused, ReceiveError::Another { size: 300_000, .. }), "{refused}");
    let refused = blobs.keep_all(&digest, 299_999, bytes.as_slice()).unwrap_err();
    assert!(matches!(refused, ReceiveError::TooLarge { limit: 299_999 }), "{refused}");
    assert_eq!(files(), 0);

    for _ in 0..2 {
        assert_eq!(blobs.keep_all(&digest, 300_000, bytes.as_slice()).unwrap(), 300_000);
    }
    assert_eq!(files(), 1);
    let stored = blobs.stored(&digest).unwrap().unwrap();
    let mut middle = [0; 10];
    assert_eq!((stored.size(), stored.read_at(&mut middle, 299_995).unwrap()), (300_000, 5));
    assert!(blobs.stored(&Blobs::digest(b"nothing")).unwrap().is_none());
    assert!(blobs.stored("../../etc/passwd").unwrap().is_none());
}

fn walk(dir: &Path) -> usize {
    let count = |entry: std::fs::DirEntry| if entry.path().is_dir() { walk(&entry.path()) } else { 1 };
    std::fs::read_dir(dir).unwrap().map(|entry| count(entry.unwrap())).sum()
}

#[test]
fn report_is_compressed_and_reads_back_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = open(dir.path(), "one-1");
    let report = "the same line again and again\n".repeat(1000).into_bytes();
    let digest = Blobs::digest(&report);
    blobs.keep_report(&digest, &report).unwrap();
    assert!(blobs.stored(&digest).unwrap().unwrap().size() < 1000);
    assert_eq!(blobs.get(&digest).as_deref(), Some(&report[..]));
    // Blobs from before compression, or from a backup, are read in the same way.
    blobs.keep(&digest, &report).unwrap();
    assert_eq!(blobs.stored(&digest).unwrap().unwrap().size(), report.len() as u64);
    assert_eq!(blobs.get(&digest).as_deref(), Some(&report[..]));
    // A compressed blob of other content does not match the digest.
    let other = Blobs::digest(b"other");
    blobs.keep(&other, &zstd::bulk::compress(&report, 1).unwrap()).unwrap();
    assert_eq!(blobs.get(&other), None);
}

#[test]
fn unreadable_blob_is_an_error_not_missing() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = open(dir.path(), "one-1");
    let digest = blobs.put(b"a plan").unwrap();
    assert_eq!(blobs.find(&Blobs::digest(b"nothing")).unwrap(), None);
    let place = path(dir.path(), &digest);
    std::fs::remove_file(&place).unwrap();
    std::fs::create_dir(&place).unwrap();
    assert!(blobs.find(&digest).is_err());
    std::fs::remove_dir(&place).unwrap();
    assert_eq!(blobs.find(&digest).unwrap(), None);
}
