//! Reports as agents send them, with log, checks and lookups, and concurrent senders of them.

use std::time::{Duration, Instant};

use anyhow::Context;
use jiff::SignedDuration;
use muster_core::lookup::{Lookups, Tag};
use muster_core::names::{NodeName, RunId, Version};
use muster_core::report::{Cause, CheckResult, Counts, Facts, LookupChange, Outcome, Report, RunResult, Verdict};
use muster_core::txn::Generation;
use muster_wire::sync::{ReportAck, ReportResult};
use tokio::task::JoinSet;

use super::http::RawConnection;
use super::machine;
use super::project::ENV;

/// Placeholders for the number of a report and of its run in a template.
const SEQ: u64 = 8_446_744_073_701;
const RUN: u64 = SEQ.div_ceil(2);

/// Makes the reports of one node in order: `configured`, `validated`, `configured`, …
#[derive(Clone, Debug)]
pub(crate) struct Reporter {
    node: NodeName,
    number: u64,
    version: Version,
    generation: Generation,
    seq: u64,
    templates: Option<[Template; 2]>,
}

/// A serialized report, split at its numbers.
///
/// Senders share the machine with the server, so everything except the numbers is serialized once.
#[derive(Clone, Debug)]
struct Template(Vec<TemplatePiece>);

#[derive(Clone, Debug)]
enum TemplatePiece {
    Text(String),
    Seq,
    Run,
}

impl Reporter {
    pub(crate) fn new(node: NodeName, number: usize, version: Version) -> Self {
        // Newer than any generation that the server has sent, and not later than its clock.
        let generation = Generation { epoch: machine::now().as_secs(), number: 1 << 40 };
        Self { node, number: number as u64, version, generation, seq: 0, templates: None }
    }

    /// Reports for this generation from now on.
    pub(crate) fn report_for(&mut self, generation: Generation) {
        (self.generation, self.templates) = (generation, None);
    }

    pub(crate) fn node(&self) -> &NodeName {
        &self.node
    }

    /// The node runs another version from now on.
    pub(crate) fn run(&mut self, version: &Version) {
        (self.version, self.templates) = (version.clone(), None);
    }

    /// The next report, as it is sent.
    pub(crate) fn next_body(&mut self) -> anyhow::Result<Vec<u8>> {
        let templates = match self.templates.take() {
            Some(templates) => templates,
            None => [Template::new(self.report(SEQ)?)?, Template::new(self.report(SEQ + 1)?)?],
        };
        self.seq += 1;
        let [configured, validated] = &templates;
        let template = if self.seq.is_multiple_of(2) { validated } else { configured };
        let body = template.fill(self.seq);
        self.templates = Some(templates);
        Ok(body)
    }

    /// The next report. Each moves the status of the node: two of them are one run that changed something.
    pub(crate) fn next(&mut self) -> anyhow::Result<Report> {
        self.seq += 1;
        self.report(self.seq)
    }

    fn report(&self, seq: u64) -> anyhow::Result<Report> {
        let run = seq.div_ceil(2);
        let is_validation = seq.is_multiple_of(2);
        let ended = machine::timestamp()?;
        Ok(Report {
            node: self.node.clone(),
            incarnation: 1,
            seq,
            run: RunId::new(format!("{}-{run}", self.node))?,
            outcome: if is_validation {
                Outcome::Validated(Verdict::Passed)
            } else {
                Outcome::Configured(RunResult::Changed)
            },
            version: self.version.clone(),
            digest: "sha256:6f1ed002ab5595859014ebf0951522d9a3b2d5b6c1f0a0a8f8d7f7e7c1d2e3f4".to_owned(),
            generation: self.generation,
            causes: vec![Cause::LookedUp {
                changes: vec![LookupChange { key: "active_roles::db::eth0".to_owned(), what: "db2 added".to_owned() }],
            }],
            reason: None,
            attempt: 0,
            started: ended - SignedDuration::from_secs(7),
            ended,
            counts: Counts { total: 143, changed: 2, failed: 0, skipped: 0 },
            errors: Vec::new(),
            changes: Vec::new(),
            first_failure: None,
            hooks: Vec::new(),
            services: Default::default(),
            published: None,
            checks: if is_validation { checks() } else { Vec::new() },
            facts: Facts {
                interfaces: [("eth0".to_owned(), address(self.number))].into_iter().collect(),
                agent: "0.1.0".to_owned(),
                ..Facts::default()
            },
            lookups: lookups(),
            log: log(&self.node, run),
        })
    }
}

