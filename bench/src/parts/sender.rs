//! Many agents' reports, sent at the same time.

use std::time::{Duration, Instant};

use anyhow::Context;
use muster_core::names::{NodeName, Version};
use muster_core::txn::Generation;
use muster_wire::sync::{ReportAck, ReportResult};
use tokio::task::JoinSet;

use super::http::Connection;
use super::project::ENV;
use super::reports::Reporter;

/// What was sent, and how long it took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    pub(crate) reports: u64,
    pub(crate) bytes: u64,
    pub(crate) took: Duration,
}

impl Sent {
    pub(crate) fn per_second(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are small")]
        let reports = self.reports as f64;
        reports / self.took.as_secs_f64()
    }
}

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// Each node has sent so many.
    Each(u64),
    Elapsed(Duration),
}

/// Nodes that report, shared out to senders. A sender has one connection and waits for each answer, as an agent does.
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

    /// From now on they report on what they were told under this generation.
    pub(crate) fn answer(&mut self, generation: Generation) {
        self.shares.iter_mut().flatten().for_each(|reporter| reporter.answer(generation));
    }

    /// Sends, node after node and round after round.
    pub(crate) async fn send(&mut self, until: Until) -> anyhow::Result<Sent> {
        let begin = Instant::now();
        let mut tasks = JoinSet::new();
        for (at, share) in self.shares.drain(..).enumerate() {
            let address = self.address.clone();
            tasks.spawn(async move { (at, send(&address, share, until, begin).await) });
        }
        let mut total = Sent::default();
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
    until: Until,
    begin: Instant,
) -> anyhow::Result<(Vec<Reporter>, Sent)> {
    let mut connection = Connection::open(address).await?;
    let mut sent = Sent::default();
    let mut round = 0;
    'rounds: loop {
        for reporter in &mut share {
            match until {
                Until::Each(reports) if round >= reports => break 'rounds,
                Until::Elapsed(limit) if begin.elapsed() >= limit => break 'rounds,
                Until::Each(_) | Until::Elapsed(_) => {}
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
