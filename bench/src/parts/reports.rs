//! Reports as agents send them: a whole run's log, its checks and what it looked up.

use jiff::SignedDuration;
use muster_core::generation::Generation;
use muster_core::lookups::{Lookups, Tag};
use muster_core::names::{NodeName, RunId, Version};
use muster_core::report::{Cause, CheckResult, Counts, Facts, Outcome, Report, RunResult, Verdict};

use super::clock;

/// Makes the reports of one node, in their order: `configured`, `validated`, `configured`, …
#[derive(Clone, Debug)]
pub(crate) struct Reporter {
    node: NodeName,
    number: u64,
    version: Version,
    seq: u64,
}

impl Reporter {
    pub(crate) fn new(node: NodeName, number: usize, version: Version) -> Self {
        Self { node, number: number as u64, version, seq: 0 }
    }

    pub(crate) fn node(&self) -> &NodeName {
        &self.node
    }

    /// The next report. Each moves the status of the node: two of them are one run that changed something.
    pub(crate) fn next(&mut self) -> anyhow::Result<Report> {
        self.seq += 1;
        let run = self.seq.div_ceil(2);
        let is_validation = self.seq.is_multiple_of(2);
        let ended = clock::timestamp()?;
        Ok(Report {
            node: self.node.clone(),
            incarnation: 1,
            seq: self.seq,
            run: RunId::new(format!("{}-{run}", self.node))?,
            outcome: if is_validation {
                Outcome::Validated(Verdict::Passed)
            } else {
                Outcome::Configured(RunResult::Changed)
            },
            version: self.version.clone(),
            digest: "sha256:6f1ed002ab5595859014ebf0951522d9a3b2d5b6c1f0a0a8f8d7f7e7c1d2e3f4".to_owned(),
            // Newer than whatever the server has chosen by now.
            generation: Generation { epoch: 4_000_000_000, number: 1 },
            causes: vec![Cause::LookedUp { keys: vec!["active_roles::db::eth0".to_owned()] }],
            reason: None,
            attempt: 0,
            started: ended - SignedDuration::from_secs(7),
            ended,
            counts: Counts { total: 143, changed: 2, failed: 0, skipped: 0 },
            errors: Vec::new(),
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

fn lookups() -> Lookups {
    ["active_roles::db::eth0", "active_roles::web::eth0"].map(|key| (key.to_owned(), Tag::absent())).into()
}

fn address(number: u64) -> String {
    format!("10.{}.{}.{}", number >> 16 & 255, number >> 8 & 255, number & 255)
}

/// About 2 KiB, as much as a run of Puppet with a handful of changes says. Different in each run, as logs are.
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
