//! The contract of a blob store: one suite for the directory and for S3.

use std::time::{Duration, SystemTime};

use muster_core::replica::{BlobsMark, ReplicaRecord};
use muster_s3_rig::{BUCKET, S3Server};

use super::directory::YOUNG;
use super::*;

/// A place of blobs that ends with the test.
trait Rig {
    fn new() -> Self;

    /// Opens the blobs for a replica.
    fn open(&self, replica: &str) -> Blobs;
}

impl Rig for tempfile::TempDir {
    fn new() -> Self {
        tempfile::tempdir().unwrap()
    }

    fn open(&self, replica: &str) -> Blobs {
        Blobs::open(self.path(), ReplicaId::new(replica).unwrap()).unwrap()
    }
}

struct Bucket {
    server: S3Server,
    local: tempfile::TempDir,
}

impl Rig for Bucket {
    fn new() -> Self {
        Self { server: S3Server::start().unwrap(), local: tempfile::tempdir().unwrap() }
    }

    fn open(&self, replica: &str) -> Blobs {
        let place = S3Place {
            bucket: BUCKET.to_owned(),
            prefix: "a/fleet".to_owned(),
            variables: self.server.variables(),
            local: self.local.path().to_owned(),
            timing: S3Timing::default(),
        };
        Blobs::open(BlobPlace::S3(place), ReplicaId::new(replica).unwrap()).unwrap()
    }
}

macro_rules! suite {
    ($($name:ident),* $(,)?) => {
        mod directory {
            $(#[test]
            fn $name() {
                super::$name(&<tempfile::TempDir as super::Rig>::new());
            })*
        }

        mod s3 {
            $(#[test]
            fn $name() {
                super::$name(&<super::Bucket as super::Rig>::new());
            })*
        }
    };
}

suite! {
    blobs_are_read_back_by_another_replica,
    upload_is_stored_only_if_its_digest_matches,
    report_is_compressed_and_reads_back_unchanged,
    damaged_blob_counts_as_missing,
    sweep_removes_old_blobs_that_are_not_needed,
    unregistered_uploads_count_until_registered_or_swept,
    blobs_belong_to_their_first_store,
    marks_are_matched_by_nonce_and_swept_when_stale,
}

/// A time at which everything that exists is old.
fn late() -> SystemTime {
    #[expect(clippy::disallowed_methods, reason = "compared with file times, which come from the machine's clock")]
    let now = SystemTime::now();
    now + 2 * YOUNG
}

fn blobs_are_read_back_by_another_replica(rig: &impl Rig) {
    let (one, other) = (rig.open("one-1"), rig.open("two-2"));
    let texts: Vec<Vec<u8>> = (0..100).map(|number| format!("file {number}").into_bytes()).collect();
    let digests: Vec<String> = texts.iter().map(|text| Blobs::digest(text)).collect();
    one.keep_durably(digests.iter().map(String::as_str).zip(texts.iter().map(Vec::as_slice))).unwrap();
    one.keep_durably([]).unwrap();
    assert_eq!(one.written(), (100, texts.iter().map(|text| text.len() as u64).sum()));

    let missing = Blobs::digest(b"nothing");
    let asked = [&digests[7], "../../etc/passwd", &missing, &digests[99]];
    let found: Vec<_> = other.find_all(&asked).into_iter().map(Result::unwrap).collect();
    assert_eq!(found, [Some(texts[7].clone()), None, None, Some(texts[99].clone())]);
    assert_eq!((other.size(&digests[7]).unwrap(), other.size(&missing).unwrap()), (Some(6), None));
    assert_eq!((other.is_intact(&digests[7]).unwrap(), other.is_intact(&missing).unwrap()), (true, false));
    assert_eq!((other.renew(&digests[7]).unwrap(), other.renew(&missing).unwrap()), (true, false));
    assert!(other.stored(&missing).unwrap().is_none() && !other.renew("../x").unwrap());
    assert!(other.check_writable().is_ok());
    other.remove(&digests[7]);
    other.remove(&digests[7]);
    assert_eq!(one.find(&digests[7]).unwrap(), None);
}

