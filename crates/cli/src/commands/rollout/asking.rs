//! Asks a server for something that must be done once, however often it is asked: each request has a name.

use std::time::Duration;

use muster_wire::client::{ClientError, RolloutRef, RolloutVerb};
use muster_wire::request::new_request_id;
use muster_wire::rollout::{OperateRequest, OperateResponse};

use crate::failure::Failure;
use crate::session::{Session, is_interruption};
use crate::terminal::Terminal;

/// So often it is asked again while the answer is lost.
const TRIES: u32 = 5;
const PACE: Duration = Duration::from_secs(1);

/// Asks, and asks again if the answer is lost. What is asked for has to be known by its name.
pub(in crate::commands) async fn until_answered<T>(
    session: &mut Session,
    terminal: &mut Terminal,
    ask: impl AsyncFn(&Session) -> Result<T, ClientError>,
) -> Result<T, Failure> {
    let mut tries = 1;
    loop {
        match ask(session).await {
            Ok(answer) => return Ok(answer),
            Err(error) if is_interruption(&error) && tries < TRIES => {
                if tries == 1 {
                    terminal.notes.note(format_args!("{error}; asking again"));
                }
                tries += 1;
                tokio::time::sleep(PACE).await;
                // If it is not found, the old address is as good as any.
                let _ = session.find_again();
            }
            Err(error) => return Err(session.server.failure(error)),
        }
    }
}

/// Says something to a rollout, once.
pub(super) async fn say(
    session: &mut Session,
    terminal: &mut Terminal,
    which: RolloutRef,
    verb: RolloutVerb,
    operate: OperateRequest,
) -> Result<OperateResponse, Failure> {
    let operate = OperateRequest { request: new_request_id(), ..operate };
    let ask = async |session: &Session| session.client().operate_rollout(&session.env, which, verb, &operate).await;
    until_answered(session, terminal, ask).await
}
