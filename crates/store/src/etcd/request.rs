//! Sends requests to one member at a time, until one answers or the time is over, and has the state that requests, watches
//! and compaction of one store share.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::Error;
use muster_core::txn::{LeaseId, Revision};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::Status;

use crate::limits::MAX_OPS;
use crate::store::{ErrorCause, StoreError, text_cause};

use super::EtcdOptions;
use super::errors::{EtcdRejection, FailureClass, MemberError, RetryAt, classify, describe};
use super::pool::{ConnectionId, MemberConnection, MemberPool};
use super::progress::Head;

/// A request without a result.
#[derive(Clone, Debug)]
pub(super) enum RequestError {
    /// etcd refused the request. A retry gives the same answer.
    Rejected { rejection: EtcdRejection, why: String },
    /// No member could be reached. The request was certainly not applied.
    Unavailable { reasons: Vec<MemberError> },
    /// The request may have been applied.
    Unknown { reasons: Vec<MemberError> },
}

impl RequestError {
    pub(super) fn is(&self, wanted: EtcdRejection) -> bool {
        matches!(self, RequestError::Rejected { rejection, .. } if *rejection == wanted)
    }

    /// The errors of all members as one cause.
    pub(super) fn cause(reasons: &[MemberError]) -> ErrorCause {
        let all: Vec<_> = reasons.iter().map(|MemberError { endpoint, why }| format!("{endpoint}: {why}")).collect();
        text_cause(all.join("; "))
    }
}

/// Retry of a request whose result is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetryPolicy {
    /// A read, or an idempotent request.
    Idempotent,
    /// A change. It is sent again only if it was certainly not applied.
    IfNotApplied,
}

/// Backoff after all members have failed; it doubles up to the limit.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(1);

impl EtcdShared {
    /// Calls the current member, and the next ones if it fails.
    pub(super) async fn call<T, F, Fut>(&self, retry: RetryPolicy, call: F) -> Result<T, RequestError>
    where
        F: Fn(MemberConnection) -> Fut,
        Fut: Future<Output = Result<T, Error>>,
    {
        let timeouts = &self.options.timeouts;
        let end = Instant::now() + timeouts.total;
        let mut attempts = RequestAttempts::new(self.pool.len());
        loop {
            let member = self.pool.current();
            let (error, id) = match self.attempt(member, retry, end, &call).await {
                Ok(result) => return Ok(result),
                Err(failed) => failed,
            };
            let why = describe(&error);
            tracing::debug!(endpoint = self.pool.endpoint(member), why, "request to etcd failed");
            let next = match classify(&error) {
                FailureClass::Rejected(rejection) => return Err(RequestError::Rejected { rejection, why }),
                // With a user, a new connection would log in. Without one, the error stays the same.
                FailureClass::NotApplied(_)
                    if why.contains("user name is empty") && self.pool.credentials.login.is_none() =>
                {
                    return Err(RequestError::Rejected { rejection: EtcdRejection::Denied, why });
                }
                FailureClass::NotApplied(next) | FailureClass::MaybeApplied(next) => next,
            };
            self.switch_member(member, id, next).await;
            attempts.note(self.pool.endpoint(member), why);
            if matches!(classify(&error), FailureClass::MaybeApplied(_)) && retry == RetryPolicy::IfNotApplied {
                return Err(RequestError::Unknown { reasons: attempts.reasons });
            }
            let pause = attempts.pause(next);
            if Instant::now() + pause >= end {
                return Err(RequestError::Unavailable { reasons: attempts.reasons });
            }
            sleep(pause).await;
        }
    }

    /// One call of one member. Errors carry the connection, if there was one.
    async fn attempt<T, F, Fut>(
        &self,
        member: usize,
        retry: RetryPolicy,
        end: Instant,
        call: &F,
    ) -> Result<T, (Error, Option<ConnectionId>)>
    where
        F: Fn(MemberConnection) -> Fut,
        Fut: Future<Output = Result<T, Error>>,
    {
        let timeouts = &self.options.timeouts;
        let limit = match retry {
            RetryPolicy::Idempotent => timeouts.attempt,
            RetryPolicy::IfNotApplied => timeouts.change,
        };
        let silent = |what: &str, limit: Duration| {
            Error::GRpcStatus(Status::deadline_exceeded(format!("{what} within {} s", limit.as_secs_f32())))
        };
        let begun = Instant::now();
        let connection = match timeout_at(end.min(begun + limit), self.pool.connection(member)).await {
            Ok(connection) => connection.map_err(|error| (not_sent(error), None))?,
            // The request itself was not sent.
            Err(_) => return Err((not_sent(silent("no response to the login", limit)), None)),
        };
        let id = Some(connection.id);
        match timeout_at(Instant::now() + limit, call(connection)).await {
            Ok(result) => result.map_err(|error| (error, id)),
            Err(_) => Err((silent("no response", limit), id)),
        }
    }

