//! Overhead of Muster over a run of Puppet.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context;
use muster_core::report::{Outcome, RunResult};

use crate::bench::Bench;
use crate::parts::fleet::{BenchFleet, FleetOptions};
use crate::parts::machine::now;
use crate::parts::process::command;
use crate::parts::proxy::PassedReport;
use crate::row::{BenchRow, Sample, Unit};

pub(crate) const METHOD: &str = "a converged catalog of 262 resources (files, directories, execs), so every run does the same work and changes \
    nothing. In turn: a bare `puppet apply` of the manifest, from before its process is created until it has ended; \
    and a run of a real agent with the same manifest and files, from before the operator's request (`muster node \
    run`) until a proxy has read the last byte of the run's report. The second includes the server's commit, the \
    delivery to the agent, the 10 ms in which it merges causes, the verification of the release, Puppet with \
    Muster's module, its live log, and the report. Ratio of the medians. The order alternates.";

const LIMIT: f64 = 1.05;
const RUN_TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) async fn measure(bench: &Bench) -> anyhow::Result<Vec<BenchRow>> {
    let dir = bench.dir()?;
    let manifest = manifest(&dir.path().join("content"));
    let site = dir.path().join("site.pp");
    std::fs::create_dir(dir.path().join("content"))?;
    std::fs::write(&site, &manifest)?;
    let roles = [("app", 1)];
    let fleet =
        BenchFleet::start_as(bench, &FleetOptions { manifest: Some(&manifest), ..FleetOptions::new(&roles) }).await?;
    fleet.until_validated("v1").await?;
    // Fills the caches first.
    bare(bench, dir.path(), &site).await?;
    run(&fleet).await?;

    let (mut alone, mut managed, mut applied) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..bench.size(9, 2) {
        if pair % 2 == 0 {
            alone.push(bare(bench, dir.path(), &site).await?);
        }
        let ran = run(&fleet).await?;
        managed.push(ran.total);
        applied.push(ran.reported);
        if pair % 2 == 1 {
            alone.push(bare(bench, dir.path(), &site).await?);
        }
    }
    fleet.stop().await?;
    let (alone, managed, applied) = (Sample::new(alone), Sample::new(managed), Sample::new(applied));
    let seconds = |what: &str, sample: &Sample| {
        BenchRow::new(format!("a run of Puppet, 262 resources: {what}"), Unit::Seconds, sample.median())
            .detail(sample.spread())
    };
    let ratio = managed.median() / alone.median();
    let added = Unit::Seconds.show((managed.median() - alone.median()).max(0.0));
    Ok(vec![
        seconds("bare `puppet apply`", &alone),
        seconds("by the agent, from the request to the report", &managed),
        seconds("by the agent, as its report says", &applied),
        BenchRow::new("a run of Puppet: by the agent to bare", Unit::Ratio, ratio)
            .under(LIMIT)
            .detail(format!("{added} more")),
    ])
}

fn manifest(content: &Path) -> String {
    let dir = content.display();
    let mut text = "Exec { path => ['/usr/bin', '/bin'] }\n".to_owned();
    for group in 0..12 {
        let _ = writeln!(text, "file {{ '{dir}/{group}': ensure => directory }}");
        for number in 0..16 {
            let line = format!("setting_{number} = value of {group}\\n").repeat(12);
            let _ = writeln!(text, "file {{ '{dir}/{group}/{number}.conf': mode => '0644', content => \"{line}\" }}");
        }
    }
    for number in 0..50 {
        let made = format!("{dir}/made-{number}");
        let _ = writeln!(text, "exec {{ 'make {number}': command => 'touch {made}', creates => '{made}' }}");
    }
    for number in 0..8 {
        let _ = writeln!(text, "exec {{ 'ask {number}': command => 'false', unless => 'test -d {dir}' }}");
    }
    text
}

/// One `puppet apply` with its own directories.
async fn bare(bench: &Bench, dir: &Path, site: &Path) -> anyhow::Result<Duration> {
    let mut puppet = command(bench, Path::new("puppet"), dir);
    puppet.arg("apply").args(["--detailed-exitcodes", "--color=false"]).env("LANG", "C.UTF-8");
    for name in ["confdir", "vardir", "publicdir", "logdir", "rundir", "codedir"] {
        puppet.arg(format!("--{name}")).arg(PathBuf::from(dir).join("bare").join(name));
    }
    puppet.arg(site).stdin(Stdio::null());
    let begin = Instant::now();
    let output = puppet.output().await.context("cannot start puppet")?;
    let took = begin.elapsed();
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "puppet ended with {}: {said}", output.status);
    Ok(took)
}

struct MeasuredRun {
    /// From the request to the report.
    total: Duration,
    /// Duration in the report.
    reported: Duration,
}

/// One run of the agent.
async fn run(fleet: &BenchFleet) -> anyhow::Result<MeasuredRun> {
    let before = fleet.proxy.traffic().reports.len();
    let is_it = |seen: &PassedReport| matches!(seen.report.outcome, Outcome::Configured(_));
    let deadline = Instant::now() + RUN_TIMEOUT;
    let begin = now();
    fleet.request_run("app1").await?;
    // Waits for the end with all checks, so that the next run is not slowed down.
    let seen = loop {
        let reports = fleet.proxy.traffic().reports.split_off(before);
        let over =
            reports.iter().any(|seen| matches!(seen.report.outcome, Outcome::Validated(_)) && seen.answered.is_some());
        if let Some(seen) = reports.into_iter().find(is_it).filter(|_| over) {
            break seen;
        }
        let words = fleet.agent("app1")?.log_tail();
        anyhow::ensure!(Instant::now() < deadline, "the node has not run within {RUN_TIMEOUT:?}:\n{words}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let unchanged = seen.report.outcome == Outcome::Configured(RunResult::Unchanged);
    anyhow::ensure!(unchanged, "the run was not like the others: {:?}\n{}", seen.report.reason, seen.report.log);
    let reported = seen.report.ended.duration_since(seen.report.started).unsigned_abs();
    Ok(MeasuredRun { total: seen.sent.saturating_sub(begin), reported })
}