fn upload_is_stored_only_if_its_digest_matches(rig: &impl Rig) {
    let blobs = rig.open("one-1");
    // Several parts of S3, and no whole number of them.
    let size = 17 * 1024 * 1024 + 5;
    let bytes: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
    let digest = Blobs::digest(&bytes);
    let size = size as u64;

    let mut cut_off = blobs.receive(size).unwrap();
    cut_off.write_piece(&bytes[..1000]).unwrap();
    drop(cut_off);
    let mut flipped = bytes.clone();
    flipped[150_000] ^= 1;
    let refused = blobs.keep_all(&digest, size, flipped.as_slice()).unwrap_err();
    assert!(matches!(refused, ReceiveError::Another { .. }), "{refused}");
    let refused = blobs.keep_all(&digest, size - 1, bytes.as_slice()).unwrap_err();
    assert!(matches!(refused, ReceiveError::TooLarge { .. }), "{refused}");
    assert_eq!(blobs.size(&digest).unwrap(), None);

    for _ in 0..2 {
        assert_eq!(blobs.keep_all(&digest, size, bytes.as_slice()).unwrap(), size);
    }
    let other = rig.open("two-2");
    assert!(other.is_intact(&digest).unwrap());
    for reader in [&blobs, &other, &rig.open("three-3")] {
        let stored = reader.stored(&digest).unwrap().unwrap();
        let mut part = [0; 10];
        assert_eq!((stored.size(), stored.read_at(&mut part, size - 5).unwrap()), (size, 5));
        assert_eq!(part[..5], bytes[bytes.len() - 5..]);
        assert_eq!(stored.read_at(&mut part, 9_000_000).unwrap(), 10);
        assert_eq!(part, bytes[9_000_000..9_000_010]);
        reader.remove(&digest);
        assert_eq!(stored.read_at(&mut part, 0).unwrap(), 10, "a blob that is being read can be read to its end");
        blobs.keep_all(&digest, size, bytes.as_slice()).unwrap();
    }
}

fn report_is_compressed_and_reads_back_unchanged(rig: &impl Rig) {
    let blobs = rig.open("one-1");
    let report = "the same line again and again\n".repeat(1000).into_bytes();
    let digest = Blobs::digest(&report);
    let alone = report_packs::place([&report[..]]);
    blobs.keep_packs(&[&alone[0].pack]).pop().unwrap().unwrap();
    assert!(blobs.size(&digest).unwrap().unwrap() < 1000);
    assert_eq!(blobs.get(&digest).as_deref(), Some(&report[..]));
    // Blobs from before compression, or from a backup, are read in the same way.
    blobs.keep(&digest, &report).unwrap();
    assert_eq!(blobs.size(&digest).unwrap(), Some(report.len() as u64));
    assert_eq!(blobs.get(&digest).as_deref(), Some(&report[..]));
    // Several reports are one blob, which a backup copies as any other.
    let places = report_packs::place([&report[..], &report[..]]);
    blobs.keep_packs(&[&places[1].pack]).pop().unwrap().unwrap();
    assert!(blobs.size(&places[1].pack.digest).unwrap().unwrap() < 1000, "compressed as a whole");
    let pack = blobs.get(report_packs::blob_of(&places[1].text)).unwrap();
    assert_eq!(report_packs::report_at(&places[1].text, &pack).unwrap(), report);
    // A compressed blob of other content does not match the digest.
    let other = Blobs::digest(b"other");
    blobs.keep(&other, &zstd::bulk::compress(&report, 1).unwrap()).unwrap();
    assert_eq!(blobs.get(&other), None);
}

fn damaged_blob_counts_as_missing(rig: &impl Rig) {
    let blobs = rig.open("one-1");
    let digest = blobs.put(b"a log").unwrap();
    blobs.keep(&digest, b"another").unwrap();
    assert_eq!(blobs.find(&digest).unwrap(), None);
    assert!(!blobs.is_intact(&digest).unwrap());
    assert_eq!(blobs.put(b"a log").unwrap(), digest);
    assert_eq!(blobs.get(&digest).as_deref(), Some(&b"a log"[..]));
}

