//! Asking the cluster: of one member at a time, until one answers or patience ends.

use std::time::Duration;

use etcd_client::Error;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::Status;

use super::connection::{Connection, Place};
use super::error::Unreached;
use super::shared::Shared;
use super::verdict::{Answer, Next, Verdict, verdict};
use super::words::words;
use crate::error::{Cause, said};

/// Why there is no result.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// etcd has answered, and that is the answer.
    Answer { answer: Answer, why: String },
    /// It has certainly not happened.
    Away { reasons: Vec<Unreached> },
    /// It may have happened.
    Unknown { reasons: Vec<Unreached> },
}

impl Failure {
    pub(super) fn is(&self, wanted: Answer) -> bool {
        matches!(self, Failure::Answer { answer, .. } if *answer == wanted)
    }

    /// The reasons as what lies behind an error.
    pub(super) fn cause(reasons: &[Unreached]) -> Cause {
        let all: Vec<_> = reasons.iter().map(|Unreached { endpoint, why }| format!("{endpoint}: {why}")).collect();
        said(all.join("; "))
    }
}

/// Whether a request may be sent a second time when nobody knows what became of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sending {
    /// A read, or something that has the same effect twice as once.
    Repeatable,
    /// A change. It is sent again only if it certainly has not happened.
    Once,
}

/// The first pause after all members have failed; it doubles up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(1);

impl Shared {
    /// Calls a member, and others if that fails.
    pub(super) async fn ask<T, F, Fut>(&self, sending: Sending, call: F) -> Result<T, Failure>
    where
        F: Fn(Connection) -> Fut,
        Fut: Future<Output = Result<T, Error>>,
    {
        let patience = &self.options.patience;
        let end = Instant::now() + patience.total;
        let mut attempts = Attempts::new(self.pool.len());
        loop {
            let member = self.pool.current();
            let (error, place) = match self.attempt(member, sending, end, &call).await {
                Ok(result) => return Ok(result),
                Err(failed) => failed,
            };
            let why = words(&error);
            tracing::debug!(endpoint = self.pool.endpoint(member), why, "etcd did not do what it was asked");
            let next = match verdict(&error) {
                Verdict::Answer(answer) => return Err(Failure::Answer { answer, why }),
                // With a user, a new connection would log in; without one it hears the same again.
                Verdict::NotDone(_) if why.contains("user name is empty") && self.pool.credentials.login.is_none() => {
                    return Err(Failure::Answer { answer: Answer::Denied, why });
                }
                Verdict::NotDone(next) | Verdict::Unclear(next) => next,
            };
            self.turn_away(member, place, next).await;
            attempts.note(self.pool.endpoint(member), why);
            if matches!(verdict(&error), Verdict::Unclear(_)) && sending == Sending::Once {
                return Err(Failure::Unknown { reasons: attempts.reasons });
            }
            let pause = attempts.pause(next);
            if Instant::now() + pause >= end {
                return Err(Failure::Away { reasons: attempts.reasons });
            }
            sleep(pause).await;
        }
    }

    /// One call of one member. The place is that of the connection, if there was one.
    async fn attempt<T, F, Fut>(
        &self,
        member: usize,
        sending: Sending,
        end: Instant,
        call: &F,
    ) -> Result<T, (Error, Option<Place>)>
    where
        F: Fn(Connection) -> Fut,
        Fut: Future<Output = Result<T, Error>>,
    {
        let patience = &self.options.patience;
        let limit = match sending {
            Sending::Repeatable => patience.attempt,
            Sending::Once => patience.change,
        };
        let silent = |what: &str, limit: Duration| {
            Error::GRpcStatus(Status::deadline_exceeded(format!("{what} within {} s", limit.as_secs_f32())))
        };
        let begun = Instant::now();
        let connection = match timeout_at(end.min(begun + limit), self.pool.connection(member)).await {
            Ok(connection) => connection.map_err(|error| (not_sent(error), None))?,
            // Nothing of the request itself has been sent.
            Err(_) => return Err((not_sent(silent("no login", limit)), None)),
        };
        let place = Some(connection.place);
        match timeout_at(Instant::now() + limit, call(connection)).await {
            Ok(result) => result.map_err(|error| (error, place)),
            Err(_) => Err((silent("no answer", limit), place)),
        }
    }

    /// Follows a verdict.
    pub(super) async fn turn_away(&self, member: usize, place: Option<Place>, next: Next) {
        match next {
            Next::Again => {}
            Next::Elsewhere => self.pool.leave(member),
            Next::Disconnect => {
                self.pool.leave(member);
                if let Some(place) = place {
                    self.pool.disconnect(place).await;
                }
            }
        }
    }
}

/// A login that failed says nothing of the request, which has not been sent. What etcd *says* to a login stays what it
/// is: another attempt would hear the same.
fn not_sent(error: Error) -> Error {
    match verdict(&error) {
        Verdict::Unclear(_) => Error::EndpointError(words(&error)),
        Verdict::NotDone(_) | Verdict::Answer(_) => error,
    }
}

/// What was tried so far.
#[derive(Debug)]
struct Attempts {
    members: usize,
    failed: usize,
    pause: Duration,
    /// The last reason of each member.
    reasons: Vec<Unreached>,
}

impl Attempts {
    fn new(members: usize) -> Self {
        Self { members, failed: 0, pause: FIRST_PAUSE, reasons: Vec::new() }
    }

    fn note(&mut self, endpoint: &str, why: String) {
        self.failed += 1;
        self.reasons.retain(|reason| reason.endpoint != endpoint);
        self.reasons.push(Unreached { endpoint: endpoint.to_owned(), why });
    }

    /// How long to wait before the next: not at all for a member that has not been asked, and longer each round.
    fn pause(&mut self, next: Next) -> Duration {
        if next != Next::Again && !self.failed.is_multiple_of(self.members.max(1)) {
            return Duration::ZERO;
        }
        let pause = self.pause / 2 + super::pool::some_of(self.pause / 2);
        self.pause = (self.pause * 2).min(LAST_PAUSE);
        pause
    }
}
