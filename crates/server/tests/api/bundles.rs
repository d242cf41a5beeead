//! Uploads of bundles.

use muster_core::release::manifest::Digest;
use muster_release::tree::BUNDLE_LIMIT;
use muster_wire::doctor::DoctorVerdict;
use muster_wire::problem::{Problem, ProblemCode};
use sha2::{Digest as _, Sha256};

use crate::fixture::Fixture;

fn digest(bytes: &[u8]) -> Digest {
    Digest::of_sha256(&Sha256::digest(bytes).into())
}

/// Files in the blob directory, without the marks of servers and the bundles of the fixture.
fn files(fixture: &Fixture) -> Vec<String> {
    let root = fixture.dir.path().join("blobs");
    let mut left = vec![root.clone()];
    let mut files = Vec::new();
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let hidden = path.file_name().unwrap().to_str().unwrap().starts_with('.');
            if path.is_dir() && !hidden {
                left.push(path);
            } else if !hidden {
                files.push(path.strip_prefix(&root).unwrap().to_str().unwrap().replace('/', ""));
            }
        }
    }
    let known = ["v1", "v2"].map(|bundle| muster_server::Blobs::digest(bundle.as_bytes()));
    files.retain(|file| !known.contains(file));
    files
}

#[tokio::test]
async fn bundle_is_stored_only_if_its_digest_matches() {
    let fixture = Fixture::start(&[]).await;
    let (client, env) = (&fixture.client, &fixture.env);
    let bytes: Vec<u8> = (0..700_000_u32).map(|number| (number % 251) as u8).collect();
    let name = digest(&bytes);

    let unknown = client.bundle(env, &name).await.unwrap_err();
    assert_eq!(unknown.problem().unwrap().code, ProblemCode::UnknownBundle);

    let mut flipped = bytes.clone();
    flipped[350_000] ^= 1;
    for wrong in [flipped, bytes[..699_999].to_vec(), Vec::new()] {
        let refused = client.upload_bundle(env, &name, wrong).await.unwrap_err();
        let problem = refused.problem().unwrap();
        assert_eq!((problem.code, problem.status), (ProblemCode::ReleaseRefused, 422), "{problem}");
        assert!(problem.detail.contains(name.hex()), "{problem}");
        assert_eq!(files(&fixture), [""; 0], "nothing of it is kept");
    }
    for _ in 0..2 {
        let kept = client.upload_bundle(env, &name, bytes.clone()).await.unwrap();
        assert_eq!((kept.digest, kept.size), (name.clone(), 700_000));
    }
    assert_eq!(files(&fixture), [name.hex()]);
    assert_eq!(client.bundle(env, &name).await.unwrap().size, 700_000);
}

#[tokio::test]
async fn partial_upload_is_discarded() {
    let fixture = Fixture::start(&[]).await;
    let bytes = vec![1_u8; 600_000];
    let name = digest(&bytes);
    let pieces = vec![Ok(bytes[..300_000].to_vec()), Err(std::io::Error::other("the line is cut"))];
    let body = reqwest::Body::wrap_stream(futures::stream::iter(pieces));
    assert!(fixture.client.upload_bundle(&fixture.env, &name, body).await.is_err());
    // The client gets no response. The server removes the partial file when it notices the lost connection.
    muster_testkit::wait::until("no file is left", || files(&fixture).is_empty()).await;
    assert!(fixture.client.bundle(&fixture.env, &name).await.is_err());
}

#[tokio::test]
async fn announced_oversized_upload_is_refused() {
    let fixture = Fixture::start(&[]).await;
    let name = digest(b"whatever");
    let url = fixture.url(&format!("/v1/envs/test/bundles/{name}"));
    let http = crate::fixture::http();
    let body = reqwest::Body::wrap_stream(futures::stream::pending::<std::io::Result<Vec<u8>>>());
    let sent = http.put(url).header("content-length", u64::from(u32::MAX)).body(body).send();
    assert_eq!(sent.await.unwrap().status().as_u16(), 413);
    assert_eq!(files(&fixture), [""; 0]);
}

