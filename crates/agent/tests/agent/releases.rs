//! Downloads of releases: interrupted, damaged, forged, older or expired.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use muster_core::names::Version;
use muster_core::node::status::Activity;
use muster_core::release::manifest::{Digest, ReleaseEnv};
use muster_core::report::reason::{ReleaseRefusal, RunReason};
use muster_core::report::{Outcome, Report, RunResult, Verdict};
use muster_release::bundle::BundleInfo;
use muster_release::key::SigningKey;
use muster_release::manifest::{self, ReleaseLabel};
use muster_testkit::wait::until;
use muster_testkit::{SmallDisk, passed_in_a_namespace};
use muster_wire::problem::ProblemCode;
use muster_wire::sync::{DesiredState, RequestedRun, SyncEvent};

use crate::bundles::{self, DownloadFault};
use crate::fake_server::FakeServer;
use crate::fixture::{AgentFixture, AgentProcess, first_events, with_dbs};

/// A release with a script and incompressible bytes, large enough to be cut.
fn large_release(fixture: &AgentFixture, version: &str, number: u64) -> DesiredState {
    fixture.release(version, "echo x >> $MUSTER_ROOT/ran; exit 0", "");
    let mut noise = 1_u32;
    let bytes = std::iter::repeat_with(|| {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        noise.to_be_bytes()[0]
    });
    let bytes: Vec<u8> = bytes.take(2_000_000).collect();
    fs::write(fixture.path().join("releases").join(version).join("noise"), bytes).unwrap();
    fixture.desired(version, number)
}

fn runs(fixture: &AgentFixture) -> usize {
    fs::read_to_string(fixture.path().join("root/ran")).unwrap_or_default().lines().count()
}

/// Waits for the report of a failed run. Returns its reason.
async fn failed(server: &mut FakeServer) -> RunReason {
    let report = server.report().await;
    assert_eq!(report.outcome, Outcome::Configured(RunResult::Failed), "{:?}", report.reason);
    report.reason.unwrap()
}

/// Waits until the agent is idle, and all its reports are acknowledged.
async fn settled(server: &mut FakeServer) {
    server.activity(|now| *now == Activity::Idle).await;
}

async fn validated(server: &mut FakeServer) -> Report {
    loop {
        let report = server.report().await;
        if report.outcome == Outcome::Validated(Verdict::Passed) {
            return report;
        }
    }
}

fn cached_releases(fixture: &AgentFixture) -> Vec<String> {
    let Ok(entries) = fs::read_dir(fixture.state().join("releases")) else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name().into_string().unwrap());
    // Evicted releases are removed some time later.
    let mut names: Vec<_> = names.filter(|name| !name.starts_with("evicted-")).collect();
    names.sort();
    names
}

fn part(fixture: &AgentFixture, desired: &DesiredState) -> PathBuf {
    let digest = Digest::new(desired.digest.as_str()).unwrap();
    fixture.state().join("releases").join(format!("incoming-{}.part", digest.hex()))
}

#[tokio::test]
async fn interrupted_download_is_resumed() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let desired = large_release(&fixture, "v1", 1);
    let cuts = [
        DownloadFault::CutAfter(300_000),
        DownloadFault::CutAfter(1),
        DownloadFault::CutAfter(0),
        DownloadFault::CutAfter(700_000),
    ];
    bundles::fail(server.address, cuts);
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let _agent = fixture.start();
    validated(&mut server).await;
    assert_eq!(runs(&fixture), 1);
    let offsets = bundles::offsets(server.address);
    assert_eq!(offsets[0], 0);
    // The number of bytes that arrived before each cut is not deterministic.
    assert!(offsets.len() == 5 && offsets.windows(2).all(|pair| pair[0] <= pair[1]) && offsets[4] > 0, "{offsets:?}");
    // No partial download is left, and the next run needs no server.
    assert_eq!(cached_releases(&fixture), [desired.digest.trim_start_matches("sha256:")]);
    server.send(SyncEvent::Run(RequestedRun { id: "a".into(), by: "ada".into(), ..RequestedRun::default() })).await;
    validated(&mut server).await;
    assert_eq!(bundles::offsets(server.address).len(), 5);
}

