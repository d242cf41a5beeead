//! `muster rollout promote`: a person lets the next wave begin.

use muster_core::rollout::record::GateVerdict;
use muster_wire::client::{RolloutVerb, StatusQuery};
use muster_wire::rollout::{OperateRequest, OperateResponse};

use crate::args::Globals;
use crate::author::author;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::{Terminal, plain};

use super::asking::say;
use super::nodes::still_paused;
use super::which::Which;

/// Let the next wave begin, where a person has to say so
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A wave waits for it when its nodes are well, it was watched, and its gate has passed; or when a check of its gate said no \
or could not say, and somebody has looked. A wave is promoted once, also if the answer is lost and it is asked again. \
--full can be said at any time.

While the rollout is paused by a person, what is promoted waits until it is resumed.

Exit codes:
  0   it is promoted
  1   refused: there is no rollout, it has ended, or no wave waits for it
  2   cannot tell: ask again, which is safe

Examples:
  muster rollout promote
  muster rollout promote --full      no wave of this rollout waits for a person any more")]
pub struct Args {
    /// All later waves too
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    which: Which,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut session = Session::open(globals).await?;
    let operate = OperateRequest { full: args.full, by: author(), ..OperateRequest::default() };
    let done = say(&mut session, terminal, args.which.rollout(), RolloutVerb::Promote, operate).await?;
    let in_spite = if done.changed && !args.full { in_spite_of(&session, &done).await } else { String::new() };
    terminal.out.answer(&done, |out| {
        let id = done.id;
        let text = match (done.changed, args.full) {
            (true, true) => format!("rollout {id}: no wave waits for a person any more (revision {})", done.revision),
            (true, false) => format!("rollout {id}: the wave is promoted{in_spite} (revision {})", done.revision),
            (false, true) => format!("rollout {id}: no wave waits for a person, as before"),
            (false, false) => format!("rollout {id}: the wave was promoted already"),
        };
        out.line(text);
    });
    if !still_paused(&done, terminal) {
        terminal.notes.note("muster rollout status --watch follows it");
    }
    Ok(Exit::Yes)
}

/// Which check did not pass, if that is what somebody goes on in spite of. It is promoted whether or not this can be told.
async fn in_spite_of(session: &Session, done: &OperateResponse) -> String {
    let query = StatusQuery { numbers: true, ..StatusQuery::default() };
    let status = session.client().clone().at_least(done.revision).rollout(&session.env, done.id.into(), query).await;
    let Ok(status) = status else { return String::new() };
    let promoted = status.record.waves.iter().rev().find(|wave| wave.promoted.is_some());
    match promoted.and_then(|wave| wave.gate.as_ref()) {
        Some(GateVerdict::Failed { check, .. } | GateVerdict::Inconclusive { check, .. }) => {
            plain::one_line(&format!(" in spite of the check {check:?}"))
        }
        Some(GateVerdict::Passed { .. }) | None => String::new(),
    }
}
