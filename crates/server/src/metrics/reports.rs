//! Metrics of the report intake.

use std::time::Duration;

use muster_core::report::intake::StateExit;
use muster_wire::sync::{ReportAck, ReportResult};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::{Label, prepare};
use crate::reports::ReportError;

/// Buckets of group sizes, up to a full group of 16.
const GROUPS: [f64; 6] = [1.0, 2.0, 4.0, 8.0, 12.0, 16.0];
const ANSWERS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.0, 10.0];
/// Buckets of times in a service state, from a run of seconds to a month.
const STATES: [f64; 11] = [1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 21_600.0, 86_400.0, 604_800.0, 2_592_000.0];
/// The words of [`muster_core::node::service_state::ServiceState::word`].
pub(super) const STATE_WORDS: [&str; 5] = ["configured", "failed", "pending", "validated", "invalid"];

type Durations = Family<Label, Histogram, fn() -> Histogram>;

/// Metrics of the report intake.
#[derive(Clone, Debug)]
pub(crate) struct ReportMetrics {
    groups: Histogram,
    answers: Histogram,
    taken: Family<Label, Counter>,
    states: Durations,
}

impl ReportMetrics {
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let groups = Histogram::new(GROUPS);
        let answers = Histogram::new(ANSWERS);
        let taken = Family::<Label, Counter>::default();
        prepare(
            &taken,
            ["applied", "already_applied", "outdated", "refused", "failed"].map(|result| [("result", result)]),
        );
        let states = Durations::new_with_constructor(|| Histogram::new(STATES));
        prepare(&states, STATE_WORDS.map(|state| [("state", state)]));
        registry.register("muster_report_group_size", "Reports in one transaction", groups.clone());
        let help = "Time from the arrival of a report to its answer, including the commit";
        registry.register_with_unit("muster_report_duration", help, Unit::Seconds, answers.clone());
        registry.register("muster_reports", "Reports by result", taken.clone());
        let help = "Time that nodes spent in a service state before they left it";
        registry.register_with_unit("muster_node_state_duration", help, Unit::Seconds, states.clone());
        Self { groups, answers, taken, states }
    }

    pub(crate) fn group(&self, reports: usize) {
        // A group has at most 16 reports.
        self.groups.observe(u32::try_from(reports).map_or(f64::MAX, f64::from));
    }

    pub(crate) fn left(&self, left: Option<StateExit>) {
        if let Some(StateExit { state, after }) = left {
            self.states.get_or_create(&[("state", state)]).observe(after.as_secs_f64());
        }
    }

    pub(crate) fn answered(&self, answer: &Result<ReportAck, ReportError>, took: Duration) {
        let result = match answer {
            Ok(ReportAck { taken: ReportResult::Applied, .. }) => "applied",
            Ok(ReportAck { taken: ReportResult::AlreadyApplied, .. }) => "already_applied",
            Ok(ReportAck { taken: ReportResult::Outdated, .. }) => "outdated",
            Err(ReportError::Restoring { .. } | ReportError::UnknownNode { .. }) => "refused",
            Err(
                ReportError::Store(_)
                | ReportError::Contended { .. }
                | ReportError::Unreadable { .. }
                | ReportError::Log(_)
                | ReportError::Stopping,
            ) => "failed",
        };
        self.taken.get_or_create(&[("result", result)]).inc();
        self.answers.observe(took.as_secs_f64());
    }
}
