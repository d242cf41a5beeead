//! Durable transactions per second: the embedded store against an etcd with one member.

use std::sync::Arc;
use std::time::Duration;

use muster_store::embedded::Options;
use muster_store::{EmbeddedStore, Store, StoreAccess};

use crate::bench::Bench;
use crate::measures::raw_store;
use crate::parts::etcd::Etcd;
use crate::row::{Row, Unit};

pub(crate) const HOW: &str = "the same transactions, those of reports of nodes with full histories, one report each, by the same number of \
    writers, each waiting for each response; alternately on the embedded store and on an etcd with one member, both \
    on the disk of --dir, both with fsync, in this process through the same interface. The mean of the rounds \
    counts. etcd is reached over loopback and runs beside the writers; this difference is intended.";

const WRITERS: [u32; 2] = [1, 64];

pub(crate) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let time = bench.size(Duration::from_secs(3), Duration::from_millis(500));
    let rounds = bench.size(3, 1);
    let dir = bench.dir()?;
    let etcd = Etcd::start(bench, dir.path()).await?;
    let shared: Arc<dyn Store> = muster_store::open(&etcd.spec(), &StoreAccess::default()).await?;
    let mut rows = Vec::new();
    for writers in WRITERS {
        let (mut embedded, mut clustered, mut fsyncs) = (0.0, 0.0, 0.0);
        for round in 0..rounds {
            let path = dir.path().join(format!("embedded-{writers}-{round}"));
            let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(path, Options::default()).await?);
            let raw = raw_store::measure(&store, writers, time).await?;
            embedded += raw.transactions_per_second;
            fsyncs = raw.fsyncs_each;
            clustered += raw_store::measure(&shared, writers, time).await?.transactions_per_second;
        }
        let (embedded, clustered) = (embedded / f64::from(rounds), clustered / f64::from(rounds));
        let writing = if writers == 1 { "1 writer".to_owned() } else { format!("{writers} writers") };
        rows.extend([
            Row::new(format!("transactions of the embedded store, {writing}"), Unit::PerSecond, embedded)
                .detail(format!("{fsyncs:.3} fsyncs each")),
            Row::new(format!("transactions of etcd {}, {writing}", etcd.version), Unit::PerSecond, clustered),
            Row::new(format!("embedded to etcd, {writing}"), Unit::Ratio, embedded / clustered).at_least(1.0),
        ]);
    }
    drop(shared);
    etcd.stop().await?;
    Ok(rows)
}
