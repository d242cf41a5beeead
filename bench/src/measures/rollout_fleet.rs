//! A complete rollout of a simulated fleet in virtual time: the delay of servers, store, network and agents over the
//! plan.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use muster_core::names::Role;
use muster_sim::simulation::design::Design;
use muster_sim::simulation::undisturbed::{TimedRollout, roll_out};

use super::rollout_engine::{DOMAINS, NODE_TIME, roles, strategy};
use crate::bench::Bench;
use crate::row::{Row, Unit};

pub(crate) const HOW: &str = "in this process, in virtual time: the simulator's three servers, one store, and an agent on each of 5,000 \
    machines, with the product's decision code. A message and a request take up to 10 ms each way, as does a watch; \
    reports wait for their groups; an agent merges causes for 200 ms. There are no faults. The fleet, its order and \
    the strategy are those of `rollout-engine`. Each run takes 59 s and its checks one more. Length: from the \
    operator's command to the transaction that completes the rollout. The theoretical minimum is that of the plan: \
    the same budgets, ramp and soaks without any delay.";

/// The checks after a run take a second.
const CHECKS: Duration = Duration::from_secs(1);

pub(crate) fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let nodes = bench.size(5_000, 500);
    let applies = Duration::try_from(NODE_TIME)?.saturating_sub(CHECKS);
    let begin = Instant::now();
    let timed = roll_out(design(nodes)?, strategy(nodes), applies)?;
    let took = begin.elapsed();
    let TimedRollout { plan, length, minimum, world } = &timed;
    let seconds = |time: &Duration| time.as_secs_f64();
    let name = |what: &str| format!("rollout of {nodes} simulated nodes: {what}");
    Ok(vec![
        Row::new(name("length to its theoretical minimum"), Unit::Ratio, timed.ratio()).at_most(1.03).detail(format!(
            "{:.1} s to {:.1} s in virtual time, in {} waves",
            seconds(length),
            seconds(minimum),
            plan.waves.len()
        )),
        Row::new(name("virtual to real time"), Unit::Ratio, seconds(&world.now()) / seconds(&took))
            .detail(format!("the first version included; {:.1} s of real time", seconds(&took))),
    ])
}

fn design(nodes: u32) -> anyhow::Result<Design> {
    let mut counted = Vec::new();
    for (role, count) in roles(nodes) {
        counted.push((Role::new(role)?, count));
    }
    let (db, app, web) = (Role::new("db")?, Role::new("app")?, Role::new("web")?);
    let after = BTreeMap::from([(app.clone(), BTreeSet::from([db])), (web, BTreeSet::from([app]))]);
    Ok(Design { roles: counted, after, domains: DOMAINS })
}