/// Two large releases of which the script differs. The first is validated, and the server has the delta to the second.
async fn with_delta(server: &mut FakeServer) -> (AgentFixture, AgentProcess, DesiredState) {
    let fixture = AgentFixture::new(server.address);
    let first = large_release(&fixture, "v1", 1);
    large_release(&fixture, "v2", 2);
    fixture.release("v2", "echo y >> $MUSTER_ROOT/ran; exit 0", "");
    let second = fixture.desired("v2", 2);
    bundles::put_delta(&fixture.path().join("bundles"), "v1", "v2");
    server.set_first_events(first_events(&first, with_dbs(1, &[])));
    let agent = fixture.start();
    validated(server).await;
    settled(server).await;
    (fixture, agent, second)
}

/// The file of noise of a cached release.
fn noise(fixture: &AgentFixture, digest: &str) -> fs::Metadata {
    let release = fixture.state().join("releases").join(digest.trim_start_matches("sha256:"));
    fs::metadata(release.join("noise")).unwrap()
}

#[tokio::test]
async fn unchanged_files_are_neither_downloaded_nor_written() {
    let mut server = FakeServer::start().await;
    let (fixture, _agent, second) = with_delta(&mut server).await;
    let first = cached_releases(&fixture).remove(0);
    server.send(SyncEvent::Desired(second.clone())).await;
    assert_eq!(validated(&mut server).await.version.as_str(), "v2");
    assert_eq!(bundles::offsets(server.address), [0], "the bundle of v1 alone was downloaded");
    assert_eq!(noise(&fixture, &first).ino(), noise(&fixture, &second.digest).ino());
    assert_eq!(fs::read_to_string(fixture.path().join("root/ran")).unwrap(), "x\ny\n");
    let mut cached = vec![first, second.digest.trim_start_matches("sha256:").to_owned()];
    cached.sort();
    assert_eq!(cached_releases(&fixture), cached, "the delta is removed");
}

#[tokio::test]
async fn bundle_is_downloaded_if_the_delta_is_invalid() {
    let mut server = FakeServer::start().await;
    let (fixture, _agent, second) = with_delta(&mut server).await;
    let delta = bundles::delta_path(&fixture.path().join("bundles"), "v2");
    let bytes = fs::read(&delta).unwrap();
    fs::write(&delta, &bytes[..bytes.len() - 20]).unwrap();
    server.send(SyncEvent::Desired(second.clone())).await;
    assert_eq!(validated(&mut server).await.version.as_str(), "v2");
    assert_eq!(bundles::offsets(server.address), [0, 0]);
    assert_eq!(noise(&fixture, &second.digest).nlink(), 1);
    assert_eq!(cached_releases(&fixture).len(), 2, "neither the delta nor a part is left");
}

#[tokio::test]
async fn bundle_is_downloaded_if_the_previous_release_is_damaged() {
    let mut server = FakeServer::start().await;
    let (fixture, _agent, second) = with_delta(&mut server).await;
    let first = fixture.state().join("releases").join(cached_releases(&fixture).remove(0));
    fs::write(first.join("noise"), "spoilt").unwrap();
    server.send(SyncEvent::Desired(second.clone())).await;
    assert_eq!(validated(&mut server).await.version.as_str(), "v2");
    assert_eq!(bundles::offsets(server.address), [0, 0]);
    assert_eq!(noise(&fixture, &second.digest).len(), 2_000_000);
}

