//! Full reports per second through the HTTP API on etcd, compared with puts of an etcd client, and the growth of etcd with
//! reports.

use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::task::JoinSet;

use crate::bench::Bench;
use crate::measures::raw_store;
use crate::parts::etcd::Etcd;
use crate::parts::http::MetricsScrape;
use crate::parts::project::BenchProject;
use crate::parts::reports::{Senders, SentReports, StopAfter};
use crate::parts::server::BenchServer;
use crate::parts::{process, project};
use crate::row::{BenchRow, Unit};

pub(crate) const REPORTS_METHOD: &str = "one etcd with one member, with fsync, on the disk of --dir; the real `muster serve` on it; senders in this \
    process. All three share the machine. Reports are those of `reports`: about 3 KiB with log, 1,024 nodes with \
    full histories; each report changes several keys of its node and is durable when it is acknowledged. Right \
    before and after, the same number of writers of an etcd client put values of 256 bytes into the same etcd over \
    one connection, and the mean counts; the same is shown with as many bytes as a report writes. The limit is shown \
    as processor time per report: with two processors, all three together cannot use more than two seconds per \
    second.";

const NODES: u32 = 1_024;
/// Fills the histories: 20 runs of two reports.
const HISTORY: u64 = 40;

/// One interval of reports, and one of puts before it.
#[derive(Debug)]
struct EtcdInterval {
    senders: usize,
    puts: Vec<Puts>,
    /// Puts with as many bytes as a report writes.
    large: Puts,
    bytes: usize,
    sent: SentReports,
    took: CpuShare,
    /// Average number of reports in one transaction.
    group: f64,
    /// Average time of a commit.
    commit: f64,
}

/// Processor time of each process, in seconds.
#[derive(Clone, Copy, Debug, Default)]
struct CpuShare {
    etcd: f64,
    server: f64,
    senders: f64,
}

pub(crate) async fn measure_reports(bench: &Bench) -> anyhow::Result<Vec<BenchRow>> {
    let time = bench.size(Duration::from_secs(10), Duration::from_secs(1));
    let dir = bench.dir()?;
    let etcd = Etcd::start(bench, dir.path()).await?;
    let project = BenchProject::write(dir.path(), &[("web", NODES)], &["v1"], "#!/bin/sh\nexit 0\n")?;
    let blobs = dir.path().join("blobs");
    let server = BenchServer::start_on(bench, dir.path(), &etcd.spec(), &blobs, Some(&project.dir)).await?;
    let mut senders = Senders::new(&server.address, &project.nodes, &project::version("v1")?, 64);
    senders.send(StopAfter::Each(bench.size(HISTORY, 4))).await?;

    let bytes = raw_store::bytes_of_a_report()?;
    let mut rows = Vec::new();
    for count in [64, 256] {
        senders = senders.with(count);
        let mut puts = vec![put_rate(&etcd, count, SMALL, time / 2).await?];
        let (before, metrics) = (CpuShare::read(&etcd, &server)?, server.metrics().await?);
        let sent = senders.send(StopAfter::Elapsed(time)).await?;
        let took = CpuShare::read(&etcd, &server)?.since(before);
        let (group, commit) = waits(&metrics, &server.metrics().await?);
        puts.push(put_rate(&etcd, count, SMALL, time / 2).await?);
        let large = put_rate(&etcd, count, bytes, time / 2).await?;
        rows.extend(EtcdInterval { senders: count, puts, large, bytes, sent, took, group, commit }.rows());
    }
    server.stop().await?;
    etcd.stop().await?;
    Ok(rows)
}

impl CpuShare {
    fn read(etcd: &Etcd, server: &BenchServer) -> anyhow::Result<Self> {
        let cpu = |pid| process::cpu(pid).map(|cpu| cpu.own.as_secs_f64());
        Ok(Self { etcd: cpu(etcd.pid())?, server: cpu(server.pid())?, senders: cpu(std::process::id())? })
    }

    fn since(self, before: Self) -> Self {
        Self {
            etcd: self.etcd - before.etcd,
            server: self.server - before.server,
            senders: self.senders - before.senders,
        }
    }
}

/// The size of groups, and the time of commits, between two moments.
fn waits(before: &MetricsScrape, after: &MetricsScrape) -> (f64, f64) {
    let grown = |name: &str, labels: &[&str]| after.sum(name, labels) - before.sum(name, labels);
    let group = grown("muster_report_group_size_sum", &[]) / grown("muster_report_group_size_count", &[]);
    let commits = ["operation=\"commit\""];
    let name = "muster_store_request_duration_seconds";
    (group, grown(&format!("{name}_sum"), &commits) / grown(&format!("{name}_count"), &commits))
}

