//! Selects a rollout and sends requests to it. A request has an id: a retry after a lost answer has no second effect.

use std::time::Duration;

use muster_core::rollout::RolloutId;
use muster_core::rollout::record::RolloutPhase;
use muster_wire::client::{ClientError, RolloutRef, RolloutVerb, new_request_id};
use muster_wire::rollout::{OperateRequest, OperateResponse};

use crate::connect::{Session, is_retryable};
use crate::failure::Failure;
use crate::output::Terminal;

/// Attempts to send a request.
const ATTEMPTS: u32 = 5;
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Parses the number of a rollout, as `muster rollout history` shows it.
pub(super) fn id_arg(text: &str) -> Result<RolloutId, String> {
    RolloutId::parse(text).ok_or_else(|| "expected the number of a rollout, such as 7".to_owned())
}

/// The option `--id` of commands that change a rollout.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct RolloutArg {
    /// Number of the rollout [default: the last one that was started]
    #[arg(long, value_name = "ID", value_parser = id_arg)]
    id: Option<RolloutId>,
}

impl RolloutArg {
    pub(super) fn selected(&self) -> RolloutRef {
        select(self.id)
    }

    pub(super) fn is_given(&self) -> bool {
        self.id.is_some()
    }
}

pub(super) fn select(id: Option<RolloutId>) -> RolloutRef {
    id.map_or(RolloutRef::Active, RolloutRef::Id)
}

/// Sends a request, and retries it if the answer is lost. The request must be idempotent.
pub(in crate::commands) async fn retry_until_answered<T>(
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
pub(super) async fn send(
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
pub(super) fn note_if_paused(done: &OperateResponse, terminal: &mut Terminal) -> bool {
    let is_paused = matches!(done.phase, RolloutPhase::Paused { .. });
    if is_paused {
        terminal.notes.note("the rollout is paused; continue it with `muster rollout resume`");
    }
    is_paused
}
