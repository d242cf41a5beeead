//! Fleets without faults, in virtual time. The duration of a rollout is close to the minimum of its plan; the benchmark
//! `rollout-fleet` does the same with 5,000 nodes. A fleet at rest writes nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_core::names::Role;
use muster_core::rollout::strategy::{Amount, MaxUnavailable, PerLabel, Strategy};
use muster_sim::simulation::fleet::Design;
use muster_sim::simulation::undisturbed::{rest, roll_out};

const MOST: f64 = 1.03;

fn role(name: &str) -> Role {
    Role::new(name).unwrap()
}

fn chain() -> BTreeMap<Role, BTreeSet<Role>> {
    BTreeMap::from([(role("app"), BTreeSet::from([role("db")])), (role("web"), BTreeSet::from([role("app")]))])
}

#[test]
fn timed_runs_of_a_fleet_at_rest_write_nothing() {
    let design =
        Design { roles: vec![(role("db"), 2), (role("app"), 4), (role("web"), 6)], after: chain(), domains: 2 };
    let (runs, writes) = rest(design, Duration::from_secs(300), Duration::from_secs(3_600)).unwrap();
    assert_eq!(runs, 12 * 12, "each node makes one every five minutes");
    assert_eq!(writes, 0, "an unchanged run causes no write");
}

#[test]
fn rollout_without_faults_is_close_to_its_minimum() {
    let roles = vec![(role("db"), 30), (role("app"), 120), (role("web"), 150)];
    let design = Design { roles, after: chain(), domains: 10 };
    let per = PerLabel { label: "failure_domain".to_owned(), count: 6 };
    let max_unavailable = MaxUnavailable { default: Amount::Percent(10), per: Some(per), ..MaxUnavailable::default() };
    let strategy = Strategy { max_unavailable, ..Strategy::default() };
    let timed = roll_out(design, strategy, Duration::from_secs(60)).unwrap();
    println!("{:?} to {:?}: {:.4}, in {} waves", timed.length, timed.minimum, timed.ratio(), timed.plan.waves.len());
    assert_eq!(timed.plan.node_count(), 300);
    assert!(timed.ratio() >= 1.0, "{}: nothing is faster than what its plan takes at least", timed.ratio());
    assert!(timed.ratio() <= MOST, "{}", timed.ratio());
}
