//! Plan and apply of designs, rollouts with the strategy of the design, and destruction of an environment.

use muster_core::design::DesignRevision;
use muster_core::fleet::DestroyRecord;
use muster_core::lookup::Lookups;
use muster_core::names::Role;
use muster_core::rollout::strategy::{Amount, Reach};
use muster_core::txn::{Op, Txn};
use muster_testkit::records::{release_record, version};
use muster_wire::client::WriteOptions;
use muster_wire::design::{ApplyDesign, DesignInput, DesignPlan, DocumentText, NodeAction, SourceBundle, Totals};
use muster_wire::problem::ProblemCode;
use muster_wire::rollout::{PlanRequest, StartRequest, StartTarget, StrategySource};
use muster_wire::sync::{SyncEvent, SyncOpen};

use crate::fixture::{Replica, StoreFixture, bundle, env, keys, node, refused, site};
use crate::on_both_stores;

fn input(web: u32) -> DesignInput {
    DesignInput { bundles: site(web), ..DesignInput::default() }
}

fn actions(plan: &DesignPlan) -> String {
    let actions = plan.nodes.iter().map(|node| format!("{}{}", node.action.sign(), node.node));
    actions.collect::<Vec<_>>().join(" ")
}

async fn plan(a: &Replica, input: &DesignInput) -> DesignPlan {
    a.client.plan_design(&env(), input).await.unwrap().plan
}

fn strategy_site(after: &str, rollout: &str) -> Vec<SourceBundle> {
    let roles = format!(
        "roles:\n  db: {{cardinality: 1, flavor: small}}\n  web: {{cardinality: 2, flavor: small{after}}}\n{rollout}"
    );
    vec![bundle("site", &[("environments/test.yaml", &roles)])]
}

/// Registers a release that was never built.
async fn release(a: &Replica, name: &str, serial: u64) {
    a.app.blobs.put(name.as_bytes()).unwrap();
    let record = release_record(name, serial);
    let put = Op::put_json(keys().release(&version(name)), &record).unwrap();
    a.app.store.commit(Txn::new().op(put)).await.unwrap();
}

/// Keys that remain of the environment.
async fn left(fixture: &StoreFixture) -> Vec<String> {
    let kvs = fixture.store.range(keys().prefix(), None).await.unwrap().kvs;
    kvs.into_iter().map(|kv| kv.key).filter(|key| !key.contains("/replicas/")).collect()
}

