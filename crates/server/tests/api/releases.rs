//! Releases: push, list, download, deltas and trusted keys.

use std::fs;

use muster_core::keys::Keys;
use muster_core::names::{EnvName, Role};
use muster_core::release::manifest::{Digest, Manifest, ReleaseEnv};
use muster_core::release::{ReleaseChecks, ReleaseRecord};
use muster_core::txn::{Op, Txn};
use muster_release::bundle::{digest_of, unpack};
use muster_release::delta::unpack_delta;
use muster_release::key::SigningKey;
use muster_release::manifest::sign;
use muster_testkit::release::{SignedBundle, write_file, write_script};
use muster_wire::client::ClientError;
use muster_wire::problem::{Problem, ProblemCode};
use muster_wire::release::{BundleState, PushReleaseResponse, SignatureTrust};
use muster_wire::rollout::PlanRequest;
use muster_wire::sync::SyncOpen;

use crate::fixture::{Fixture, release_record, version};

pub(crate) fn key() -> SigningKey {
    SigningKey::generate("test").unwrap()
}

/// A release with a script that prints a word. Releases with different words have different content.
pub(crate) fn build(name: &str, serial: u64, word: &str, keys: &[SigningKey]) -> SignedBundle {
    build_with(name, serial, "applier: script\nmanifest: run\n", word, keys)
}

fn build_with(name: &str, serial: u64, spec: &str, word: &str, keys: &[SigningKey]) -> SignedBundle {
    let dir = tempfile::tempdir().unwrap();
    write_file(&dir.path().join("release.yaml"), spec);
    write_script(&dir.path().join("run"), &format!("echo {word}"));
    SignedBundle::build(dir.path(), name, serial, None, keys)
}

pub(crate) async fn upload(fixture: &Fixture, built: &SignedBundle) {
    fixture.client.upload_bundle(&fixture.env, &built.manifest.digest, built.bundle.clone()).await.unwrap();
}

pub(crate) async fn register(fixture: &Fixture, built: &SignedBundle) -> Result<PushReleaseResponse, ClientError> {
    let Manifest { version, .. } = &built.manifest;
    fixture.client.push_release(&fixture.env, version, built.signed.clone(), Some("ann@desk")).await
}

pub(crate) async fn push(fixture: &Fixture, built: &SignedBundle) -> PushReleaseResponse {
    upload(fixture, built).await;
    register(fixture, built).await.unwrap()
}

fn problem(refused: Result<PushReleaseResponse, ClientError>) -> Problem {
    refused.unwrap_err().problem().unwrap().clone()
}

#[tokio::test]
async fn release_is_pushed_shown_and_downloaded() {
    let fixture = Fixture::start(&[("web1", "web")]).await;
    let built = build("v3", 3, "three", &[key()]);
    let pushed = push(&fixture, &built).await;
    assert_eq!((pushed.serial, pushed.changed, pushed.verified_by.clone()), (3, true, None));

    let again = register(&fixture, &built).await.unwrap();
    assert!(!again.changed);

    let rows = fixture.client.releases(&fixture.env).await.unwrap().items;
    let rows: Vec<(&str, u64, bool, usize)> =
        rows.iter().map(|row| (row.version.as_str(), row.serial, row.current, row.desired)).collect();
    assert_eq!(rows, [("v3", 3, false, 0), ("v2", 2, false, 0), ("v1", 1, true, 1)]);

    let detail = fixture.client.release(&fixture.env, &version("v3")).await.unwrap();
    assert_eq!((detail.bundle, detail.row.by.as_str()), (BundleState::Kept, "ann@desk"));
    assert_eq!((detail.row.size, detail.trusted), (built.bundle.len() as u64, None));

    let mut download = fixture.client.download_bundle(&fixture.env, &version("v3"), 0).await.unwrap();
    assert_eq!((download.from, download.digest.as_ref()), (0, Some(&built.manifest.digest)));
    let mut bytes = Vec::new();
    while let Some(piece) = download.download.next().await.unwrap() {
        bytes.extend_from_slice(piece.as_ref());
    }
    assert_eq!(bytes, built.bundle);
    fixture.client.trigger_at_once(&fixture.env, version("v3")).await.unwrap();
    fixture.stop().await;
}

