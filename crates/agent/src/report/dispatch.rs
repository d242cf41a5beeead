//! Selects the next report to send and interprets the server's answers, without IO.

use std::time::Duration;

use muster_core::report::Report;
use muster_wire::client::ClientError;
use muster_wire::problem::ProblemCode;
use muster_wire::sync::ReportResult;

use crate::backoff::RetryBackoff;
use crate::report::unsent::UnsentReport;

/// The pause can be long, because a hello on a new stream ends it.
const RESEND: RetryBackoff = RetryBackoff { first: Duration::from_millis(200), cap: Duration::from_secs(30) };

/// The next step of the report sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextSend {
    /// The outbox is empty. The queue wakes the sender with the next report.
    Idle,
    /// There is no incarnation to send under. The next hello sets it and wakes the sender.
    NoIncarnation,
    Send(Box<Report>),
}

/// The server's answer to a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerAnswer {
    Taken(ReportResult),
    Refused(ProblemCode),
    /// No answer, or none that could be parsed: the report may have been accepted.
    Unknown,
}

impl From<&Result<ReportResult, ClientError>> for ServerAnswer {
    fn from(answer: &Result<ReportResult, ClientError>) -> Self {
        match answer {
            Ok(taken) => ServerAnswer::Taken(*taken),
            Err(error) => error.problem().map_or(ServerAnswer::Unknown, |problem| ServerAnswer::Refused(problem.code)),
        }
    }
}

/// Action of the sender after it sent a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportDisposition {
    /// Remove it: the server has it.
    Remove,
    /// Send it again under a new incarnation: the server has a newer report.
    RenewIncarnation,
    /// Drop it: it is outdated also under a new incarnation.
    Drop,
    /// Move it to `refused`: no server will accept it.
    Refuse,
    /// Send it again later.
    Retry,
}

/// State of the report sender. It is not stored: after a restart the first report is sent again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dispatch {
    /// Failed attempts in a row.
    attempt: u32,
    /// Sequence number of the last report that led to a request for a new incarnation.
    renewed_for: Option<u64>,
}

impl Dispatch {
    /// The next step. `first` is the report with the lowest sequence number in the outbox. `incarnation` is the one that the
    /// server assigned last; `None` while a new one is requested.
    pub fn next(&mut self, first: Option<&UnsentReport>, incarnation: Option<u64>) -> NextSend {
        match (first, incarnation) {
            (None, _) => {
                self.attempt = 0;
                NextSend::Idle
            }
            (Some(_), None) => {
                self.failed();
                NextSend::NoIncarnation
            }
            (Some(report), Some(incarnation)) => NextSend::Send(Box::new(report.clone().with_incarnation(incarnation))),
        }
    }

    /// Handles the answer to a report.
    pub fn answered(&mut self, seq: u64, answer: ServerAnswer) -> ReportDisposition {
        let disposition = disposition(answer, self.renewed_for == Some(seq));
        match disposition {
            ReportDisposition::Remove | ReportDisposition::Drop | ReportDisposition::Refuse => self.attempt = 0,
            ReportDisposition::RenewIncarnation => {
                self.renewed_for = Some(seq);
                self.failed();
            }
            ReportDisposition::Retry => self.failed(),
        }
        disposition
    }

    /// Counts an attempt that failed before or after sending.
    pub fn failed(&mut self) {
        self.attempt = self.attempt.saturating_add(1);
    }

    /// True for the first failure in a row.
    pub fn is_first_failure(&self) -> bool {
        self.attempt <= 1
    }

    /// Backoff before the next attempt, unless the sender is woken earlier.
    pub fn pause(&self, chance: f64) -> Option<Duration> {
        (self.attempt > 0).then(|| RESEND.pause(self.attempt, chance))
    }
}

