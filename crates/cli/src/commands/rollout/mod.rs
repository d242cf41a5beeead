//! `muster rollout …`: plans, starts, follows and controls rollouts. This file selects a rollout and sends requests to it.
//! A request has an id: a retry after a lost answer has no second effect.

pub(super) mod abort;
pub(super) mod history;
mod labels;
pub(super) mod pause;
pub(super) mod plan;
mod plan_args;
mod plan_view;
pub(super) mod promote;
pub(super) mod retry;
pub(super) mod rollback;
pub(super) mod show;
pub(super) mod skip;
pub(super) mod slots;
pub(super) mod start;
pub(super) mod status;
mod status_view;
#[cfg(test)]
mod test_data;
pub(super) mod watch;

use std::time::Duration;

use muster_core::rollout::RolloutId;
use muster_core::rollout::record::RolloutPhase;
use muster_wire::client::{ClientError, RolloutRef, RolloutVerb, new_request_id};
use muster_wire::rollout::{OperateRequest, OperateResponse};

use crate::connect::{Session, is_retryable};
use crate::failure::Failure;
use crate::output::Terminal;

pub(super) use status_view::current_pause_reason;

/// Attempts to send a request.
const ATTEMPTS: u32 = 5;
const RETRY_PAUSE: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    Plan(plan::Args),
    Start(start::Args),
    Status(status::Args),
    Pause(pause::PauseArgs),
    Resume(pause::ResumeArgs),
    Abort(abort::Args),
    Promote(promote::Args),
    Skip(skip::Args),
    Retry(retry::Args),
    Rollback(rollback::Args),
    History(history::Args),
    Show(show::Args),
    /// List the nodes that use up the budget of the rollout, and release their slots
    #[command(subcommand)]
    Slots(slots::Command),
}

/// Parses the number of a rollout, as `muster rollout history` shows it.
fn id_arg(text: &str) -> Result<RolloutId, String> {
    RolloutId::parse(text).ok_or_else(|| "expected the number of a rollout, such as 7".to_owned())
}

/// The option `--id` of commands that change a rollout.
#[derive(Clone, Debug, clap::Args)]
struct RolloutArg {
    /// Number of the rollout [default: the last one that was started]
    #[arg(long, value_name = "ID", value_parser = id_arg)]
    id: Option<RolloutId>,
}

impl RolloutArg {
    fn selected(&self) -> RolloutRef {
        select(self.id)
    }

    pub(super) fn is_given(&self) -> bool {
        self.id.is_some()
    }
}

fn select(id: Option<RolloutId>) -> RolloutRef {
    id.map_or(RolloutRef::Active, RolloutRef::Id)
}

/// Sends a request, and retries it if the answer is lost. The request must be idempotent.
pub(super) async fn retry_until_answered<T>(
    session: &mut Session,
    terminal: &mut Terminal,
    send: impl AsyncFn(&Session) -> Result<T, ClientError>,
) -> Result<T, Failure> {
    let mut attempt = 1;
    loop {
        match send(session).await {
            Ok(answer) => return Ok(answer),
            Err(error) if is_retryable(&error) && attempt < ATTEMPTS => {
                if attempt == 1 {
                    terminal.notes.note(format_args!("{error}; retrying"));
                }
                attempt += 1;
                tokio::time::sleep(RETRY_PAUSE).await;
                // Without an announcement the old address is retried.
                let _ = session.rediscover();
            }
            Err(error) => return Err(session.server.failure(error)),
        }
    }
}

/// Sends a request to a rollout.
async fn send(
    session: &mut Session,
    terminal: &mut Terminal,
    which: RolloutRef,
    verb: RolloutVerb,
    operate: OperateRequest,
) -> Result<OperateResponse, Failure> {
    let operate = OperateRequest { request: new_request_id(), ..operate };
    let send = async |session: &Session| session.client().operate_rollout(&session.env, which, verb, &operate).await;
    retry_until_answered(session, terminal, send).await
}

/// Prints a note if the rollout is paused: the request takes effect when the rollout is resumed.
fn note_if_paused(done: &OperateResponse, terminal: &mut Terminal) -> bool {
    let is_paused = matches!(done.phase, RolloutPhase::Paused { .. });
    if is_paused {
        terminal.notes.note("the rollout is paused; continue it with `muster rollout resume`");
    }
    is_paused
}
