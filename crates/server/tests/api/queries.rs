//! Read requests of operators: verification, filters, pages and the current version.

use muster_core::keys::Keys;
use muster_core::node::evidence::NotCounted;
use muster_core::node::status::{NodeState, Reason};
use muster_core::report::{Outcome, RunResult};
use muster_core::txn::{Op, Revision, Txn};
use muster_wire::operator::{TriggerUpdate, VerifyHostsRequest};
use muster_wire::problem::ProblemCode;
use muster_wire::sync::SyncOpen;

use crate::fixture::{CHANGED, Fixture, PASSED, next, node, version};

fn verify_request(hosts: &[&str], wait_seconds: u64) -> VerifyHostsRequest {
    VerifyHostsRequest {
        version: version("v1"),
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        wait_seconds,
        recorded: false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_are_verified_by_name_and_missing_ones_listed() {
    let fixture = Fixture::start(&[("db1_blue", "db"), ("web1", "web")]).await;
    let _stream = fixture.open("db1_blue", &SyncOpen::default()).await;
    fixture.validate("db1_blue", 1).await;
    let verify =
        async |hosts: &[&str]| fixture.client.verify_hosts(&fixture.env, &verify_request(hosts, 0)).await.unwrap();
    assert!(verify(&["db1_blue"]).await.verified);
    assert!(verify(&["db1-blue"]).await.verified);
    let answer = verify(&["db1-blue", "web1", "nobody7"]).await;
    assert!(!answer.verified);
    let missing: Vec<_> = answer.missing.iter().map(|missing| (missing.host.as_str(), missing.state)).collect();
    assert_eq!(missing, [("web1", Some(NodeState::Silent)), ("nobody7", None)]);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn verification_returns_as_soon_as_it_holds() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    let question = verify_request(&["db1"], 60);
    let asked = fixture.client.verify_hosts(&fixture.env, &question);
    let happens = async {
        fixture.send(&fixture.report("db1", 1, 1, CHANGED)).await;
        fixture.send(&fixture.report("db1", 1, 2, PASSED)).await;
        fixture.open("db1", &SyncOpen { incarnation: Some(1), ..SyncOpen::default() }).await
    };
    let (answer, _stream) = tokio::join!(asked, happens);
    assert!(answer.unwrap().verified);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_reachable_hosts_of_this_incarnation_count() {
    let nodes = [("db1", "db"), ("web1", "web"), ("web2", "web"), ("web3", "web"), ("lb1", "lb")];
    // The fixture declares a silent node lost at once.
    let fixture = Fixture::start_impatient(&nodes).await;
    let hello = |boot: &str, incarnation| SyncOpen { incarnation, boot: Some(boot.into()), ..SyncOpen::default() };
    let mut streams = std::collections::BTreeMap::new();
    for (name, _) in nodes {
        let mut stream = fixture.open(name, &hello("monday", None)).await;
        next(&mut stream).await;
        streams.insert(name, stream);
        let mut report = fixture.report(name, 1, 1, PASSED);
        report.facts.boot = Some("monday".into());
        fixture.send(&report).await;
    }
    let names = nodes.map(|(name, _)| name);
    let verify = async |recorded| {
        let question = VerifyHostsRequest { recorded, ..verify_request(&names, 0) };
        fixture.client.verify_hosts(&fixture.env, &question).await.unwrap()
    };
    assert!(verify(false).await.verified);

    // db1 is lost, the machine of web1 was restarted, and the agent of web2 lost its state directory.
    streams.remove("db1");
    fixture.wait_for("db1 is lost", |fleet| fleet.get(&node("db1")).unwrap().active().is_none()).await;
    for (name, open) in [("web1", hello("tuesday", Some(1))), ("web2", hello("monday", None))] {
        let mut stream = fixture.open(name, &open).await;
        next(&mut stream).await;
        streams.insert(name, stream);
    }
    let answer = verify(false).await;
    let missing: Vec<_> = answer.missing.iter().map(|missing| (missing.host.as_str(), missing.not_counted)).collect();
    let Some(NotCounted::Lost { since }) = missing[0].1 else { panic!("{missing:?}") };
    let expected = [
        ("db1", Some(NotCounted::Lost { since })),
        ("web1", Some(NotCounted::Restarted)),
        ("web2", Some(NotCounted::EarlierIncarnation)),
    ];
    assert_eq!(missing, expected);
    let running = fixture.client.running_versions(&fixture.env, false).await.unwrap();
    assert_eq!(running.items.iter().map(|row| row.nodes).collect::<Vec<_>>(), [2]);
    let uncounted: Vec<_> = running.not_counted.iter().map(|node| (node.node.as_str(), Some(node.reason))).collect();
    assert_eq!(uncounted, expected);
    let hosts = async |recorded| {
        let page = fixture.client.hosts_at_version(&fixture.env, &version("v1"), recorded).await.unwrap();
        page.items
    };
    assert_eq!(hosts(false).await, ["lb1", "web3"]);
    let state = fixture.client.node(&fixture.env, "web2").await.unwrap().row;
    assert_eq!((state.state, state.reason), (NodeState::Outdated, Some(Reason::Renewed)));

    assert!(verify(true).await.verified, "the last validation of each counts");
    assert_eq!(fixture.client.running_versions(&fixture.env, true).await.unwrap().items[0].nodes, 5);
    assert_eq!(hosts(true).await.len(), 5);

    let mut report = fixture.report("web1", 1, 2, PASSED);
    report.facts.boot = Some("tuesday".into());
    fixture.send(&report).await;
    fixture.send(&fixture.report("web2", 2, 1, PASSED)).await;
    let answer = verify(false).await;
    assert_eq!(answer.missing.iter().map(|missing| missing.host.as_str()).collect::<Vec<_>>(), ["db1"]);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_nodes_and_nodes_of_an_earlier_epoch_do_not_count() {
    let fixture = Fixture::start(&[("web1", "web"), ("web2", "web")]).await;
    let mut streams = Vec::new();
    for name in ["web1", "web2"] {
        let mut stream = fixture.open(name, &SyncOpen::default()).await;
        next(&mut stream).await;
        streams.push(stream);
        fixture.send(&fixture.report(name, 1, 1, PASSED)).await;
    }
    let reasons = async || {
        let running = fixture.client.running_versions(&fixture.env, false).await.unwrap();
        let verified = fixture.client.verify_hosts(&fixture.env, &verify_request(&["web1", "web2"], 0)).await.unwrap();
        let uncounted: Vec<_> = running.not_counted.iter().map(|node| (node.node.to_string(), node.reason)).collect();
        let missing: Vec<_> =
            verified.missing.iter().map(|host| (host.host.clone(), host.not_counted.unwrap())).collect();
        assert_eq!(uncounted, missing, "the two answers agree");
        uncounted
    };
    assert_eq!(reasons().await, []);

    // The same version is applied again, and fails.
    fixture.send(&fixture.report("web1", 1, 2, Outcome::Configured(RunResult::Failed))).await;
    let failed = reasons().await;
    assert!(matches!(&failed[..], [(name, NotCounted::Failed { .. })] if name == "web1"), "{failed:?}");
    fixture.send(&fixture.report("web1", 1, 3, PASSED)).await;
    assert_eq!(reasons().await, []);

    let later = fixture.app.view.fleets()[&fixture.env].epoch() + 1;
    let put = Op::put(Keys::new(&fixture.env).store_epoch(), later.to_string());
    fixture.store.commit(Txn::new().op(put)).await.unwrap();
    fixture.wait_for("the new epoch", |fleet| fleet.epoch() == later).await;
    let earlier = |name: &str| (name.to_owned(), NotCounted::EarlierEpoch);
    assert_eq!(reasons().await, [earlier("web1"), earlier("web2")]);
    fixture.send(&fixture.report("web1", 1, 4, PASSED)).await;
    assert_eq!(reasons().await, [earlier("web2")]);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn future_revision_cannot_be_demanded() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    let client = fixture.client.clone().at_least(Revision(1_000_000));
    let error = client.status(&fixture.env).await.unwrap_err();
    assert_eq!(error.problem().unwrap().code, ProblemCode::CannotTell);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn filter_applies_before_paging() {
    let fixture = Fixture::start(&[("web1", "web"), ("db1", "db"), ("web2", "web"), ("lb1", "lb")]).await;
    fixture.validate("web2", 1).await;
    let names = async |filter: &str| {
        let page = fixture.client.nodes_of(&fixture.env, filter).await.unwrap();
        page.items.into_iter().map(|row| row.node.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names("role=web,lb").await, ["web1", "web2", "lb1"]);
    assert_eq!(names("role=web version").await, ["web2"]);
    assert_eq!(names("role!=web name=*1").await, ["db1", "lb1"]);

    let url = format!("{}/v1/envs/test/nodes", fixture.client.base());
    let http = crate::fixture::http();
    let query = [("filter", "role=web"), ("limit", "1"), ("after", "web1")];
    let page: serde_json::Value = http.get(&url).query(&query).send().await.unwrap().json().await.unwrap();
    assert_eq!((&page["items"][0]["node"], &page["next"]), (&"web2".into(), &serde_json::Value::Null));

    let refused = fixture.client.nodes_of(&fixture.env, "rolle=web").await.unwrap_err();
    let problem = refused.problem().unwrap();
    assert_eq!(problem.code, ProblemCode::InvalidFilter);
    assert_eq!(problem.detail, "invalid filter at character 1, \"rolle=web\": unknown key \"rolle\"");
    assert!(problem.hint.as_ref().unwrap().starts_with("did you mean role?"), "{:?}", problem.hint);

    let status = fixture.client.status_of(&fixture.env, "role=web").await.unwrap();
    assert_eq!(
        (status.nodes, status.running.values().sum::<usize>(), status.filter.as_deref()),
        (2, 1, Some("role=web"))
    );
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_follow_the_order_of_the_design() {
    let fixture = Fixture::start(&[("web2", "web"), ("web10", "web"), ("db1", "db")]).await;
    let url = format!("{}/v1/envs/test/nodes", fixture.client.base());
    let http = crate::fixture::http();
    let mut names = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let mut request = http.get(&url).query(&[("limit", "1")]);
        if let Some(after) = &after {
            request = request.query(&[("after", after)]);
        }
        let page: serde_json::Value = request.send().await.unwrap().json().await.unwrap();
        assert_eq!(page["items"].as_array().unwrap().len(), 1);
        names.push(page["items"][0]["node"].as_str().unwrap().to_owned());
        match page["next"].as_str() {
            Some(next) => after = Some(next.to_owned()),
            None => break,
        }
    }
    assert_eq!(names, ["web2", "web10", "db1"]);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn status_counts_nodes_and_names_blockers() {
    let fixture = Fixture::start(&[("db1", "db"), ("web1", "web")]).await;
    let _stream = fixture.open("db1", &Default::default()).await;
    let taken = fixture.validate("db1", 1).await;
    let status = fixture.client.clone().at_least(taken.revision).status(&fixture.env).await.unwrap();
    assert_eq!(status.desired, Some(version("v1")));
    assert_eq!(status.counts.into_iter().collect::<Vec<_>>(), [(NodeState::Silent, 1), (NodeState::Validated, 1)]);
    assert_eq!(status.blockers.iter().map(|row| row.node.as_str()).collect::<Vec<_>>(), ["web1"]);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn downgrade_needs_allow_older() {
    let fixture = Fixture::start(&[("web1", "web")]).await;
    let (client, env) = (&fixture.client, &fixture.env);
    client.trigger_at_once(env, version("v2")).await.unwrap();
    let refused = client.trigger_at_once(env, version("v1")).await.unwrap_err();
    let problem = refused.problem().unwrap();
    assert_eq!((problem.code, problem.status), (ProblemCode::OlderRelease, 409));
    assert_eq!(
        problem.detail,
        "release v1 (serial 1) is older than v2 (serial 2), which nodes should run now: use --allow-older to move nodes to an older release"
    );
    assert!(problem.hint.as_ref().unwrap().contains("--allow-older"));
    assert_eq!(client.current_version(env).await.unwrap().version, Some(version("v2")));

    let back = TriggerUpdate { version: version("v1"), allow_older: true, at_once: true, by: "ada".into() };
    assert!(client.trigger(env, &back).await.unwrap().changed);
    // A repeated request is a no-op. A request without the permission does not revoke it.
    assert!(!client.trigger(env, &back).await.unwrap().changed);
    assert!(!client.trigger_at_once(env, version("v1")).await.unwrap().changed);
    // The next change of version starts without the permission.
    client.trigger_at_once(env, version("v2")).await.unwrap();
    assert!(client.trigger_at_once(env, version("v1")).await.is_err());
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quick_version_changes_all_count() {
    let fixture = Fixture::start(&[("web1", "web")]).await;
    let mut from = version("v1");
    for round in 0..50 {
        let to = version(if round % 2 == 0 { "v2" } else { "v1" });
        let update = TriggerUpdate { version: to.clone(), allow_older: true, at_once: true, by: "ada".into() };
        let done = fixture.client.trigger(&fixture.env, &update).await.unwrap();
        assert_eq!((done.from, done.changed), (Some(from), true));
        let shown = fixture.client.current_version(&fixture.env).await.unwrap();
        assert_eq!(shown.version.as_ref(), Some(&to), "the next request shows it");
        from = to;
    }
    fixture.stop().await;
}
