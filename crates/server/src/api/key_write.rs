//! Conditional writes: `If-Match`, guards and retries.

use axum::http::{HeaderMap, header};
use muster_core::fleet::Fleet;
use muster_core::keys::Keys;
use muster_core::txn::{Guard, Op, Revision, Txn};
use muster_wire::problem::{Problem, ProblemCode};

use crate::api::error::ApiError;
use crate::api::request::Scope;
use crate::app::Writer;
use crate::design::revision::check_writable;
use crate::transactions::{ConflictRetry, commit_all};

/// Attempts of one write. A write with a condition fails at its second attempt anyway.
const ATTEMPTS: usize = 5;

/// A planned write, and the revision of its key that the plan was made on.
pub(super) struct PlannedWrite<T> {
    pub(super) seen: Option<Revision>,
    /// None if the key already has the value.
    pub(super) op: Option<Op>,
    /// Result for the caller.
    pub(super) about: T,
}

/// A planned transaction, guarded by everything that the plan was made on.
pub(super) struct PlannedTxn<T> {
    /// None if there is nothing to write.
    pub(super) txn: Option<Txn>,
    /// Result for the caller.
    pub(super) about: T,
}

/// Plans a write, commits it, and waits until the view shows it. Plans again after a conflict.
///
/// Returns the plan's result and the revision at which the write is visible.
pub(super) async fn write<T>(
    writer: &Writer,
    scope: &Scope,
    plan: impl Fn(&Fleet) -> Result<PlannedWrite<T>, ApiError>,
) -> Result<(T, Revision), ApiError> {
    let guarded = |seen, op: Op| Txn::new().guard(Guard::observed(op.key().to_owned(), seen)).op(op);
    write_txn(writer, scope, |fleet| {
        let PlannedWrite { seen, op, about } = plan(fleet)?;
        Ok(PlannedTxn { txn: op.map(|op| guarded(seen, op)), about })
    })
    .await
}

/// Like [`write`], for a transaction of several keys.
pub(super) async fn write_txn<T>(
    writer: &Writer,
    scope: &Scope,
    plan: impl Fn(&Fleet) -> Result<PlannedTxn<T>, ApiError>,
) -> Result<(T, Revision), ApiError> {
    let keys = Keys::new(&scope.env);
    let mut unconfirmed: Option<T> = None;
    let mut retry = ConflictRetry::new(ATTEMPTS);
    while retry.begin_attempt() {
        writer.view.reach(writer.latest_revision.read().await?).await?;
        let (planned, at) = scope.read(writer, |fleet| {
            check_writable(fleet)?;
            Ok::<_, ApiError>((plan(fleet)?, fleet.revision))
        })??;
        let PlannedTxn { txn, about } = planned;
        let Some(mut txn) = txn else {
            // The attempt whose reply was lost was committed.
            return Ok((unconfirmed.take().unwrap_or(about), at));
        };
        txn.guards.extend([keys.destroying(), keys.restoring()].map(|key| Guard::Absent { key }));
        let committed = commit_all(writer, vec![txn]).await?;
        writer.view.reach(committed.revision).await?;
        if committed.complete {
            return Ok((about, committed.revision));
        }
        if committed.unknown {
            unconfirmed = Some(about);
        }
    }
    let detail = format!("conflict: other clients changed it {ATTEMPTS} times during this request");
    Err(ApiError(Problem::new(ProblemCode::Conflict, detail).hint("read the current value, then decide again")))
}

/// Precondition of a write.
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
                value.to_str().map(Some).map_err(|_| ApiError::invalid(format!("the header {name} is not valid text")))
            }
        };
        match (text(header::IF_MATCH)?, text(header::IF_NONE_MATCH)?) {
            (None, None) => Ok(Condition::Anything),
            (None, Some("*")) => Ok(Condition::Nothing),
            (Some(etag), None) => {
                let number = etag.trim().trim_start_matches("W/").trim_matches('"').parse();
                let number = number.map_err(|_| ApiError::invalid("If-Match must be a revision, as in the ETag"))?;
                Ok(Condition::At(Revision(number)))
            }
            (None, Some(_)) => Err(ApiError::invalid("If-None-Match supports only *: it must not exist")),
            (Some(_), Some(_)) => Err(ApiError::invalid("If-Match and If-None-Match are never both true")),
        }
    }

    /// Fails with `refusal` if the precondition does not hold.
    pub(super) fn check(self, seen: Option<Revision>, refusal: impl FnOnce() -> ApiError) -> Result<(), ApiError> {
        let holds = match self {
            Condition::Anything => true,
            Condition::Nothing => seen.is_none(),
            Condition::At(at) => seen == Some(at),
        };
        if holds { Ok(()) } else { Err(refusal()) }
    }
}