/// Sixteen of the largest bundles are being uploaded, and no more may be. Half of them are uploads of a registered bundle.
#[tokio::test(flavor = "multi_thread")]
async fn unregistered_uploads_have_a_limit() {
    let fixture = Fixture::start(&[]).await;
    let http = crate::fixture::http();
    let upload = |number: u64| {
        let name = if number.is_multiple_of(2) { digest(b"v1") } else { digest(&number.to_le_bytes()) };
        let body = reqwest::Body::wrap_stream(futures::stream::pending::<std::io::Result<Vec<u8>>>());
        let request = http.put(fixture.url(&format!("/v1/envs/test/bundles/{name}")));
        request.header("content-length", BUNDLE_LIMIT).body(body).send()
    };
    let metric = async |name: &str| {
        let text = http.get(fixture.url("/metrics")).send().await.unwrap().text().await.unwrap();
        let line = text.lines().find(|line| line.starts_with(name)).map(str::to_owned);
        line.and_then(|line| line.split(' ').nth(1)?.parse::<u64>().ok()).unwrap()
    };
    let uploads: Vec<_> = (0..16).map(|number| tokio::spawn(upload(number))).collect();
    while metric("muster_bundles_unregistered ").await < 16 {
        tokio::task::yield_now().await;
    }
    for number in [16, 17] {
        let refused = upload(number).await.unwrap();
        assert_eq!(refused.status().as_u16(), 507);
        let problem: Problem = refused.json().await.unwrap();
        assert_eq!(problem.code, ProblemCode::UploadsFull);
        assert!(problem.detail.contains("are being uploaded or not registered: 16 with"), "{}", problem.detail);
    }
    assert_eq!(metric("muster_bundles_refused_total").await, 2);
    assert_eq!(metric("muster_bundles_unregistered_bytes").await, 16 * BUNDLE_LIMIT);

    uploads.iter().for_each(tokio::task::JoinHandle::abort);
    while metric("muster_bundles_unregistered ").await > 0 {
        tokio::task::yield_now().await;
    }
    let stored = fixture.client.upload_bundle(&fixture.env, &digest(b"small"), b"small".to_vec()).await.unwrap();
    assert_eq!((stored.size, metric("muster_bundles_unregistered_bytes").await), (5, 5));
    fixture.client.upload_bundle(&fixture.env, &digest(b"v1"), b"v1".to_vec()).await.unwrap();
    assert_eq!(
        metric("muster_bundles_unregistered_bytes").await,
        5,
        "a registered bundle counts only while it is uploaded"
    );
    fixture.stop().await;
}

/// Agents would download the part again and again. `GET /v1/doctor` names the bundle.
#[tokio::test(flavor = "multi_thread")]
async fn bundle_of_another_length_is_not_sent() {
    let fixture = Fixture::start(&[]).await;
    let blob = muster_server::Blobs::digest(b"v1");
    let path = fixture.dir.path().join("blobs").join(&blob[..2]).join(&blob[2..]);
    let bundle = fixture.url("/v1/envs/test/releases/v1/bundle");
    let http = crate::fixture::http();
    assert_eq!(http.get(&bundle).send().await.unwrap().bytes().await.unwrap(), "v1");

    let failures = async || {
        let findings = fixture.client.doctor().await.unwrap().findings;
        let failed = findings.into_iter().filter(|finding| finding.verdict == DoctorVerdict::Failed);
        failed.map(|finding| finding.detail).collect::<Vec<_>>()
    };
    assert_eq!(failures().await, [""; 0]);
    for (content, finding) in [("v", "v1 is damaged (1 bytes, its record says 2)"), ("v0", "does not match its digest")]
    {
        std::fs::write(&path, content).unwrap();
        let failures = failures().await;
        assert!(failures.len() == 1 && failures[0].contains(finding), "{failures:?}");
        let digest = digest(b"v1");
        let stored = fixture.client.bundle(&fixture.env, &digest).await;
        assert_eq!(stored.unwrap_err().problem().unwrap().code, ProblemCode::UnknownBundle, "it can be pushed again");
    }
    std::fs::write(&path, "v").unwrap();
    let refused = http.get(&bundle).header("range", "bytes=1-").send().await.unwrap();
    assert_eq!(refused.status().as_u16(), 500);
    let problem: Problem = refused.json().await.unwrap();
    assert_eq!(problem.code, ProblemCode::ReleaseUnreadable);
    assert!(problem.detail.ends_with("it has 1 bytes, and its record says 2"), "{}", problem.detail);
    fixture.stop().await;
}

#[tokio::test]
async fn invalid_digest_is_not_a_path() {
    let fixture = Fixture::start(&[]).await;
    for wrong in ["x", "sha256:..%2F..%2Fetc", "sha256:ABC"] {
        let url = fixture.url(&format!("/v1/envs/test/bundles/{wrong}"));
        let http = crate::fixture::http();
        assert_eq!(http.put(url).body("x").send().await.unwrap().status().as_u16(), 400, "{wrong}");
    }
    assert_eq!(files(&fixture), [""; 0]);
}
