//! `muster rollout promote`: lets the next wave of a rollout start.

use muster_core::rollout::record::GateVerdict;
use muster_wire::client::{RolloutVerb, StatusQuery};
use muster_wire::rollout::{OperateRequest, OperateResponse};

use crate::args::Globals;
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Terminal, text};
use crate::variables::author;

use super::{RolloutArg, note_if_paused, send};

/// Promote a wave, to let the next one start
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A wave with manual promotion waits when its nodes are healthy, its soak time is over and its gate has passed. A wave whose \
gate check failed or was inconclusive can be promoted as well, after an operator has looked at it. A wave is promoted at \
most once, also by a retry after a lost answer. --full can be used at any time.

If an operator has paused the rollout, the promotion takes effect when the rollout is resumed.

Exit codes:
  0   promoted
  1   refused: there is no rollout, it has ended, or no wave waits for a promotion
  2   unknown: retry, which is safe

Examples:
  muster rollout promote
  muster rollout promote --full      promote all later waves automatically")]
pub struct Args {
    /// Promote all later waves, too
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    rollout: RolloutArg,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut session = Session::open(globals).await?;
    let operate = OperateRequest { full: args.full, by: author(), ..OperateRequest::default() };
    let done = send(&mut session, terminal, args.rollout.selected(), RolloutVerb::Promote, operate).await?;
    let despite = if done.changed && !args.full { despite_check(&session, &done).await } else { String::new() };
    terminal.out.answer(&done, |out| {
        let id = done.id;
        let text = match (done.changed, args.full) {
            (true, true) => {
                format!("rollout {id}: all later waves are promoted automatically (revision {})", done.revision)
            }
            (true, false) => format!("rollout {id}: the wave is promoted{despite} (revision {})", done.revision),
            (false, true) => format!("rollout {id}: all later waves are promoted automatically already"),
            (false, false) => format!("rollout {id}: the wave was promoted already"),
        };
        out.line(text);
    });
    if !note_if_paused(&done, terminal) {
        terminal.notes.note("follow the rollout: muster rollout status --watch");
    }
    Ok(Exit::Yes)
}

/// The gate check of the promoted wave that did not pass. Empty if the status cannot be read.
async fn despite_check(session: &Session, done: &OperateResponse) -> String {
    let query = StatusQuery { numbers: true, ..StatusQuery::default() };
    let status = session.client().clone().at_least(done.revision).rollout(&session.env, done.id.into(), query).await;
    let Ok(status) = status else { return String::new() };
    let promoted = status.record.waves.iter().rev().find(|wave| wave.promoted.is_some());
    match promoted.and_then(|wave| wave.gate.as_ref()) {
        Some(GateVerdict::Failed { check, .. } | GateVerdict::Inconclusive { check, .. }) => {
            text::one_line(&format!(" despite the check {check:?}"))
        }
        Some(GateVerdict::Passed { .. }) | None => String::new(),
    }
}
