//! `If-Match` and `If-None-Match` for what is one key of the store: its etag is the revision at which it was changed.

use axum::http::{HeaderMap, header};
use muster_core::txn::Revision;

use super::answer::Refusal;

/// What a change expects to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Anything,
    Nothing,
    At(Revision),
}

impl Condition {
    pub(super) fn read(headers: &HeaderMap) -> Result<Self, Refusal> {
        let text = |name: header::HeaderName| match headers.get(&name) {
            None => Ok(None),
            Some(value) => {
                value.to_str().map(Some).map_err(|_| Refusal::invalid(format!("the header {name} is no text")))
            }
        };
        match (text(header::IF_MATCH)?, text(header::IF_NONE_MATCH)?) {
            (None, None) => Ok(Condition::Anything),
            (None, Some("*")) => Ok(Condition::Nothing),
            (Some(etag), None) => {
                let number = etag.trim().trim_start_matches("W/").trim_matches('"').parse();
                let number = number.map_err(|_| Refusal::invalid("If-Match must be the revision of what is there"))?;
                Ok(Condition::At(Revision(number)))
            }
            (None, Some(_)) => Err(Refusal::invalid("If-None-Match is understood as * only: it must not be there")),
            (Some(_), Some(_)) => Err(Refusal::invalid("If-Match and If-None-Match are never both true")),
        }
    }

    /// Refuses if there is something else.
    pub(super) fn check(self, seen: Option<Revision>, refusal: impl FnOnce() -> Refusal) -> Result<(), Refusal> {
        let holds = match self {
            Condition::Anything => true,
            Condition::Nothing => seen.is_none(),
            Condition::At(at) => seen == Some(at),
        };
        if holds { Ok(()) } else { Err(refusal()) }
    }
}
