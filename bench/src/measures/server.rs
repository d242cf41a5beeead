//! Memory of the server, and its time to start.

use super::populated::Populated;
use crate::bench::Bench;
use crate::parts::project::Project;
use crate::parts::resource_usage;
use crate::parts::server::Server;
use crate::row::{Row, Unit};
use crate::sample::Sample;

pub(crate) const HOW: &str = "the real `muster serve`. Memory is the resident set (RSS, with the store's page cache and the program itself) of \
    a server that was started on the filled store and has answered one request, minus that of one with a single \
    node. Its nodes are not connected. To ready: from before the process is created until it prints its address, \
    when its view is complete; the store is in the page cache.";

pub(crate) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let base = {
        let dir = bench.dir()?;
        let project = Project::write(dir.path(), &[("web", 1)], &["v1"], "#!/bin/sh\nexit 0\n")?;
        let server = Server::start(bench, dir.path(), Some(&project.dir)).await?;
        let memory = resource_usage::read(server.pid())?;
        server.stop().await?;
        memory
    };
    let mut rows = vec![Row::new("server with 1 node: resident", Unit::Bytes, bytes(base.rss))];
    for nodes in bench.size([5_000_u32, 10_000], [500, 1_000]) {
        let Populated { server, sent, dir, .. } = Populated::start(bench, nodes).await?;
        let busy = resource_usage::read(server.pid())?;
        server.stop().await?;

        let mut starts = Vec::new();
        let mut rested = None;
        for _ in 0..bench.size(10, 3) {
            let server = Server::start(bench, dir.path(), None).await?;
            starts.push(server.ready_after);
            rested = Some(resource_usage::read(server.pid())?);
            server.stop().await?;
        }
        let starts = Sample::new(starts);
        let rss = bytes(rested.map_or(0, |memory| memory.rss));
        let each = (rss - bytes(base.rss)) / f64::from(nodes);
        rows.extend([
            Row::new(format!("server with {nodes} nodes: resident"), Unit::Bytes, rss)
                .detail(format!("{} right after taking their reports", Unit::Bytes.show(bytes(busy.rss)))),
            Row::new(format!("server with {nodes} nodes: per node"), Unit::Bytes, each),
            Row::new(format!("server with {nodes} nodes: start to ready"), Unit::Seconds, starts.median())
                .detail(starts.spread()),
            Row::new(format!("{nodes} nodes' first runs reported, 64 senders"), Unit::PerSecond, sent.per_second())
                .detail(format!("{} reports to the real process", sent.reports)),
        ]);
    }
    Ok(rows)
}

fn bytes(number: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "shown in three digits")]
    let number = number as f64;
    number
}
