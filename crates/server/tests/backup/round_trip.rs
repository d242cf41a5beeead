//! A restored environment equals the one that was backed up.

use muster_core::keys::Keys;
use muster_etcd_rig::{Cluster, ClusterOptions};
use muster_server::Blobs;
use muster_server::backup::{BackupError, RestoreError, RestoreTarget, check, read_environment, restore};
use muster_wire::backup::MissingPart;

use crate::stores::{BackupFixture, blobs_in, env, file, now};

#[tokio::test]
async fn backup_round_trip_through_etcd_is_lossless() {
    let cluster = Cluster::start(ClusterOptions::members(1)).await;
    let first = BackupFixture::embedded().await;
    first.found(60).await;
    let there = BackupFixture::on(&cluster.spec(), tempfile::tempdir().unwrap()).await;
    let restored = there.restore(&first.backup().await, false).await.unwrap();
    assert_eq!((restored.put, restored.unchanged, restored.removed, restored.blobs), (243, 0, 0, 60));
    assert_eq!(there.keys().await, first.keys().await);

    let back = BackupFixture::embedded().await;
    back.restore(&there.backup().await, false).await.unwrap();
    assert_eq!(back.keys().await, first.keys().await);
    assert_eq!((blobs_in(first.dir.path()), blobs_in(back.dir.path())), (60, 60));
    let digest = first.blobs.put(b"the log of web1\n").unwrap();
    assert_eq!(back.blobs.get(&digest).unwrap(), b"the log of web1\n");
}