/// A release with many equal files and one of its own.
fn build_many(name: &str, serial: u64, word: &str, unlike: bool, keys: &[SigningKey]) -> SignedBundle {
    let dir = tempfile::tempdir().unwrap();
    write_file(&dir.path().join("release.yaml"), "applier: script\nmanifest: run\n");
    write_script(&dir.path().join("run"), &format!("echo {word}"));
    for number in 0..100 {
        // Digests do not compress.
        let seed = format!("{number} {}", if unlike { word } else { "" });
        let (digest, _) = digest_of(seed.as_bytes()).unwrap();
        write_file(&dir.path().join(format!("files/{number}")), digest.as_str());
    }
    SignedBundle::build(dir.path(), name, serial, None, keys)
}

#[tokio::test]
async fn delta_has_the_files_that_differ() {
    let fixture = Fixture::start(&[]).await;
    let keys = [key()];
    let first = build_many("v3", 3, "three", false, &keys);
    let second = build_many("v4", 4, "four", false, &keys);
    let unlike = build_many("v5", 5, "five", true, &keys);
    for built in [&first, &second, &unlike] {
        push(&fixture, built).await;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("bundle"), &first.bundle).unwrap();
    unpack(&dir.path().join("bundle"), &first.manifest, &dir.path().join("base")).unwrap();
    for attempt in ["first", "from-memory"] {
        let from = &first.manifest.digest;
        let mut delta = fixture.client.download_delta(&fixture.env, &version("v4"), from).await.unwrap();
        assert_eq!(delta.digest.as_ref(), Some(&second.manifest.digest));
        let mut bytes = Vec::new();
        while let Some(piece) = delta.download.next().await.unwrap() {
            bytes.extend_from_slice(piece.as_ref());
        }
        assert!(bytes.len() * 4 < second.bundle.len(), "{} of {} bytes", bytes.len(), second.bundle.len());
        let (file, target) = (dir.path().join("delta"), dir.path().join(attempt));
        fs::write(&file, &bytes).unwrap();
        let info = unpack_delta(&file, &dir.path().join("base"), &second.manifest, &target).unwrap();
        assert_eq!((info.unchanged, info.changed), (101, 1));
    }

    let no_delta = async |to: &str, from: &Digest| {
        let refused = fixture.client.download_delta(&fixture.env, &version(to), from).await.unwrap_err();
        let problem = refused.problem().unwrap().clone();
        assert_eq!((problem.code, problem.status), (ProblemCode::NotFound, 404));
        problem.detail
    };
    let unknown = Digest::of_sha256(&[7; 32]);
    assert!(no_delta("v4", &unknown).await.ends_with("is not registered"));
    assert!(no_delta("v5", &first.manifest.digest).await.ends_with("differs too much"));
    let missing = fixture.client.download_delta(&fixture.env, &version("v9"), &unknown).await.unwrap_err();
    assert_eq!(missing.problem().unwrap().code, ProblemCode::UnknownVersion);
    fixture.stop().await;
}

#[tokio::test]
async fn registered_release_never_changes() {
    let fixture = Fixture::start(&[]).await;
    let keys = [key()];
    let first = build("v3", 3, "three", &keys);
    push(&fixture, &first).await;

    let other = build("v3", 4, "another", &keys);
    upload(&fixture, &other).await;
    let refused = problem(register(&fixture, &other).await);
    assert_eq!((refused.code, refused.status), (ProblemCode::ReleaseTaken, 409));
    for digest in [&first.manifest.digest, &other.manifest.digest] {
        assert!(refused.detail.contains(digest.as_str()), "{refused}");
    }
    let same_serial = build("v4", 3, "four", &keys);
    upload(&fixture, &same_serial).await;
    let refused = problem(register(&fixture, &same_serial).await);
    assert_eq!(refused.code, ProblemCode::ReleaseTaken);
    assert!(refused.detail.contains("serial 3 of release v4 is that of release v3"), "{refused}");
    // The same content, built again later: a no-op.
    let rebuilt = build("v3", 9, "three", &keys);
    let pushed = register(&fixture, &rebuilt).await.unwrap();
    assert_eq!((pushed.changed, pushed.serial), (false, 3));
}

#[tokio::test]
async fn release_of_another_environment_is_refused() {
    let fixture = Fixture::start(&[]).await;
    let keys = [key()];
    let built = build("v3", 3, "three", &keys);
    upload(&fixture, &built).await;
    let for_env = |env: ReleaseEnv| {
        let manifest = Manifest { env, ..built.manifest.clone() };
        SignedBundle { signed: sign(&manifest, &keys).unwrap(), manifest, bundle: built.bundle.clone() }
    };
    let other = ReleaseEnv::Only(EnvName::new("staging").unwrap());
    let refused = problem(register(&fixture, &for_env(other)).await);
    assert_eq!(refused.code, ProblemCode::ReleaseRefused);
    let text = format!("release v3 was built for environment staging, not for {}", fixture.env);
    assert!(refused.detail.contains(&text), "{refused}");
    assert!(register(&fixture, &for_env(ReleaseEnv::Only(fixture.env.clone()))).await.unwrap().changed);
    fixture.stop().await;
}

