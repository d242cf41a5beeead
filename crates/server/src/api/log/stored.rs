//! The log of a run that is over: the logs of its reports, one after the other.

use muster_core::names::{NodeName, RunId};
use muster_core::records::PastRun;
use muster_wire::run_log::{LogEnd, RunLog};

use crate::App;

use super::super::answer::Refusal;
use super::super::scope::Scope;

/// The run in the history of its node.
pub(super) fn find(app: &App, scope: &Scope, node: &NodeName, run: &RunId) -> Result<Option<PastRun>, Refusal> {
    scope.ask(app, |fleet| {
        let history = fleet.get(node).map(|node| node.history()).unwrap_or_default();
        history.0.into_iter().find(|past| past.run == *run)
    })
}

/// Its log. Reports whose text is gone are named, so that nobody takes the rest for all.
pub(super) async fn read(app: &App, past: PastRun) -> RunLog {
    let kept = past.logs.len();
    let mut reports = app.blobs.reports(past.logs).await;
    reports.sort_by_key(|report| (report.incarnation, report.seq));
    let mut text: String = reports.iter().map(|report| report.log.as_str()).collect();
    match kept - reports.len() {
        0 => {}
        1 => text.push_str("… the log of one report of this run is no longer there …\n"),
        missing => text.push_str(&format!("… the logs of {missing} reports of this run are no longer there …\n")),
    }
    RunLog { offset: 0, text, end: LogEnd::Finished }
}