#[tokio::test]
async fn killed_agent_resumes_its_download_from_another_server() {
    let server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let desired = large_release(&fixture, "v1", 1);
    bundles::fail(server.address, [DownloadFault::FreezeAfter(1_000_000)]);
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let agent = fixture.start();
    let part = part(&fixture, &desired);
    until("half of the bundle has arrived", || fs::metadata(&part).map_or(0, |meta| meta.len()) >= 500_000).await;
    agent.killed().await;
    let before = fs::metadata(&part).unwrap().len();

    // The server is replaced in the meantime.
    let mut second = server.start_beside().await;
    second.set_first_events(first_events(&desired, with_dbs(1, &[])));
    server.stop();
    let fixture = fixture.with_server(second.address);
    let _agent = fixture.start();
    validated(&mut second).await;
    assert_eq!(bundles::offsets(second.address), [before]);
    assert_eq!(runs(&fixture), 1);
}

#[tokio::test]
async fn leftovers_of_a_killed_download_are_used_or_removed() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let desired = large_release(&fixture, "v1", 1);
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let agent = fixture.start();
    validated(&mut server).await;
    settled(&mut server).await;
    agent.killed().await;
    // State after a kill during unpacking, when the download was complete; plus a release that is no longer needed.
    let (cache, hex) = (fixture.state().join("releases"), desired.digest.trim_start_matches("sha256:"));
    fs::remove_dir_all(cache.join(hex)).unwrap();
    fs::copy(fixture.path().join("bundles/v1"), part(&fixture, &desired)).unwrap();
    fs::create_dir(cache.join(format!("incoming-{hex}"))).unwrap();
    fs::write(cache.join(format!("incoming-{hex}/apply")), "half").unwrap();
    fs::write(cache.join(format!("incoming-{}.part", "0".repeat(64))), "old").unwrap();
    let _agent = fixture.start();
    validated(&mut server).await;
    assert_eq!(cached_releases(&fixture), [hex]);
    assert_eq!(bundles::offsets(server.address), [0], "a cached bundle is not downloaded again");
    assert_eq!(runs(&fixture), 2);
}

#[tokio::test]
async fn damaged_bundle_is_refused_and_downloaded_again() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let desired = large_release(&fixture, "v1", 1);
    bundles::fail(server.address, [DownloadFault::Flip(1_234_567)]);
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let _agent = fixture.start();
    let reason = failed(&mut server).await;
    assert!(matches!(&reason, RunReason::DigestMismatch { expected, .. } if *expected == desired.digest), "{reason}");
    assert_eq!(runs(&fixture), 0);
    validated(&mut server).await;
    assert_eq!(bundles::offsets(server.address), [0, 0]);
}

#[tokio::test]
async fn damaged_part_is_downloaded_again_from_the_start() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let desired = large_release(&fixture, "v1", 1);
    bundles::fail(server.address, [DownloadFault::FreezeAfter(1_000_000)]);
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let agent = fixture.start();
    let part = part(&fixture, &desired);
    until("half of the bundle has arrived", || fs::metadata(&part).map_or(0, |meta| meta.len()) >= 500_000).await;
    agent.killed().await;
    // State after a power failure: the file has its length, but not its content.
    let length = fs::metadata(&part).unwrap().len() as usize;
    fs::write(&part, vec![0; length]).unwrap();
    let _agent = fixture.start();
    validated(&mut server).await;
    assert_eq!(bundles::offsets(server.address), [0, length as u64, 0]);
}

#[tokio::test]
async fn unexpected_answers_do_not_prevent_a_download() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let desired = large_release(&fixture, "v1", 1);
    bundles::fail(
        server.address,
        [
            DownloadFault::Refuse(ProblemCode::StoreUnavailable),
            DownloadFault::CutAfter(400_000),
            DownloadFault::IgnoreOffset,
            DownloadFault::Refuse(ProblemCode::RangeNotSatisfiable),
        ],
    );
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let _agent = fixture.start();
    validated(&mut server).await;
    assert_eq!(runs(&fixture), 1);
}

#[tokio::test]
async fn bundle_longer_than_its_manifest_is_dropped() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let desired = large_release(&fixture, "v1", 1);
    bundles::fail(server.address, [DownloadFault::TooLong]);
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let _agent = fixture.start();
    validated(&mut server).await;
    assert_eq!(bundles::offsets(server.address), [0, 0]);
}

