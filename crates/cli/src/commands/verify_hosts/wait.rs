//! Waiting until hosts have arrived: the server holds each question open, so there is no polling.

use std::time::Duration;

use muster_wire::client::ClientError;
use muster_wire::operator::{LONGEST_WAIT, VerifyHostsRequest, VerifyHostsResponse};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::failure::Failure;
use crate::session::{Session, is_interruption};
use crate::terminal::Notes;

use crate::commands::rows::count;

/// How often somebody who looks at the screen is told how far it is. The answer itself comes at once.
const REFRESH: u64 = 1;
/// How long to leave a server alone that does not answer.
const AWAY: Duration = Duration::from_millis(500);

/// Asks until the answer is yes or the time is over; then gives the last answer.
///
/// A server that cannot be reached at the first question is an error, most likely a wrong address. Once it has
/// answered, its absence is an interruption, and is waited out.
pub(super) async fn until_verified(
    session: &mut Session,
    mut question: VerifyHostsRequest,
    patience: Duration,
    notes: &mut Notes,
) -> Result<VerifyHostsResponse, Failure> {
    let begin = Instant::now();
    let deadline = begin + patience;
    let mut answer = session.told(ask(session, &mut question, 0).await)?;
    if !answer.verified && !notes.shows_progress() {
        notes.note(format_args!("{}; waiting", how_far(&question, &answer)));
    }
    let mut away: Option<ClientError> = None;
    while !answer.verified && Instant::now() < deadline {
        if away.is_none() {
            notes.progress(format_args!("{} ({}s)", how_far(&question, &answer), begin.elapsed().as_secs()));
        }
        let hold = match &away {
            // First it must be known that the server is back.
            Some(_) => 0,
            None if notes.shows_progress() => REFRESH,
            None => LONGEST_WAIT,
        };
        let Ok(told) = timeout_at(deadline, ask(session, &mut question, hold)).await else { break };
        match told {
            Ok(newer) => {
                answer = newer;
                if away.take().is_some() {
                    notes.note("the server answers again");
                }
            }
            Err(error) if is_interruption(&error) => {
                if away.is_none() {
                    notes.note(format_args!("{error}; waiting until it is back"));
                }
                away = Some(error);
                sleep_until((Instant::now() + AWAY).min(deadline)).await;
                // If it is not found, the old address is as good as any.
                let _ = session.find_again();
            }
            Err(error) => return Err(session.server.failure(error)),
        }
    }
    notes.end_progress();
    if !answer.verified {
        // The time is over. What is told must be so now, not when the last question was asked.
        answer = session.told(ask(session, &mut question, 0).await)?;
    }
    Ok(answer)
}

async fn ask(
    session: &Session,
    question: &mut VerifyHostsRequest,
    hold: u64,
) -> Result<VerifyHostsResponse, ClientError> {
    question.wait_seconds = hold;
    session.client().verify_hosts(&session.env, question).await
}

fn how_far(question: &VerifyHostsRequest, answer: &VerifyHostsResponse) -> String {
    let there = answer.hosts - answer.missing.len();
    format!("{there} of {} at {}", count(answer.hosts, "host"), question.version)
}
