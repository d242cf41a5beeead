//! `muster-mutants`: disables the guards of a rollout one at a time, and requires that each mutant is caught.
//!
//! [`list`] names the guards, and the seed or scenario that catches each mutant. All guards get a switch in a copy of the
//! source ([`schemata`], [`copy`]): one build is enough, and the product has no branch for this. Then each of them is
//! disabled once ([`look`]).

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

use list::{Guard, LIST, Notice};
use run::{Simulator, short};

/// Disable the guards of a rollout one at a time: each mutant must be caught.
#[derive(Debug, Parser)]
#[command(name = "muster-mutants")]
struct Arguments {
    /// Only these guards.
    #[arg(value_name = "GUARD")]
    only: Vec<String>,
    /// Where a seed no longer catches its mutant, search for the first seed that does, and record it.
    #[arg(long)]
    update: bool,
    /// How many seeds are searched.
    #[arg(long, value_name = "N", default_value_t = 2_000, requires = "update")]
    seeds: u64,
}

/// The result of one mutant.
#[derive(Debug)]
struct Outcome {
    noticed_by: String,
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
    let root = std::env::current_dir().context("there is no current directory")?;
    let target = target_directory()?;
    let text = std::fs::read_to_string(root.join(LIST))
        .with_context(|| format!("{LIST} cannot be read: start this where the repository begins"))?;
    let all = list::read(&text, &arguments.only)?;
    let copy = copy::make(&root, &target, &all)?;
    let simulator = Simulator { program: copy::build(&copy, &target, arguments.update)?, folder: copy };
    let built = began.elapsed();
    let wanted = |guard: &&Guard| arguments.only.is_empty() || arguments.only.contains(&guard.name);
    let guards: Vec<&Guard> = all.iter().filter(wanted).collect();
    let outcomes = side_by_side(&guards, |guard| take_away(guard, &simulator, arguments))?;

    let mut out = std::io::stdout().lock();
    let (mut missed, mut after) = (0, text.clone());
    let wide = guards.iter().map(|guard| guard.name.len()).max().unwrap_or_default();
    writeln!(out, "{:<wide$}  {:<24}  what goes wrong without it", "guard", "noticed by")?;
    for (guard, Outcome { noticed_by, what, seed }) in guards.iter().zip(&outcomes) {
        let what = match what {
            Ok(what) => short(what),
            Err(why) => {
                missed += 1;
                format!("NOBODY MISSES IT: {why}\n{:wide$}  it keeps: {}", "", guard.keeps)
            }
        };
        writeln!(out, "{:<wide$}  {noticed_by:<24}  {what}", guard.name)?;
        if let Some(seed) = seed {
            after = list::with_seed(&after, &guard.name, *seed);
        }
    }
    if after != text {
        std::fs::write(root.join(LIST), after).with_context(|| format!("{LIST} cannot be written"))?;
    }
    let (built, all) = (built.as_secs_f64(), began.elapsed().as_secs_f64());
    writeln!(out, "{} guards; built in {built:.0} s, all of it in {all:.0} s", guards.len())?;
    if missed == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(
        out,
        "mutants: {missed} guards can be taken away without anybody noticing; if the engine or the simulator has changed, \
         `make mutants ARGS=--update` looks for other seeds"
    )?;
    Ok(ExitCode::FAILURE)
}

/// The directory in which this program was built: `…/debug/muster-mutants`.
fn target_directory() -> Result<PathBuf> {
    let program = std::env::current_exe().context("this program does not know where it is")?;
    let target = program.parent().and_then(Path::parent).map(ToOwned::to_owned);
    target.context("this program is not in a target directory")
}

fn take_away(guard: &Guard, simulator: &Simulator, arguments: &Arguments) -> Result<Outcome> {
    let notice = guard.notice()?;
    let mut outcome = Outcome { noticed_by: notice.to_string(), what: Err(String::new()), seed: None };
    match notice {
        Notice::Script { name } => {
            if let Some(what) = simulator.play(&name, None)? {
                bail!("scenarios/{name}.txt goes wrong with all guards in place: {what}");
            }
            let otherwise = simulator.play(&name, Some(&guard.off()))?;
            outcome.what = otherwise.ok_or_else(|| "the script is played as before".to_owned());
        }
        Notice::Seed { seed, breaks } => {
            outcome.what = without(guard, simulator, seed, &breaks)?;
            if outcome.what.is_err() && arguments.update {
                match simulator.search(&breaks, arguments.seeds, &guard.off())? {
                    Ok(found) => {
                        outcome.what = without(guard, simulator, found.seed, &breaks)?;
                        outcome.noticed_by = format!("seed {}, found now", found.seed);
                        outcome.seed = Some(found.seed);
                    }
                    Err(Some(other)) => {
                        let what = short(&other.what);
                        outcome.what = Err(format!(
                            "of {} seeds none breaks {breaks}; seed {} breaks {}: {what}",
                            arguments.seeds, other.seed, other.rule
                        ));
                    }
                    Err(None) => outcome.what = Err(format!("none of {} seeds breaks any rule", arguments.seeds)),
                }
            }
        }
    }
    Ok(outcome)
}

/// The violation of a seed without a guard. A seed that fails with all guards proves nothing.
fn without(guard: &Guard, simulator: &Simulator, seed: u64, breaks: &str) -> Result<Result<String, String>> {
    if let Some(anyway) = simulator.tell(seed, None)? {
        bail!("seed {seed} breaks a rule with all guards in place: {}: {}", anyway.rule, anyway.what);
    }
    Ok(match simulator.tell(seed, Some(&guard.off()))? {
        Some(broken) if broken.rule == breaks => Ok(format!("{breaks}: {}", broken.what)),
        Some(broken) => Err(format!("{} is broken instead of {breaks}: {}", broken.rule, short(&broken.what))),
        None => Err(format!("no rule is broken instead of {breaks}")),
    })
}

/// Runs a function for each item on all processors. Results keep the order.
fn side_by_side<I: Sync, T: Send>(all: &[I], each: impl Fn(&I) -> Result<T> + Sync) -> Result<Vec<T>> {
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
    done.into_iter().map(|result| result.context("a guard was not looked at")?).collect()
}
