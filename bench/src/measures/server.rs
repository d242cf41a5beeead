//! Memory of the server and its time to start, alone and as a replica beside another, on an etcd with a large fleet.

use std::time::Instant;

use crate::bench::Bench;
use crate::parts::etcd::Etcd;
use crate::parts::http::RawConnection;
use crate::parts::process;
use crate::parts::project::BenchProject;
use crate::parts::server::BenchServer;
use crate::row::{BenchRow, Sample, Unit, bytes};

use super::populated::Populated;

pub(crate) const SERVER_METHOD: &str = "the real `muster serve`. Memory is the resident set (RSS, with the store's page cache and the program itself) of \
    a server that was started on the filled store and has answered one request, minus that of one with a single \
    node. Its nodes are not connected. To ready: from before the process is created until it prints its address, \
    when its view is complete; the store is in the page cache.";

pub(crate) async fn measure_server(bench: &Bench) -> anyhow::Result<Vec<BenchRow>> {
    let base = {
        let dir = bench.dir()?;
        let project = BenchProject::write(dir.path(), &[("web", 1)], &["v1"], "#!/bin/sh\nexit 0\n")?;
        let server = BenchServer::start(bench, dir.path(), Some(&project.dir)).await?;
        let memory = process::read_memory(server.pid())?;
        server.stop().await?;
        memory
    };
    let mut rows = vec![BenchRow::new("server with 1 node: resident", Unit::Bytes, bytes(base.rss))];
    for nodes in bench.size([5_000_u32, 10_000], [500, 1_000]) {
        let Populated { server, sent, dir, .. } = Populated::start(bench, nodes).await?;
        let busy = process::read_memory(server.pid())?;
        server.stop().await?;

        let mut starts = Vec::new();
        let mut rested = None;
        for _ in 0..bench.size(10, 3) {
            let server = BenchServer::start(bench, dir.path(), None).await?;
            starts.push(server.ready_after);
            rested = Some(process::read_memory(server.pid())?);
            server.stop().await?;
        }
        let starts = Sample::new(starts);
        let rss = bytes(rested.map_or(0, |memory| memory.rss));
        let each = (rss - bytes(base.rss)) / f64::from(nodes);
        rows.extend([
            BenchRow::new(format!("server with {nodes} nodes: resident"), Unit::Bytes, rss)
                .detail(format!("{} right after taking their reports", Unit::Bytes.show(bytes(busy.rss)))),
            BenchRow::new(format!("server with {nodes} nodes: per node"), Unit::Bytes, each)
                .grows("server on the embedded store: memory per node", nodes),
            BenchRow::new(format!("server with {nodes} nodes: start to ready"), Unit::Seconds, starts.median())
                .detail(starts.spread()),
            BenchRow::new(
                format!("{nodes} nodes' first runs reported, 64 senders"),
                Unit::PerSecond,
                sent.per_second(),
            )
            .detail(format!("{} reports to the real process", sent.reports)),
        ]);
    }
    Ok(rows)
}

pub(crate) const REPLICA_METHOD: &str = "an etcd with one member that holds 10,000 nodes, each with a complete run, and a real `muster serve` that runs \
    all the time; a second one is started beside it repeatedly, without a project. To ready: from before the process \
    is created until /readyz answers 204. Its reads are etcd's count of Range calls meanwhile. Memory is the \
    resident set of the second, minus that of a server with a single node.";

pub(crate) async fn measure_replica(bench: &Bench) -> anyhow::Result<Vec<BenchRow>> {
    let nodes = bench.size(10_000, 1_000);
    let base = {
        let dir = bench.dir()?;
        let etcd = Etcd::start(bench, dir.path()).await?;
        let Populated { server, .. } = Populated::start_on(bench, 2, dir, &etcd.spec()).await?;
        let memory = process::read_memory(server.pid())?;
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
        let second = BenchServer::start_on(bench, other.path(), &etcd.spec(), &blobs, None).await?;
        starts.push(second.ready_after);
        reads = reads.max(etcd.metrics().await?.etcd_reads() - before.etcd_reads());
        rss = process::read_memory(second.pid())?.rss;
        let mut connection = RawConnection::open(&second.address).await?;
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
        BenchRow::new(format!("replica on etcd with {nodes} nodes: start to ready"), Unit::Seconds, starts.median())
            .under(1.0)
            .detail(starts.spread()),
        BenchRow::new(format!("replica on etcd with {nodes} nodes: reads of etcd until then"), Unit::Count, reads),
        BenchRow::new(format!("replica on etcd with {nodes} nodes: resident"), Unit::Bytes, bytes(rss)),
        BenchRow::new(format!("replica on etcd with {nodes} nodes: per node"), Unit::Bytes, each),
        BenchRow::new(format!("scrape of /metrics, {nodes} nodes"), Unit::Seconds, scrapes.median())
            .under(0.020)
            .detail(scrapes.spread()),
        BenchRow::new(
            format!("{nodes} nodes' first runs reported on etcd, 64 senders"),
            Unit::PerSecond,
            sent.per_second(),
        ),
    ])
}
