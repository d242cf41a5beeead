//! `muster-bench`: speed and memory of Muster, measured on the real programs, printed as one table.
//!
//! ```text
//!  measures/*  the benchmarks by subject: each starts what it needs, measures, gives rows
//!     │ uses
//!     ▼
//!  parts/*     a server, agents, a project of any size, a counting proxy, a raw HTTP client, readings of /proc
//!     │ rows
//!     ▼
//!  report, compare, charts/*  the table or JSON of a run, its changes since a kept run, and SVG
//! ```
//!
//! The programs are `muster` and `muster-agent` as they were built beside this one; they run on loopback, in a
//! directory that is removed. Every process is started with a mark in its environment: however a benchmark ends
//! (Ctrl-C and panics too), remaining processes with the mark are ended.
//!
//! It is no test: a number that misses its target is shown as such, and the exit code is 0. It is 1 if a benchmark
//! could not be carried out.

mod args;
mod bench;
mod charts;
mod compare;
mod measures;
mod parts;
mod report;
mod row;

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use crate::args::BenchArgs;
use crate::bench::Bench;
use crate::compare::Comparison;
use crate::parts::process;
use crate::report::BenchReport;

fn main() -> ExitCode {
    let args = BenchArgs::parse();
    let ended = match &args.watch {
        Some(words) => process::watch_usage(words).map(|()| ExitCode::SUCCESS),
        None => run(args),
    };
    match ended {
        Ok(code) => code,
        Err(error) => {
            report::complain(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(args: BenchArgs) -> anyhow::Result<ExitCode> {
    // Before anything is measured, because that takes minutes.
    let kept = args.compare.as_deref().map(BenchReport::read).transpose()?;
    let report = match &args.from {
        Some(path) => BenchReport::read(path)?,
        None => measure(&args)?,
    };
    let comparison = kept.as_ref().map(|kept| Comparison::new(kept, &report));
    report.print(args.output, comparison.as_ref());
    if let Some(dir) = &args.charts {
        for path in charts::write(dir, &report, kept.as_ref())? {
            report::progress(format_args!("wrote {}", path.display()));
        }
    }
    Ok(if report.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn measure(args: &BenchArgs) -> anyhow::Result<BenchReport> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start")?;
    let bench = Bench::new(args)?;
    let report = runtime.block_on(async {
        let measured = run_until_signal(args, &bench).await;
        bench.end_processes().await;
        measured
    })?;
    // Remaining background tasks are not needed; the files are removed with `bench`.
    runtime.shutdown_background();
    Ok(report)
}

/// Runs the selected benchmarks. A signal ends them with an error.
async fn run_until_signal(args: &BenchArgs, bench: &Bench) -> anyhow::Result<BenchReport> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let mut report = BenchReport::new(bench, args.quick)?;
    for name in args.chosen() {
        report::progress(format_args!("{}: {}", name.word(), name.description()));
        // In its own task, so that a panic is an error here and processes are cleaned up.
        let mut task = JoinSet::new();
        let bench = bench.clone();
        task.spawn(async move { measures::measure(name, &bench).await });
        let ended = tokio::select! {
            ended = task.join_next() => ended,
            _ = interrupt.recv() => anyhow::bail!("interrupted"),
            _ = terminate.recv() => anyhow::bail!("terminated"),
        };
        match ended {
            Some(Ok(Ok(rows))) => report.add(name, rows),
            Some(Ok(Err(error))) => report.fail(name, &error),
            Some(Err(panic)) => report.fail(name, &anyhow::Error::new(panic)),
            None => {}
        }
    }
    Ok(report)
}