#[tokio::test]
async fn bundle_that_is_cut_short_fails_the_run() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let desired = large_release(&fixture, "v1", 1);
    let bundle = fixture.path().join("bundles/v1");
    fs::OpenOptions::new().write(true).open(&bundle).unwrap().set_len(1_000_000).unwrap();
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let _agent = fixture.start();
    let reason = failed(&mut server).await.to_string();
    assert!(reason.contains("cannot download version v1"), "{reason}");
    let offsets = bundles::offsets(server.address);
    assert!(offsets.iter().filter(|offset| **offset == 0).count() <= 3, "{offsets:?}");
    // Another version reaches the node.
    let second = large_release(&fixture, "v2", 2);
    server.send(SyncEvent::Desired(second)).await;
    assert_eq!(validated(&mut server).await.version.as_str(), "v2");
}

#[tokio::test]
async fn newer_desired_state_cancels_a_download() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let (first, second) = (large_release(&fixture, "v1", 1), large_release(&fixture, "v2", 2));
    bundles::fail(server.address, [DownloadFault::FreezeAfter(1_000_000)]);
    server.set_first_events(first_events(&first, with_dbs(1, &[])));
    let _agent = fixture.start();
    let part = part(&fixture, &first);
    until("half of the bundle has arrived", || fs::metadata(&part).map_or(0, |meta| meta.len()) >= 500_000).await;
    server.send(SyncEvent::Run(RequestedRun { id: "a".into(), by: "ada".into(), ..RequestedRun::default() })).await;
    server.send(SyncEvent::Desired(second)).await;
    let report = server.report().await;
    assert_eq!(report.version.as_str(), "v2", "the cancelled run is not reported");
    let causes: Vec<_> = report.causes.iter().map(ToString::to_string).collect();
    assert!(causes.contains(&"version v2".to_owned()) && !causes.contains(&"version v1".to_owned()), "{causes:?}");
    assert!(causes.iter().any(|cause| cause.contains("ada")), "{causes:?}");
    validated(&mut server).await;
    assert_eq!(runs(&fixture), 1);
}

#[tokio::test]
async fn unavailable_release_fails_the_run_and_is_retried() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let desired = large_release(&fixture, "v1", 1);
    let bundle = fixture.path().join("bundles/v1");
    fs::rename(&bundle, bundle.with_extension("away")).unwrap();
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let _agent = fixture.start();
    let reason = failed(&mut server).await.to_string();
    assert!(
        reason.contains("cannot download version v1: the server refused") && reason.contains("0 bytes of"),
        "{reason}"
    );
    fs::rename(bundle.with_extension("away"), &bundle).unwrap();
    validated(&mut server).await;
    assert_eq!(runs(&fixture), 1);
}

#[tokio::test]
async fn release_of_an_unknown_key_is_refused_until_it_is_trusted() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let mut desired = fixture.release("v1", "echo x >> $MUSTER_ROOT/ran; exit 0", "");
    let other = SigningKey::generate("new").unwrap();
    let manifest = desired.manifest.read().unwrap();
    desired.manifest = manifest::sign(&manifest, std::slice::from_ref(&other)).unwrap();
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let _agent = fixture.start();
    let signed_by = vec![other.public().id().to_string()];
    let refused = RunReason::ReleaseRefused { refusal: ReleaseRefusal::UnknownKey { signed_by } };
    assert_eq!(failed(&mut server).await, refused);
    // A list that is signed only by the new key itself is refused.
    let keys = || vec![other.public().clone()];
    let own = manifest::sign_list(1, keys(), std::slice::from_ref(&other)).unwrap();
    server.send(SyncEvent::Trust { trust: own }).await;
    assert_eq!(failed(&mut server).await, refused);
    assert_eq!((runs(&fixture), bundles::offsets(server.address).len()), (0, 0), "nothing is even fetched");
    let list = manifest::sign_list(2, keys(), std::slice::from_ref(fixture.key())).unwrap();
    server.send(SyncEvent::Trust { trust: list }).await;
    validated(&mut server).await;
    // The agent sends the number of its list with the next stream, so that the server does not send the list again.
    server.cut_stream();
    assert_eq!(server.opened().await.trust, 2);
}

