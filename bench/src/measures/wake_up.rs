//! Nodes that are woken: from the validation of `db1` to the start of `web1`'s next applier process, and by a change of
//! configuration data.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context;
use muster_core::lookup::Tag;
use muster_core::names::NodeName;
use muster_core::node::status::NodeState;
use muster_core::report::{Outcome, Verdict};

use crate::bench::Bench;
use crate::parts::crowd::{Crowd, CrowdAgent, SPREAD};
use crate::parts::fleet::{BenchFleet, FleetOptions};
use crate::parts::machine::allow_open_files;
use crate::parts::process::command;
use crate::parts::reports::lookups;
use crate::parts::server::BenchServer;
use crate::row::{BenchRow, Sample, Unit};

use super::populated::Populated;

pub(crate) const WAKE_UP_METHOD: &str = "two real agents with the script applier and default settings, a new fleet each time. db1's first run waits until \
    web1 is pending (\"waiting for role db\"), and is then released. The clock starts when a proxy has read the last \
    byte of db1's `validated` report, before the server has it: the earliest sound time, so the number includes the \
    commit with its fsync. It stops at the time that web1's script records first, when bash has started.";

/// Timeout of web1; a missed target is shown and is not an error.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) async fn measure_wake_up(bench: &Bench) -> anyhow::Result<Vec<BenchRow>> {
    let mut all = Vec::new();
    let mut acknowledged = Vec::new();
    for _ in 0..bench.size(20, 3) {
        let (from_sent, from_answered) = once(bench).await?;
        all.push(from_sent);
        acknowledged.push(from_answered);
    }
    let (all, acknowledged) = (Sample::new(all), Sample::new(acknowledged));
    let name = "db1 validated to web1's applier started";
    Ok(vec![
        BenchRow::new(name, Unit::Seconds, all.median()).under(0.100).detail(all.spread()),
        BenchRow::new(format!("{name}: the slowest"), Unit::Seconds, all.max()).under(0.100),
        BenchRow::new(format!("{name}, from the server's answer"), Unit::Seconds, acknowledged.median())
            .detail(acknowledged.spread()),
    ])
}

