//! Policies through the API: cordoned nodes keep their version and lead nothing, retired nodes leave and stay out.

use std::collections::BTreeMap;

use muster_core::keys::Keys;
use muster_core::names::{NodeName, Role};
use muster_core::node::policy::NodePolicy;
use muster_core::node::record::NodeRecord;
use muster_core::node::status::Reason;
use muster_core::rollout::progress::Hold;
use muster_server::follow_design;
use muster_wire::design::{ApplyDesign, DesignInput, SourceBundle, SourceFile};
use muster_wire::policy::SetPolicy;
use muster_wire::problem::ProblemCode;
use muster_wire::sync::SyncOpen;

use crate::fixture::{CHANGED, Fixture, PASSED, next, node, version};
use crate::identity::{Machine, for_node, make_token};

fn cordon(reason: &str) -> SetPolicy {
    SetPolicy { policy: NodePolicy::Cordoned, reason: reason.into() }
}

fn retire() -> SetPolicy {
    SetPolicy { policy: NodePolicy::Retired, reason: "old".into() }
}

#[tokio::test(flavor = "multi_thread")]
async fn cordoned_node_stays_active_and_keeps_its_version() {
    let fixture = Fixture::start(&[("db1", "db"), ("web1", "web"), ("web2", "web")]).await;
    let (client, env) = (&fixture.client, &fixture.env);
    let mut streams = Vec::new();
    for name in ["web1", "web2"] {
        let mut stream = fixture.open(name, &SyncOpen::default()).await;
        next(&mut stream).await;
        streams.push(stream);
        fixture.validate(name, 1).await;
    }
    let web = Role::new("web").unwrap();
    let leader =
        |fleet: &muster_core::fleet::Fleet| fleet.leaders().get(&web).and_then(|(leader, _)| leader.node.clone());
    fixture.wait_for("web1 leads", |fleet| leader(fleet) == Some(node("web1"))).await;

    let set = client.set_policy(env, "web1", &cordon("disk swap"), "jo").await.unwrap();
    assert!(set.changed && set.before.is_none());
    fixture.wait_for("web2 leads", |fleet| leader(fleet) == Some(node("web2"))).await;
    let shown = client.node(env, "web1").await.unwrap();
    assert!(shown.row.active && shown.row.reason.is_none(), "other nodes count on it");
    assert_eq!(shown.row.policy.as_ref().unwrap().to_string(), "cordoned by jo: disk swap");
    assert_eq!(client.status(env).await.unwrap().policies.len(), 1);
    let cordoned = client.nodes_of(env, "policy=cordoned").await.unwrap();
    assert_eq!(cordoned.items.iter().map(|row| row.node.as_str()).collect::<Vec<_>>(), ["web1"]);
    assert_eq!(client.nodes_of(env, "policy=in_service").await.unwrap().items.len(), 2);

    // A second cordon is a no-op, with its author and reason.
    let again = client.set_policy(env, "web1", &cordon("another reason"), "ann").await.unwrap();
    assert!(!again.changed);
    assert_eq!(again.policy, set.policy);

    client.trigger_at_once(env, version("v2")).await.unwrap();
    let shown = client.node(env, "web1").await.unwrap();
    assert_eq!(shown.row.desired, Some(version("v1")));
    assert!(matches!(shown.hold, Some(Hold::Cordoned { .. })), "{:?}", shown.hold);
    assert_eq!(client.node(env, "web2").await.unwrap().row.desired, Some(version("v2")));

    let ended = client.end_policy(env, "web1", NodePolicy::Cordoned, "jo").await.unwrap();
    assert_eq!((ended.before, ended.policy, ended.changed), (set.policy, None, true));
    assert_eq!(client.node(env, "web1").await.unwrap().row.desired, Some(version("v2")));
    let again = client.end_policy(env, "web1", NodePolicy::Cordoned, "jo").await.unwrap();
    assert!(!again.changed && again.before.is_none());
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retired_node_is_removed_and_not_brought_back() {
    let fixture = Fixture::start(&[("web1", "web"), ("web2", "web")]).await;
    let (client, env) = (&fixture.client, &fixture.env);
    fixture.validate("web1", 1).await;
    client.set_policy(env, "web1", &cordon("disk swap"), "jo").await.unwrap();
    let records: BTreeMap<NodeName, NodeRecord> =
        fixture.app.view.fleets()[env].recorded().map(|(name, _, record)| (name.clone(), record.clone())).collect();
    let retired = client.set_policy(env, "web1", &retire(), "jo").await.unwrap();
    assert_eq!(retired.before.unwrap().policy, NodePolicy::Cordoned);
    let gone = client.node(env, "web1").await.unwrap_err();
    assert_eq!(gone.problem().unwrap().code, ProblemCode::UnknownNode);
    // No key of it is left, except for the policy.
    let keys: Vec<String> = fixture.state().await.into_iter().map(|(key, _)| key).collect();
    let own: Vec<&String> = keys.iter().filter(|key| key.contains("/web1")).collect();
    assert_eq!(own, [&Keys::new(env).policy(&node("web1"))]);

    let change = follow_design(&fixture.app, env, &records).await.unwrap();
    assert!(change.is_nothing(), "{change:?}");
    let listed = client.policies(env).await.unwrap();
    assert_eq!(listed.items[0].to_string(), "web1 is retired by jo: old");

    for set in [client.set_policy(env, "web1", &cordon("x"), "jo").await, {
        client.end_policy(env, "web1", NodePolicy::Cordoned, "jo").await
    }] {
        let refused = set.unwrap_err();
        let problem = refused.problem().unwrap();
        assert_eq!((problem.code, problem.status), (ProblemCode::PolicyRefused, 409));
        let hint = "`muster node unretire web1` lets the design bring it back";
        assert_eq!(problem.hint.as_deref(), Some(hint));
    }
    assert!(!client.set_policy(env, "web1", &retire(), "jo").await.unwrap().changed);
    client.end_policy(env, "web1", NodePolicy::Retired, "jo").await.unwrap();
    let change = follow_design(&fixture.app, env, &records).await.unwrap();
    assert_eq!(change.added, [node("web1")]);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retired_machine_is_drained_and_then_revoked() {
    let fixture = Fixture::start(&[("db1", "db"), ("db2", "db"), ("web1", "web")]).await;
    let (client, env) = (&fixture.client, &fixture.env);
    let text = "roles:\n  db: {cardinality: 2, flavor: small}\n  web: {cardinality: 1, flavor: small}\n".to_owned();
    let file = SourceFile { path: "environments/test.yaml".into(), text };
    let bundles = vec![SourceBundle { name: "site".into(), files: vec![file] }];
    let design = DesignInput { bundles, ..DesignInput::default() };
    client.apply_design(env, &ApplyDesign { design, ..ApplyDesign::default() }).await.unwrap();
    let token = make_token(&fixture, for_node("db1"), 1).await;
    let machine = Machine::new("db1");
    let machine = machine.client(&fixture, &machine.join(&fixture, &token).await.unwrap());
    let mut stream = machine.sync(env, &node("db1"), &SyncOpen::default()).await.unwrap();
    next(&mut stream).await;
    machine.report(env, &fixture.report("db1", 1, 1, PASSED)).await.unwrap();
    let reader = |seq| {
        let mut report = fixture.report("web1", 1, seq, CHANGED);
        let tag = fixture.app.view.fleets()[env].tag("active_roles::db", None);
        report.lookups = [("active_roles::db".to_owned(), tag)].into();
        // A run that began before db1 joined its role would not count.
        (report.started, report.ended) = (fixture.app.clock.now(), fixture.app.clock.now());
        report
    };
    fixture.wait_for("db1 is active", |fleet| !fleet.get(&node("db1")).unwrap().active.is_empty()).await;
    client.report(env, &reader(1)).await.unwrap();

    client.set_policy(env, "db1", &retire(), "jo").await.unwrap();
    let shown = client.node(env, "db1").await.unwrap();
    let Some(Reason::Leaving { waits_for, .. }) = &shown.row.reason else { panic!("{:?}", shown.row) };
    assert_eq!((&waits_for[..], shown.row.active), (&[node("web1")][..], false));
    machine.desired(env, &node("db1")).await.expect("it serves until web1 has run without it");

    client.report(env, &reader(2)).await.unwrap();
    fixture.wait_for("db1 is removed", |fleet| fleet.get(&node("db1")).is_none_or(|node| node.record.is_none())).await;
    while let Ok(Some(_)) = stream.next().await {}
    machine.desired(env, &node("db1")).await.unwrap_err();
    let left = fixture.state().await.into_iter().map(|(key, _)| key).filter(|key| key.contains("/db1"));
    assert_eq!(left.collect::<Vec<_>>(), [Keys::new(env).policy(&node("db1"))]);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_policies_are_refused() {
    let fixture = Fixture::start(&[("web1", "web")]).await;
    let (client, env) = (&fixture.client, &fixture.env);
    let set = |name: &'static str, set: SetPolicy| async move {
        let refused = client.set_policy(env, name, &set, "jo").await.unwrap_err();
        let problem = refused.problem().unwrap().clone();
        (problem.code, problem.hint.unwrap_or_default())
    };
    let (code, hint) = set("wbe1", cordon("disk")).await;
    assert_eq!(code, ProblemCode::UnknownNode);
    assert!(hint.starts_with("did you mean web1?"), "{hint}");
    assert_eq!(set("web1", cordon(" \n")).await.0, ProblemCode::InvalidRequest);
    let in_service = SetPolicy { policy: NodePolicy::InService, reason: "x".into() };
    assert_eq!(set("web1", in_service).await.0, ProblemCode::InvalidRequest);
    let long = client.set_policy(env, "web1", &cordon(&"x".repeat(5_000)), "jo").await.unwrap();
    assert!(long.policy.unwrap().reason.chars().count() <= 300);
    let refused = client.end_policy(env, "web1", NodePolicy::Retired, "jo").await.unwrap_err();
    assert_eq!(refused.problem().unwrap().code, ProblemCode::PolicyRefused);
    let ended = client.end_policy(env, "web1", NodePolicy::InService, "jo").await.unwrap_err();
    assert_eq!(ended.problem().unwrap().code, ProblemCode::InvalidRequest);
    fixture.stop().await;
}
