//! Metrics of the server's parts (revisions, queues, streams, files), of its process, and of the report intake.
//!
//! All but those of the intake are read at each scrape.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_core::report::intake::StateExit;
use muster_store::Store;
use muster_wire::sync::{ReportAck, ReportResult};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tokio::sync::mpsc::WeakSender;

use crate::agents::admission::Admission;
use crate::agents::{Hub, Links};
use crate::app::Clock;
use crate::blobs::Blobs;
use crate::controllers::liveness::LivenessController;
use crate::replica::Membership;
use crate::reports::{ReportError, Reports};
use crate::view::{View, ViewChange};

use super::{Label, MeasuredStore, counter, describe, gauge, prepare};

/// Collector of the metrics of the server, with the parts that it reads.
#[derive(Debug)]
pub(crate) struct ServerMetrics {
    pub(crate) store: Arc<MeasuredStore>,
    pub(crate) view: Arc<View>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) links: Arc<Links>,
    pub(crate) reports: Reports,
    pub(crate) blobs: Arc<Blobs>,
    pub(crate) liveness: Arc<LivenessController>,
    pub(crate) membership: Arc<Membership>,
    /// Weak, so that the channel still closes with the view.
    pub(crate) changes: WeakSender<ViewChange>,
    pub(crate) clock: Clock,
}

impl ServerMetrics {
    /// Name, length and capacity of each queue.
    fn queues(&self) -> [(&'static str, usize, usize); 2] {
        let changes = self.changes.upgrade();
        let changes =
            changes.map_or((0, 0), |sender| (sender.max_capacity() - sender.capacity(), sender.max_capacity()));
        let reports = self.reports.waiting();
        [("reports", reports.0, reports.1), ("changes", changes.0, changes.1)]
    }
}

impl Collector for ServerMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        // The view first: the head, which is read later, is never behind it.
        let seen = self.view.revision().unwrap_or_default();
        let head = self.store.head().max(seen);
        gauge(encoder, "muster_store_revision", "Latest known revision of the store", None, head.0)?;
        gauge(encoder, "muster_view_revision", "Revision of the view", None, seen.0)?;
        let help = "Revisions of the store that the view has not applied yet";
        gauge(encoder, "muster_view_behind_revisions", help, None, head.0 - seen.0)?;
        counter(encoder, "muster_view_builds", "Full builds of the view", None, self.view.builds())?;

        let stats = self.store.stats();
        let help = "Durable commits of the embedded store; each contains all waiting transactions";
        counter(encoder, "muster_store_commits", help, None, stats.groups)?;
        counter(encoder, "muster_store_fsyncs", "Calls to fsync by the embedded store", None, stats.fsyncs)?;
        let help = "Size of the embedded store's file; 0 for etcd";
        gauge(encoder, "muster_store_file", help, Some(&Unit::Bytes), stats.bytes)?;
        let (blobs, bytes) = self.blobs.written();
        counter(encoder, "muster_blobs_written", "Reports with their logs that were written to files", None, blobs)?;
        counter(encoder, "muster_blobs_written", "Bytes that were written to files", Some(&Unit::Bytes), bytes)?;

        let unregistered = self.blobs.unregistered();
        let help = "Bundles that were uploaded and not registered, as of the last upload or sweep";
        gauge(encoder, "muster_bundles_unregistered", help, None, unregistered.count as u64)?;
        let help = "Bytes of bundles that were uploaded and not registered";
        gauge(encoder, "muster_bundles_unregistered", help, Some(&Unit::Bytes), unregistered.bytes)?;
        let help = "Uploads that were refused because too many bundles are not registered";
        counter(encoder, "muster_bundles_refused", help, None, unregistered.refused)?;
        counter(encoder, "muster_blobs_swept", "Unreferenced blobs that were removed", None, unregistered.swept)?;

        let current = u64::from(self.membership.current().is_some());
        gauge(encoder, "muster_lease_kept", "1 if this server has a valid lease and may act, else 0", None, current)?;
        let since = self.membership.store_unreachable_since();
        let away = since.map_or(0.0, |since| self.clock.now().duration_since(since).as_secs_f64().max(0.0));
        let help = "Time since which the store does not answer this server; 0 while it does";
        gauge(encoder, "muster_store_unreachable", help, Some(&Unit::Seconds), away)?;