#[tokio::test]
async fn expired_release_is_refused_unless_already_applied() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    fixture.release("v1", "echo x >> $MUSTER_ROOT/ran; exit 0", "");
    let now = now();
    let hour = SignedDuration::from_hours(1);
    let ended = now.saturating_sub(hour).unwrap();
    let late = fixture.desired_until("v1", 1, Some(ended));
    server.set_first_events(first_events(&late, with_dbs(1, &[])));
    let _agent = fixture.start();
    let RunReason::ReleaseRefused { refusal: ReleaseRefusal::Expired { at } } = failed(&mut server).await else {
        panic!()
    };
    assert_eq!(at, ended);
    assert_eq!(runs(&fixture), 0);
    let in_time = fixture.desired_until("v1", 2, Some(now.saturating_add(hour).unwrap()));
    server.send(SyncEvent::Desired(in_time)).await;
    validated(&mut server).await;
    // The same bundle, now expired: the node already runs it.
    server.send(SyncEvent::Desired(fixture.desired_until("v1", 3, Some(ended)))).await;
    validated(&mut server).await;
    assert_eq!(runs(&fixture), 2);
}

#[expect(clippy::disallowed_methods, reason = "the end of a release is compared with the machine's clock")]
fn now() -> Timestamp {
    Timestamp::now()
}

#[tokio::test]
async fn older_release_needs_permission_also_without_a_ledger() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    fixture.release("v1", "echo one >> $MUSTER_ROOT/ran; exit 0", "");
    fixture.release("v2", "echo two >> $MUSTER_ROOT/ran; exit 0", "");
    let second = fixture.desired("v2", 7);
    server.set_first_events(first_events(&second, with_dbs(1, &[])));
    let agent = fixture.start();
    validated(&mut server).await;
    settled(&mut server).await;
    agent.killed().await;
    // The ledger is damaged, and moved aside. The server knows the role and the desired state of the node, but not its
    // highest serial.
    fs::write(fixture.state().join("ledger.json"), "{").unwrap();
    let mut first = fixture.desired("v1", 3);
    first.generation.number = 8;
    server.set_first_events(first_events(&first, with_dbs(1, &[])));
    let _agent = fixture.start();
    let refused = failed(&mut server).await;
    assert_eq!(refused, RunReason::ReleaseRefused { refusal: ReleaseRefusal::Older { serial: 3, highest: 7 } });
    assert_eq!(runs(&fixture), 1);
    assert!(fixture.state().join("ledger.json.broken").exists());
    first.generation.number = 9;
    first.allow_older = true;
    server.send(SyncEvent::Desired(first.clone())).await;
    validated(&mut server).await;
    // From now on serials are compared with this release.
    let mut between = fixture.desired("v2", 5);
    between.generation.number = 10;
    server.send(SyncEvent::Desired(between)).await;
    assert_eq!(validated(&mut server).await.version.as_str(), "v2");
}

/// The reverse case: the history is damaged, and the ledger has the validated release.
#[tokio::test]
async fn older_release_is_refused_after_its_history_is_damaged() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    fixture.release("v1", "echo one >> $MUSTER_ROOT/ran; exit 0", "");
    fixture.release("v2", "echo two >> $MUSTER_ROOT/ran; exit 0", "");
    server.set_first_events(first_events(&fixture.desired("v2", 7), with_dbs(1, &[])));
    let agent = fixture.start();
    validated(&mut server).await;
    settled(&mut server).await;
    agent.killed().await;
    fs::write(fixture.state().join("releases.json"), "{").unwrap();
    let mut first = fixture.desired("v1", 3);
    first.generation.number = 8;
    server.set_first_events(first_events(&first, with_dbs(1, &[])));
    let log = fixture.path().join("log");
    let _agent = fixture.start_with_log(&log);
    let refused = failed(&mut server).await;
    assert_eq!(refused, RunReason::ReleaseRefused { refusal: ReleaseRefusal::Older { serial: 3, highest: 7 } });
    assert_eq!(runs(&fixture), 1);
    assert!(fixture.state().join("releases.json.broken").exists());
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("ERROR") && log.contains("cannot parse a state file"), "{log}");
}

