//! `muster-sim`: plays scenarios, runs one seed, or searches seeds for a violated rule.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use muster_sim::script::{GoldenMode, check_script};
use muster_sim::simulation::coverage::ArmCoverage;
use muster_sim::simulation::faults::FaultCounts;
use muster_sim::simulation::seed_run::{SeedRun, run_seed};

const EXAMPLES: &str = "\
Examples:
  muster-sim scenarios/*.txt      play these scripts, and compare their transcripts
  muster-sim --seed 4711          run one seed, and print its events
  muster-sim --seeds 0..10000     search for a seed that violates a rule, and count faults and decisions
  muster-sim --seeds 0..300000 --keep-going    report every violation, with the progress on stderr
";

/// Simulate a fleet in virtual time from a seed, with the real decisions, injected faults, and a checker of the rules.
#[derive(Debug, Parser)]
#[command(name = "muster-sim", version, after_help = EXAMPLES)]
struct Arguments {
    /// Play these scenarios. The transcript of NAME.txt is in NAME.out.
    #[arg(value_name = "SCRIPT", conflicts_with_all = ["seed", "seeds"])]
    scripts: Vec<PathBuf>,
    /// Write the transcripts again.
    #[arg(long, requires = "scripts")]
    update: bool,
    /// Only print the transcripts.
    #[arg(long, requires = "scripts", conflicts_with = "update")]
    print: bool,
    /// Run this seed, and print its events.
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Run these seeds, up to the first violation.
    #[arg(long, value_name = "FROM..TO", value_parser = range)]
    seeds: Option<Seeds>,
    /// With --seeds: report every violation, and continue with the next seed.
    #[arg(long, requires = "seeds")]
    keep_going: bool,
}

#[derive(Clone, Copy, Debug)]
struct Seeds {
    from: u64,
    to: u64,
}

fn range(text: &str) -> Result<Seeds, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is not a number"));
    let (from, to) = text.split_once("..").ok_or_else(|| format!("{text:?} is not a range FROM..TO"))?;
    Ok(Seeds { from: number(from)?, to: number(to)? })
}

fn main() -> ExitCode {
    let Arguments { scripts, update, print, seed, seeds, keep_going } = Arguments::parse();
    let mode = match (update, print) {
        (true, _) => GoldenMode::Update,
        (false, true) => GoldenMode::Print,
        (false, false) => GoldenMode::Compare,
    };
    let mut out = std::io::stdout().lock();
    let done = match (seed, seeds) {
        (Some(seed), _) => run_one(&mut out, seed),
        (None, Some(seeds)) => run_many(&mut out, seeds, keep_going),
        (None, None) if !scripts.is_empty() => play_all(&mut out, &scripts, mode),
        (None, None) => writeln!(out, "muster-sim: name a script, or use --seed N or --seeds FROM..TO\n\n{EXAMPLES}")
            .map(|()| ExitCode::from(64)),
    };
    // The output is closed: nothing to report to.
    done.unwrap_or(ExitCode::FAILURE)
}

fn play_all(out: &mut impl Write, scripts: &[PathBuf], mode: GoldenMode) -> std::io::Result<ExitCode> {
    let mut failed = 0;
    for script in scripts {
        let result = check_script(script, mode);
        write!(out, "{}", result.text)?;
        failed += usize::from(result.failed);
    }
    if failed == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "{failed} of {} scenarios failed", scripts.len())?;
    Ok(ExitCode::FAILURE)
}

fn run_one(out: &mut impl Write, seed: u64) -> std::io::Result<ExitCode> {
    let began = Instant::now();
    let run = run_seed(seed);
    for line in run.world.log().lines() {
        writeln!(out, "{line}")?;
    }
    for line in run.world.node_summaries() {
        writeln!(out, "{line}")?;
    }
    summary(out, &run, began.elapsed())?;
    Ok(if run.violation.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn summary(out: &mut impl Write, run: &SeedRun, took: Duration) -> std::io::Result<()> {
    writeln!(out)?;
    write!(out, "{}", run.faults)?;
    let (length, took) = (run.length.as_secs_f64(), took.as_secs_f64());
    writeln!(out, "seed {}: {} after {length:.0} s of virtual time, computed in {took:.3} s", run.seed, run.ended)?;
    writeln!(out, "hash of its event log: {:016x}", run.hash)?;
    if let Some(violation) = &run.violation {
        writeln!(out, "VIOLATION of {violation}")?;
    }
    Ok(())
}

/// Seeds between two lines about the progress.
const PROGRESS_EVERY: u64 = 1_000;

fn run_many(out: &mut impl Write, Seeds { from, to }: Seeds, keep_going: bool) -> std::io::Result<ExitCode> {
    let began = Instant::now();
    let (mut faults, mut arms, mut length) = (FaultCounts::default(), ArmCoverage::default(), Duration::ZERO);
    let mut violations = 0_u64;
    let mut ends: std::collections::BTreeMap<&str, u64> = std::collections::BTreeMap::new();
    for seed in from..to {
        let run = run_seed(seed);
        faults.add(&run.faults);
        arms.add(&run.arms);
        length += run.length;
        *ends.entry(run.ended).or_default() += 1;
        if let Some(violation) = &run.violation {
            writeln!(out, "{}", run.report(violation))?;
            out.flush()?;
            if !keep_going {
                return Ok(ExitCode::FAILURE);
            }
            violations += 1;
        }
        let done = seed - from + 1;
        if keep_going && done.is_multiple_of(PROGRESS_EVERY) {
            writeln!(std::io::stderr(), "{done} of {} seeds, {violations} violations", to - from)?;
        }
    }
    write!(out, "{faults}{arms}")?;
    let took = began.elapsed().as_secs_f64();
    writeln!(out, "{} seeds, {ends:?}", to.saturating_sub(from))?;
    writeln!(
        out,
        "{:.0} s of virtual time in {took:.1} s: {:.0} times as fast",
        length.as_secs_f64(),
        length.as_secs_f64() / took
    )?;
    if violations == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "{violations} seeds violate a rule")?;
    Ok(ExitCode::FAILURE)
}
