//! Converts design errors to HTTP error responses (RFC 9457 problems).

use muster_design::finding::{Findings, Severity};
use muster_wire::problem::{Problem, ProblemCode};

use crate::api::error::{ApiError, chain};
use crate::design::apply::ApplyError;
use crate::design::compiled::ReadDesignError;
use crate::design::edit::{CurrentDocument, EditError};
use crate::design::revision::RevisionError;

impl From<ReadDesignError> for ApiError {
    fn from(error: ReadDesignError) -> Self {
        let text = chain(&error);
        match error {
            ReadDesignError::None { .. } => {
                let problem = Problem::new(ProblemCode::UnknownDesignRevision, text);
                Self(problem.hint("`muster env apply` creates it from a directory of documents, PUT from a single one"))
            }
            ReadDesignError::Unknown { newest, .. } => {
                let problem = Problem::new(ProblemCode::UnknownDesignRevision, text);
                Self(match newest {
                    Some(newest) => problem.hint(format!("the newest is {newest}")),
                    None => problem,
                })
            }
            ReadDesignError::Tree { .. } => {
                let problem = Problem::new(ProblemCode::DesignUnreadable, text);
                Self(problem.hint("restore the server's blob directory, or restore a backup"))
            }
            ReadDesignError::CutOff => Self::stopping(),
        }
    }
}

impl From<RevisionError> for ApiError {
    fn from(error: RevisionError) -> Self {
        let text = chain(&error);
        match error {
            RevisionError::Restoring { .. } => {
                Self(Problem::new(ProblemCode::CannotTell, text).hint("retry when it is done"))
            }
            RevisionError::Destroying { .. } => {
                Self(Problem::new(ProblemCode::Destroying, text).hint("create it again when it is gone"))
            }
            RevisionError::Blobs(error) if error.kind() == std::io::ErrorKind::StorageFull => {
                Self(Problem::new(ProblemCode::StoreFull, text).hint("free some space on the server's disk"))
            }
            RevisionError::Blobs(_) => Self(Problem::new(ProblemCode::StoreUnavailable, text)),
            RevisionError::Store(error) => error.into(),
            RevisionError::Record(_) => Self(Problem::new(ProblemCode::Internal, text)),
            RevisionError::StaleView(behind) => behind.into(),
            RevisionError::CutOff => Self::stopping(),
        }
    }
}

impl From<ApplyError> for ApiError {
    fn from(error: ApplyError) -> Self {
        let text = chain(&error);
        match error {
            ApplyError::Input(error) => Self::invalid(error.to_string()),
            ApplyError::Read(error) => error.into(),
            ApplyError::Revision(error) => error.into(),
            ApplyError::Findings(findings) => refused(&findings),
            ApplyError::GateCommand(_) => Self::invalid(text),
            ApplyError::StalePlan(_) => {
                Self(Problem::new(ProblemCode::PlanOutdated, text).hint("plan again, review the plan, and apply it"))
            }
            ApplyError::RemovesAll { env, .. } => {
                let hint = format!(
                    "check that this is the right directory; `muster env destroy {env}` destroys the environment, \
                     and --remove-all (`remove_all` in the API) removes only its nodes"
                );
                Self(Problem::new(ProblemCode::RemovesAll, text).hint(hint))
            }
            ApplyError::Nothing { .. } => Self(Problem::new(ProblemCode::UnknownDesignRevision, text)),
            ApplyError::Contended { .. } => Self(Problem::new(ProblemCode::Conflict, text).hint("try again")),
        }
    }
}

impl From<EditError> for ApiError {
    fn from(error: EditError) -> Self {
        let text = error.to_string();
        match error {
            EditError::Name(_) | EditError::Twice { .. } | EditError::Unwritable => Self::invalid(text),
            EditError::Unknown { .. } => Self(Problem::new(ProblemCode::UnknownDocument, text)),
            EditError::Generated { .. } => {
                Self(Problem::new(ProblemCode::Conflict, text).hint("change the number of nodes of its role there"))
            }
            EditError::OtherSource { source_name, .. } => {
                let hint = format!(
                    "change it in {source_name} and apply that; or PUT a document with \"overlay: true\", which overrides it"
                );
                Self(Problem::new(ProblemCode::Conflict, text).hint(hint))
            }
            EditError::NotAsExpected { found, .. } => {
                let mut problem = Problem::new(ProblemCode::NotAsExpected, text);
                problem.current = match found {
                    CurrentDocument::Nothing => None,
                    CurrentDocument::Etag(etag) => Some(Box::new(serde_json::json!({ "etag": etag }))),
                };
                Self(problem.hint("read the current document, then decide again"))
            }
        }
    }
}

/// Problem of a design with errors. It carries all findings.
pub(super) fn refused(findings: &Findings) -> ApiError {
    let errors = findings.iter().filter(|finding| finding.severity == Severity::Error);
    let count = errors.clone().count();
    let first = errors.map(|finding| &finding.message).next();
    let detail = match (count, first) {
        (1, Some(first)) => format!("the design has an error; nothing was accepted: {first}"),
        (_, Some(first)) => {
            format!("the design has {count} errors; nothing was accepted; the first: {first}")
        }
        (_, None) => "the design has errors; nothing was accepted".to_owned(),
    };
    let mut problem = Problem::new(ProblemCode::DesignRefused, detail);
    problem.findings = findings.to_vec().into();
    ApiError(problem.hint("`findings` says where, and what to do"))
}
