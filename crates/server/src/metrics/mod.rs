//! What the server tells monitoring: `GET /metrics`, as OpenMetrics text.
//!
//! There are no globals: [`crate::Server::start`] makes one registry and hands it to each part. What happens is counted
//! where it happens ([`MeasuredStore`] around the store, [`ReportMetrics`] in the intake); how things *are* is not kept by
//! hand, but read from the view and the hub when somebody asks ([`ServerMetrics`], [`fleet::FleetMetrics`]), so it cannot drift.
//!
//! Labels are words of ours and the names of environments; never a node, a version, a run or an address. Every series
//! is there from the start, at zero: an alert on something that has never happened must not find nothing. So the number
//! of series depends on the number of environments alone, and a test holds it to that.

mod fleet;
mod process;
mod reports;
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

pub(crate) use reports::ReportMetrics;
pub(crate) use server::ServerMetrics;
pub(crate) use store::MeasuredStore;

/// What the text is, for whoever scrapes it.
pub(crate) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// One label with one of a few words.
type Label = [(&'static str, &'static str); 1];
/// Two of them.
type Labels = [(&'static str, &'static str); 2];

/// Everything that the registry knows, as text.
pub(crate) fn text(registry: &Registry) -> Result<String, fmt::Error> {
    let mut text = String::new();
    encode(&mut text, registry)?;
    Ok(text)
}

/// Adds what is read from the parts of the server at each scrape.
pub(crate) fn register_collectors(registry: &mut Registry, work: ServerMetrics, started: Timestamp) {
    registry.register_collector(Box::new(process::ProcessMetrics::new(started)));
    let work = Arc::new(work);
    registry.register_collector(Box::new(fleet::FleetMetrics::new(work.clone())));
    registry.register_collector(Box::new(work));
}

/// Makes a series for each set of labels, at zero.
fn prepare<S, M, C>(family: &Family<S, M, C>, labels: impl IntoIterator<Item = S>)
where
    S: Clone + std::hash::Hash + Eq,
    C: prometheus_client::metrics::family::MetricConstructor<M>,
{
    labels.into_iter().for_each(|labels| drop(family.get_or_create(&labels)));
}

/// Begins a metric. The help is a sentence; the registry ends those of its own with a full stop, too.
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