/// Decides by the server's answer. An outdated report is sent once more under a new incarnation, in which sequence
/// numbers of the old one do not count.
pub fn disposition(answer: ServerAnswer, renewed: bool) -> ReportDisposition {
    let code = match answer {
        ServerAnswer::Taken(ReportResult::Applied | ReportResult::AlreadyApplied) => return ReportDisposition::Remove,
        ServerAnswer::Taken(ReportResult::Outdated) if renewed => return ReportDisposition::Drop,
        ServerAnswer::Taken(ReportResult::Outdated) => return ReportDisposition::RenewIncarnation,
        ServerAnswer::Refused(code) => code,
        ServerAnswer::Unknown => return ReportDisposition::Retry,
    };
    match code {
        // The answer would always be the same, and the report would block all later ones.
        ProblemCode::InvalidRequest
        | ProblemCode::InvalidFilter
        | ProblemCode::UnknownVersion
        | ProblemCode::UnknownRun
        | ProblemCode::TooLarge => ReportDisposition::Refuse,
        // The design, the environment or the store may become available, and the token may be corrected.
        ProblemCode::Unauthenticated
        | ProblemCode::JoinRefused
        | ProblemCode::NoPlace
        | ProblemCode::CertificateRefused
        | ProblemCode::UnknownIdentity
        | ProblemCode::UnknownUser
        | ProblemCode::TooManyAttempts
        | ProblemCode::Forbidden
        | ProblemCode::UnsupportedMediaType
        | ProblemCode::UnknownEnvironment
        | ProblemCode::UnknownNode
        | ProblemCode::UnknownRole
        | ProblemCode::UnknownDatum
        | ProblemCode::UnknownDocument
        | ProblemCode::UnknownKind
        | ProblemCode::UnknownDesignRevision
        | ProblemCode::Destroying
        | ProblemCode::PlanOutdated
        | ProblemCode::UnknownRollout
        | ProblemCode::RolloutUnderWay
        | ProblemCode::RolloutRefused
        | ProblemCode::OlderRelease
        | ProblemCode::UntrustsCurrent
        | ProblemCode::PolicyRefused
        | ProblemCode::SecretsUnavailable
        | ProblemCode::RemovesAll
        | ProblemCode::NotAsExpected
        | ProblemCode::DesignRefused
        | ProblemCode::DesignUnreadable
        | ProblemCode::UnknownBundle
        | ProblemCode::ReleaseRefused
        | ProblemCode::ReleaseTaken
        | ProblemCode::ReleaseUnreadable
        | ProblemCode::RangeNotSatisfiable
        | ProblemCode::UploadsFull
        | ProblemCode::Busy
        | ProblemCode::DuplicateAgent
        | ProblemCode::IncompatibleAgent
        | ProblemCode::NotFound
        | ProblemCode::MethodNotAllowed
        | ProblemCode::IdempotencyKeyReused
        | ProblemCode::AlreadyExecuted
        | ProblemCode::Conflict
        | ProblemCode::CannotTell
        | ProblemCode::StoreUnavailable
        | ProblemCode::StoreFull
        | ProblemCode::Internal => ReportDisposition::Retry,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::testing::report;

    #[test]
    fn answers_map_to_dispositions() {
        for (answer, expected) in [
            (ServerAnswer::Taken(ReportResult::Applied), ReportDisposition::Remove),
            (ServerAnswer::Taken(ReportResult::AlreadyApplied), ReportDisposition::Remove),
            (ServerAnswer::Refused(ProblemCode::TooLarge), ReportDisposition::Refuse),
            (ServerAnswer::Refused(ProblemCode::StoreUnavailable), ReportDisposition::Retry),
            (ServerAnswer::Unknown, ReportDisposition::Retry),
        ] {
            assert_eq!(Dispatch::default().answered(1, answer), expected, "{answer:?}");
        }
    }

    #[test]
    fn outdated_report_is_sent_again_under_a_new_incarnation() {
        let mut dispatch = Dispatch::default();
        let outdated = ServerAnswer::Taken(ReportResult::Outdated);
        assert_eq!(dispatch.answered(7, outdated), ReportDisposition::RenewIncarnation);
        assert_eq!(dispatch.next(Some(&report(7)), None), NextSend::NoIncarnation, "the new one is not assigned yet");
        assert!(matches!(dispatch.next(Some(&report(7)), Some(4)), NextSend::Send(report) if report.incarnation == 4));
        assert_eq!(dispatch.answered(7, outdated), ReportDisposition::Drop);
        assert_eq!(dispatch.answered(8, outdated), ReportDisposition::RenewIncarnation, "another report");
    }

    #[test]
    fn pauses_grow_until_a_report_is_accepted() {
        let mut dispatch = Dispatch::default();
        assert_eq!(dispatch.pause(0.5), None);
        let mut pauses = Vec::new();
        for _ in 0..3 {
            dispatch.answered(1, ServerAnswer::Unknown);
            pauses.extend(dispatch.pause(0.5));
        }
        assert_eq!(pauses, [200, 400, 800].map(Duration::from_millis));
        dispatch.answered(1, ServerAnswer::Taken(ReportResult::Applied));
        assert_eq!(dispatch.pause(0.5), None);
        dispatch.failed();
        assert_eq!(dispatch.next(None, Some(1)), NextSend::Idle);
        assert_eq!(dispatch.pause(0.5), None, "the outbox is empty");
    }
}
