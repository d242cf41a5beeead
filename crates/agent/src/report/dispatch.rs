//! Which report is sent next, and what an answer means: without a disk, a clock or a server.

use std::time::Duration;

use muster_core::report::Report;
use muster_wire::client::ClientError;
use muster_wire::problem::ProblemCode;
use muster_wire::sync::ReportResult;

use crate::backoff::Backoff;

/// A server that comes back says hello on the stream, and that ends the pause: it can be long.
const RESEND: Backoff = Backoff { first: Duration::from_millis(200), cap: Duration::from_secs(30) };

/// What the sender does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing waits: whoever keeps a report wakes it.
    Sleep,
    /// There is nothing to send it under; the next hello brings an incarnation, and wakes it.
    Hold,
    Send(Box<Report>),
}

/// What is known of a report that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Taken(ReportResult),
    Refused(ProblemCode),
    /// None came, or none that is understood: whether it was taken nobody knows.
    Unknown,
}

impl From<&Result<ReportResult, ClientError>> for Answer {
    fn from(answer: &Result<ReportResult, ClientError>) -> Self {
        match answer {
            Ok(taken) => Answer::Taken(*taken),
            Err(error) => error.problem().map_or(Answer::Unknown, |problem| Answer::Refused(problem.code)),
        }
    }
}

/// What to do with a report after it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Forget,
    /// It is older than what the server knows: it is sent again under another incarnation.
    Renew,
    /// It is so still: nothing is left to try, and those behind it wait.
    GiveUp,
    /// The server did not take it, and never will.
    PutAside,
    /// It is sent again later.
    Keep,
}

/// The sender's own memory. None of it outlives the agent: after a restart the first report is sent again, as new.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dispatch {
    /// How often in a row nothing got out of the way.
    attempt: u32,
    /// The number of the last report for which another incarnation was asked for.
    renewed_for: Option<u64>,
}

impl Dispatch {
    /// What goes next. `first` is the report with the lowest number of those that wait, and `incarnation` what the server has
    /// given last: none as long as another one is asked for.
    pub fn next(&mut self, first: Option<&Report>, incarnation: Option<u64>) -> Next {
        match (first, incarnation) {
            (None, _) => {
                self.attempt = 0;
                Next::Sleep
            }
            (Some(_), None) => {
                self.failed();
                Next::Hold
            }
            (Some(report), Some(incarnation)) => Next::Send(Box::new(Report { incarnation, ..report.clone() })),
        }
    }

    /// What becomes of the report that was sent.
    pub fn answered(&mut self, seq: u64, answer: Answer) -> Fate {
        let fate = fate(answer, self.renewed_for == Some(seq));
        match fate {
            Fate::Forget | Fate::GiveUp | Fate::PutAside => self.attempt = 0,
            Fate::Renew => {
                self.renewed_for = Some(seq);
                self.failed();
            }
            Fate::Keep => self.failed(),
        }
        fate
    }

    /// It could not even be tried, or what came of it could not be noted.
    pub fn failed(&mut self) {
        self.attempt = self.attempt.saturating_add(1);
    }

    /// Whether this is the first time since something got out of the way.
    pub fn is_first(&self) -> bool {
        self.attempt <= 1
    }

    /// How long to wait before the next one, if nobody wakes the sender earlier; none: not at all.
    pub fn pause(&self, chance: f64) -> Option<Duration> {
        (self.attempt > 0).then(|| RESEND.pause(self.attempt, chance))
    }
}

/// What becomes of a report, by the server's answer. A report that is older than what the server knows is sent again
/// under a new incarnation, once: the server forgets the numbers of the life before, so what this agent says now is new.
pub fn fate(answer: Answer, renewed: bool) -> Fate {
    let code = match answer {
        Answer::Taken(ReportResult::Applied | ReportResult::AlreadyApplied) => return Fate::Forget,
        Answer::Taken(ReportResult::Outdated) if renewed => return Fate::GiveUp,
        Answer::Taken(ReportResult::Outdated) => return Fate::Renew,
        Answer::Refused(code) => code,
        Answer::Unknown => return Fate::Keep,
    };
    match code {
        // It would be said again of the same report for ever, and those behind it would wait for ever.
        ProblemCode::InvalidRequest | ProblemCode::UnknownVersion | ProblemCode::UnknownRun | ProblemCode::TooLarge => {
            Fate::PutAside
        }
        // The design, the environment or the store may still come.
        ProblemCode::UnknownEnvironment
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
        | ProblemCode::RemovesAll
        | ProblemCode::NotAsExpected
        | ProblemCode::DesignRefused
        | ProblemCode::DesignUnreadable
        | ProblemCode::UnknownBundle
        | ProblemCode::ReleaseRefused
        | ProblemCode::ReleaseTaken
        | ProblemCode::ReleaseUnreadable
        | ProblemCode::RangeNotSatisfiable
        | ProblemCode::Busy
        | ProblemCode::NotFound
        | ProblemCode::Conflict
        | ProblemCode::CannotTell
        | ProblemCode::StoreUnavailable
        | ProblemCode::StoreFull
        | ProblemCode::Internal => Fate::Keep,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::testing::report;

    #[test]
    fn what_an_answer_means() {
        for (answer, fate) in [
            (Answer::Taken(ReportResult::Applied), Fate::Forget),
            (Answer::Taken(ReportResult::AlreadyApplied), Fate::Forget),
            (Answer::Refused(ProblemCode::TooLarge), Fate::PutAside),
            (Answer::Refused(ProblemCode::StoreUnavailable), Fate::Keep),
            (Answer::Unknown, Fate::Keep),
        ] {
            assert_eq!(Dispatch::default().answered(1, answer), fate, "{answer:?}");
        }
    }

    #[test]
    fn an_outdated_report_is_sent_once_more_under_another_incarnation() {
        let mut dispatch = Dispatch::default();
        let outdated = Answer::Taken(ReportResult::Outdated);
        assert_eq!(dispatch.answered(7, outdated), Fate::Renew);
        assert_eq!(dispatch.next(Some(&report(7)), None), Next::Hold, "the other one has not come yet");
        assert!(matches!(dispatch.next(Some(&report(7)), Some(4)), Next::Send(report) if report.incarnation == 4));
        assert_eq!(dispatch.answered(7, outdated), Fate::GiveUp);
        assert_eq!(dispatch.answered(8, outdated), Fate::Renew, "another report is another try");
    }

    #[test]
    fn pauses_grow_as_long_as_nothing_gets_out_of_the_way() {
        let mut dispatch = Dispatch::default();
        assert_eq!(dispatch.pause(0.5), None);
        let mut pauses = Vec::new();
        for _ in 0..3 {
            dispatch.answered(1, Answer::Unknown);
            pauses.extend(dispatch.pause(0.5));
        }
        assert_eq!(pauses, [200, 400, 800].map(Duration::from_millis));
        dispatch.answered(1, Answer::Taken(ReportResult::Applied));
        assert_eq!(dispatch.pause(0.5), None);
        dispatch.failed();
        assert_eq!(dispatch.next(None, Some(1)), Next::Sleep);
        assert_eq!(dispatch.pause(0.5), None, "nothing waits");
    }
}
