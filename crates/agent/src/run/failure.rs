//! How a streak of failures began. The last error is in the last report; the first one is often the one that matters.

use muster_core::report::summary::clip;
use muster_core::report::{FirstFailure, Report, ResourceError};

use crate::ledger::RunningRun;

/// It goes with every report of the streak.
const MESSAGE: usize = 500;

/// The failure that the streak of a failed run began with: that of an earlier run, or else its own. None for one that did
/// not fail.
pub fn first(run: &RunningRun, report: &Report) -> Option<FirstFailure> {
    if report.attempt == 0 {
        return None;
    }
    let own = || {
        let said = || report.reason.as_ref().map(ToString::to_string).unwrap_or_default();
        let told = report.errors.first().cloned();
        let mut error = told.unwrap_or_else(|| ResourceError { message: said(), ..ResourceError::default() });
        error.message = clip(&error.message, MESSAGE);
        FirstFailure { run: report.run.clone(), at: report.ended, error }
    };
    Some(run.first_failure.clone().unwrap_or_else(own))
}
