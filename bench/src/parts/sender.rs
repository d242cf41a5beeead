//! Sends reports of many agents concurrently.

use std::time::{Duration, Instant};

use anyhow::Context;
use muster_core::names::{NodeName, Version};
use muster_core::txn::Generation;
use muster_wire::sync::{ReportAck, ReportResult};
use tokio::task::JoinSet;

use super::http::Connection;
use super::project::ENV;
use super::reports::Reporter;

/// Number of sent reports, and the time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SentReports {
    pub(crate) reports: u64,
    pub(crate) bytes: u64,
    pub(crate) took: Duration,
}

impl SentReports {
    pub(crate) fn per_second(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are small")]
        let reports = self.reports as f64;
        reports / self.took.as_secs_f64()
    }
}

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StopAfter {
    /// Each node has sent this many.
    Each(u64),
    Elapsed(Duration),
}

/// Reporting nodes, divided among senders. A sender has one connection and waits for each response, as an agent does.
#[derive(Debug)]
pub(crate) struct Senders {
    address: String,
    shares: Vec<Vec<Reporter>>,
}

impl Senders {
    pub(crate) fn new(address: &str, nodes: &[NodeName], version: &Version, senders: usize) -> Self {
        let mut shares = vec![Vec::new(); senders.min(nodes.len()).max(1)];
        let count = shares.len();
        for (number, node) in nodes.iter().enumerate() {
            shares[number % count].push(Reporter::new(node.clone(), number, version.clone()));
        }
        Self { address: address.to_owned(), shares }
    }

    /// The same nodes, shared out to another number of senders.
    pub(crate) fn with(self, senders: usize) -> Self {
        let mut shares = vec![Vec::new(); senders.max(1)];
        for (number, reporter) in self.shares.into_iter().flatten().enumerate() {
            shares[number % senders.max(1)].push(reporter);
        }
        Self { address: self.address, shares }
    }

    /// The nodes run another version from now on.
    pub(crate) fn run(&mut self, version: &Version) {
        self.shares.iter_mut().flatten().for_each(|reporter| reporter.run(version));
    }

    /// Reports for this generation from now on.
    pub(crate) fn report_for(&mut self, generation: Generation) {
        self.shares.iter_mut().flatten().for_each(|reporter| reporter.report_for(generation));
    }

    /// Sends reports of each node in turn, in rounds.
    pub(crate) async fn send(&mut self, until: StopAfter) -> anyhow::Result<SentReports> {
        let begin = Instant::now();
        let mut tasks = JoinSet::new();
        for (at, share) in self.shares.drain(..).enumerate() {
            let address = self.address.clone();
            tasks.spawn(async move { (at, send(&address, share, until, begin).await) });
        }
        let mut total = SentReports::default();
        let mut shares = Vec::new();
        while let Some(done) = tasks.join_next().await {
            let (at, sent) = done?;
            let (share, sent) = sent?;
            shares.push((at, share));
            total.reports += sent.reports;
            total.bytes += sent.bytes;
        }
        total.took = begin.elapsed();
        shares.sort_by_key(|(at, _)| *at);
        self.shares = shares.into_iter().map(|(_, share)| share).collect();
        Ok(total)
    }
}

async fn send(
    address: &str,
    mut share: Vec<Reporter>,
    until: StopAfter,
    begin: Instant,
) -> anyhow::Result<(Vec<Reporter>, SentReports)> {
    let mut connection = Connection::open(address).await?;
    let mut sent = SentReports::default();
    let mut round = 0;
    'rounds: loop {
        for reporter in &mut share {
            match until {
                StopAfter::Each(reports) if round >= reports => break 'rounds,
                StopAfter::Elapsed(limit) if begin.elapsed() >= limit => break 'rounds,
                StopAfter::Each(_) | StopAfter::Elapsed(_) => {}
            }
            let body = reporter.next_body()?;
            let path = format!("/v1/envs/{ENV}/nodes/{}/reports", reporter.node());
            let (status, answer) = connection.post(&path, &body).await?;
            let said = || format!("a report was answered with {status}: {}", String::from_utf8_lossy(&answer));
            anyhow::ensure!(status == 200, said());
            let taken: ReportAck = serde_json::from_slice(&answer).with_context(said)?;
            anyhow::ensure!(taken.taken == ReportResult::Applied, said());
            sent.reports += 1;
            sent.bytes += body.len() as u64;
        }
        round += 1;
    }
    Ok((share, sent))
}