/// The time since the report was sent, and since it was answered.
async fn once(bench: &Bench) -> anyhow::Result<(Duration, Duration)> {
    let fleet = BenchFleet::start(bench, &[("db", 1), ("web", 1)], Some("db")).await?;
    let stands = |row: &muster_wire::operator::NodeRow| match row.node.natural().0 {
        "db" => row.state == NodeState::Applying,
        _ => row.state == NodeState::Pending,
    };
    fleet.until("db1 is held back and web1 is pending", stands).await?;
    let web = fleet.agent("web1")?;
    let runs = web.starts()?.len();
    fleet.agent("db1")?.release()?;
    let deadline = Instant::now() + TIMEOUT;
    let started = loop {
        if let Some(started) = web.starts()?.get(runs) {
            break *started;
        }
        anyhow::ensure!(Instant::now() < deadline, "web1 was not woken within {TIMEOUT:?}:\n{}", web.log_tail());
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    fleet.until_validated("v1").await?;
    let notes = fleet.proxy.traffic();
    let is_it = |seen: &&crate::parts::proxy::PassedReport| {
        seen.report.node.as_str() == "db1" && seen.report.outcome == Outcome::Validated(Verdict::Passed)
    };
    let seen = notes.reports.iter().find(is_it).context("the report of db1 was not seen")?;
    let answered = seen.answered.context("the report of db1 was not answered")?;
    let since = |moment: Duration| started.saturating_sub(moment);
    let times = (since(seen.sent), since(answered));
    fleet.stop().await?;
    Ok(times)
}

pub(crate) const DATA_METHOD: &str = "one node of many: 1,000 agents, simulated in this process by one stream each; the last run of 10 of them has \
    looked up a missing key. `muster data set` sets it, and the agents that get a snapshot within two seconds are \
    counted. The time is from the start of the command to the tenth. Ten changes: a real agent whose script has \
    looked up a key, and ten `muster data set` of it, spread evenly over 0.8 s; the script records each of its \
    starts. The script takes no time, which is the harder case: changes during a Puppet run are merged anyway.";

const KEY: &str = "ntp_servers";
/// Unexpected snapshots arrive within this time.
const SETTLE: Duration = Duration::from_secs(2);
const CHANGES: u32 = 10;
const WITHIN: Duration = Duration::from_millis(800);

pub(crate) async fn measure_data(bench: &Bench) -> anyhow::Result<Vec<BenchRow>> {
    let mut rows = one_of_many(bench).await?;
    rows.push(ten_changes(bench).await?);
    Ok(rows)
}

async fn one_of_many(bench: &Bench) -> anyhow::Result<Vec<BenchRow>> {
    const READERS: usize = 10;
    let nodes = bench.size(1_000, 200);
    allow_open_files(u64::from(nodes) + 500)?;
    let fleet = Populated::start(bench, nodes).await?;
    let every = fleet.project.nodes.len() / READERS;
    let agent = |(number, node): (usize, &NodeName)| {
        let mut lookups = lookups();
        if number.is_multiple_of(every) {
            lookups.insert(format!("data::{KEY}"), Tag::absent());
        }
        CrowdAgent { node: node.clone(), lookups, tls: None }
    };
    let agents = fleet.project.nodes.iter().enumerate().map(agent).collect();
    let crowd = Crowd::connect_within(&[&fleet.server.address], agents, SPREAD).await?;
    tokio::time::sleep(SETTLE).await;
    let early = crowd.snapshots().len();
    anyhow::ensure!(early == 0, "{early} snapshots were sent before anything had changed");
    let begin = Instant::now();
    set(bench, &fleet.server, 1).await?;
    crowd.wait_for_snapshots(READERS).await?;
    tokio::time::sleep(SETTLE).await;
    let snapshots = crowd.snapshots();
    let tenth = snapshots.get(READERS - 1).context("they were sent a moment ago")?.duration_since(begin);
    drop(crowd);
    fleet.server.stop().await?;
    let name = |what: &str| format!("a datum changes that {READERS} of {nodes} nodes looked up: {what}");
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let woken = snapshots.len() as f64;
    Ok(vec![
        BenchRow::new(name("nodes woken"), Unit::Count, woken).at_most(10.0),
        BenchRow::new(name("until the tenth is notified"), Unit::Seconds, tenth.as_secs_f64())
            .detail("the command included"),
    ])
}

const SCRIPT: &str = r#"#!/bin/bash
echo "$EPOCHREALTIME" >> "$MUSTER_ROOT/starts"
echo data::ntp_servers >> "$MUSTER_LOOKUPS_FILE"
"#;

async fn ten_changes(bench: &Bench) -> anyhow::Result<BenchRow> {
    let roles = [("web", 1)];
    let fleet = BenchFleet::start_as(bench, &FleetOptions { script: SCRIPT, ..FleetOptions::new(&roles) }).await?;
    fleet.until_validated("v1").await?;
    let web = fleet.agent("web1")?;
    let before = web.starts()?.len();
    let begin = tokio::time::Instant::now();
    for number in 0..CHANGES {
        tokio::time::sleep_until(begin + WITHIN * number / (CHANGES - 1)).await;
        set(bench, &fleet.server, number).await?;
    }
    let took = begin.elapsed();
    tokio::time::sleep(SETTLE).await;
    let starts = web.starts()?.len() - before;
    fleet.until_validated("v1").await?;
    fleet.stop().await?;
    anyhow::ensure!(starts > 0, "the node did not run at all");
    anyhow::ensure!(took < Duration::from_secs(1), "the machine is too slow: the changes took {took:?}");
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let starts = starts as f64;
    let detail = format!("the changes took {}", Unit::Seconds.show(took.as_secs_f64()));
    Ok(BenchRow::new(format!("{CHANGES} changes of looked-up data within a second: runs"), Unit::Count, starts)
        .at_most(1.0)
        .detail(detail))
}

/// Sets the key, as an operator does.
async fn set(bench: &Bench, server: &BenchServer, number: u32) -> anyhow::Result<()> {
    let mut muster = command(bench, bench.muster()?, server.state.parent().unwrap_or(&server.state));
    muster.args(["data", "set", KEY, &format!("[\"10.0.0.{number}\"]"), "--server", &server.url]);
    let output = muster.stdin(Stdio::null()).output().await.context("cannot start muster")?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "muster data set ended with {}: {said}", output.status);
    Ok(())
}
