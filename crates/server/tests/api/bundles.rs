//! Uploads of bundles.

use muster_core::release::manifest::Digest;
use muster_wire::problem::ProblemCode;
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
