//! `muster status` with 5,000 nodes.

use super::populated::Populated;
use crate::bench::Bench;
use crate::row::{Row, Unit};
use crate::sample::Sample;

pub(crate) const HOW: &str = "the same server as for verify-hosts; the real `muster status`, from before its process is created until it has \
    ended. No agent is connected, so all 5,000 nodes are silent: the server has to evaluate and sort every one as a \
    blocker, which is its worst case.";

pub(crate) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let nodes = bench.size(5_000, 1_000);
    let fleet = Populated::start(bench, nodes).await?;
    let mut status = Vec::new();
    let mut list = Vec::new();
    for _ in 0..bench.size(50, 5) {
        status.push(fleet.time(bench, &["status"], None).await?);
        list.push(fleet.time(bench, &["node", "list"], None).await?);
    }
    fleet.server.stop().await?;
    let (status, list) = (Sample::new(status), Sample::new(list));
    Ok(vec![
        Row::new(format!("status, {nodes} nodes: whole command"), Unit::Seconds, status.median())
            .under(0.050)
            .detail(status.spread()),
        Row::new(format!("node list, {nodes} nodes: whole command"), Unit::Seconds, list.median())
            .detail(list.spread()),
    ])
}