/// The server notifies a node about the keys that its last report watches.
#[tokio::test]
async fn refused_release_keeps_the_watched_keys() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let first = fixture.release("v1", "echo active_roles::db >> $MUSTER_LOOKUPS_FILE; exit 0", "");
    server.set_first_events(first_events(&first, with_dbs(1, &["db1"])));
    let _agent = fixture.start();
    let watched = validated(&mut server).await.lookups;
    assert!(watched.contains_key("active_roles::db"), "{watched:?}");
    fixture.release("v2", "exit 0", "");
    let ended = Some(Timestamp::UNIX_EPOCH);
    server.send(SyncEvent::Desired(fixture.desired_until("v2", 2, ended))).await;
    for _ in 0..2 {
        let refused = server.report().await;
        assert!(matches!(refused.reason, Some(RunReason::ReleaseRefused { .. })), "{:?}", refused.reason);
        assert_eq!(refused.lookups, watched, "they also survive the next refusal");
    }
}

#[tokio::test]
async fn manifest_of_another_version_is_refused() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let first = fixture.release("v1", "exit 0", "");
    let mut second = fixture.release("v2", "echo x >> $MUSTER_ROOT/ran; exit 0", "");
    second.manifest = first.manifest;
    server.set_first_events(first_events(&second, with_dbs(1, &[])));
    let _agent = fixture.start();
    let refused = failed(&mut server).await;
    let RunReason::ReleaseRefused { refusal: ReleaseRefusal::ManifestMismatch { what } } = &refused else {
        panic!("{refused}")
    };
    assert_eq!(what, "it is version v1, but the desired version is v2");
    assert_eq!(runs(&fixture), 0);
}

/// Signs arbitrary bytes, as another program with the key could.
fn signed(fixture: &AgentFixture, bundle: &[u8]) -> DesiredState {
    let (digest, size) = muster_release::bundle::digest_of(bundle).unwrap();
    let version = Version::new("v1").unwrap();
    let label = ReleaseLabel {
        version: version.clone(),
        env: ReleaseEnv::Any,
        serial: 1,
        created: Timestamp::UNIX_EPOCH,
        expires: None,
        previous: None,
    };
    let content = Digest::new(format!("sha256:{}", "0".repeat(64))).unwrap();
    let packed = BundleInfo { digest: digest.clone(), size, content, files: 1, content_size: u64::MAX };
    let signed = manifest::sign(&manifest::create(label, &packed), std::slice::from_ref(fixture.key())).unwrap();
    bundles::put(&fixture.path().join("bundles"), &version, &digest, bundle);
    let mut desired = fixture.release("v1", "exit 0", "");
    bundles::put(&fixture.path().join("bundles"), &version, &digest, bundle);
    (desired.digest, desired.manifest) = (digest.to_string(), signed);
    desired
}

fn tar(kind: tar::EntryType, name: &[u8], link: Option<&str>, size: u64) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    // Written directly: tar libraries refuse such a name.
    header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name);
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(size);
    if let Some(link) = link {
        header.set_link_name(link).unwrap();
    }
    header.set_cksum();
    let mut zstd = zstd::Encoder::new(Vec::new(), 1).unwrap();
    std::io::copy(&mut &header.as_bytes()[..], &mut zstd).unwrap();
    std::io::copy(&mut std::io::Read::take(std::io::repeat(0), size.next_multiple_of(512) + 1024), &mut zstd).unwrap();
    zstd.finish().unwrap()
}

