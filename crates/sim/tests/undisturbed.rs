//! The duration of a rollout without faults, in virtual time: close to the minimum of its plan. The benchmark
//! `rollout-fleet` does the same with 5,000 nodes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_core::names::Role;
use muster_core::rollout::strategy::{Amount, MaxUnavailable, PerLabel, Strategy};
use muster_sim::simulation::fleet::Design;
use muster_sim::simulation::undisturbed::roll_out;

const MOST: f64 = 1.03;

fn role(name: &str) -> Role {
    Role::new(name).unwrap()
}

#[test]
fn rollout_without_faults_is_close_to_its_minimum() {
    let after =
        BTreeMap::from([(role("app"), BTreeSet::from([role("db")])), (role("web"), BTreeSet::from([role("app")]))]);
    let roles = vec![(role("db"), 30), (role("app"), 120), (role("web"), 150)];
    let design = Design { roles, after, domains: 10 };
    let per = PerLabel { label: "failure_domain".to_owned(), count: 6 };
    let max_unavailable = MaxUnavailable { default: Amount::Percent(10), per: Some(per), ..MaxUnavailable::default() };
    let strategy = Strategy { max_unavailable, ..Strategy::default() };
    let timed = roll_out(design, strategy, Duration::from_secs(60)).unwrap();
    println!("{:?} to {:?}: {:.4}, in {} waves", timed.length, timed.minimum, timed.ratio(), timed.plan.waves.len());
    assert_eq!(timed.plan.node_count(), 300);
    assert!(timed.ratio() >= 1.0, "{}: nothing is faster than what its plan takes at least", timed.ratio());
    assert!(timed.ratio() <= MOST, "{}", timed.ratio());
}
