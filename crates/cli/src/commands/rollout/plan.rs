//! `muster rollout plan`: what would happen, node by node.

use std::path::PathBuf;

use jiff::Timestamp;
use muster_core::names::Version;
use muster_core::rollout::plan::RolloutPlan;
use muster_core::rollout::windows;
use muster_wire::rollout::StrategySource;

use crate::args::{Format, Globals};
use crate::commands::release::diff::{self, Differences};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::{Out, Terminal};

use super::how::{self, How};
use super::plan_file;
use super::plan_view::{self, Scope};

/// So many files that differ between two releases are named.
const FILES: usize = 8;

/// Show what going to a version would do: waves, nodes in their order, budgets, gates, how long it takes, what differs
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Nothing is changed. The plan is what happens: its order is fixed by the seed, which stands in it. Saved with --out, or \
printed with -o json or yaml, it is carried out by `muster rollout start --plan FILE`, exactly so or not at all.

The predicted time counts soaks, and neither windows nor waiting for people.

Exit codes:
  0   it was shown
  1   refused: no such release, an older release, a strategy with mistakes (which are shown), or an order of roles that
      cannot be kept
  2   cannot tell: the server is not there, or is not up to date

Examples:
  muster rollout plan v3
  muster rollout plan v3 --out v3.plan && muster rollout start v3 --plan v3.plan
  muster rollout plan v3 --strategy careful.yaml --all
  muster rollout plan v3 -o json | jq -r '.waves[].nodes[].node'")]
pub struct Args {
    /// The version, such as v3; its release must be there
    version: Version,
    #[command(flatten)]
    how: How,
    /// Name every node, not only the first few of each wave
    #[arg(long)]
    all: bool,
    /// Show line by line what differs between the two releases
    #[arg(long)]
    diff: bool,
    /// Save the plan, for start --plan; as YAML if the file is called so
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let request = args.how.request(&args.version, &session, &mut terminal.notes).await?;
    let answer = session.told(session.client().plan_rollout(&session.env, &request).await)?;
    if let Some(path) = &args.out {
        plan_file::write(path, &answer.plan)?;
    }
    let plan = &answer.plan;
    let differences = match globals.output {
        Format::Table => differences(&session, plan, args.diff).await,
        Format::Json | Format::Yaml => None,
    };
    let opening = closed_until(plan, terminal.now);
    terminal.out.answer(plan, |out| {
        plan_view::show(plan, Scope { all: args.all }, opening, out);
        if let Some((from, compared)) = differences {
            show_differences(&from, plan, compared, args.diff, out);
        }
    });
    if let (StrategySource::Default, false) = (answer.strategy_from, plan.at_once) {
        terminal.notes.note("the environment's file has no section `rollout`: this is what Muster does by itself");
    }
    match &args.out {
        _ if plan.node_count() == 0 => {}
        Some(path) => {
            let (version, path) = (&args.version, how::typed(&path.to_string_lossy()));
            terminal
                .notes
                .note(format_args!("muster rollout start {version} --plan {path} carries it out, exactly so"));
        }
        None => terminal.notes.note(format_args!("muster rollout start {}{} begins it", args.version, args.how)),
    }
    Ok(Exit::Yes)
}

/// When the first window opens; none if one is open, or there is none to wait for.
fn closed_until(plan: &RolloutPlan, now: Timestamp) -> Option<Timestamp> {
    windows::next_opening(&plan.strategy.windows, now).filter(|opening| *opening > now)
}

/// What the two releases differ in. That it cannot be told is worth a line, and no reason to show no plan.
async fn differences(
    session: &Session,
    plan: &RolloutPlan,
    text: bool,
) -> Option<(Version, Result<Differences, Failure>)> {
    let from = plan.from.clone().filter(|from| *from != plan.to)?;
    let compared = diff::between(session, &from, &plan.to, text).await;
    Some((from, compared))
}

fn show_differences(
    from: &Version,
    plan: &RolloutPlan,
    compared: Result<Differences, Failure>,
    all: bool,
    out: &mut Out,
) {
    let to = &plan.to;
    out.gap();
    match compared {
        Err(failure) => {
            out.line(format_args!("what differs between {from} and {to} cannot be told: {}", failure.error));
        }
        Ok(differences) if differences.same => out.line(format_args!("{from} and {to} hold the same files")),
        Ok(differences) => {
            out.line(format_args!("between {from} and {to}: {}", differences.totals()));
            let hidden = differences.show_first(if all { usize::MAX } else { FILES }, "  ", out);
            if hidden > 0 {
                out.line(format_args!("  … {hidden} more: muster release diff {from} {to}"));
            }
        }
    }
}
