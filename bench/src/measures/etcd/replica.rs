//! A replica that starts beside another, on an etcd with a large fleet.

use std::time::Instant;

use crate::bench::Bench;
use crate::measures::populated::Populated;
use crate::parts::etcd::Etcd;
use crate::parts::http::Connection;
use crate::parts::resource_usage;
use crate::parts::server::Server;
use crate::row::{Row, Unit};
use crate::sample::Sample;

pub(crate) const HOW: &str = "an etcd with one member that holds 10,000 nodes, each with a complete run, and a real `muster serve` that runs \
    all the time; a second one is started beside it repeatedly, without a project. To ready: from before the process \
    is created until /readyz answers 204. Its reads are etcd's count of Range calls meanwhile. Memory is the \
    resident set of the second, minus that of a server with a single node.";

pub(crate) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let nodes = bench.size(10_000, 1_000);
    let base = {
        let dir = bench.dir()?;
        let etcd = Etcd::start(bench, dir.path()).await?;
        let Populated { server, .. } = Populated::start_on(bench, 2, dir, &etcd.spec()).await?;
        let memory = resource_usage::read(server.pid())?;
        server.stop().await?;
        etcd.stop().await?;
        memory
    };
    let dir = bench.dir()?;
    let etcd = Etcd::start(bench, dir.path()).await?;
    let Populated { server: first, sent, dir, .. } = Populated::start_on(bench, nodes, dir, &etcd.spec()).await?;
    let blobs = dir.path().join("blobs");
    let (mut starts, mut scrapes, mut reads, mut rss) = (Vec::new(), Vec::new(), 0.0_f64, 0);
    for _ in 0..bench.size(10, 3) {
        let other = bench.dir()?;
        let before = etcd.metrics().await?;
        let second = Server::start_on(bench, other.path(), &etcd.spec(), &blobs, None).await?;
        starts.push(second.ready_after);
        reads = reads.max(etcd.metrics().await?.etcd_reads() - before.etcd_reads());
        rss = resource_usage::read(second.pid())?.rss;
        let mut connection = Connection::open(&second.address).await?;
        for _ in 0..5 {
            let begin = Instant::now();
            connection.get("/metrics").await?;
            scrapes.push(begin.elapsed());
        }
        second.stop().await?;
    }
    first.stop().await?;
    etcd.stop().await?;
    let (starts, scrapes) = (Sample::new(starts), Sample::new(scrapes));
    let each = bytes(rss.saturating_sub(base.rss)) / f64::from(nodes);
    Ok(vec![
        Row::new(format!("replica on etcd with {nodes} nodes: start to ready"), Unit::Seconds, starts.median())
            .under(1.0)
            .detail(starts.spread()),
        Row::new(format!("replica on etcd with {nodes} nodes: reads of etcd until then"), Unit::Count, reads),
        Row::new(format!("replica on etcd with {nodes} nodes: resident"), Unit::Bytes, bytes(rss)),
        Row::new(format!("replica on etcd with {nodes} nodes: per node"), Unit::Bytes, each),
        Row::new(format!("scrape of /metrics, {nodes} nodes"), Unit::Seconds, scrapes.median())
            .under(0.020)
            .detail(scrapes.spread()),
        Row::new(format!("{nodes} nodes' first runs reported on etcd, 64 senders"), Unit::PerSecond, sent.per_second()),
    ])
}

fn bytes(number: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "shown in three digits")]
    let number = number as f64;
    number
}