#[tokio::test]
async fn backup_holds_policies_and_design_values_of_nodes() {
    let first = BackupFixture::embedded().await;
    first.found(1).await;
    let policy = r#"{"policy":"cordoned","by":"ada","reason":"disk swap","since":"2026-11-15T10:00:00Z"}"#;
    first.put("policy/web1", policy).await;
    first.put("self/web1", r#"{"rack":"r1"}"#).await;
    let second = BackupFixture::embedded().await;
    second.restore(&first.backup().await, false).await.unwrap();
    let restored = second.keys().await;
    assert_eq!(restored, first.keys().await);
    assert_eq!(restored.get("policy/web1").map(Vec::as_slice), Some(policy.as_bytes()));
    assert!(restored.contains_key("self/web1"));
}

#[tokio::test]
async fn each_restore_begins_a_later_epoch() {
    let first = BackupFixture::embedded().await;
    first.found(2).await;
    let backup = first.backup().await;
    let second = BackupFixture::embedded().await;
    assert_eq!(second.restore(&backup, false).await.unwrap().epoch, 1_800_000_000);
    assert_eq!(second.epoch().await, 1_800_000_000);
    // A second restore at the same time of the clock.
    assert_eq!(second.restore(&backup, true).await.unwrap().epoch, 1_800_000_001);
    // A backup whose epoch is ahead of this machine's clock.
    first.put("store_epoch", "1900000000").await;
    assert_eq!(second.restore(&first.backup().await, true).await.unwrap().epoch, 1_900_000_001);
    assert_eq!(second.epoch().await, 1_900_000_001);
}

#[tokio::test]
async fn restored_leaders_get_later_epochs() {
    let fixture = BackupFixture::embedded().await;
    fixture.found(2).await;
    let datum = r#"{"value":"hunter2","secret":true,"by":"ann","at":"2026-11-15T10:00:00Z"}"#;
    let pause = r#"{"by":"ann","reason":"disk swap","since":"2026-11-15T10:00:00Z"}"#;
    let leader = |epoch: u64| format!(r#"{{"node":"web1","epoch":{epoch},"since":"2026-11-15T10:00:00Z"}}"#);
    for (key, value) in [
        ("data/global/port", datum),
        ("data/role/web/nova::port", datum),
        ("data/host/web1/port", datum),
        ("pauses/role/web", pause),
        ("published/web1", r#"{"db::binlog":"bin.7"}"#),
        ("asked/web1", r#"{"id":"a1","by":"ann","at":"2026-11-15T10:00:00Z"}"#),
        ("leaders/web", &leader(1_700_000_003)),
    ] {
        fixture.put(key, value).await;
    }
    let (backup, before) = (fixture.backup().await, fixture.keys().await);
    // Elections after the backup, with a clock that is ahead of ours.
    fixture.put("leaders/web", leader(1_900_000_000)).await;
    fixture.put("data/global/port", r#"{"value":1,"by":"bob","at":"2026-11-15T11:00:00Z"}"#).await;
    let restored = fixture.restore(&backup, true).await.unwrap();
    assert_eq!(fixture.keys().await, before);
    // The leader's record in the backup has a lower epoch than the restored store, which marks it as stale.
    assert_eq!(restored.epoch, 1_900_000_001);
}

#[tokio::test]
async fn existing_environment_is_replaced_only_on_demand() {
    let fixture = BackupFixture::embedded().await;
    fixture.found(3).await;
    let (backup, before) = (fixture.backup().await, fixture.keys().await);
    fixture.put("current_version", "v2").await;
    fixture.put("nodes/web9", r#"{"role":"web","failure_domain":"a"}"#).await;
    fixture.put("releases/v1", r#"{"digest":"sha256:2","serial":1}"#).await;
    let refused = fixture.restore(&backup, false).await.unwrap_err();
    assert_eq!(refused.to_string(), "environment prod already exists, with 4 nodes at version v2");
    assert_eq!(fixture.keys().await["current_version"], b"v2");

    let (file, contents) = file(&backup);
    let planned = check(file, &contents, &fixture.target(true)).await.unwrap();
    assert_eq!((planned.check, planned.put, planned.removed, planned.unchanged), (true, 2, 1, 13));
    assert_eq!(fixture.keys().await["current_version"], b"v2", "a check changes nothing");

    let restored = fixture.restore(&backup, true).await.unwrap();
    assert_eq!((restored.put, restored.removed, restored.unchanged), (2, 1, 13), "as it was said");
    assert_eq!(fixture.keys().await, before);
    // Keys of running processes are not touched.
    let keys = Keys::new(&env());
    assert_eq!(fixture.store.range(&format!("{}presence/", keys.prefix()), None).await.unwrap().kvs.len(), 3);
    assert_eq!(fixture.store.range(&format!("{}replicas/", keys.prefix()), None).await.unwrap().kvs.len(), 1);
}

#[tokio::test]
async fn restore_writes_the_version_even_if_unchanged() {
    let fixture = BackupFixture::embedded().await;
    fixture.found(1).await;
    let key = Keys::new(&env()).current_version();
    let before = fixture.store.get(&key).await.unwrap().unwrap().revision;
    let restored = fixture.restore(&fixture.backup().await, true).await.unwrap();
    let after = fixture.store.get(&key).await.unwrap().unwrap().revision;
    assert!(after > before);
    assert_eq!(Some(after), restored.revision, "with the epoch, in the last transaction");
}

#[tokio::test]
async fn missing_log_is_reported_and_does_not_block_the_backup() {
    let first = BackupFixture::embedded().await;
    first.found(3).await;
    let lost = first.blobs.put(b"the log of web1\n").unwrap();
    first.blobs.remove(&lost);
    let (_, contents) = file(&first.backup().await);
    assert_eq!((contents.ending.missing, contents.missing_parts), (vec![lost], vec![]));
    assert_eq!((contents.manifest.blobs, contents.ending.blobs), (3, 2));
    let restored = BackupFixture::embedded().await.restore(&first.backup().await, false).await.unwrap();
    assert_eq!((restored.blobs, restored.missing_blobs), (2, 1));
}

#[tokio::test]
async fn environment_that_does_not_exist_has_no_backup() {
    let fixture = BackupFixture::embedded().await;
    let taken = read_environment(fixture.store.as_ref(), &env(), now()).await;
    assert!(matches!(taken, Err(BackupError::Nothing { .. })), "{taken:?}");
}

#[tokio::test]
async fn restore_does_not_touch_other_environments() {
    let fixture = BackupFixture::embedded().await;
    fixture.found(1).await;
    let backup = fixture.backup().await;
    let other = muster_core::txn::Op::put("/muster/product/current_version", "v7");
    fixture.store.commit(muster_core::txn::Txn::new().op(other)).await.unwrap();
    fixture.restore(&backup, true).await.unwrap();
    let kv = fixture.store.get("/muster/product/current_version").await.unwrap().unwrap();
    assert_eq!(&kv.value[..], b"v7");
    assert!(matches!(fixture.restore(&backup, false).await, Err(RestoreError::Refused(_))));
}

#[tokio::test]
async fn restore_includes_release_bundles() {
    let fixture = BackupFixture::embedded().await;
    fixture.found(1).await;
    // Larger than the limit for blobs in memory, and not compressible.
    let mut number = 1_u64;
    let next = || {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (number >> 33) as u8
    };
    let bundle: Vec<u8> = std::iter::repeat_with(next).take(5 * 1024 * 1024).collect();
    let digest = fixture.blobs.put(&bundle).unwrap();
    let record = format!(
        r#"{{"digest":"sha256:{digest}","serial":2,"size":{},"content":"sha256:{digest}","pushed":"2026-11-15T10:00:00Z",
        "signed":{{"payload":"","signatures":[]}},"by":"ann"}}"#,
        bundle.len()
    );
    fixture.put("releases/v2", record.as_str()).await;
    let trust = r#"{"payload":"{}","signatures":[]}"#;
    fixture.put("trust", trust).await;
    let backup = fixture.backup().await;

    let back = BackupFixture::embedded().await;
    back.restore(&backup, false).await.unwrap();
    assert!(back.blobs.get(&digest).unwrap() == bundle, "the bundle is another one");
    assert_eq!(back.keys().await["trust"], trust.as_bytes());

    // A damaged blob counts as missing.
    let path = fixture.dir.path().join("blobs").join(&digest[..2]).join(&digest[2..]);
    let mut damaged = bundle.clone();
    damaged[3_000_000] ^= 1;
    std::fs::write(path, &damaged).unwrap();
    let (_, contents) = file(&fixture.backup().await);
    assert_eq!(contents.ending.missing, std::slice::from_ref(&digest));
    assert_eq!(contents.missing_parts, [MissingPart { digest, part: "the bundle of release v2".into() }]);
}

#[tokio::test]
async fn backup_without_bundle_or_design_is_incomplete() {
    let fixture = BackupFixture::embedded().await;
    fixture.found(1).await;
    let [bundle, manifest] = ["a bundle", "a design"].map(|text| Blobs::digest(text.as_bytes()));
    let release = format!(
        r#"{{"digest":"sha256:{bundle}","serial":2,"size":8,"content":"sha256:{bundle}","pushed":"2026-11-15T10:00:00Z",
        "signed":{{"payload":"","signatures":[]}},"by":"ann"}}"#
    );
    fixture.put("releases/v2", release).await;
    let design = format!(r#"{{"author":"ann","message":"","at":"2026-11-15T10:00:00Z","manifest":"{manifest}"}}"#);
    fixture.put("design/3", design).await;
    let backup = fixture.backup().await;
    let (bytes, contents) = file(&backup);
    let mut parts: Vec<&str> = contents.missing_parts.iter().map(|missing| missing.part.as_str()).collect();
    parts.sort_unstable();
    assert_eq!(parts, ["revision 3 of the design", "the bundle of release v2"]);

    let there = BackupFixture::embedded().await;
    let refused = there.restore(&backup, false).await.unwrap_err().to_string();
    assert!(refused.starts_with("the backup is incomplete: it lacks "), "{refused}");
    assert!(
        refused.contains("the bundle of release v2 (") && refused.contains("revision 3 of the design ("),
        "{refused}"
    );
    assert!(there.keys().await.is_empty(), "nothing was changed");
    let refused = check(bytes.try_clone().unwrap(), &contents, &there.target(false)).await;
    assert!(matches!(refused, Err(RestoreError::Refused(_))), "{refused:?}");

    // What the blob directory has is not missing.
    there.blobs.put(b"a bundle").unwrap();
    let target = RestoreTarget { incomplete: true, ..there.target(false) };
    let restored = restore(bytes, &contents, &target, |_| {}).await.unwrap();
    assert_eq!(restored.missing_parts, [MissingPart { digest: manifest, part: "revision 3 of the design".into() }]);
}
