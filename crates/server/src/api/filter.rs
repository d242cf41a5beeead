//! Lists that are cut down.

use muster_core::filter::{Filter, FilterError, Keys};
use muster_wire::problem::{Code, Problem};
use serde::Deserialize;
use utoipa::IntoParams;

use super::answer::Refusal;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct FilterQuery {
    /// Which of them: terms such as `role=web,db state!=validated name=web*`, of which all must hold.
    filter: Option<String>,
}

impl FilterQuery {
    pub(crate) fn read(&self, keys: &Keys<'_>) -> Result<Filter, FilterError> {
        Filter::parse(self.filter.as_deref().unwrap_or_default(), keys)
    }
}

impl From<FilterError> for Refusal {
    fn from(error: FilterError) -> Self {
        let hint = error.hint();
        Self(Problem::new(Code::InvalidRequest, error.to_string()).hint(hint))
    }
}