impl Template {
    fn new(report: Report) -> anyhow::Result<Self> {
        let (seq, run) = (report.seq.to_string(), RUN.to_string());
        let text = serde_json::to_string(&report)?;
        let mut pieces = Vec::new();
        for (at, part) in text.split(&seq).enumerate() {
            pieces.extend((at > 0).then_some(TemplatePiece::Seq));
            for (at, part) in part.split(&run).enumerate() {
                pieces.extend((at > 0).then_some(TemplatePiece::Run));
                pieces.push(TemplatePiece::Text(part.to_owned()));
            }
        }
        Ok(Self(pieces))
    }

    fn fill(&self, seq: u64) -> Vec<u8> {
        let (run, seq) = (seq.div_ceil(2).to_string(), seq.to_string());
        let mut body = Vec::with_capacity(4096);
        for piece in &self.0 {
            body.extend_from_slice(match piece {
                TemplatePiece::Text(text) => text.as_bytes(),
                TemplatePiece::Seq => seq.as_bytes(),
                TemplatePiece::Run => run.as_bytes(),
            });
        }
        body
    }
}

fn checks() -> Vec<CheckResult> {
    ["listens", "greets", "process"]
        .map(|name| CheckResult {
            name: name.to_owned(),
            verdict: Verdict::Passed,
            message: "connected, and the answer holds what it should".to_owned(),
            millis: 3,
        })
        .to_vec()
}

/// Keys that do not exist in these fleets.
pub(crate) fn lookups() -> Lookups {
    ["active_roles::db::eth0", "active_roles::web::eth0"].map(|key| (key.to_owned(), Tag::absent())).into()
}

fn address(number: u64) -> String {
    format!("10.{}.{}.{}", number >> 16 & 255, number >> 8 & 255, number & 255)
}

/// About 2 KiB, as of a Puppet run with a few changes. It differs in each run.
fn log(node: &NodeName, run: u64) -> String {
    let lines = (0..16).map(|line| {
        format!(
            "notice: /Stage[main]/Web::Service/File[/srv/{node}/site{line}.conf]/content: content changed in run {run}, \
             {{sha256}}{:016x}\n",
            (run * 31 + line).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        )
    });
    lines.collect()
}

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

/// Condition that stops the senders.
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

    /// Reports go to another server from now on.
    pub(crate) fn go_to(&mut self, address: &str) {
        self.address = address.to_owned();
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
    let mut connection = RawConnection::open(address).await?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_equals_the_serialized_report() {
        let mut reporter = Reporter::new(NodeName::new("web7").unwrap(), 7, Version::new("v1").unwrap());
        let mut same = reporter.clone();
        for seq in 1..=4 {
            let sent: Report = serde_json::from_slice(&reporter.next_body().unwrap()).unwrap();
            let mut meant = same.next().unwrap();
            assert_eq!((sent.seq, &sent.run, sent.outcome), (seq, &meant.run, meant.outcome));
            // The hashes in the log are those of the template.
            (meant.started, meant.ended, meant.log) = (sent.started, sent.ended, sent.log.clone());
            assert_eq!(sent, meant);
            assert_eq!(sent.log.matches(&format!("in run {},", seq.div_ceil(2))).count(), 16);
        }
    }
}