#[tokio::test]
async fn checks_for_unknown_roles_are_refused() {
    let fixture = Fixture::start(&[("web1", "web"), ("db1", "db")]).await;
    let keys = [key()];
    let spec = |role: &str| {
        format!("applier: script\nmanifest: run\nvalidate:\n  - {{name: up, tcp: \"{{eth0}}:80\", roles: [{role}]}}\n")
    };
    let wrong = build_with("v3", 3, &spec("wbe"), "x", &keys);
    upload(&fixture, &wrong).await;
    let refused = problem(register(&fixture, &wrong).await);
    assert_eq!(refused.code, ProblemCode::ReleaseRefused);
    assert!(refused.detail.contains("release v3 has checks for role wbe, and no node"), "{refused}");
    assert!(refused.hint.as_ref().unwrap().ends_with("the environment has db, web"), "{refused}");

    let right = build_with("v3", 3, &spec("web"), "x", &keys);
    assert_eq!(push(&fixture, &right).await.unchecked, [Role::new("db").unwrap()]);
    assert_eq!(register(&fixture, &right).await.unwrap().unchecked, [Role::new("db").unwrap()], "again");
    let plan = async |name: &str| fixture.client.plan_rollout(&fixture.env, &PlanRequest::to(version(name))).await;
    assert_eq!(plan("v3").await.unwrap().unchecked, [Role::new("db").unwrap()]);

    // The design changed after the push.
    let roles = [Role::new("lb").unwrap()].into();
    let record = ReleaseRecord {
        checks: Some(ReleaseChecks { for_all: false, roles, timed_runs: None }),
        ..release_record("v4", 4)
    };
    let put = Op::put_json(Keys::new(&fixture.env).release(&version("v4")), &record).unwrap();
    fixture.store.commit(Txn::new().op(put)).await.unwrap();
    fixture.wait_for("v4 is there", |fleet| fleet.releases().contains_key(&version("v4"))).await;
    let refused = plan("v4").await.unwrap_err();
    let refused = refused.problem().unwrap();
    assert_eq!(refused.code, ProblemCode::ReleaseRefused);
    assert!(refused.detail.contains("release v4 has checks for role lb"), "{refused}");
    fixture.stop().await;
}

