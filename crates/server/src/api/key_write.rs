//! Conditional writes of one key: `If-Match`, guards and retries.

use axum::http::{HeaderMap, header};
use muster_core::fleet::Fleet;
use muster_core::keys::Keys;
use muster_core::txn::{Guard, Op, Revision, Txn};
use muster_store::{CommitOutcome, StoreError};
use muster_wire::problem::{Problem, ProblemCode};

use crate::api::error::ApiError;
use crate::api::request::Scope;
use crate::app::Writer;
use crate::design::revision::check_writable;

/// So often somebody else may be faster. Whoever sets a condition is refused at the second look.
const TRIES: usize = 5;

/// What is to be written, and what was seen of its key.
pub(super) struct Write<T> {
    pub(super) seen: Option<Revision>,
    /// None if it is as it should be.
    pub(super) op: Option<Op>,
    /// What there is to say about it.
    pub(super) about: T,
}

/// Plans a change, commits it, and waits until the view shows it. Gives what there is to say, and the revision at which it
/// is visible. The plan is made anew when somebody else was faster.
pub(super) async fn write<T>(
    writer: &Writer,
    scope: &Scope,
    plan: impl Fn(&Fleet) -> Result<Write<T>, ApiError>,
) -> Result<(T, Revision), ApiError> {
    let keys = Keys::new(&scope.env);
    let mut unsure: Option<T> = None;
    for _ in 0..TRIES {
        writer.view.reach(writer.latest_revision.read().await?).await?;
        let (planned, at) = scope.ask(writer, |fleet| {
            check_writable(fleet)?;
            Ok::<_, ApiError>((plan(fleet)?, fleet.revision))
        })??;
        let Write { seen, op, about } = planned;
        let Some(op) = op else {
            // The try whose answer was lost was carried out.
            return Ok((unsure.unwrap_or(about), at));
        };
        let going = [keys.destroying(), keys.restoring()].map(|key| Guard::Absent { key });
        let mut txn = Txn::new().guard(Guard::observed(op.key().to_owned(), seen)).op(op);
        txn.guards.extend(going);
        match writer.store.commit(txn).await {
            Ok(CommitOutcome::Committed { revision }) => {
                writer.view.reach(revision).await?;
                return Ok((about, revision));
            }
            Ok(CommitOutcome::Conflict { revision, .. }) => writer.view.reach(revision).await?,
            Err(StoreError::Unknown { .. }) => unsure = Some(about),
            Err(error) => return Err(error.into()),
        }
    }
    let problem = Problem::new(ProblemCode::Conflict, "others change it again and again at the same moment");
    Err(ApiError(problem.hint("look at what is there now, then decide again")))
}

/// What a change expects to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Anything,
    Nothing,
    At(Revision),
}

impl Condition {
    pub(super) fn read(headers: &HeaderMap) -> Result<Self, ApiError> {
        let text = |name: header::HeaderName| match headers.get(&name) {
            None => Ok(None),
            Some(value) => {
                value.to_str().map(Some).map_err(|_| ApiError::invalid(format!("the header {name} is no text")))
            }
        };
        match (text(header::IF_MATCH)?, text(header::IF_NONE_MATCH)?) {
            (None, None) => Ok(Condition::Anything),
            (None, Some("*")) => Ok(Condition::Nothing),
            (Some(etag), None) => {
                let number = etag.trim().trim_start_matches("W/").trim_matches('"').parse();
                let number = number.map_err(|_| ApiError::invalid("If-Match must be the revision of what is there"))?;
                Ok(Condition::At(Revision(number)))
            }
            (None, Some(_)) => Err(ApiError::invalid("If-None-Match is understood as * only: it must not be there")),
            (Some(_), Some(_)) => Err(ApiError::invalid("If-Match and If-None-Match are never both true")),
        }
    }

    /// Refuses if there is something else.
    pub(super) fn check(self, seen: Option<Revision>, refusal: impl FnOnce() -> ApiError) -> Result<(), ApiError> {
        let holds = match self {
            Condition::Anything => true,
            Condition::Nothing => seen.is_none(),
            Condition::At(at) => seen == Some(at),
        };
        if holds { Ok(()) } else { Err(refusal()) }
    }
}
