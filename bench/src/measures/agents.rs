//! Memory and activity of idle agents, and the download of a large release by many agents.

use std::time::{Duration, Instant};

use anyhow::Context;
use muster_core::node::status::NodeState;
use muster_core::report::{Outcome, Verdict};

use crate::bench::Bench;
use crate::parts::agent::BenchAgent;
use crate::parts::fleet::{BenchFleet, FleetOptions};
use crate::parts::process::{Cpu, Memory};
use crate::parts::{process, project};
use crate::row::{BenchRow, Unit, bytes};

use super::populated::Populated;

pub(crate) const MEMORY_METHOD: &str = "a real agent that has downloaded a release of 50 MB, has made its runs with the script applier, was validated, \
    is connected and only validates every 30 s. RSS and PSS are from /proc/PID/smaps_rollup. RSS includes pages that \
    it shares with other processes. In the large fleet it has received the addresses of all nodes. `puppet agent` \
    takes 69 MiB (stated, not measured here).";

const MEMORY_LIMIT: f64 = 12.0 * 1024.0 * 1024.0;
/// Runs of the agent before its memory is measured again.
const RUNS: usize = 10;
/// Timeout of the validation, which needs less than a second.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Remains of a run in the agent (timers, idle threads) are gone after this time.
const SETTLE: Duration = Duration::from_secs(2);

pub(crate) async fn measure_memory(bench: &Bench) -> anyhow::Result<Vec<BenchRow>> {
    let roles = [("db", 1)];
    let plan = FleetOptions { ballast: Some(("v1", bench.size(50, 8) * 1_000_000)), ..FleetOptions::new(&roles) };
    let fleet = BenchFleet::start_as(bench, &plan).await?;
    fleet.until_validated("v1").await?;
    let agent = fleet.agent("db1")?;
    tokio::time::sleep(SETTLE).await;
    let once = process::read_memory(agent.pid())?;
    for run in 1..RUNS {
        fleet.request_run("db1").await?;
        fleet.until_started("db1", run + 1).await?;
        fleet.until_validated("v1").await?;
    }
    let runs = agent.starts()?.len();
    anyhow::ensure!(runs == RUNS, "{runs} runs were made instead of {RUNS}");
    tokio::time::sleep(SETTLE).await;
    let later = process::read_memory(agent.pid())?;
    fleet.stop().await?;
    let nodes = bench.size(5_000, 500);
    let among = among_many(bench, nodes).await?;
    Ok(vec![
        row("after its first run", once),
        row(&format!("after {RUNS} runs"), later),
        row(&format!("in a fleet of {nodes} nodes"), among),
    ])
}

/// An agent that has received the addresses of thousands of other nodes.
async fn among_many(bench: &Bench, nodes: u32) -> anyhow::Result<Memory> {
    let fleet = Populated::start(bench, nodes).await?;
    let (client, env) = (fleet.server.client()?, project::env()?);
    let name = fleet.project.nodes.first().context("there are no nodes")?;
    let before = client.node(&env, name).await?.incarnation;
    let agent = BenchAgent::start(bench, fleet.dir.path(), &fleet.project, name, 0, &fleet.server.url, false)?;
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let now = client.node(&env, name).await?;
        let validated = now.last.is_some_and(|last| last.outcome == Outcome::Validated(Verdict::Passed));
        if now.incarnation > before && validated && now.row.state == NodeState::Validated {
            break;
        }
        anyhow::ensure!(Instant::now() < deadline, "{name} is not validated:\n{}", agent.log_tail());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    anyhow::ensure!(!agent.starts()?.is_empty(), "{name} has not run");
    tokio::time::sleep(SETTLE).await;
    let memory = process::read_memory(agent.pid())?;
    agent.stop().await?;
    fleet.server.stop().await?;
    Ok(memory)
}

fn row(when: &str, memory: Memory) -> BenchRow {
    let show = |number: u64| Unit::Bytes.show(bytes(number));
    BenchRow::new(format!("idle agent {when}: resident"), Unit::Bytes, bytes(memory.rss))
        .under(MEMORY_LIMIT)
        .detail(format!("PSS {}, of its own {}", show(memory.pss), show(memory.anonymous)))
}