fn sweep_removes_old_blobs_that_are_not_needed(rig: &impl Rig) {
    let blobs = rig.open("one-1");
    let (needed, orphan) = (blobs.put(b"needed").unwrap(), blobs.put(b"orphan").unwrap());
    assert!(blobs.belong_to("a store").unwrap());
    blobs.renew(&needed).unwrap();
    assert_eq!(
        blobs.sweep(late() - 2 * YOUNG, 9, |_| false).unwrap(),
        0,
        "another replica may have written it just now"
    );
    assert_eq!(blobs.sweep(late(), 0, |_| false).unwrap(), 0, "a sweep has a limit");
    assert_eq!(blobs.sweep(late(), 9, |digest| digest == needed).unwrap(), 1);
    assert_eq!((blobs.get(&needed).is_some(), blobs.get(&orphan).is_some()), (true, false));
    assert!(!blobs.belong_to("another store").unwrap(), "notes are no blobs");
}

fn unregistered_uploads_count_until_registered_or_swept(rig: &impl Rig) {
    let blobs = rig.open("one-1");
    let [kept, registered, lost] = ["kept", "registered", "lost"].map(|text| {
        let reservation = blobs.reserve_upload(100, |_| false).unwrap().unwrap();
        let digest = blobs.put(text.as_bytes()).unwrap();
        blobs.mark_upload(reservation, &digest, text.len() as u64).unwrap();
        digest
    });
    // Another replica, or a restarted one.
    let other = rig.open("two-2");
    drop(other.reserve_upload(0, |_| false).unwrap().unwrap());
    assert_eq!((other.unregistered().count, other.unregistered().bytes), (3, 18));
    blobs.remove(&lost);
    drop(other.reserve_upload(0, |digest| digest == registered).unwrap().unwrap());
    assert_eq!((other.unregistered().count, other.unregistered().bytes), (1, 4));
    assert_eq!(blobs.sweep(late(), 9, |digest| digest == registered).unwrap(), 1);
    assert_eq!(blobs.get(&kept), None);
    let usage = blobs.unregistered();
    assert_eq!((usage.count, usage.bytes, usage.swept), (0, 0, 1));
}

fn blobs_belong_to_their_first_store(rig: &impl Rig) {
    let blobs = rig.open("one-1");
    assert!(blobs.belong_to("embedded:/state/store").unwrap());
    assert!(!blobs.belong_to("etcd://127.0.0.1:2379").unwrap());
    assert!(rig.open("two-2").belong_to("embedded:/state/store").unwrap());
}

fn marks_are_matched_by_nonce_and_swept_when_stale(rig: &impl Rig) {
    let (marks, of_other) = (rig.open("one-1").marks(), rig.open("other-2").marks());
    let record = |nonce: &str| ReplicaRecord {
        url: String::new(),
        host: String::new(),
        pid: 1,
        version: String::new(),
        since: jiff::Timestamp::UNIX_EPOCH,
        blobs: BlobsMark { directory: String::new(), nonce: nonce.into() },
        secret_keys: Vec::new(),
        authorities: Vec::new(),
    };
    let (one, other) = (ReplicaId::new("one-1").unwrap(), ReplicaId::new("other-2").unwrap());
    assert!(!marks.shows(&one, &record("7")).unwrap(), "there is no mark");
    marks.put(&one, "7").unwrap();
    of_other.put(&other, "8").unwrap();
    assert!(of_other.shows(&one, &record("7")).unwrap());
    assert!(!marks.shows(&one, &record("8")).unwrap(), "copied blobs, or another start");

    marks.sweep(late() - 3 * YOUNG, |_| false).unwrap();
    assert!(marks.shows(&one, &record("7")).unwrap(), "no mark is old");
    marks.sweep(late(), |id| id == "one-1").unwrap();
    assert!(marks.shows(&one, &record("7")).unwrap() && !marks.shows(&other, &record("8")).unwrap());
    marks.remove(&one);
    marks.remove(&one);
    assert!(!marks.shows(&one, &record("7")).unwrap());
}

mod faults {
    use muster_s3_rig::Fault;

    use super::*;

    /// Short limits: a service that is down is reported at once.
    const QUICK: S3Timing = S3Timing {
        connect: Duration::from_millis(500),
        request: Duration::from_millis(300),
        retries: 2,
        backoff: Duration::from_millis(1),
    };

