//! Memory of an idle agent.

use std::time::{Duration, Instant};

use anyhow::Context;
use muster_core::node::status::NodeState;
use muster_core::report::{Outcome, Verdict};

use super::populated::Populated;

use crate::bench::Bench;
use crate::parts::agent::Agent;
use crate::parts::fleet::{Fleet, FleetOptions};
use crate::parts::project;
use crate::parts::resource_usage::{self, Memory};
use crate::row::{Row, Unit};

pub(crate) const HOW: &str = "a real agent that has downloaded a release of 50 MB, has made its runs with the script applier, was validated, \
    is connected and only validates every 30 s. RSS and PSS are from /proc/PID/smaps_rollup. RSS includes pages that \
    it shares with other processes. In the large fleet it has received the addresses of all nodes. `puppet agent` \
    takes 69 MiB (stated, not measured here).";

const LIMIT: f64 = 12.0 * 1024.0 * 1024.0;
/// Runs of the agent before its memory is measured again.
const RUNS: usize = 10;
/// Timeout of the validation, which needs less than a second.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Remains of a run in the agent (timers, idle threads) are gone after this time.
const SETTLE: Duration = Duration::from_secs(2);

pub(crate) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let roles = [("db", 1)];
    let plan = FleetOptions { ballast: Some(("v1", bench.size(50, 8) * 1_000_000)), ..FleetOptions::new(&roles) };
    let fleet = Fleet::start_as(bench, &plan).await?;
    fleet.until_validated("v1").await?;
    let agent = fleet.agent("db1")?;
    tokio::time::sleep(SETTLE).await;
    let once = resource_usage::read(agent.pid())?;
    for run in 1..RUNS {
        fleet.ask_for_run("db1").await?;
        fleet.until_started("db1", run + 1).await?;
        fleet.until_validated("v1").await?;
    }
    let runs = agent.starts()?.len();
    anyhow::ensure!(runs == RUNS, "{runs} runs were made instead of {RUNS}");
    tokio::time::sleep(SETTLE).await;
    let later = resource_usage::read(agent.pid())?;
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
    let agent = Agent::start(bench, fleet.dir.path(), &fleet.project, name, 0, &fleet.server.url, false)?;
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
    let memory = resource_usage::read(agent.pid())?;
    agent.stop().await?;
    fleet.server.stop().await?;
    Ok(memory)
}

fn row(when: &str, memory: Memory) -> Row {
    let show = |bytes: u64| Unit::Bytes.show(f64_of(bytes));
    Row::new(format!("idle agent {when}: resident"), Unit::Bytes, f64_of(memory.rss)).under(LIMIT).detail(format!(
        "PSS {}, of its own {}",
        show(memory.pss),
        show(memory.anonymous)
    ))
}

fn f64_of(bytes: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "shown in three digits")]
    let bytes = bytes as f64;
    bytes
}
