//! Errors of a command: the message, the hints, and the exit code.

use std::io;
use std::process::ExitCode;

use muster_wire::client::ClientError;
use muster_wire::problem::ProblemCode;

use muster_design::finding::{Finding, Findings};
use muster_wire::output::{CommandError, ErrorOutput, SCHEMA};

use crate::output::count;

/// Exit code of a command. Scripts can distinguish "no" from "unknown".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Success, or the answer is yes.
    Yes,
    /// Failure, or the answer is no.
    No,
    /// The server cannot be reached, is not up to date, or did not report the result of a request.
    CannotTell,
    /// `--detailed-exitcode`: there are changes to apply.
    Changes,
    /// Ctrl-C was pressed; the code is the one that shells use.
    Interrupted,
    /// Usage error; the code is EX_USAGE of sysexits.h.
    Usage,
}

impl Exit {
    pub fn code(self) -> u8 {
        match self {
            Exit::Yes => 0,
            Exit::No => 1,
            Exit::CannotTell => 2,
            Exit::Changes => 3,
            Exit::Usage => 64,
            Exit::Interrupted => 130,
        }
    }

    pub fn yes_if(condition: bool) -> Self {
        if condition { Exit::Yes } else { Exit::No }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// The error of a command.
#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    /// The message; it is printed with all of its causes.
    pub error: anyhow::Error,
    /// Actions that resolve it.
    pub hints: Vec<String>,
    /// Findings of a server.
    pub findings: Vec<Finding>,
    /// Kind of problem, if a server has refused the request.
    pub code: Option<ProblemCode>,
}

impl Failure {
    pub fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self { exit, error: error.into(), hints: Vec::new(), findings: Vec::new(), code: None }
    }

    /// A definite failure: exit code 1.
    pub fn failed(error: impl Into<anyhow::Error>) -> Self {
        Self::new(Exit::No, error)
    }

    pub fn cannot_tell(error: impl Into<anyhow::Error>) -> Self {
        Self::new(Exit::CannotTell, error)
    }

    /// An error of a file or directory on the command line. One that does not exist, or is of the wrong kind, is a usage error.
    pub fn argument(error: impl Into<anyhow::Error>) -> Self {
        let error = error.into();
        let is_usage = |cause: &(dyn std::error::Error + 'static)| {
            let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
            kind.is_some_and(|kind| {
                matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory)
            })
        };
        let exit = if error.chain().any(is_usage) { Exit::Usage } else { Exit::No };
        Self::new(exit, error)
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, anyhow::Error::msg(message.into()))
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// For commands whose exit code 1 is the answer "no": a failure to ask becomes exit code 2.
    #[must_use]
    pub fn as_cannot_tell(mut self) -> Self {
        if self.exit == Exit::No {
            self.exit = Exit::CannotTell;
        }
        self
    }
}

/// Form of the error for `-o json`.
impl From<&Failure> for ErrorOutput {
    fn from(failure: &Failure) -> Self {
        let of_design = failure.error.downcast_ref::<Findings>();
        let findings: Vec<Finding> = of_design.into_iter().flatten().chain(&failure.findings).cloned().collect();
        let message = match of_design {
            Some(_) => count(findings.len(), "finding"),
            None => failure.error.to_string(),
        };
        let causes = failure.error.chain().skip(1).map(ToString::to_string).collect();
        let (hints, code, exit_code) = (failure.hints.clone(), failure.code, failure.exit.code());
        Self { schema: SCHEMA, error: CommandError { message, causes, hints, code, findings, exit_code } }
    }
}

impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Self {
        // A message, and paragraphs with suggestions and the usage.
        let text = error.render().to_string();
        let mut paragraphs = text.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty());
        let message = paragraphs.next().unwrap_or_default().trim_start_matches("error: ");
        paragraphs.fold(Self::usage(message), Failure::hint)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Address(_) | ClientError::TokenNotSent(_) | ClientError::NoRoots(_) => {
                Self::new(Exit::Usage, error)
            }
            // The server may have processed the request before the connection was lost.
            ClientError::Unreachable { .. }
            | ClientError::Disconnected { .. }
            | ClientError::NotUnderstood { .. }
            | ClientError::Stream(_) => Self::cannot_tell(error),
            ClientError::Refused(problem) => {
                let exit = refusal_exit(problem.code);
                // Findings have help texts of their own.
                let hints = problem.hint.iter().filter(|_| problem.findings.is_empty()).cloned().collect();
                let text = match (&problem.request_id, problem.code) {
                    // Only these need a look into the log of the server.
                    (Some(id), ProblemCode::Internal | ProblemCode::StoreUnavailable | ProblemCode::StoreFull) => {
                        format!("{} (request {id} in the server's log)", problem.detail)
                    }
                    _ => problem.detail,
                };
                let (findings, code) = (problem.findings.into_vec(), Some(problem.code));
                Self { exit, error: anyhow::Error::msg(text), hints, findings, code }
            }
        }
    }
}

/// The exit code for a request that the server refused.
fn refusal_exit(code: ProblemCode) -> Exit {
    match code {
        ProblemCode::InvalidFilter => Exit::Usage,
        ProblemCode::InvalidRequest
        | ProblemCode::Unauthenticated
        | ProblemCode::Forbidden
        | ProblemCode::JoinRefused
        | ProblemCode::NoPlace
        | ProblemCode::CertificateRefused
        | ProblemCode::UnknownIdentity
        | ProblemCode::UnknownUser
        | ProblemCode::TooManyAttempts
        | ProblemCode::UnsupportedMediaType
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
        | ProblemCode::MethodNotAllowed
        | ProblemCode::IdempotencyKeyReused
        | ProblemCode::Conflict
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
        | ProblemCode::TooLarge
        | ProblemCode::DesignRefused
        | ProblemCode::UnknownBundle
        | ProblemCode::ReleaseRefused
        | ProblemCode::ReleaseTaken
        | ProblemCode::RangeNotSatisfiable
        | ProblemCode::UploadsFull
        | ProblemCode::DuplicateAgent
        | ProblemCode::IncompatibleAgent
        | ProblemCode::StoreFull => Exit::No,
        ProblemCode::Busy
        | ProblemCode::AlreadyExecuted
        | ProblemCode::CannotTell
        | ProblemCode::StoreUnavailable
        | ProblemCode::Internal
        | ProblemCode::ReleaseUnreadable
        | ProblemCode::DesignUnreadable => Exit::CannotTell,
    }
}
