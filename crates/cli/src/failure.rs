//! Whatever keeps a command from its answer: what happened, what to do, and the exit code that follows.

use muster_wire::client::ClientError;
use muster_wire::problem::ProblemCode;

use crate::exit::Exit;
use crate::terminal::styled;

/// A command that did not get its answer.
#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    /// What happened. Its whole chain is printed.
    pub error: anyhow::Error,
    /// What to do about it.
    pub hints: Vec<String>,
    /// What a server has found in a design, ready to be printed.
    pub findings: Vec<String>,
}

impl Failure {
    pub fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self { exit, error: error.into(), hints: Vec::new(), findings: Vec::new() }
    }

    /// Done for, and it is known that it is: exit code 1.
    pub fn failed(error: impl Into<anyhow::Error>) -> Self {
        Self::new(Exit::No, error)
    }

    pub fn cannot_tell(error: impl Into<anyhow::Error>) -> Self {
        Self::new(Exit::CannotTell, error)
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, anyhow::Error::msg(message.into()))
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// For commands whose exit code 1 is the answer "no": what kept them from asking is not that answer.
    #[must_use]
    pub fn unanswered(mut self) -> Self {
        if self.exit == Exit::No {
            self.exit = Exit::CannotTell;
        }
        self
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Address(_) => Self::new(Exit::Usage, error),
            // What the server did before it fell silent is not known.
            ClientError::Unreachable { .. } | ClientError::NotUnderstood { .. } | ClientError::Stream(_) => {
                Self::cannot_tell(error)
            }
            ClientError::Refused(problem) => {
                let exit = match problem.code {
                    ProblemCode::InvalidRequest
                    | ProblemCode::UnknownEnvironment
                    | ProblemCode::UnknownNode
                    | ProblemCode::UnknownVersion
                    | ProblemCode::UnknownRole
                    | ProblemCode::UnknownDatum
                    | ProblemCode::UnknownRun
                    | ProblemCode::UnknownDocument
                    | ProblemCode::UnknownKind
                    | ProblemCode::UnknownDesignRevision
                    | ProblemCode::NotFound
                    | ProblemCode::Conflict
                    | ProblemCode::Destroying
                    | ProblemCode::PlanOutdated
                    | ProblemCode::UnknownRollout
                    | ProblemCode::RolloutUnderWay
                    | ProblemCode::RolloutRefused
                    | ProblemCode::OlderRelease
                    | ProblemCode::UntrustsCurrent
                    | ProblemCode::RemovesAll
                    | ProblemCode::NotAsExpected
                    | ProblemCode::TooLarge
                    | ProblemCode::DesignRefused
                    | ProblemCode::UnknownBundle
                    | ProblemCode::ReleaseRefused
                    | ProblemCode::ReleaseTaken
                    | ProblemCode::RangeNotSatisfiable
                    | ProblemCode::StoreFull => Exit::No,
                    ProblemCode::Busy
                    | ProblemCode::CannotTell
                    | ProblemCode::StoreUnavailable
                    | ProblemCode::Internal
                    | ProblemCode::ReleaseUnreadable
                    | ProblemCode::DesignUnreadable => Exit::CannotTell,
                };
                let findings: Vec<String> = problem.findings.iter().map(styled).collect();
                // Findings say themselves what to do.
                let hints = problem.hint.iter().filter(|_| findings.is_empty()).cloned().collect();
                let text = match (&problem.request_id, problem.code) {
                    // Only these need somebody to look into the server's log.
                    (Some(id), ProblemCode::Internal | ProblemCode::StoreUnavailable | ProblemCode::StoreFull) => {
                        format!("{} (request {id} in the server's log)", problem.detail)
                    }
                    _ => problem.detail,
                };
                Self { exit, error: anyhow::Error::msg(text), hints, findings }
            }
        }
    }
}