#[tokio::test]
async fn signed_bundle_with_unsafe_entries_is_refused() {
    let bomb = 2 * muster_core::release::dir::SIZE_LIMIT;
    for (bundle, says) in [
        (tar(tar::EntryType::Regular, b"../../escaped", None, 4), "leads out of the release"),
        (tar(tar::EntryType::Regular, b"/tmp/escaped", None, 4), "is absolute"),
        (tar(tar::EntryType::Symlink, b"link", Some("/etc/passwd"), 0), "files and directories only"),
        (tar(tar::EntryType::Link, b"link", Some("../ledger.json"), 0), "files and directories only"),
        (tar(tar::EntryType::Block, b"disk", None, 0), "files and directories only"),
        (tar(tar::EntryType::Regular, b"bomb", None, bomb), "the release is larger than"),
    ] {
        let mut server = FakeServer::start().await;
        let fixture = AgentFixture::new(server.address);
        let desired = signed(&fixture, &bundle);
        server.set_first_events(first_events(&desired, with_dbs(1, &[])));
        let _agent = fixture.start();
        for _ in 0..2 {
            let refused = failed(&mut server).await;
            let RunReason::ReleaseRefused { refusal: ReleaseRefusal::Unsafe { problem } } = &refused else {
                panic!("{refused}")
            };
            assert!(problem.contains(says), "{says:?} is not in: {problem}");
        }
        assert_eq!(bundles::offsets(server.address), [0], "a refused bundle is not downloaded again");
        let part = part(&fixture, &desired);
        assert_eq!(
            cached_releases(&fixture),
            [part.file_name().unwrap().to_str().unwrap()],
            "nothing of it is unpacked"
        );
        assert!(!fixture.state().join("escaped").exists() && !fixture.path().join("escaped").exists());
    }
}

#[tokio::test]
async fn cached_release_runs_without_a_server() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let desired = fixture.release("v1", "echo x >> $MUSTER_ROOT/ran; exit 0", "");
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let agent = fixture.start();
    validated(&mut server).await;
    agent.killed().await;
    server.stop();
    // A restart causes a run.
    let _agent = fixture.start();
    until("the node runs again", || runs(&fixture) >= 2).await;
}

#[tokio::test]
async fn only_the_last_releases_are_kept() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let (mut digests, mut agent) = (Vec::new(), None);
    for number in 1..=5 {
        let version = format!("v{number}");
        fixture.release(&version, &format!("exit 0 # {number}"), "");
        let desired = fixture.desired(&version, number);
        digests.push(desired.digest.trim_start_matches("sha256:").to_owned());
        if number == 1 {
            server.set_first_events(first_events(&desired, with_dbs(1, &[])));
            agent = Some(fixture.start());
        } else {
            server.send(SyncEvent::Desired(desired)).await;
        }
        validated(&mut server).await;
    }
    assert!(agent.is_some());
    let mut last = digests.split_off(2);
    last.sort();
    assert_eq!(cached_releases(&fixture), last);
}

#[tokio::test]
async fn release_too_large_for_the_disk_fails_the_run() {
    if passed_in_a_namespace() {
        return;
    }
    for size in ["1m", "3m"] {
        // Too small for the bundle, or large enough for the bundle but not for its content.
        let disk = SmallDisk::mount(size);
        let mut server = FakeServer::start().await;
        let fixture = AgentFixture::new(server.address).with_state(disk.path().join("state"));
        let desired = large_release(&fixture, "v1", 1);
        server.set_first_events(first_events(&desired, with_dbs(1, &[])));
        let _agent = fixture.start();
        let problem = failed(&mut server).await.to_string();
        assert!(problem.contains("4 MB are needed on the disk of"), "{problem}");
        assert_eq!(bundles::offsets(server.address), [0; 0], "nothing was downloaded");
        assert_eq!(runs(&fixture), 0);
        // A smaller release still fits.
        fixture.release("v2", "echo x >> $MUSTER_ROOT/ran; exit 0", "");
        server.send(SyncEvent::Desired(fixture.desired("v2", 2))).await;
        assert_eq!(validated(&mut server).await.version.as_str(), "v2");
    }
}
