//! Lists in pages.

use muster_core::txn::Revision;
use muster_wire::operator::Page;
use muster_wire::problem::{Code, Problem};
use serde::Deserialize;
use utoipa::IntoParams;

use super::answer::Refusal;

/// How many items a page holds if nobody says. Large: reads cost no store access, and 5,000 rows are one megabyte.
const LIMIT: usize = 10_000;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageQuery {
    /// How many items at most.
    limit: Option<usize>,
    /// The `next` of the page before.
    after: Option<String>,
}

impl PageQuery {
    /// Cuts a page out of all items; `name` is what a page is continued after.
    pub(crate) fn cut<T>(
        &self,
        items: Vec<T>,
        revision: Revision,
        name: impl Fn(&T) -> String,
    ) -> Result<Page<T>, Refusal> {
        let limit = self.limit.unwrap_or(LIMIT).clamp(1, LIMIT);
        let start = match &self.after {
            None => 0,
            Some(after) => match items.iter().position(|item| name(item) == *after) {
                Some(at) => at + 1,
                None => {
                    let problem = Problem::new(Code::InvalidRequest, format!("there is no {after:?} to go on after"));
                    return Err(Refusal(problem.hint("the list has changed: begin with its first page again")));
                }
            },
        };
        let more = items.len() > start + limit;
        let items: Vec<T> = items.into_iter().skip(start).take(limit).collect();
        let next = if more { items.last().map(&name) } else { None };
        Ok(Page { items, next, revision })
    }
}
