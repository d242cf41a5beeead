//! Nodes that are woken by a change of configuration data, and how often.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context;
use muster_core::lookup::{Lookups, Tag};

use super::populated::Populated;
use crate::bench::Bench;
use crate::parts::crowd::Crowd;
use crate::parts::fleet::{Fleet, FleetOptions};
use crate::parts::machine::allow_open_files;
use crate::parts::process::command;
use crate::parts::reports::lookups;
use crate::parts::server::Server;
use crate::row::{Row, Unit};

pub(crate) const HOW: &str = "one node of many: 1,000 agents, simulated in this process by one stream each; the last run of 10 of them has \
    looked up a missing key. `muster data set` sets it, and the agents that get a snapshot within two seconds are \
    counted. The time is from the start of the command to the tenth. Ten changes: a real agent whose script has \
    looked up a key, and ten `muster data set` of it, spread evenly over 0.8 s; the script records each of its \
    starts. The script takes no time, which is the harder case: changes during a Puppet run are merged anyway.";

const KEY: &str = "ntp_servers";
/// Unexpected snapshots arrive within this time.
const SETTLE: Duration = Duration::from_secs(2);
const CHANGES: u32 = 10;
const WITHIN: Duration = Duration::from_millis(800);

pub(crate) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let mut rows = one_of_many(bench).await?;
    rows.push(ten_changes(bench).await?);
    Ok(rows)
}

async fn one_of_many(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    const ASKED: usize = 10;
    let nodes = bench.size(1_000, 200);
    allow_open_files(u64::from(nodes) + 500)?;
    let fleet = Populated::start(bench, nodes).await?;
    let every = fleet.project.nodes.len() / ASKED;
    let looked_up = |number: usize| -> Lookups {
        let mut lookups = lookups();
        if number.is_multiple_of(every) {
            lookups.insert(format!("data::{KEY}"), Tag::absent());
        }
        lookups
    };
    let crowd = Crowd::connect_as(&[&fleet.server.address], &fleet.project.nodes, looked_up).await?;
    tokio::time::sleep(SETTLE).await;
    let early = crowd.snapshots().len();
    anyhow::ensure!(early == 0, "{early} snapshots were sent before anything had changed");
    let begin = Instant::now();
    set(bench, &fleet.server, 1).await?;
    crowd.wait_for_snapshots(ASKED).await?;
    tokio::time::sleep(SETTLE).await;
    let told = crowd.snapshots();
    let tenth = told.get(ASKED - 1).context("they were told a moment ago")?.duration_since(begin);
    drop(crowd);
    fleet.server.stop().await?;
    let name = |what: &str| format!("a datum changes that {ASKED} of {nodes} nodes looked up: {what}");
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let told = told.len() as f64;
    Ok(vec![
        Row::new(name("nodes woken"), Unit::Count, told).at_most(10.0),
        Row::new(name("until the tenth is told"), Unit::Seconds, tenth.as_secs_f64()).detail("the command included"),
    ])
}

const SCRIPT: &str = r#"#!/bin/bash
echo "$EPOCHREALTIME" >> "$MUSTER_ROOT/starts"
echo data::ntp_servers >> "$MUSTER_LOOKUPS_FILE"
"#;

async fn ten_changes(bench: &Bench) -> anyhow::Result<Row> {
    let roles = [("web", 1)];
    let fleet = Fleet::start_as(bench, &FleetOptions { script: SCRIPT, ..FleetOptions::new(&roles) }).await?;
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
    Ok(Row::new(format!("{CHANGES} changes of looked-up data within a second: runs"), Unit::Count, starts)
        .at_most(1.0)
        .detail(detail))
}

/// Sets the key, as an operator does.
async fn set(bench: &Bench, server: &Server, number: u32) -> anyhow::Result<()> {
    let mut muster = command(bench, bench.muster()?, server.state.parent().unwrap_or(&server.state));
    muster.args(["data", "set", KEY, &format!("[\"10.0.0.{number}\"]"), "--server", &server.url]);
    let output = muster.stdin(Stdio::null()).output().await.context("cannot start muster")?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "muster data set ended with {}: {said}", output.status);
    Ok(())
}