        let (opened, ended) = self.hub.streams();
        let connected = self.hub.connected() as u64;
        gauge(encoder, "muster_sync_streams", "Connected agents", None, connected)?;
        counter(encoder, "muster_sync_streams_opened", "Sync streams that were opened", None, opened)?;
        counter(encoder, "muster_sync_streams_ended", "Sync streams that have ended", None, ended)?;
        let (opening, most, sent_away) = self.admission.counts();
        gauge(encoder, "muster_sync_openings", "Sync streams that are being opened", None, opening as u64)?;
        let help = "Highest number of sync streams that were being opened at once";
        gauge(encoder, "muster_sync_openings_most", help, None, most as u64)?;
        let help = "Sync streams that were refused with Retry-After because too many were being opened";
        counter(encoder, "muster_sync_openings_refused", help, None, sent_away)?;
        let (bytes, runs) = self.hub.live_logs.size();
        gauge(encoder, "muster_live_logs", "Runs in progress whose log is in memory", None, runs as u64)?;
        let help = "Memory of the logs of runs in progress";
        gauge(encoder, "muster_live_logs", help, Some(&Unit::Bytes), bytes as u64)?;

        let queues = self.queues();
        let help = "Entries in a queue of the server";
        let mut waiting = describe(encoder, "muster_queue_waiting", help, None, MetricType::Gauge)?;
        for (queue, depth, _) in queues {
            waiting.encode_family(&[("queue", queue)])?.encode_gauge(&(depth as u64))?;
        }
        let help = "Capacity of a queue; writers wait when it is full";
        let mut room = describe(encoder, "muster_queue_capacity", help, None, MetricType::Gauge)?;
        for (queue, _, capacity) in queues {
            room.encode_family(&[("queue", queue)])?.encode_gauge(&(capacity as u64))?;
        }
        Ok(())
    }
}

/// Unit of the times in `/proc/self/stat`. The kernel uses this value on every machine.
const TICKS_PER_SECOND: f64 = 100.0;

/// Collector of the metrics of the process.
#[derive(Debug)]
pub(super) struct ProcessMetrics {
    started: Timestamp,
}

impl ProcessMetrics {
    pub(super) fn new(started: Timestamp) -> Self {
        Self { started }
    }
}

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        let mut info = describe(encoder, "muster_build_info", "The version of the program", None, MetricType::Gauge)?;
        info.encode_family(&[("version", env!("CARGO_PKG_VERSION"))])?.encode_gauge(&1_u64)?;
        let (seconds, bytes) = (Some(&Unit::Seconds), Some(&Unit::Bytes));
        let started = self.started.as_second();
        gauge(encoder, "process_start_time", "Start time of the server, in seconds since 1970", seconds, started)?;
        let resident = resident_bytes().unwrap_or(0);
        gauge(encoder, "process_resident_memory", "Resident memory of the process", bytes, resident)?;
        let cpu = cpu_seconds().unwrap_or(0.0);
        counter(encoder, "process_cpu", "CPU time that the process has used", seconds, cpu)?;
        let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        gauge(encoder, "process_open_fds", "Open file descriptors", None, open as u64)
    }
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The program name is in parentheses, and may contain any character.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut ticks = fields.split(' ').skip(11).map(str::parse::<f64>);
    Some((ticks.next()?.ok()? + ticks.next()?.ok()?) / TICKS_PER_SECOND)
}

/// Buckets of group sizes, up to a full group of 16.
const GROUPS: [f64; 6] = [1.0, 2.0, 4.0, 8.0, 12.0, 16.0];
const ANSWERS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.0, 10.0];
/// Buckets of times in a service state, from a run of seconds to a month.
const STATES: [f64; 11] = [1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 21_600.0, 86_400.0, 604_800.0, 2_592_000.0];
/// Values of [`muster_core::node::service_state::ServiceState::word`].
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_parsed() {
        assert!(resident_bytes().unwrap() > 1024 * 1024);
        assert!(cpu_seconds().unwrap() >= 0.0);
    }
}