pub(crate) const DOWNLOAD_METHOD: &str = "real agents, directly at a real `muster serve`, all validated at a small release; then all of them get one with \
    50 MB of incompressible data at once. Each downloads the bundle, verifies and unpacks it, runs its script and is \
    validated. The server's memory: the peak resident set until the last agent was validated (VmHWM, reset at the \
    start), minus the resident set at the start. The seconds are those of all of them on one machine and one disk: \
    packing, hashing and unpacking compete.";

const DOWNLOAD_LIMIT: f64 = 32.0 * 1024.0 * 1024.0;

pub(crate) async fn measure_download(bench: &Bench) -> anyhow::Result<Vec<BenchRow>> {
    let (agents, megabytes) = (bench.size(20, 4), bench.size(50, 8));
    let roles = [("app", agents)];
    let plan = FleetOptions { ballast: Some(("v2", megabytes * 1_000_000)), direct: true, ..FleetOptions::new(&roles) };
    let fleet = BenchFleet::start_as(bench, &plan).await?;
    fleet.until_validated("v1").await?;

    let server = fleet.server.pid();
    process::reset_peak(server)?;
    let before = process::read_memory(server)?.rss;
    let begin = Instant::now();
    fleet.client.trigger_at_once(&project::env()?, project::version("v2")?).await?;
    fleet.until_validated("v2").await?;
    let took = begin.elapsed();
    let grown = process::peak(server)?.saturating_sub(before);
    fleet.stop().await?;

    let name = |what: &str| format!("a release of {megabytes} MB reaches {agents} agents: {what}");
    #[expect(clippy::cast_precision_loss, reason = "shown in three digits")]
    let (grown, before) = (grown as f64, before as f64);
    Ok(vec![
        BenchRow::new(name("the server grows by"), Unit::Bytes, grown)
            .under(DOWNLOAD_LIMIT)
            .detail(format!("from {}", Unit::Bytes.show(before))),
        BenchRow::new(name("until the last is validated"), Unit::Seconds, took.as_secs_f64()),
    ])
}

pub(crate) const IDLE_METHOD: &str = "four real agents (db1, web1, web2, lb1) with the script applier, all validated; each web waited for the db, and \
    lb1 for both webs. Applier starts: the script records each. Sync payload: a proxy between the agents and the \
    server parses the event streams and counts the events by name; hello, desired, snapshot and run are payload. An \
    agent answers each ping with one request, by which the server knows that it is alive. Store revisions: the API's \
    `revision` before and after. Processor time: the four agents and the server together. The release is validated \
    every 30 s. The share of a core is that of the busiest agent; its checks are shown separately.";

/// Effects of the last run are over after this time.
const IDLE_SETTLE: Duration = Duration::from_secs(2);

pub(crate) async fn measure_idle(bench: &Bench) -> anyhow::Result<Vec<BenchRow>> {
    let time = bench.size(Duration::from_secs(60), Duration::from_secs(12));
    let fleet = BenchFleet::start(bench, &[("db", 1), ("web", 2), ("lb", 1)], None).await?;
    fleet.until_validated("v1").await?;
    tokio::time::sleep(IDLE_SETTLE).await;

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
        BenchRow::new(name("applier starts"), Unit::Count, less(after.starts, before.starts))
            .zero()
            .detail(format!("{} before that", before.starts)),
        BenchRow::new(name("sync payload events"), Unit::Count, less(after.payload, before.payload))
            .zero()
            .detail(format!("{} pings; {} down, {} up in all", pings, Unit::Bytes.show(down), Unit::Bytes.show(up))),
        BenchRow::new(name("requests but answers to pings"), Unit::Count, (requests - pings).max(0.0)).zero(),
        BenchRow::new(name("new store revisions"), Unit::Count, less(after.revision, before.revision))
            .zero()
            .detail(format!("at {}", after.revision)),
        BenchRow::new(name("the busiest agent's share of a core"), Unit::Ratio, share)
            .under(0.001)
            .detail(format!("its checks: {}", Unit::Seconds.show(checks.as_secs_f64()))),
        BenchRow::new(name("processor time"), Unit::Seconds, (after.cpu.saturating_sub(before.cpu)).as_secs_f64()),
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

async fn read_counters(fleet: &BenchFleet) -> anyhow::Result<FleetCounters> {
    let mut starts = 0;
    let mut cpu = process::cpu(fleet.server.pid())?.own;
    let mut agents = Vec::new();
    for agent in &fleet.agents {
        starts += agent.starts()?.len() as u64;
        let used = process::cpu(agent.pid())?;
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
