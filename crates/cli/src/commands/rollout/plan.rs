//! `muster rollout plan`: shows the waves and nodes of a rollout before it starts.

use std::path::PathBuf;

use jiff::Timestamp;
use muster_core::names::Version;
use muster_core::rollout::plan::RolloutPlan;
use muster_core::rollout::windows;
use muster_wire::rollout::StrategySource;

use crate::args::{Globals, OutputFormat};
use crate::commands::release::diff::{ReleaseDifferences, compare_versions};
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Out, Terminal, unchecked_warning};

use super::plan_args::{PlanArgs, shell_word, write_plan};
use super::plan_view::{self, NodeListing};

/// Changed files that are listed, and changed lines of each, without `--diff`.
const FILES: usize = 8;
const LINES: usize = 4;

/// Show the plan of a rollout: waves, order of nodes, budgets, gates, predicted time, and changed files
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Nothing is changed. The order of nodes is fixed by the seed in the plan. `muster rollout start --plan FILE` executes a plan \
that was saved with --out, or printed with -o json or yaml; it is refused if the fleet has changed since.

The predicted time includes soak times, but no maintenance windows and no manual promotions.

Exit codes:
  0   success
  1   refused: no such release, an older release, an invalid strategy (its errors are printed), or an order of roles that
      cannot be satisfied
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster rollout plan v3
  muster rollout plan v3 --out v3.plan && muster rollout start v3 --plan v3.plan
  muster rollout plan v3 --strategy careful.yaml --all
  muster rollout plan v3 -o json | jq -r '.waves[].nodes[].node'")]
pub struct Args {
    /// Version, such as v3; its release must have been pushed
    version: Version,
    #[command(flatten)]
    plan: PlanArgs,
    /// List every node, not only the first 10 of each wave
    #[arg(long)]
    all: bool,
    /// Show all changed lines between the two releases, not only the first of each file
    #[arg(long)]
    diff: bool,
    /// Save the plan to a file, for `start --plan`; as YAML if it is named .yaml
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let request = args.plan.request(&args.version, &session, &mut terminal.notes).await?;
    let answer = session.map_err(session.client().plan_rollout(&session.env, &request).await)?;
    if let Some(path) = &args.out {
        write_plan(path, &answer.plan)?;
    }
    let plan = &answer.plan;
    let differences = match globals.output {
        OutputFormat::Table => differences(&session, plan).await,
        OutputFormat::Json | OutputFormat::Yaml => None,
    };
    let opening = closed_until(plan, terminal.now);
    terminal.out.answer(plan, |out| {
        plan_view::show(plan, NodeListing { all: args.all }, opening, out);
        if let Some((from, compared)) = differences {
            show_differences(&from, plan, compared, args.diff, out);
        }
    });
    if !answer.unchecked.is_empty() {
        terminal.notes.warning(unchecked_warning(&plan.to, &answer.unchecked));
    }
    if let (StrategySource::Default, false) = (answer.strategy_from, plan.at_once) {
        terminal.notes.note("the environment file has no section `rollout`: this is the default strategy");
    }
    match &args.out {
        _ if plan.node_count() == 0 => {}
        Some(path) => {
            let (version, path) = (&args.version, shell_word(&path.to_string_lossy()));
            terminal.notes.note(format_args!("execute this plan: muster rollout start {version} --plan {path}"));
        }
        None => terminal.notes.note(format_args!("start it: muster rollout start {}{}", args.version, args.plan)),
    }
    Ok(Exit::Yes)
}

/// The time at which the next window opens; none if one is open, or there are no windows.
fn closed_until(plan: &RolloutPlan, now: Timestamp) -> Option<Timestamp> {
    windows::next_opening(&plan.strategy.windows, now).filter(|opening| *opening > now)
}

/// Compares the two releases. An error is shown with the plan.
async fn differences(session: &Session, plan: &RolloutPlan) -> Option<(Version, Result<ReleaseDifferences, Failure>)> {
    let from = plan.from.clone().filter(|from| *from != plan.to)?;
    let compared = compare_versions(session, &from, &plan.to).await;
    Some((from, compared))
}

fn show_differences(
    from: &Version,
    plan: &RolloutPlan,
    compared: Result<ReleaseDifferences, Failure>,
    all: bool,
    out: &mut Out,
) {
    let to = &plan.to;
    out.gap();
    match compared {
        Err(failure) => {
            out.line(format_args!("cannot compare {from} and {to}: {}", failure.error));
        }
        Ok(differences) if differences.same => out.line(format_args!("{from} and {to} have the same files")),
        Ok(differences) => {
            out.line(format_args!("changes from {from} to {to}: {}", differences.totals()));
            let (files, lines) = if all { (usize::MAX, usize::MAX) } else { (FILES, LINES) };
            if differences.show_first(files, lines, "  ", out) {
                out.line("  all changed lines: --diff");
            }
        }
    }
}
