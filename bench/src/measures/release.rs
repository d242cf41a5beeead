//! A large release downloaded by many agents.

use std::time::Instant;

use crate::bench::Bench;
use crate::parts::fleet::{Fleet, FleetOptions};
use crate::parts::{project, resource_usage};
use crate::row::{Row, Unit};

pub(crate) const HOW: &str = "real agents, directly at a real `muster serve`, all validated at a small release; then all of them get one with \
    50 MB of incompressible data at once. Each downloads the bundle, verifies and unpacks it, runs its script and is \
    validated. The server's memory: the peak resident set until the last agent was validated (VmHWM, reset at the \
    start), minus the resident set at the start. The seconds are those of all of them on one machine and one disk: \
    packing, hashing and unpacking compete.";

const LIMIT: f64 = 32.0 * 1024.0 * 1024.0;

pub(crate) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let (agents, megabytes) = (bench.size(20, 4), bench.size(50, 8));
    let roles = [("app", agents)];
    let plan = FleetOptions { ballast: Some(("v2", megabytes * 1_000_000)), direct: true, ..FleetOptions::new(&roles) };
    let fleet = Fleet::start_as(bench, &plan).await?;
    fleet.until_validated("v1").await?;

    let server = fleet.server.pid();
    resource_usage::reset_peak(server)?;
    let before = resource_usage::read(server)?.rss;
    let begin = Instant::now();
    fleet.client.trigger_at_once(&project::env()?, project::version("v2")?).await?;
    fleet.until_validated("v2").await?;
    let took = begin.elapsed();
    let grown = resource_usage::peak(server)?.saturating_sub(before);
    fleet.stop().await?;

    let name = |what: &str| format!("a release of {megabytes} MB reaches {agents} agents: {what}");
    #[expect(clippy::cast_precision_loss, reason = "shown in three digits")]
    let (grown, before) = (grown as f64, before as f64);
    Ok(vec![
        Row::new(name("the server grows by"), Unit::Bytes, grown)
            .under(LIMIT)
            .detail(format!("from {}", Unit::Bytes.show(before))),
        Row::new(name("until the last is validated"), Unit::Seconds, took.as_secs_f64()),
    ])
}
