//! Growth of etcd with reports, and the effect of compaction.

use crate::bench::Bench;
use crate::parts::etcd::Etcd;
use crate::parts::project::{self, Project};
use crate::parts::sender::{Senders, StopAfter};
use crate::parts::server::Server;
use crate::row::{Row, Unit};

pub(crate) const HOW: &str = "an etcd with one member and the real `muster serve`; 100 nodes with full histories. Bytes are those in use of \
    etcd's file, as etcd reports them. The nodes report 1,000 times, and the history is compacted to the latest \
    revision; that is an age. After the first age, which creates the file, the bytes in use right after a compaction \
    must not depend on the number of ages.";

const NODES: u32 = 100;
const HISTORY: u64 = 40;
/// 1,000 reports.
const AGE: u64 = 10;

pub(crate) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let ages = bench.size(8, 3);
    let dir = bench.dir()?;
    let etcd = Etcd::start(bench, dir.path()).await?;
    let project = Project::write(dir.path(), &[("web", NODES)], &["v1"], "#!/bin/sh\nexit 0\n")?;
    let blobs = dir.path().join("blobs");
    let server = Server::start_on(bench, dir.path(), &etcd.spec(), &blobs, Some(&project.dir)).await?;
    let mut senders = Senders::new(&server.address, &project.nodes, &project::version("v1")?, 64);
    senders.send(StopAfter::Each(HISTORY)).await?;
    etcd.compact().await?;
    let mut rested = vec![etcd.bytes_in_use().await?];
    let mut grown = Vec::new();
    for _ in 0..ages {
        let before = etcd.bytes_in_use().await?;
        senders.send(StopAfter::Each(AGE)).await?;
        grown.push(etcd.bytes_in_use().await? - before);
        etcd.compact().await?;
        rested.push(etcd.bytes_in_use().await?);
    }
    server.stop().await?;
    etcd.stop().await?;
    let (young, old) = (rested.get(1).copied().unwrap_or(f64::NAN), rested.last().copied().unwrap_or(f64::NAN));
    let most = grown.iter().copied().fold(f64::MIN, f64::max);
    Ok(vec![
        Row::new("etcd grows with 1,000 reports", Unit::Bytes, grown.iter().sum::<f64>() / grown.len() as f64)
            .detail(format!("mean of {ages}; at most {}", Unit::Bytes.show(most))),
        Row::new(format!("etcd after compaction, {NODES} nodes"), Unit::Bytes, old)
            .detail(format!("{} one age of 1,000 reports after the start", Unit::Bytes.show(young))),
        Row::new(format!("the same after {ages} ages to after one"), Unit::Ratio, old / young).at_most(1.25),
    ])
}
