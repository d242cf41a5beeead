//! From the validation of `db1` to the start of `web1`'s next applier process.

use std::time::{Duration, Instant};

use anyhow::Context;
use muster_core::node::status::NodeState;
use muster_core::report::{Outcome, Verdict};

use crate::bench::Bench;
use crate::parts::fleet::Fleet;
use crate::row::{Row, Unit};
use crate::sample::Sample;

pub(crate) const HOW: &str = "two real agents with the script applier and default settings, a new fleet each time. db1's first run waits until \
    web1 is pending (\"waiting for role db\"), and is then released. The clock starts when a proxy has read the last \
    byte of db1's `validated` report, before the server has it: the earliest sound time, so the number includes the \
    commit with its fsync. It stops at the time that web1's script records first, when bash has started.";

/// Timeout of web1; a missed target is shown and is not an error.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
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
        Row::new(name, Unit::Seconds, all.median()).under(0.100).detail(all.spread()),
        Row::new(format!("{name}: the slowest"), Unit::Seconds, all.max()).under(0.100),
        Row::new(format!("{name}, from the server's answer"), Unit::Seconds, acknowledged.median())
            .detail(acknowledged.spread()),
    ])
}

/// The time since the report was sent, and since it was answered.
async fn once(bench: &Bench) -> anyhow::Result<(Duration, Duration)> {
    let fleet = Fleet::start(bench, &[("db", 1), ("web", 1)], Some("db")).await?;
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
