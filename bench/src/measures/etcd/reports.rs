//! Full reports per second through the HTTP API on etcd, compared with puts of an etcd client.

use std::time::Duration;

use super::raw_puts::{self, Puts, SMALL};
use crate::bench::Bench;
use crate::measures::raw_store;
use crate::parts::etcd::Etcd;
use crate::parts::project::{self, Project};
use crate::parts::resource_usage;
use crate::parts::scrape::Scrape;
use crate::parts::sender::{Senders, SentReports, StopAfter};
use crate::parts::server::Server;
use crate::row::{Row, Unit};

pub(crate) const HOW: &str = "one etcd with one member, with fsync, on the disk of --dir; the real `muster serve` on it; senders in this \
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
struct Interval {
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

pub(crate) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let time = bench.size(Duration::from_secs(10), Duration::from_secs(1));
    let dir = bench.dir()?;
    let etcd = Etcd::start(bench, dir.path()).await?;
    let project = Project::write(dir.path(), &[("web", NODES)], &["v1"], "#!/bin/sh\nexit 0\n")?;
    let blobs = dir.path().join("blobs");
    let server = Server::start_on(bench, dir.path(), &etcd.spec(), &blobs, Some(&project.dir)).await?;
    let mut senders = Senders::new(&server.address, &project.nodes, &project::version("v1")?, 64);
    senders.send(StopAfter::Each(bench.size(HISTORY, 4))).await?;

    let bytes = raw_store::bytes_of_a_report()?;
    let mut rows = Vec::new();
    for count in [64, 256] {
        senders = senders.with(count);
        let mut puts = vec![raw_puts::puts(&etcd, count, SMALL, time / 2).await?];
        let (before, told) = (CpuShare::read(&etcd, &server)?, server.metrics().await?);
        let sent = senders.send(StopAfter::Elapsed(time)).await?;
        let took = CpuShare::read(&etcd, &server)?.since(before);
        let (group, commit) = waits(&told, &server.metrics().await?);
        puts.push(raw_puts::puts(&etcd, count, SMALL, time / 2).await?);
        let large = raw_puts::puts(&etcd, count, bytes, time / 2).await?;
        rows.extend(Interval { senders: count, puts, large, bytes, sent, took, group, commit }.rows());
    }
    server.stop().await?;
    etcd.stop().await?;
    Ok(rows)
}

impl CpuShare {
    fn read(etcd: &Etcd, server: &Server) -> anyhow::Result<Self> {
        let cpu = |pid| resource_usage::cpu(pid).map(|cpu| cpu.own.as_secs_f64());
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
fn waits(before: &Scrape, after: &Scrape) -> (f64, f64) {
    let grown = |name: &str, labels: &[&str]| after.sum(name, labels) - before.sum(name, labels);
    let group = grown("muster_report_group_size_sum", &[]) / grown("muster_report_group_size_count", &[]);
    let commits = ["operation=\"commit\""];
    let name = "muster_store_request_duration_seconds";
    (group, grown(&format!("{name}_sum"), &commits) / grown(&format!("{name}_count"), &commits))
}

impl Interval {
    fn rows(&self) -> [Row; 6] {
        let Self { senders, puts, large, bytes, sent, took, group, commit } = self;
        #[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are small")]
        let (reports, rounds) = (sent.reports as f64, puts.len() as f64);
        let mean = |of: fn(&Puts) -> f64| puts.iter().map(of).sum::<f64>() / rounds;
        let raw = mean(|puts| puts.per_second);
        let cpu = |seconds: f64| Unit::Seconds.show(seconds);
        let busy = (took.etcd + took.server + took.senders) / sent.took.as_secs_f64();
        let target = Row::new(format!("reports to puts, {senders} at a time"), Unit::Ratio, sent.per_second() / raw);
        [
            Row::new(format!("puts of an etcd client, {senders} writers"), Unit::PerSecond, raw).detail(format!(
                "processor time of each: etcd {}, client {}",
                cpu(mean(|puts| puts.etcd_cpu)),
                cpu(mean(|puts| puts.client_cpu))
            )),
            Row::new(format!("full reports on etcd, {senders} senders"), Unit::PerSecond, sent.per_second())
                .detail(format!("{group:.1} to a transaction, which takes {}", cpu(*commit))),
            target.at_least(0.5),
            Row::new(format!("puts of {bytes} bytes, {senders} writers"), Unit::PerSecond, large.per_second).detail(
                format!(
                    "as much as a report writes; processor time of each: etcd {}, client {}",
                    cpu(large.etcd_cpu),
                    cpu(large.client_cpu)
                ),
            ),
            Row::new(
                format!("reports to puts of {bytes} bytes, {senders} at a time"),
                Unit::Ratio,
                sent.per_second() / large.per_second,
            ),
            Row::new(
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
