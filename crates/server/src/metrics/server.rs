//! Metrics of the server's parts: revisions, queues, streams and files. Read at each scrape.

use std::fmt;
use std::sync::Arc;

use muster_store::Store;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use tokio::sync::mpsc::WeakSender;

use super::{MeasuredStore, counter, describe, gauge};
use crate::agents::admission::Admission;
use crate::agents::{Hub, Links};
use crate::blobs::Blobs;
use crate::clock::Clock;
use crate::controllers::liveness::Liveness;
use crate::replica::Membership;
use crate::reports::Reports;
use crate::view::{View, ViewChange};

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
    pub(crate) liveness: Arc<Liveness>,
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