    fn place(bucket: &Bucket) -> S3Place {
        let local = bucket.local.path().to_owned();
        let (name, variables) = (BUCKET.to_owned(), bucket.server.variables());
        S3Place { bucket: name, prefix: String::new(), variables, local, timing: QUICK }
    }

    fn quick(place: S3Place) -> Blobs {
        Blobs::open(BlobPlace::S3(place), ReplicaId::new("one-1").unwrap()).unwrap()
    }

    fn object(digest: &str) -> String {
        format!("{}/{}", &digest[..2], &digest[2..])
    }

    fn text(error: &io::Error, bucket: &Bucket) -> String {
        let text = error.to_string();
        assert!(text.contains(&bucket.server.endpoint()), "{text}");
        for secret in [muster_s3_rig::SECRET_KEY, muster_s3_rig::ACCESS_KEY, "Signature="] {
            assert!(!text.contains(secret) && !format!("{error:?}").contains(secret), "{text}");
        }
        text.replace(&bucket.server.endpoint(), "ENDPOINT")
    }

    #[test]
    fn unavailable_service_is_tried_again() {
        let bucket = Bucket::new();
        let blobs = quick(place(&bucket));
        for fault in [Fault::SlowDown, Fault::Silence, Fault::LostAnswer] {
            bucket.server.inject("PUT", "", fault, 1);
            let digest = blobs.put(format!("{fault:?}").as_bytes()).unwrap();
            bucket.server.inject("GET", "", fault, 1);
            assert_eq!(blobs.find(&digest).unwrap(), Some(format!("{fault:?}").into_bytes()));
            bucket.server.inject("HEAD", "", fault, 2);
            assert!(blobs.size(&digest).unwrap().is_some());
        }
    }

