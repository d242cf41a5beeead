//! Restores of a fleet with connected agents.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::future::join_all;
use muster_core::keys::{Key, parse};
use muster_core::node::status::Activity;
use muster_core::report::Report;
use muster_wire::backup::RestoreQuery;
use muster_wire::problem::ProblemCode;
use muster_wire::sync::SyncOpen;

use crate::fixture::{CHANGED, Fixture, PASSED, http, node, version};

const NODES: [(&str, &str); 6] =
    [("web1", "web"), ("web2", "web"), ("web3", "web"), ("web4", "web"), ("db1", "db"), ("db2", "db")];
pub(crate) const REPLACE: RestoreQuery = RestoreQuery { replace: true, check: false, incomplete: false };

pub(crate) async fn backup(fixture: &Fixture) -> Vec<u8> {
    let mut download = fixture.client.backup(&fixture.env).await.unwrap();
    let mut bytes = Vec::new();
    while let Some(piece) = download.next().await.unwrap() {
        bytes.extend_from_slice(piece.as_ref());
    }
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_during_a_restore_leave_consistent_nodes() {
    let fixture = Fixture::start(&NODES).await;
    join_all(NODES.iter().map(|(name, _)| fixture.validate(name, 1))).await;
    let saved = backup(&fixture).await;
    fixture.client.trigger_at_once(&fixture.env, version("v2")).await.unwrap();

    let (stop, taken) = (AtomicBool::new(false), AtomicUsize::new(0));
    let reporting = NODES.iter().map(|(name, _)| async {
        let mut seq = 1;
        while !stop.load(Ordering::SeqCst) {
            seq += 1;
            let (outcome, at) = if seq % 2 == 0 { (CHANGED, "v2") } else { (PASSED, "v2") };
            let report = Report { version: version(at), ..fixture.report(name, 1, seq, outcome) };
            match fixture.client.report(&fixture.env, &report).await {
                Ok(_) => taken.fetch_add(1, Ordering::SeqCst),
                // Refused during the restore, and while the node does not exist. The agent keeps the report and retries.
                Err(error) => {
                    let code = error.problem().map(|problem| problem.code);
                    let expected = [
                        ProblemCode::CannotTell,
                        ProblemCode::UnknownNode,
                        ProblemCode::UnknownEnvironment,
                        ProblemCode::Conflict,
                    ];
                    assert!(code.is_some_and(|code| expected.contains(&code)), "{error:?}");
                    0
                }
            };
        }
    });
    let restoring = async {
        for _ in 0..8 {
            let before = taken.load(Ordering::SeqCst);
            let restored = fixture.client.restore(&fixture.env, REPLACE, saved.clone()).await.unwrap();
            assert_eq!(restored.manifest.nodes, NODES.len());
            while taken.load(Ordering::SeqCst) < before + 20 {
                tokio::task::yield_now().await;
            }
        }
        stop.store(true, Ordering::SeqCst);
    };
    tokio::join!(join_all(reporting), restoring);

    let mut leaves: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (key, _) in fixture.state().await {
        if let Some((_, Key::Status { node, .. })) = parse(&key) {
            leaves.entry(node.to_string()).or_default().push(key);
        }
    }
    assert_eq!(leaves.len(), NODES.len());
    assert!(leaves.values().all(|leaves| leaves.len() == 1), "{leaves:#?}");
    assert!(!fixture.state().await.iter().any(|(key, _)| key.ends_with("/restoring")));
    fixture.stop().await;
}

#[tokio::test]
async fn agents_with_a_later_generation_get_a_newer_epoch() {
    let fixture = Fixture::start(&[("web1", "web")]).await;
    fixture.validate("web1", 1).await;
    let saved = backup(&fixture).await;
    let triggered = fixture.client.trigger_at_once(&fixture.env, version("v2")).await.unwrap();
    let known = fixture.app.view.fleets()[&fixture.env].desired().unwrap().generation;
    assert_eq!(known.number, triggered.revision.0);

    let open = SyncOpen {
        incarnation: Some(1),
        generation: Some(known),
        has_snapshot: true,
        activity: Activity::Idle,
        ..SyncOpen::default()
    };
    let mut stream = fixture.open("web1", &open).await;
    fixture.client.restore(&fixture.env, REPLACE, saved).await.unwrap();
    // The stream ends without a desired version from the middle of the restore.
    while let Ok(Some(event)) = stream.next().await {
        assert!(!matches!(event, muster_wire::sync::SyncEvent::Desired(_)), "{event:?}");
    }

    let mut stream = fixture.open("web1", &open).await;
    let desired = loop {
        if let muster_wire::sync::SyncEvent::Desired(desired) = crate::fixture::next(&mut stream).await {
            break desired;
        }
    };
    assert_eq!(desired.version, version("v1"));
    assert!(desired.generation > known, "{} {known}", desired.generation);
    // Its earlier validation does not count until the agent has reported in this epoch.
    let late = |fixture: &Fixture| fixture.app.view.fleets()[&fixture.env].late().contains(&node("web1"));
    assert!(late(&fixture));
    fixture.send(&Report { generation: desired.generation, ..fixture.report("web1", 1, 2, CHANGED) }).await;
    fixture.wait_for("nothing is proved", |fleet| fleet.running().is_empty()).await;
    fixture.send(&Report { generation: desired.generation, ..fixture.report("web1", 1, 3, PASSED) }).await;
    fixture.wait_for("it is proved", |fleet| fleet.running().contains_key(&version("v1"))).await;
    assert!(!late(&fixture));
    fixture.stop().await;
}

#[tokio::test]
async fn restore_with_another_content_type_is_refused() {
    let fixture = Fixture::start(&[("web1", "web")]).await;
    let saved = backup(&fixture).await;
    let url = fixture.url("/v1/envs/test/restore?check=true&replace=true");
    for (kind, status) in [
        (None, 415),
        (Some("text/plain"), 415),
        (Some("application/x-www-form-urlencoded"), 415),
        (Some("application/zstd"), 200),
    ] {
        let request = http().post(&url).body(saved.clone());
        let request = kind.into_iter().fold(request, |request, kind| request.header("content-type", kind));
        assert_eq!(request.send().await.unwrap().status().as_u16(), status, "{kind:?}");
    }
    fixture.stop().await;
}