on_both_stores! {
    async fn applied_designs_create_grow_and_shrink_an_environment(fixture: StoreFixture) {
        let a = fixture.replica().await;
        assert_eq!(actions(&plan(&a, &input(2)).await), "+db1 +web1 +web2");
        assert_eq!(a.client.environments().await.unwrap().items, [], "a plan changes nothing");
        let applied = a.apply(site(2)).await.unwrap();
        assert_eq!((applied.design, applied.changed, applied.followed), (DesignRevision(1), true, true));
        assert_eq!(a.nodes(), ["db1", "web1", "web2"]);

        // The plan is empty, and applying it makes no revision.
        let none = plan(&a, &input(2)).await;
        assert_eq!((actions(&none).as_str(), none.is_empty()), ("=db1 =web1 =web2", true));
        let again = a.apply(site(2)).await.unwrap();
        assert_eq!((again.design, again.changed, again.followed), (DesignRevision(1), false, true));
        assert!(plan(&a, &DesignInput::default()).await.is_empty(), "nor is there with what is there");

        let more = plan(&a, &input(3)).await;
        assert_eq!(actions(&more), "=db1 =web1 =web2 +web3");
        assert_eq!(more.totals, Totals { create: 1, keep: 3, ..Totals::default() });
        a.apply(site(3)).await.unwrap();
        assert_eq!(a.nodes(), ["db1", "web1", "web2", "web3"]);

        let fewer = plan(&a, &input(1)).await;
        assert_eq!(actions(&fewer), "=db1 =web1 -web2 -web3");
        let web = fewer.roles.iter().find(|role| role.role.as_str() == "web").unwrap();
        assert_eq!((web.before, web.after, web.removes_highest), (3, 1, true));
        a.apply(site(1)).await.unwrap();
        assert_eq!(a.nodes(), ["db1", "web1"]);
        assert!(plan(&a, &input(1)).await.is_empty());

        // A cardinality in the request overrides the file until the next apply.
        let cardinality = [("web".parse().unwrap(), 2)].into();
        let by_hand = DesignInput { cardinality, ..input(1) };
        let apply = ApplyDesign { design: by_hand, ..ApplyDesign::default() };
        a.client.apply_design(&env(), &apply).await.unwrap();
        assert_eq!(a.nodes(), ["db1", "web1", "web2"]);
        let detail = a.client.environment(&env()).await.unwrap();
        assert_eq!((detail.nodes, detail.design.head, detail.design.applied), (3, Some(DesignRevision(4)), Some(DesignRevision(4))));
        let roles: Vec<(&str, usize)> = detail.roles.iter().map(|role| (role.role.as_str(), role.nodes)).collect();
        assert_eq!(roles, [("db", 1), ("web", 2)]);
        a.stop().await;
    }

    async fn written_documents_take_effect_when_applied(fixture: StoreFixture) {
        let a = fixture.replica().await;
        a.apply(site(2)).await.unwrap();
        let text = DocumentText::Yaml("kind: Node\nname: web1\nspec: {failure_domain: rack7}\n".into());
        a.client.put_document(&env(), "Node", "web1", &text, &WriteOptions::default()).await.unwrap();
        let summary = a.client.design(&env()).await.unwrap();
        assert_eq!((summary.head, summary.applied.unwrap().revision), (Some(DesignRevision(2)), DesignRevision(1)));
        let sources: Vec<(&str, usize, usize)> =
            summary.sources.iter().map(|source| (source.name.as_str(), source.files, source.documents)).collect();
        assert_eq!(sources, [("site", 2, 2), ("api", 1, 1)]);
        assert!(summary.followed);

        let pending = plan(&a, &DesignInput::default()).await;
        assert_eq!(actions(&pending), "=db1 ~web1 =web2");
        let changed = pending.nodes.iter().find(|node| node.action == NodeAction::Change).unwrap();
        assert_eq!(changed.changes[0].path, "failure_domain");
        let applied = a.client.apply_design(&env(), &ApplyDesign::default()).await.unwrap();
        assert_eq!((applied.design, applied.changed, applied.followed), (DesignRevision(2), true, true));
        let domain = a.app.view.fleets()[&env()].get(&node("web1")).unwrap().record.clone().unwrap().failure_domain;
        assert_eq!(domain, "rack7");
        assert!(plan(&a, &DesignInput::default()).await.is_empty());
        a.stop().await;
    }

    async fn stale_design_plan_is_refused(fixture: StoreFixture) {
        let a = fixture.replica().await;
        a.apply(site(1)).await.unwrap();
        let shown = plan(&a, &input(2)).await;
        let apply = |web: u32, plan: &DesignPlan| {
            let apply = ApplyDesign { design: input(web), plan: Some(plan.clone()), ..ApplyDesign::default() };
            let client = a.client.clone();
            async move { client.apply_design(&env(), &apply).await }
        };
        // Other files, an edited plan, and a stale plan.
        let other = refused(apply(3, &shown).await);
        assert_eq!((other.code, other.status), (ProblemCode::PlanOutdated, 409));
        assert!(other.detail.contains("the files changed since the plan was made"), "{}", other.detail);
        let mut edited = shown.clone();
        edited.nodes.pop();
        assert_eq!(refused(apply(2, &edited).await).code, ProblemCode::PlanOutdated);
        let text = DocumentText::Yaml("kind: Region\nname: r1\nspec: {}\n".into());
        a.client.put_document(&env(), "Region", "r1", &text, &WriteOptions::default()).await.unwrap();
        let moved = refused(apply(2, &shown).await);
        assert!(moved.detail.contains("the newest design revision was 1 and is now 2"), "{}", moved.detail);
        assert_eq!(a.nodes(), ["db1", "web1"]);

        let shown = plan(&a, &input(2)).await;
        let applied = apply(2, &shown).await.unwrap();
        assert_eq!((applied.plan, a.nodes().len()), (shown.clone(), 3));
        assert_eq!(refused(apply(2, &shown).await).code, ProblemCode::PlanOutdated, "it has been carried out");
        a.stop().await;
    }

    async fn empty_design_is_refused_without_remove_all(fixture: StoreFixture) {
        let a = fixture.replica().await;
        a.apply(site(2)).await.unwrap();
        let empty = || DesignInput { bundles: vec![bundle("site", &[])], ..DesignInput::default() };
        let shown = plan(&a, &empty()).await;
        assert_eq!(actions(&shown), "-db1 -web1 -web2", "what would be done can be seen");
        let apply = |shown: Option<&DesignPlan>, remove_all: bool| {
            let apply = ApplyDesign { design: empty(), plan: shown.cloned(), remove_all, ..ApplyDesign::default() };
            let client = a.client.clone();
            async move { client.apply_design(&env(), &apply).await }
        };
        for shown in [None, Some(&shown)] {
            let refusal = refused(apply(shown, false).await);
            assert_eq!((refusal.code, refusal.status), (ProblemCode::RemovesAll, 409));
            assert_eq!(refusal.detail, "this would remove all 3 nodes of test");
            assert!(refusal.hint.unwrap().contains("muster env destroy test"));
        }
        assert_eq!(a.client.design(&env()).await.unwrap().head, Some(DesignRevision(1)), "nothing was accepted");
        assert_eq!(a.nodes(), ["db1", "web1", "web2"]);
        assert_eq!(apply(Some(&shown), true).await.unwrap().plan, shown);
        assert_eq!(a.nodes(), Vec::<String>::new());
        // In an environment without nodes, none is removed.
        a.apply(vec![bundle("site", &[("r.yaml", "kind: Region\nname: r1\nspec: {}\n")])]).await.unwrap();
        a.stop().await;
    }

    async fn design_with_errors_is_refused_entirely(fixture: StoreFixture) {
        let a = fixture.replica().await;
        a.apply(site(1)).await.unwrap();
        let bad = || vec![bundle("site", &[("environments/test.yaml", "roles: {web: {cardinalty: 2, flavor: s}}\n")])];
        let refusal = refused(a.apply(bad()).await);
        assert_eq!((refusal.code, refusal.status), (ProblemCode::DesignRefused, 422));
        assert_eq!(refusal.findings[0].help.as_deref(), Some("did you mean \"cardinality\"?"));
        let design = DesignInput { bundles: bad(), ..DesignInput::default() };
        assert_eq!(refused(a.client.plan_design(&env(), &design).await).code, ProblemCode::DesignRefused);
        let checked = a.client.check_design(&env(), &design).await.unwrap();
        assert!(!checked.usable && !checked.findings.is_empty());
        assert_eq!(a.client.design(&env()).await.unwrap().head, Some(DesignRevision(1)));
        assert_eq!(a.nodes(), ["db1", "web1"]);
        let twice = DesignInput { bundles: [site(1), site(2)].concat(), ..DesignInput::default() };
        assert_eq!(refused(a.client.plan_design(&env(), &twice).await).code, ProblemCode::InvalidRequest);
        let nothing = a.client.apply_design(&"other".parse().unwrap(), &ApplyDesign::default()).await;
        assert_eq!(refused(nothing).code, ProblemCode::UnknownDesignRevision);
        a.stop().await;
    }

    async fn design_of_many_megabytes_is_accepted(fixture: StoreFixture) {
        let a = fixture.replica().await;
        let mut bundles = site(1);
        let remark = "# much is said here, and little meant\n".repeat(3000);
        for number in 1..=40 {
            let text = format!("{remark}kind: Region\nname: r{number}\nspec: {{}}\n");
            bundles.extend([bundle(&format!("lot{number}"), &[("region.yaml", &text)])]);
        }
        assert_eq!(a.apply(bundles).await.unwrap().design, DesignRevision(1));
        // The limit of a single document is lower.
        let http = crate::fixture::http();
        let much = http.put(a.at("/documents/Region/r1")).header("content-type", "application/yaml");
        let answer = much.body(remark.repeat(30)).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 413);
        assert_eq!(answer.json::<muster_wire::problem::Problem>().await.unwrap().code, ProblemCode::TooLarge);
        a.stop().await;
    }

    async fn sources_are_independent_and_removable(fixture: StoreFixture) {
        let a = fixture.replica().await;
        a.apply(site(1)).await.unwrap();
        let lab = "kind: Node\nname: db1\nspec: {failure_domain: lab}\n";
        a.apply(vec![bundle("lab", &[("nodes.yaml", lab)])]).await.unwrap();
        let domain = |a: &Replica| a.app.view.fleets()[&env()].get(&node("db1")).unwrap().record.clone().unwrap().failure_domain;
        assert_eq!(domain(&a), "lab");
        a.apply(site(2)).await.unwrap();
        assert_eq!((domain(&a), a.nodes().len()), ("lab".into(), 3), "the other source stays");
        let design = DesignInput { remove_sources: vec!["lab".into()], ..DesignInput::default() };
        a.client.apply_design(&env(), &ApplyDesign { design, ..ApplyDesign::default() }).await.unwrap();
        assert_eq!(domain(&a), "default");
        let names: Vec<String> =
            a.client.design(&env()).await.unwrap().sources.into_iter().map(|source| source.name).collect();
        assert_eq!(names, ["site", "api"]);
        a.stop().await;
    }

    async fn rollout_uses_the_strategy_of_the_environment_file(fixture: StoreFixture) {
        let a = fixture.replica().await;
        let rollout = "rollout:\n  waves: [{nodes: 1, promote: manual}, {percent: 100}]\n  max_unavailable: 50%\n";
        a.apply(strategy_site(", after: [db]", rollout)).await.unwrap();
        release(&a, "v1", 1).await;
        release(&a, "v2", 2).await;
        // The first version is rolled out at once: no node runs a version yet.
        let first = a.client.trigger_update(&env(), version("v1")).await.unwrap();
        assert!(a.app.view.fleets()[&env()].rollouts()[&first.rollout.unwrap()].0.at_once);

        let planned = a.client.plan_rollout(&env(), &PlanRequest::to(version("v2"))).await.unwrap();
        assert_eq!((planned.strategy_from, planned.design), (StrategySource::Environment, Some(DesignRevision(1))));
        let strategy = &planned.plan.strategy;
        assert_eq!((strategy.waves[0].reach, strategy.max_unavailable.default), (Reach::Nodes(1), Amount::Percent(50)));
        let (db, web) = (Role::new("db").unwrap(), Role::new("web").unwrap());
        assert_eq!(planned.plan.after[&web], [db.clone()].into());
        let stages = planned.plan.waves.iter().map(|wave| (wave.stage, wave.nodes[0].role.clone()));
        assert_eq!(stages.collect::<Vec<_>>(), [(1, db), (2, web.clone()), (2, web)]);

        // The order of roles changes, which makes the plan stale.
        a.apply(strategy_site("", rollout)).await.unwrap();
        let what = StartTarget::Plan(Box::new(planned.plan));
        let start = StartRequest { what, request: "one".into(), supersede: true, by: "ann".into() };
        let problem = refused(a.client.start_rollout(&env(), &start).await);
        assert_eq!(problem.code, ProblemCode::PlanOutdated);
        assert!(problem.detail.contains("role web waits for no other role now"), "{}", problem.detail);

        // An environment without a strategy uses the default.
        a.apply(strategy_site("", "")).await.unwrap();
        let planned = a.client.plan_rollout(&env(), &PlanRequest::to(version("v2"))).await.unwrap();
        assert_eq!(planned.strategy_from, StrategySource::Default);
        a.stop().await;
    }

    async fn destroyed_environment_can_be_created_again(fixture: StoreFixture) {
        let a = fixture.replica().await;
        a.apply(site(2)).await.unwrap();
        let http = crate::fixture::http();
        for query in ["", "?confirm=prod"] {
            let answer = http.delete(format!("{}/v1/envs/test{query}", a.url)).send().await.unwrap();
            assert_eq!(answer.status().as_u16(), 400);
        }
        assert_eq!(a.nodes().len(), 3);
        let destroyed = a.client.destroy(&env(), Some("ann")).await.unwrap();
        assert_eq!((destroyed.nodes, destroyed.completed), (3, true));
        assert_eq!(left(&fixture).await, Vec::<String>::new());
        assert_eq!(a.client.environments().await.unwrap().items, []);
        assert_eq!(refused(a.client.environment(&env()).await).code, ProblemCode::UnknownEnvironment);
        assert_eq!(refused(a.client.destroy(&env(), None).await).code, ProblemCode::UnknownEnvironment);
        // Revision numbers start again at 1.
        assert_eq!(a.apply(site(1)).await.unwrap().design.0, 1);
        assert_eq!(a.nodes(), ["db1", "web1"]);
        a.stop().await;
    }

    async fn node_gets_the_values_of_its_own_design(fixture: StoreFixture) {
        let a = fixture.replica().await;
        let labelled = |web1: &str, web2: &str| {
            let node = |name: &str, tier: &str| {
                format!("kind: Node\nname: {name}\nlabels: {{tier: {tier}}}\nspec: {{primary_network: mgmt}}\n---\n")
            };
            let network = "kind: Network\nname: mgmt\nspec: {cidr: 10.0.0.0/24, dns: {domain: example.org, servers: [10.0.0.53]}}\n";
            let documents = format!("{}{}{network}", node("web1", web1), node("web2", web2));
            let mut bundles = site(2);
            bundles.push(bundle("more", &[("nodes.yaml", &documents)]));
            bundles
        };
        a.apply(labelled("front", "front")).await.unwrap();
        let test = env();
        let own = |name: &'static str, path: &'static str| a.client.self_values(&test, name, path);
        assert_eq!(own("web1", "fqdn").await.unwrap().value, "web1.example.org");
        assert_eq!(own("web1", "dns::servers::0").await.unwrap().value, "10.0.0.53");
        assert_eq!(own("web1", "").await.unwrap().value["labels"]["tier"], "front");
        assert_eq!(own("db1", "fqdn").await.unwrap().value, "db1.local");
        let absent = refused(own("web1", "fqnd").await);
        assert_eq!(absent.code, ProblemCode::NotFound);
        assert!(absent.hint.unwrap().contains("fqdn"));
        let found = a.client.lookup(&env(), "web1", "muster::self::fqdn").await.unwrap().found.unwrap();
        assert_eq!(found.value, "web1.example.org");

        // A change wakes the nodes that looked it up and have another value now.
        let mut streams = Vec::new();
        for name in ["web1", "web2"] {
            let key = "self::labels::tier".to_owned();
            let tag = a.app.view.fleets()[&env()].tag(&key, Some(&node(name)));
            let open = SyncOpen { lookups: Lookups::from([(key, tag)]), ..SyncOpen::default() };
            streams.push(a.client.sync(&env(), &node(name), &open).await.unwrap());
        }
        a.apply(labelled("back", "front")).await.unwrap();
        a.apply(labelled("back", "spare")).await.unwrap();
        for (stream, tier) in streams.iter_mut().zip(["back", "spare"]) {
            let snapshot = loop {
                if let SyncEvent::Snapshot { changed, snapshot } = stream.next().await.unwrap().unwrap()
                    && !changed.is_empty()
                {
                    assert_eq!(changed, ["self::labels::tier"]);
                    break snapshot;
                }
            };
            assert_eq!(snapshot.self_values["labels"]["tier"], tier);
        }
        a.apply(site(1)).await.unwrap();
        a.sees("web2 is gone", |fleet| fleet.get(&node("web2")).is_none()).await;
        a.stop().await;
    }

    async fn interrupted_destroy_is_completed(fixture: StoreFixture) {
        let a = fixture.replica().await;
        a.apply(site(2)).await.unwrap();
        a.kill().await;
        let mark = DestroyRecord { since: "2026-11-15T10:00:00Z".parse().unwrap(), by: "ann".into() };
        fixture.store.commit(Txn::new().op(Op::put_json(keys().destroying(), &mark).unwrap())).await.unwrap();

        let b = fixture.replica().await;
        // b acts after the lease of the dead server has ended. Until then a write is refused with `Destroying`.
        let text = DocumentText::Yaml("kind: Region\nname: r1\nspec: {}\n".into());
        let put = b.client.put_document(&env(), "Region", "r1", &text, &WriteOptions::default()).await;
        let taken = match put {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.problem().unwrap().code, ProblemCode::Destroying);
                false
            }
        };
        // The lease of a may have just ended. Then b has destroyed the environment before this request.
        let gone = match b.client.destroy(&env(), None).await {
            Ok(destroyed) => destroyed.completed,
            Err(error) => error.problem().is_some_and(|problem| problem.code == ProblemCode::UnknownEnvironment),
        };
        assert!(taken || gone);
        assert_eq!(left(&fixture).await, Vec::<String>::new());
        b.stop().await;
    }
}
