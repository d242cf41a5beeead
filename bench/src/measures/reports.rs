//! Full reports per second through the HTTP API on the embedded store.

use std::sync::Arc;
use std::time::Duration;

use super::raw_store;
use crate::bench::Bench;
use crate::parts::reports::{Senders, SentReports, StopAfter};
use crate::parts::server::InProcessServer;
use crate::parts::{process, project};
use crate::row::{BenchRow, Unit};
use muster_store::embedded::EmbeddedOptions;
use muster_store::{EmbeddedStore, Store, StoreStats};

pub(crate) const METHOD: &str = "the server's code on the embedded store, listening on loopback; in this process, so that the store's counters of \
    transactions and fsyncs can be read. 1,024 nodes with full histories (20 runs). Each sender has one connection \
    and waits for each response before it sends the next report: about 3 KiB with log, alternately configured and \
    validated, so that each changes the node's status and is durable when it is acknowledged. Senders and server \
    share the machine. The raw store gets the same transactions, one report each, by the same number of writers, in \
    the same run. On a busy machine, processor time is the number to compare.";

const NODES: u32 = 1_024;
/// Fills the histories: 20 runs of two reports.
const HISTORY: u64 = 40;

/// One interval of reports.
#[derive(Clone, Copy, Debug)]
struct EmbeddedInterval {
    senders: usize,
    sent: SentReports,
    before: StoreStats,
    after: StoreStats,
    /// Processor time of this process: senders and server.
    cpu: Duration,
}

pub(crate) async fn measure(bench: &Bench) -> anyhow::Result<Vec<BenchRow>> {
    let time = bench.size(Duration::from_secs(10), Duration::from_secs(1));
    let dir = bench.dir()?;
    let project = project::BenchProject::write(dir.path(), &[("web", NODES)], &["v1"], "#!/bin/sh\nexit 0\n")?;
    let inside = InProcessServer::start(dir.path(), &project).await?;
    let store = &inside.store;
    let mut senders = Senders::new(&inside.address, &project.nodes, &project::version("v1")?, 64);
    senders.send(StopAfter::Each(bench.size(HISTORY, 4))).await?;

    let mut stretches = Vec::new();
    for count in [64, 256] {
        senders = senders.with(count);
        let (before, cpu) = (store.stats(), process::cpu(std::process::id())?.own);
        let sent = senders.send(StopAfter::Elapsed(time)).await?;
        let cpu = process::cpu(std::process::id())?.own.saturating_sub(cpu);
        stretches.push(EmbeddedInterval { senders: count, sent, before, after: store.stats(), cpu });
    }
    let raw: Arc<dyn Store> = Arc::new(EmbeddedStore::open(dir.path().join("raw"), EmbeddedOptions::default()).await?);
    let raw = raw_store::transaction_rate(&raw, 64, bench.size(time / 2, time)).await?;

    let mut rows: Vec<BenchRow> = stretches.iter().flat_map(EmbeddedInterval::rows).collect();
    rows.push(
        BenchRow::new("the store alone, 64 writers", Unit::PerSecond, raw.transactions_per_second)
            .detail(format!("transactions; {:.3} fsyncs each", raw.fsyncs_each)),
    );
    if let Some(first) = stretches.first() {
        let ratio = first.sent.per_second() / raw.transactions_per_second;
        rows.push(BenchRow::new("reports to transactions of the store alone", Unit::Ratio, ratio));
    }
    Ok(rows)
}

impl EmbeddedInterval {
    fn rows(&self) -> [BenchRow; 3] {
        let Self { senders, sent, before, after, cpu } = self;
        #[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are small")]
        let per = |after: u64, before: u64, of: f64| (after - before) as f64 / of;
        #[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are small")]
        let reports = sent.reports as f64;
        let transactions = per(after.transactions, before.transactions, sent.took.as_secs_f64());
        let fsyncs = per(after.fsyncs, before.fsyncs, reports);
        let bytes = Unit::Bytes.show(per(sent.bytes, 0, reports));
        let name = |what: &str| format!("{what}, {senders} senders");
        [
            BenchRow::new(name("full reports"), Unit::PerSecond, sent.per_second())
                .detail(format!("{bytes} each; {} of the store", Unit::PerSecond.show(transactions) + " transactions")),
            BenchRow::new(name("fsyncs per report"), Unit::Ratio, fsyncs).detail(format!(
                "{} fsyncs in {}",
                after.fsyncs - before.fsyncs,
                Unit::Seconds.show(sent.took.as_secs_f64())
            )),
            BenchRow::new(name("processor time per report"), Unit::Seconds, cpu.as_secs_f64() / reports)
                .detail("senders and server together"),
        ]
    }
}