impl EtcdInterval {
    fn rows(&self) -> [BenchRow; 6] {
        let Self { senders, puts, large, bytes, sent, took, group, commit } = self;
        #[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are small")]
        let (reports, rounds) = (sent.reports as f64, puts.len() as f64);
        let mean = |of: fn(&Puts) -> f64| puts.iter().map(of).sum::<f64>() / rounds;
        let raw = mean(|puts| puts.per_second);
        let cpu = |seconds: f64| Unit::Seconds.show(seconds);
        let busy = (took.etcd + took.server + took.senders) / sent.took.as_secs_f64();
        let target =
            BenchRow::new(format!("reports to puts, {senders} at a time"), Unit::Ratio, sent.per_second() / raw);
        [
            BenchRow::new(format!("puts of an etcd client, {senders} writers"), Unit::PerSecond, raw).detail(format!(
                "processor time of each: etcd {}, client {}",
                cpu(mean(|puts| puts.etcd_cpu)),
                cpu(mean(|puts| puts.client_cpu))
            )),
            BenchRow::new(format!("full reports on etcd, {senders} senders"), Unit::PerSecond, sent.per_second())
                .detail(format!("{group:.1} to a transaction, which takes {}", cpu(*commit))),
            target.at_least(0.5),
            BenchRow::new(format!("puts of {bytes} bytes, {senders} writers"), Unit::PerSecond, large.per_second)
                .detail(format!(
                    "as much as a report writes; processor time of each: etcd {}, client {}",
                    cpu(large.etcd_cpu),
                    cpu(large.client_cpu)
                )),
            BenchRow::new(
                format!("reports to puts of {bytes} bytes, {senders} at a time"),
                Unit::Ratio,
                sent.per_second() / large.per_second,
            ),
            BenchRow::new(
                format!("processor time per report on etcd, {senders} senders"),
                Unit::Seconds,
                (took.etcd + took.server + took.senders) / reports,
            )
            .detail(format!(
                "etcd {}, server {}, senders {}; {busy:.2} processors busy",
                cpu(took.etcd / reports),
                cpu(took.server / reports),
                cpu(took.senders / reports)
            )),
        ]
    }
}

pub(crate) const GROWTH_METHOD: &str = "an etcd with one member and the real `muster serve`; 100 nodes with full histories. Bytes are those in use of \
    etcd's file, as etcd reports them. The nodes report 1,000 times, and the history is compacted to the latest \
    revision; that is an age. After the first age, which creates the file, the bytes in use right after a compaction \
    must not depend on the number of ages.";

const GROWTH_NODES: u32 = 100;
/// 1,000 reports.
const AGE: u64 = 10;

pub(crate) async fn measure_growth(bench: &Bench) -> anyhow::Result<Vec<BenchRow>> {
    let ages = bench.size(8, 3);
    let dir = bench.dir()?;
    let etcd = Etcd::start(bench, dir.path()).await?;
    let project = BenchProject::write(dir.path(), &[("web", GROWTH_NODES)], &["v1"], "#!/bin/sh\nexit 0\n")?;
    let blobs = dir.path().join("blobs");
    let server = BenchServer::start_on(bench, dir.path(), &etcd.spec(), &blobs, Some(&project.dir)).await?;
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
    let mean = grown.iter().sum::<f64>() / grown.len() as f64;
    let most = grown.iter().copied().fold(f64::MIN, f64::max);
    Ok(vec![
        BenchRow::new("etcd grows with 1,000 reports", Unit::Bytes, mean)
            .detail(format!("mean of {ages}; at most {}", Unit::Bytes.show(most))),
        BenchRow::new("etcd grows with a run", Unit::Bytes, mean / (f64::from(GROWTH_NODES) * AGE as f64 / 2.0))
            .detail("two reports")
            .at_most(4096.0),
        BenchRow::new(format!("etcd after compaction, {GROWTH_NODES} nodes"), Unit::Bytes, old)
            .detail(format!("{} one age of 1,000 reports after the start", Unit::Bytes.show(young))),
        BenchRow::new(format!("the same after {ages} ages to after one"), Unit::Ratio, old / young).at_most(1.25),
    ])
}

/// The value size of etcd's own benchmarks.
pub(crate) const SMALL: usize = 256;
/// Each writer has this many keys, so that there are as many keys as in a fleet.
const KEYS: u32 = 16;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Puts {
    pub(crate) per_second: f64,
    /// Processor time per put, of etcd and of this process.
    pub(crate) etcd_cpu: f64,
    pub(crate) client_cpu: f64,
}

/// Puts by concurrent writers over one connection, each waiting for each response, with values of this size.
pub(crate) async fn put_rate(etcd: &Etcd, writers: usize, bytes: usize, time: Duration) -> anyhow::Result<Puts> {
    let client = etcd.client().await?;
    let cpu = |pid| process::cpu(pid).map(|cpu| cpu.own.as_secs_f64());
    let (etcd_before, own_before) = (cpu(etcd.pid())?, cpu(std::process::id())?);
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    for writer in 0..writers {
        let mut client = client.kv_client();
        tasks.spawn(async move {
            let value = vec![b'x'; bytes];
            let mut done = 0_u32;
            while begin.elapsed() < time {
                let key = format!("/raw/{writer}/{}", done % KEYS);
                client.put(key, value.clone(), None).await.context("etcd refuses a put")?;
                done += 1;
            }
            anyhow::Ok(done)
        });
    }
    let mut puts = 0.0;
    while let Some(done) = tasks.join_next().await {
        puts += f64::from(done??);
    }
    let took = begin.elapsed().as_secs_f64();
    Ok(Puts {
        per_second: puts / took,
        etcd_cpu: (cpu(etcd.pid())? - etcd_before) / puts,
        client_cpu: (cpu(std::process::id())? - own_before) / puts,
    })
}
