//! Rollouts use the strategy of the applied design.

use muster_core::design::DesignRevision;
use muster_core::names::Role;
use muster_core::rollout::strategy::{Amount, Reach};
use muster_core::txn::{Op, Txn};
use muster_testkit::records::{release_record, version};
use muster_wire::design::SourceBundle;
use muster_wire::problem::ProblemCode;
use muster_wire::rollout::{PlanRequest, StartRequest, StartTarget, StrategySource};

use crate::on_both_stores;
use crate::place::{Replica, bundle, env, keys, refused};

fn site(after: &str, rollout: &str) -> Vec<SourceBundle> {
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

on_both_stores! {
    async fn rollout_uses_the_strategy_of_the_environment_file(place: Place) {
        let a = place.replica().await;
        let rollout = "rollout:\n  waves: [{nodes: 1, promote: manual}, {percent: 100}]\n  max_unavailable: 50%\n";
        a.apply(site(", after: [db]", rollout)).await.unwrap();
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
        a.apply(site("", rollout)).await.unwrap();
        let what = StartTarget::Plan(Box::new(planned.plan));
        let start = StartRequest { what, request: "one".into(), supersede: true, by: "ann".into() };
        let problem = refused(a.client.start_rollout(&env(), &start).await);
        assert_eq!(problem.code, ProblemCode::PlanOutdated);
        assert!(problem.detail.contains("role web waits for no other role now"), "{}", problem.detail);

        // An environment without a strategy uses the default.
        a.apply(site("", "")).await.unwrap();
        let planned = a.client.plan_rollout(&env(), &PlanRequest::to(version("v2"))).await.unwrap();
        assert_eq!(planned.strategy_from, StrategySource::Default);
        a.stop().await;
    }
}