    /// Switches the member or the connection after a failure.
    pub(super) async fn switch_member(&self, member: usize, id: Option<ConnectionId>, next: RetryAt) {
        match next {
            RetryAt::SameMember => {}
            RetryAt::NextMember => self.pool.leave(member),
            RetryAt::NewConnection => {
                self.pool.leave(member);
                if let Some(id) = id {
                    self.pool.disconnect(id).await;
                }
            }
        }
    }
}

/// Marks a failed login as "not applied", because the request was not sent. An answer of etcd to the login is kept: a
/// retry gives the same answer.
fn not_sent(error: Error) -> Error {
    match classify(&error) {
        FailureClass::MaybeApplied(_) => Error::EndpointError(describe(&error)),
        FailureClass::NotApplied(_) | FailureClass::Rejected(_) => error,
    }
}

/// Failed attempts of one request.
#[derive(Debug)]
struct RequestAttempts {
    members: usize,
    failed: usize,
    pause: Duration,
    /// The last error of each member.
    reasons: Vec<MemberError>,
}

impl RequestAttempts {
    fn new(members: usize) -> Self {
        Self { members, failed: 0, pause: FIRST_PAUSE, reasons: Vec::new() }
    }

    fn note(&mut self, endpoint: &str, why: String) {
        self.failed += 1;
        self.reasons.retain(|reason| reason.endpoint != endpoint);
        self.reasons.push(MemberError { endpoint: endpoint.to_owned(), why });
    }

    /// Time to wait before the next attempt: none before a member that was not tried yet, and longer after each round.
    fn pause(&mut self, next: RetryAt) -> Duration {
        if next != RetryAt::SameMember && !self.failed.is_multiple_of(self.members.max(1)) {
            return Duration::ZERO;
        }
        let pause = self.pause / 2 + super::pool::jitter(self.pause / 2);
        self.pause = (self.pause * 2).min(LAST_PAUSE);
        pause
    }
}

pub(super) struct EtcdShared {
    pub(super) name: String,
    pub(super) pool: MemberPool,
    pub(super) options: EtcdOptions,
    pub(super) head: Head,
    pub(super) counters: Counters,
    /// Operations, and guards, that a transaction may have.
    pub(super) max_ops: AtomicUsize,
    /// The latest known compaction; 0 if none is known.
    pub(super) compacted: AtomicU64,
    /// Set when the store is dropped: watches end.
    pub(super) closed: watch::Sender<bool>,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) transactions: AtomicU64,
    pub(super) conflicts: AtomicU64,
}

impl fmt::Debug for EtcdShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the pool, which has the password.
        f.debug_struct("Shared").field("name", &self.name).field("head", &self.head).finish_non_exhaustive()
    }
}

impl EtcdShared {
    pub(super) fn new(name: String, pool: MemberPool, options: EtcdOptions) -> Self {
        Self {
            name,
            pool,
            options,
            head: Head::new(),
            counters: Counters::default(),
            max_ops: AtomicUsize::new(MAX_OPS),
            compacted: AtomicU64::new(0),
            closed: watch::Sender::new(false),
        }
    }

    /// Records a compaction.
    pub(super) fn note_compacted(&self, revision: u64) {
        self.compacted.fetch_max(revision, Ordering::Relaxed);
    }

    /// Converts the failure of a request. Callers handle rejections that only their request can get first.
    pub(super) fn error(&self, failure: RequestError) -> StoreError {
        let store = self.name.clone();
        match failure {
            RequestError::Unknown { reasons } => StoreError::Unknown { store, cause: RequestError::cause(&reasons) },
            RequestError::Unavailable { reasons } => {
                StoreError::Unavailable { store, cause: RequestError::cause(&reasons) }
            }
            RequestError::Rejected { rejection: EtcdRejection::NoSpace, why } => StoreError::Full {
                store,
                cause: text_cause(format!(
                    "etcd's quota is exhausted ({why}): compact it (etcdctl compaction --physical), defragment each member (etcdctl defrag), and \
                     disarm the alarm (etcdctl alarm disarm); --quota-backend-bytes sets a larger quota"
                )),
            },
            RequestError::Rejected { rejection: EtcdRejection::Corrupt, why } => {
                StoreError::Corrupt { store, cause: text_cause(why) }
            }
            RequestError::Rejected { rejection: EtcdRejection::Denied, why } => {
                StoreError::Unavailable { store, cause: text_cause(format!("etcd refused the request: {why}")) }
            }
            RequestError::Rejected {
                rejection: EtcdRejection::Compacted | EtcdRejection::FutureRevision | EtcdRejection::LeaseNotFound,
                why,
            } => StoreError::Unavailable { store, cause: text_cause(format!("unexpected response of etcd: {why}")) },
        }
    }

    /// The same for requests with a lease.
    pub(super) fn lease_error(&self, failure: RequestError, lease: LeaseId) -> StoreError {
        if failure.is(EtcdRejection::LeaseNotFound) { StoreError::LeaseEnded { lease } } else { self.error(failure) }
    }
}

/// Converts a revision of etcd, which is signed and never negative.
pub(super) fn revision(of_etcd: i64) -> u64 {
    u64::try_from(of_etcd).unwrap_or(0)
}

/// Converts a revision for etcd.
pub(super) fn for_etcd(Revision(revision): Revision) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}