    #[test]
    fn error_says_what_failed_where_and_what_to_do() {
        let bucket = Bucket::new();
        let blobs = quick(place(&bucket));
        let digest = blobs.put(b"a log").unwrap();
        let object = object(&digest);
        let mut told = Vec::new();
        for fault in [Fault::SlowDown, Fault::Silence, Fault::CutBody] {
            bucket.server.inject("GET", "", fault, usize::MAX);
            let error = blobs.find(&digest).unwrap_err();
            told.push(text(&error, &bucket).replace(&object, "OBJECT"));
            bucket.server.heal();
        }
        insta::assert_snapshot!(told.join("\n"), @"
        GET OBJECT failed in bucket blobs at ENDPOINT: S3 answered 503 SlowDown, also to 2 retries: check the state of the service; Muster continues when it answers
        GET OBJECT failed in bucket blobs at ENDPOINT: no complete answer within 0.3 s, also to 2 retries: check the service and the network to it
        GET OBJECT failed in bucket blobs at ENDPOINT: the answer was cut off, also in 2 retries: check the service and the proxies on the way to it
        ");
        assert_eq!(blobs.find(&digest).unwrap().as_deref(), Some(&b"a log"[..]), "it continues when S3 answers");
    }

    #[test]
    fn missing_bucket_and_wrong_credentials_are_named() {
        let bucket = Bucket::new();
        let missing = S3Place { bucket: "missing".to_owned(), ..place(&bucket) };
        let mut wrong = place(&bucket);
        wrong.variables.retain(|(name, _)| name != "AWS_SECRET_ACCESS_KEY");
        wrong.variables.push(("AWS_SECRET_ACCESS_KEY".to_owned(), "guessed".to_owned()));
        let mut down = place(&bucket);
        down.variables[0].1 = "http://127.0.0.1:1".to_owned();
        let digest = Blobs::digest(b"a log");
        for (place, reason) in [
            (missing, "the bucket does not exist: create it, or correct --blobs"),
            (wrong, "S3 answered 403 SignatureDoesNotMatch: check the credentials"),
        ] {
            let blobs = quick(place);
            for error in [blobs.check_writable().unwrap_err(), blobs.find(&digest).unwrap_err()] {
                let text = text(&error, &bucket);
                assert!(text.contains(reason), "{text}");
            }
        }
        let text = quick(down).find(&digest).unwrap_err().to_string();
        assert!(text.contains("at http://127.0.0.1:1: no connection: check AWS_ENDPOINT_URL"), "{text}");
    }

    #[test]
    fn truncated_body_is_never_served() {
        let bucket = Bucket::new();
        let blobs = quick(place(&bucket));
        let content = vec![7; 100_000];
        let digest = blobs.put(&content).unwrap();
        for fault in [Fault::CutBody, Fault::ShortBody] {
            bucket.server.inject("GET", "", fault, 1);
            assert_eq!(blobs.find(&digest).unwrap().as_ref(), Some(&content), "{fault:?} is read again");
            bucket.server.inject("GET", "", fault, 1);
            let stored = quick(place(&bucket)).stored(&digest).unwrap().unwrap();
            let mut read = vec![0; content.len()];
            assert_eq!(stored.read_at(&mut read, 0).unwrap(), content.len(), "{fault:?} is fetched again");
            assert_eq!(read, content);

            bucket.server.inject("GET", "", fault, usize::MAX);
            assert_ne!(blobs.find(&digest).ok().flatten().as_ref(), Some(&content));
            let stored = quick(place(&bucket)).stored(&digest).unwrap().unwrap();
            assert!(stored.read_at(&mut read, 0).is_err(), "{fault:?}");
            bucket.server.heal();
        }
    }

    #[test]
    fn large_upload_survives_faults_of_each_request() {
        let bucket = Bucket::new();
        let blobs = quick(S3Place { timing: S3Timing { request: Duration::from_secs(20), ..QUICK }, ..place(&bucket) });
        let content = vec![3; 20 * 1024 * 1024];
        let digest = Blobs::digest(&content);
        for (method, part, fault) in [
            ("POST", "uploads", Fault::SlowDown),
            ("PUT", "partNumber=2", Fault::SlowDown),
            ("PUT", "partNumber=3", Fault::LostAnswer),
            ("POST", "uploadId", Fault::LostAnswer),
        ] {
            bucket.server.inject(method, part, fault, 1);
            blobs.keep_all(&digest, 1 << 30, content.as_slice()).unwrap();
            assert!(quick(place(&bucket)).is_intact(&digest).unwrap(), "{method} {part} {fault:?}");
            blobs.remove(&digest);
        }
        bucket.server.inject("PUT", "partNumber=2", Fault::SlowDown, usize::MAX);
        let error = blobs.keep_all(&digest, 1 << 30, content.as_slice()).unwrap_err();
        assert!(matches!(error, ReceiveError::Io(_)), "{error}");
        assert_eq!(blobs.size(&digest).unwrap(), None);
    }

    #[test]
    fn bundle_is_fetched_once_for_many_readers() {
        let bucket = Bucket::new();
        let digest = quick(place(&bucket)).put(&vec![1; 200_000]).unwrap();
        let blobs = quick(place(&bucket));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let stored = blobs.stored(&digest).unwrap().unwrap();
                    assert_eq!(stored.read_at(&mut [0; 10], 100_000).unwrap(), 10);
                });
            }
        });
        let fetched = bucket.server.requests().into_iter().filter(|request| request.starts_with("GET")).count();
        assert_eq!(fetched, 1);
    }

    #[test]
    fn renewed_blob_survives_a_sweep() {
        let bucket = Bucket::new();
        let blobs = quick(place(&bucket));
        let [renewed, old] = [b"renewed", b"old bun"].map(|content| {
            let digest = blobs.put(content).unwrap();
            let file = std::fs::File::options().append(true).open(bucket.server.file(&object(&digest))).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
            digest
        });
        assert!(blobs.renew(&renewed).unwrap());
        assert_eq!(blobs.sweep(late() - 2 * YOUNG, 9, |_| false).unwrap(), 1);
        assert_eq!((blobs.get(&renewed).is_some(), blobs.get(&old).is_some()), (true, false));
        assert_eq!(blobs.sweep(late(), 9, |_| false).unwrap(), 1, "an old renewal counts no more");
    }

    #[test]
    fn address_without_encryption_needs_a_permission() {
        let bucket = Bucket::new();
        let mut plain = place(&bucket);
        plain.variables.retain(|(name, _)| name != "AWS_ALLOW_HTTP");
        let refused = Blobs::open(BlobPlace::S3(plain), ReplicaId::new("one-1").unwrap()).unwrap_err();
        assert!(refused.to_string().contains("AWS_ALLOW_HTTP"), "{refused}");
    }
}
