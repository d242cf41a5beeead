//! Metrics of the server: `GET /metrics`, as OpenMetrics text.
//!
//! There are no globals: [`crate::Server::start`] makes one registry. Events are counted where they happen ([`MeasuredStore`]
//! around the store, [`ReportMetrics`] in the intake). The current state is read from the view and the hub at each scrape
//! ([`ServerMetrics`], [`fleet::FleetMetrics`]), and cannot drift.
//!
//! Label values are fixed words and the names of environments; never a node, a version, a run or an address. Every series
//! exists from the start, at zero, so that alerts on rare events find it. The number of series therefore depends on the
//! number of environments alone; a test checks that.

mod fleet;
mod server;
mod store;

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Registry, Unit};

pub(crate) use server::{ReportMetrics, ServerMetrics};
pub(crate) use store::MeasuredStore;

/// Content type of the response.
pub(crate) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// One label with a fixed set of values.
type Label = [(&'static str, &'static str); 1];
/// Two labels with fixed sets of values.
type Labels = [(&'static str, &'static str); 2];

/// All metrics as text.
pub(crate) fn text(registry: &Registry) -> Result<String, fmt::Error> {
    let mut text = String::new();
    encode(&mut text, registry)?;
    Ok(text)
}

/// Registers the collectors that read the parts of the server at each scrape.
pub(crate) fn register_collectors(registry: &mut Registry, metrics: ServerMetrics, started: Timestamp) {
    registry.register_collector(Box::new(server::ProcessMetrics::new(started)));
    let metrics = Arc::new(metrics);
    registry.register_collector(Box::new(fleet::FleetMetrics::new(metrics.clone())));
    registry.register_collector(Box::new(metrics));
}

/// Creates the series of each set of labels, at zero.
fn prepare<S, M, C>(family: &Family<S, M, C>, labels: impl IntoIterator<Item = S>)
where
    S: Clone + std::hash::Hash + Eq,
    C: prometheus_client::metrics::family::MetricConstructor<M>,
{
    labels.into_iter().for_each(|labels| drop(family.get_or_create(&labels)));
}

/// Begins a metric. Adds a full stop to the help text, as the registry does for its own metrics.
fn describe<'s>(
    encoder: &'s mut DescriptorEncoder<'_>,
    name: &'s str,
    help: &str,
    unit: Option<&'s Unit>,
    kind: MetricType,
) -> Result<MetricEncoder<'s>, fmt::Error> {
    encoder.encode_descriptor(name, &format!("{help}."), unit, kind)
}

/// Writes one gauge without labels.
fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    value: impl EncodeGaugeValue,
) -> fmt::Result {
    describe(encoder, name, help, unit, MetricType::Gauge)?.encode_gauge(&value)
}

/// Writes one counter without labels.
fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    value: impl EncodeCounterValue,
) -> fmt::Result {
    let mut counted = describe(encoder, name, help, unit, MetricType::Counter)?;
    counted.encode_counter::<NoLabelSet, _, u64>(&value, None)
}