#[tokio::test]
async fn release_that_no_node_can_run_is_refused() {
    let fixture = Fixture::start(&[]).await;
    let keys = [key()];
    let missing = build("v3", 3, "three", &keys);
    assert_eq!(problem(register(&fixture, &missing).await).code, ProblemCode::UnknownBundle);

    let unsigned = build("v3", 3, "three", &[]);
    upload(&fixture, &unsigned).await;
    let refused = problem(register(&fixture, &unsigned).await);
    assert_eq!(refused.code, ProblemCode::ReleaseRefused);
    assert!(refused.detail.contains("it is not signed"), "{refused}");

    let broken = build_with("v3", 3, "applier: script\nmanifest: gone\n", "x", &keys);
    upload(&fixture, &broken).await;
    let refused = problem(register(&fixture, &broken).await);
    assert_eq!(refused.code, ProblemCode::ReleaseRefused);
    assert!(refused.detail.contains("gone"), "{refused}");

    // The signed manifest does not match the bundle.
    let mut lying = build("v3", 3, "three", &keys);
    lying.manifest.content = broken.manifest.content.clone();
    lying.signed = sign(&lying.manifest, &keys).unwrap();
    upload(&fixture, &lying).await;
    assert_eq!(problem(register(&fixture, &lying).await).code, ProblemCode::ReleaseRefused);
    lying.manifest.size += 1;
    lying.signed = sign(&lying.manifest, &keys).unwrap();
    assert_eq!(problem(register(&fixture, &lying).await).code, ProblemCode::ReleaseRefused);

    // The uploaded bytes are not a bundle.
    let mut garbage = build("v3", 3, "three", &keys);
    garbage.bundle = b"this is no bundle".to_vec();
    garbage.manifest.size = garbage.bundle.len() as u64;
    let digest = sha2::Digest::finalize(<sha2::Sha256 as sha2::Digest>::new_with_prefix(&garbage.bundle));
    garbage.manifest.digest = muster_core::release::manifest::Digest::of_sha256(&digest.into());
    garbage.signed = sign(&garbage.manifest, &keys).unwrap();
    upload(&fixture, &garbage).await;
    assert_eq!(problem(register(&fixture, &garbage).await).code, ProblemCode::ReleaseRefused);

    let elsewhere = fixture.client.push_release(&fixture.env, &version("v4"), missing.signed.clone(), None).await;
    assert_eq!(problem(elsewhere).code, ProblemCode::InvalidRequest);
    assert_eq!(fixture.client.releases(&fixture.env).await.unwrap().items.len(), 2, "nothing was registered");
    let left = std::fs::read_dir(fixture.dir.path().join("blobs")).unwrap();
    let unpacked = left.filter(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().contains("unpacked"));
    assert_eq!(unpacked.count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_pushes_get_unique_versions_and_serials() {
    let fixture = Fixture::start(&[]).await;
    let keys = [key()];
    let same = build("v3", 3, "three", &keys);
    let another = build("v3", 4, "another three", &keys);
    let serial = build("v4", 3, "four", &keys);
    for built in [&same, &another, &serial] {
        upload(&fixture, built).await;
    }
    let pushing = [&same, &same, &another, &serial, &same, &another].map(|built| register(&fixture, built));
    let results = futures::future::join_all(pushing).await;
    let releases = fixture.app.view.fleets()[&fixture.env].releases().clone();
    let mut serials: Vec<u64> = releases.values().map(|release| release.serial).collect();
    serials.sort_unstable();
    let all = serials.len();
    serials.dedup();
    assert_eq!(serials.len(), all, "{releases:?}");
    assert!(releases.contains_key(&version("v3")) || releases.contains_key(&version("v4")));
    for (result, built) in results.iter().zip([&same, &same, &another, &serial, &same, &another]) {
        let kept =
            releases.get(&built.manifest.version).is_some_and(|kept| kept.digest == built.manifest.digest.as_str());
        assert_eq!(result.is_ok(), kept, "{result:?}");
    }
}

#[tokio::test]
async fn any_split_into_ranges_gives_the_same_bytes() {
    let fixture = Fixture::start(&[]).await;
    let built = build("v3", 3, &"a word that makes it longer ".repeat(50), &[key()]);
    push(&fixture, &built).await;
    let size = built.bundle.len();
    let http = crate::fixture::http();
    let url = fixture.url("/v1/envs/test/releases/v3/bundle");
    let get = |range: String| http.get(&url).header("range", range).send();
    for step in [1, 7, size / 2, size - 1, size, size + 1] {
        let mut bytes = Vec::new();
        while bytes.len() < size {
            let (from, to) = (bytes.len(), bytes.len() + step - 1);
            let answer = get(format!("bytes={from}-{to}")).await.unwrap();
            assert_eq!(answer.status().as_u16(), 206);
            let range = format!("bytes {from}-{}/{size}", to.min(size - 1));
            assert_eq!(answer.headers()["content-range"].to_str().unwrap(), range);
            let part = answer.bytes().await.unwrap();
            assert_eq!(part.len(), step.min(size - from));
            bytes.extend_from_slice(&part);
        }
        assert_eq!(bytes, built.bundle, "in steps of {step}");
    }
    let behind = get(format!("bytes={size}-")).await.unwrap();
    assert_eq!(behind.status().as_u16(), 416);
    assert_eq!(behind.headers()["content-range"].to_str().unwrap(), format!("bytes */{size}"));
    let response = http.get(&url).send().await.unwrap();
    let etag = response.headers()["etag"].to_str().unwrap().to_owned();
    assert_eq!(etag, format!("\"{}\"", built.manifest.digest));
    assert_eq!(response.headers()["content-length"].to_str().unwrap(), size.to_string());
    let of_another = http.get(&url).header("range", "bytes=5-").header("if-range", "\"sha256:other\"").send();
    assert_eq!(of_another.await.unwrap().status().as_u16(), 200);
    let of_this = http.get(&url).header("range", "bytes=5-").header("if-range", etag).send();
    assert_eq!(of_this.await.unwrap().status().as_u16(), 206);
    let rest = fixture.client.download_bundle(&fixture.env, &version("v3"), 5).await.unwrap();
    assert_eq!(rest.from, 5);
}

#[tokio::test]
async fn missing_bundle_is_reported() {
    let fixture = Fixture::start(&[]).await;
    let built = build("v3", 3, "three", &[key()]);
    push(&fixture, &built).await;
    fixture.app.blobs.remove(built.manifest.digest.hex());
    let gone = fixture.client.download_bundle(&fixture.env, &version("v3"), 0).await.unwrap_err();
    assert_eq!(gone.problem().unwrap().code, ProblemCode::ReleaseUnreadable);
    assert!(gone.to_string().contains("is missing in the blobs of the server"), "{gone}");
    assert_eq!(fixture.client.release(&fixture.env, &version("v3")).await.unwrap().bundle, BundleState::Missing);
    let refused = fixture.client.trigger_at_once(&fixture.env, version("v3")).await.unwrap_err();
    assert_eq!(refused.problem().unwrap().code, ProblemCode::ReleaseUnreadable);
    // A client that still has the bundle can push it again.
    push(&fixture, &built).await;
    fixture.client.trigger_at_once(&fixture.env, version("v3")).await.unwrap();
}

#[tokio::test]
async fn first_trust_list_needs_a_known_signer() {
    let fixture = Fixture::start(&[]).await;
    let (ours, stranger) = (key(), key());
    let list = |signer: &SigningKey| {
        muster_release::manifest::sign_list(1, vec![signer.public().clone()], std::slice::from_ref(signer)).unwrap()
    };
    let (of_stranger, of_ours) = (list(&stranger), list(&ours));
    push(&fixture, &build("v3", 3, "three", &[ours])).await;
    // Every agent would refuse this list, and it would block further lists.
    let refused = fixture.client.replace_trust(&fixture.env, &of_stranger, false).await.unwrap_err();
    assert_eq!(refused.problem().unwrap().code, ProblemCode::ReleaseRefused);
    assert!(fixture.client.replace_trust(&fixture.env, &of_ours, false).await.unwrap().changed);
}

#[tokio::test]
async fn only_a_trusted_key_replaces_the_trusted_keys() {
    let fixture = Fixture::start(&[]).await;
    let (old, new, stranger) = (key(), key(), key());
    let (client, env) = (&fixture.client, &fixture.env);
    assert_eq!(client.trust(env).await.unwrap().list, None);
    let list = |serial, keys: &[&SigningKey], signer: &SigningKey| {
        let keys = keys.iter().map(|key| key.public().clone()).collect();
        muster_release::manifest::sign_list(serial, keys, std::slice::from_ref(signer)).unwrap()
    };
    let first = list(5, &[&old], &old);
    let placed = client.replace_trust(env, &first, false).await.unwrap();
    assert_eq!((placed.verified, placed.changed, placed.serial), (false, true, 5));
    assert!(!client.replace_trust(env, &first, false).await.unwrap().changed);

    let refused = client.replace_trust(env, &list(6, &[&stranger], &stranger), false).await.unwrap_err();
    assert_eq!(refused.problem().unwrap().code, ProblemCode::ReleaseRefused);
    for serial in [4, 5] {
        let refused = client.replace_trust(env, &list(serial, &[&old, &new], &old), false).await.unwrap_err();
        assert_eq!(refused.problem().unwrap().code, ProblemCode::Conflict, "{serial}");
    }
    let mut forged = list(6, &[&old, &new], &old);
    forged.payload = forged.payload.replace("\"serial\":6", "\"serial\":7");
    assert!(client.replace_trust(env, &forged, false).await.is_err());

    // A release signed by an unknown key is now refused. One signed by the old key is accepted.
    let strange = build("v3", 3, "three", &[stranger]);
    upload(&fixture, &strange).await;
    let refused = problem(register(&fixture, &strange).await);
    assert_eq!(refused.code, ProblemCode::ReleaseRefused);
    assert!(refused.detail.contains("no such key is trusted here"), "{refused}");
    let id = old.public().id();
    let next = list(6, &[&new], &old);
    let ours = build("v3", 3, "three", &[old]);
    assert_eq!(push(&fixture, &ours).await.verified_by, Some(id.clone()));
    assert_eq!(client.release(env, &version("v3")).await.unwrap().trusted, Some(SignatureTrust::By(id)));

    // The old key signs its successor. Releases that it signed are no longer trusted.
    assert!(client.replace_trust(env, &next, false).await.unwrap().verified);
    let shown = client.trust(env).await.unwrap().list.unwrap();
    assert_eq!((shown.serial, shown.keys), (6, vec![new.public().clone()]));
    let trusted = client.release(env, &version("v3")).await.unwrap().trusted;
    assert!(matches!(trusted, Some(SignatureTrust::Not(_))), "{trusted:?}");
    fixture.stop().await;
}

#[tokio::test]
async fn untrusting_the_current_release_needs_force() {
    let fixture = Fixture::start(&[]).await;
    let (client, env) = (&fixture.client, &fixture.env);
    let (old, new) = (key(), key());
    let list = |serial, keys: &[&SigningKey], signer: &SigningKey| {
        let keys = keys.iter().map(|key| key.public().clone()).collect();
        muster_release::manifest::sign_list(serial, keys, std::slice::from_ref(signer)).unwrap()
    };
    let (without, both, next) = (list(1, &[&new], &old), list(1, &[&old, &new], &old), list(2, &[&new], &new));
    let again = list(3, &[&new, &key()], &new);
    push(&fixture, &build("v3", 3, "three", &[old])).await;
    client.trigger_at_once(env, version("v3")).await.unwrap();
    let refused = |answer: Result<_, ClientError>| {
        let refused: Problem =
            answer.map(|_: muster_wire::release::ReplaceTrustResponse| ()).unwrap_err().problem().unwrap().clone();
        assert_eq!((refused.code, refused.status), (ProblemCode::UntrustsCurrent, 409), "{refused}");
        assert!(refused.detail.contains("runs release v3"), "{refused}");
        assert!(refused.hint.unwrap().contains("under a new version"));
    };
    // Refused for the first list and for a later one.
    refused(client.replace_trust(env, &without, false).await);
    client.replace_trust(env, &both, false).await.unwrap();
    refused(client.replace_trust(env, &next, false).await);
    assert_eq!(client.trust(env).await.unwrap().list.unwrap().serial, 1, "nothing has changed");

    // Forced: the release is untrusted from now on. Further lists do not change that and need no force.
    assert!(client.replace_trust(env, &next, true).await.unwrap().changed);
    assert!(!client.replace_trust(env, &next, false).await.unwrap().changed);
    assert!(client.replace_trust(env, &again, false).await.unwrap().changed);
    fixture.stop().await;
}

#[tokio::test]
async fn first_list_that_no_connected_agent_accepts_is_refused() {
    let fixture = Fixture::start(&[("web1", "web")]).await;
    let (client, env) = (&fixture.client, &fixture.env);
    let (configured, other) = (key(), key());
    let list = |signer: &SigningKey| {
        muster_release::manifest::sign_list(1, vec![other.public().clone()], std::slice::from_ref(signer)).unwrap()
    };
    let open = SyncOpen { incarnation: Some(1), trusted: vec![configured.public().id()], ..SyncOpen::default() };
    let _agent = fixture.open("web1", &open).await;
    let refused = client.replace_trust(env, &list(&other), false).await.unwrap_err();
    let refused = refused.problem().unwrap().clone();
    assert_eq!(refused.code, ProblemCode::ReleaseRefused);
    let (signer, trusted) = (other.public().id(), configured.public().id());
    assert!(
        refused.detail.contains(&format!("signed by {signer}, and the connected agents trust {trusted}")),
        "{refused}"
    );
    assert!(refused.hint.unwrap().contains(&format!("sign it with {trusted}")));
    assert_eq!(client.trust(env).await.unwrap().list, None);
    assert!(client.replace_trust(env, &list(&configured), false).await.unwrap().changed);
    fixture.stop().await;
}

#[tokio::test]
async fn key_is_removable_once_its_release_is_not_current() {
    let fixture = Fixture::start(&[]).await;
    let (client, env) = (&fixture.client, &fixture.env);
    let (old, new) = (key(), key());
    let list = |serial, keys: &[&SigningKey], signer: &SigningKey| {
        let keys = keys.iter().map(|key| key.public().clone()).collect();
        muster_release::manifest::sign_list(serial, keys, std::slice::from_ref(signer)).unwrap()
    };
    let (both, next) = (list(1, &[&old, &new], &old), list(2, &[&new], &old));
    push(&fixture, &build("v3", 3, "three", &[old])).await;
    client.trigger_at_once(env, version("v3")).await.unwrap();
    client.replace_trust(env, &both, false).await.unwrap();
    push(&fixture, &build("v4", 4, "three", &[new])).await;
    client.trigger_at_once(env, version("v4")).await.unwrap();
    assert!(client.replace_trust(env, &next, false).await.unwrap().changed);
    fixture.stop().await;
}
