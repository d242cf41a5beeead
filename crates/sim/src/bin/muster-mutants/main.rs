//! `muster-mutants`: disables the guards of a rollout one at a time, and requires that each mutant is caught.
//!
//! [`list`] names the guards, and the seed or scenario that catches each mutant. All guards get a switch in a copy of the
//! source ([`copy`]): one build is enough, and the product has no branch for this. Then each of them is disabled once
//! ([`run`]).

mod copy;
mod list;
mod run;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Parser;

use list::{CatchingRun, Guard, LIST};
use run::{Simulator, short};

/// Disable the guards of a rollout one at a time: each mutant must be caught.
#[derive(Debug, Parser)]
#[command(name = "muster-mutants")]
struct Arguments {
    /// Only these guards.
    #[arg(value_name = "GUARD")]
    only: Vec<String>,
    /// Search for the first seed that catches a mutant whose recorded seed no longer does, and record it.
    #[arg(long)]
    update: bool,
    /// Number of seeds to search.
    #[arg(long, value_name = "N", default_value_t = 2_000, requires = "update")]
    seeds: u64,
}

/// The result of one mutant.
#[derive(Debug)]
struct Outcome {
    caught_by: String,
    /// The violation; or why it was not caught.
    what: Result<String, String>,
    /// Another seed catches it now.
    seed: Option<u64>,
}

fn main() -> ExitCode {
    run(&Arguments::parse()).unwrap_or_else(|error| {
        // The output is closed: nothing to report to.
        let _ = writeln!(std::io::stderr(), "mutants: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    let began = Instant::now();
    let root = std::env::current_dir().context("cannot read the current directory")?;
    let target = target_directory()?;
    let text = std::fs::read_to_string(root.join(LIST))
        .with_context(|| format!("{LIST} cannot be read: run this in the root directory of the repository"))?;
    let all = list::read(&text, &arguments.only)?;
    let copy = copy::make(&root, &target, &all)?;
    let simulator = Simulator { program: copy::build(&copy, &target, arguments.update)?, folder: copy };
    let built = began.elapsed();
    let wanted = |guard: &&Guard| arguments.only.is_empty() || arguments.only.contains(&guard.name);
    let guards: Vec<&Guard> = all.iter().filter(wanted).collect();
    let outcomes = in_parallel(&guards, |guard| check_mutant(guard, &simulator, arguments))?;

    let mut out = std::io::stdout().lock();
    let (mut missed, mut after) = (0, text.clone());
    let wide = guards.iter().map(|guard| guard.name.len()).max().unwrap_or_default();
    writeln!(out, "{:<wide$}  {:<24}  violation without the guard", "guard", "caught by")?;
    for (guard, Outcome { caught_by, what, seed }) in guards.iter().zip(&outcomes) {
        let what = match what {
            Ok(what) => short(what),
            Err(why) => {
                missed += 1;
                format!("NOT CAUGHT: {why}\n{:wide$}  the guard keeps: {}", "", guard.keeps)
            }
        };
        writeln!(out, "{:<wide$}  {caught_by:<24}  {what}", guard.name)?;
        if let Some(seed) = seed {
            after = list::with_seed(&after, &guard.name, *seed);
        }
    }
    if after != text {
        std::fs::write(root.join(LIST), after).with_context(|| format!("{LIST} cannot be written"))?;
    }
    let (built, all) = (built.as_secs_f64(), began.elapsed().as_secs_f64());
    writeln!(out, "{} guards; built in {built:.0} s, {all:.0} s in total", guards.len())?;
    if missed == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(
        out,
        "mutants: {missed} mutants were not caught; if the engine or the simulator has changed, run `make mutants \
         ARGS=--update` to search for other seeds"
    )?;
    Ok(ExitCode::FAILURE)
}

/// The directory in which this program was built: `…/debug/muster-mutants`.
fn target_directory() -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let target = program.parent().and_then(Path::parent).map(ToOwned::to_owned);
    target.context("this program is not in a target directory")
}

fn check_mutant(guard: &Guard, simulator: &Simulator, arguments: &Arguments) -> Result<Outcome> {
    let catching = guard.catching_run()?;
    let mut outcome = Outcome { caught_by: catching.to_string(), what: Err(String::new()), seed: None };
    match catching {
        CatchingRun::Script { name } => {
            if let Some(what) = simulator.play(&name, None)? {
                bail!("scenarios/{name}.txt fails with all guards enabled: {what}");
            }
            let difference = simulator.play(&name, Some(&guard.off()))?;
            outcome.what = difference.ok_or_else(|| "the transcript is unchanged".to_owned());
        }
        CatchingRun::Seed { seed, breaks } => {
            outcome.what = without(guard, simulator, seed, &breaks)?;
            if outcome.what.is_err() && arguments.update {
                match simulator.search(&breaks, arguments.seeds, &guard.off())? {
                    Ok(found) => {
                        outcome.what = without(guard, simulator, found.seed, &breaks)?;
                        outcome.caught_by = format!("seed {} (new)", found.seed);
                        outcome.seed = Some(found.seed);
                    }
                    Err(Some(other)) => {
                        let what = short(&other.what);
                        outcome.what = Err(format!(
                            "none of {} seeds violates {breaks}; seed {} violates {}: {what}",
                            arguments.seeds, other.seed, other.rule
                        ));
                    }
                    Err(None) => outcome.what = Err(format!("none of {} seeds violates a rule", arguments.seeds)),
                }
            }
        }
    }
    Ok(outcome)
}

/// The violation of a seed without a guard. A seed that fails with all guards proves nothing.
fn without(guard: &Guard, simulator: &Simulator, seed: u64, breaks: &str) -> Result<Result<String, String>> {
    if let Some(anyway) = simulator.run_seed(seed, None)? {
        bail!("seed {seed} violates a rule with all guards enabled: {}: {}", anyway.rule, anyway.what);
    }
    Ok(match simulator.run_seed(seed, Some(&guard.off()))? {
        Some(violation) if violation.rule == breaks => Ok(format!("{breaks}: {}", violation.what)),
        Some(violation) => {
            Err(format!("expected a violation of {breaks}, got one of {}: {}", violation.rule, short(&violation.what)))
        }
        None => Err(format!("expected a violation of {breaks}, got none")),
    })
}

/// Runs a function for each item on all processors. Results keep the order.
fn in_parallel<I: Sync, T: Send>(all: &[I], each: impl Fn(&I) -> Result<T> + Sync) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Option<Result<T>>>> = Mutex::new(all.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((at, one)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    all.get(at).map(|one| (at, one))
                } {
                    let result = each(one);
                    done.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(result);
                }
            });
        }
    });
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.into_iter().map(|result| result.context("a guard was not checked")?).collect()
}
