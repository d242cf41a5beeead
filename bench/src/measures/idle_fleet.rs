//! Activity of an idle fleet.

use std::time::Duration;

use crate::bench::Bench;
use crate::parts::fleet::Fleet;
use crate::parts::project;
use crate::parts::resource_usage::{self, Cpu};
use crate::row::{Row, Unit};

pub(crate) const HOW: &str = "four real agents (db1, web1, web2, lb1) with the script applier, all validated; each web waited for the db, and \
    lb1 for both webs. Applier starts: the script records each. Sync payload: a proxy between the agents and the \
    server parses the event streams and counts the events by name; hello, desired, snapshot and run are payload. An \
    agent answers each ping with one request, by which the server knows that it is alive. Store revisions: the API's \
    `revision` before and after. Processor time: the four agents and the server together. The release is validated \
    every 30 s. The share of a core is that of the busiest agent; its checks are shown separately.";

/// Effects of the last run are over after this time.
const SETTLE: Duration = Duration::from_secs(2);

pub(crate) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let time = bench.size(Duration::from_secs(60), Duration::from_secs(12));
    let fleet = Fleet::start(bench, &[("db", 1), ("web", 2), ("lb", 1)], None).await?;
    fleet.until_validated("v1").await?;
    tokio::time::sleep(SETTLE).await;

    let before = read_counters(&fleet).await?;
    tokio::time::sleep(time).await;
    let after = read_counters(&fleet).await?;
    let still = fleet.client.status(&project::env()?).await?;
    anyhow::ensure!(still.blocked == 0, "the fleet did not stay validated");
    fleet.stop().await?;

    let seconds = time.as_secs();
    let name = |what: &str| format!("{seconds} s of an idle fleet: {what}");
    let less = |after: u64, before: u64| f64::from(u32::try_from(after.saturating_sub(before)).unwrap_or(u32::MAX));
    let (up, down) = (less(after.up, before.up), less(after.down, before.down));
    let busiest = after.agents.iter().zip(&before.agents).map(|(after, before)| after.less(before));
    let Cpu { own, children: checks } = busiest.max().unwrap_or_default();
    let share = own.as_secs_f64() / time.as_secs_f64();
    let (requests, pings) = (less(after.requests, before.requests), less(after.pings, before.pings));
    Ok(vec![
        Row::new(name("applier starts"), Unit::Count, less(after.starts, before.starts))
            .zero()
            .detail(format!("{} before that", before.starts)),
        Row::new(name("sync payload events"), Unit::Count, less(after.payload, before.payload)).zero().detail(format!(
            "{} pings; {} down, {} up in all",
            pings,
            Unit::Bytes.show(down),
            Unit::Bytes.show(up)
        )),
        Row::new(name("requests but answers to pings"), Unit::Count, (requests - pings).max(0.0)).zero(),
        Row::new(name("new store revisions"), Unit::Count, less(after.revision, before.revision))
            .zero()
            .detail(format!("at {}", after.revision)),
        Row::new(name("the busiest agent's share of a core"), Unit::Ratio, share)
            .under(0.001)
            .detail(format!("its checks: {}", Unit::Seconds.show(checks.as_secs_f64()))),
        Row::new(name("processor time"), Unit::Seconds, (after.cpu.saturating_sub(before.cpu)).as_secs_f64()),
    ])
}

#[derive(Clone, Debug)]
struct FleetCounters {
    starts: u64,
    payload: u64,
    pings: u64,
    requests: u64,
    up: u64,
    down: u64,
    revision: u64,
    cpu: Duration,
    agents: Vec<Cpu>,
}

async fn read_counters(fleet: &Fleet) -> anyhow::Result<FleetCounters> {
    let mut starts = 0;
    let mut cpu = resource_usage::cpu(fleet.server.pid())?.own;
    let mut agents = Vec::new();
    for agent in &fleet.agents {
        starts += agent.starts()?.len() as u64;
        let used = resource_usage::cpu(agent.pid())?;
        cpu += used.own;
        agents.push(used);
    }
    let notes = fleet.proxy.traffic();
    let revision = fleet.client.status(&project::env()?).await?.revision.0;
    Ok(FleetCounters {
        starts,
        payload: notes.payload_events(),
        pings: notes.pings(),
        requests: notes.requests,
        up: notes.up,
        down: notes.down,
        revision,
        cpu,
        agents,
    })
}
