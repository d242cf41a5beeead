//! Figures of fleets of several sizes as rows: per node for each fleet, and the largest fleet to the smallest.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::row::{BenchRow, FLAT, Sample, Unit};

/// A figure that must not grow per node. The order is that of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Figure {
    Memory,
    AgentMemory,
    Start,
    Status,
    NodeList,
    VerifyHosts,
    Scrape,
    IdleStep,
    FanOut,
    FanOutProcessor,
    Report,
    ReportProcessor,
}

impl Figure {
    pub(super) const ALL: [Self; 12] = [
        Self::Memory,
        Self::AgentMemory,
        Self::Start,
        Self::Status,
        Self::NodeList,
        Self::VerifyHosts,
        Self::Scrape,
        Self::IdleStep,
        Self::FanOut,
        Self::FanOutProcessor,
        Self::Report,
        Self::ReportProcessor,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory of the server, per node",
            Self::AgentMemory => "memory of the server, per connected agent",
            Self::Start => "start of the server to ready, processor time per node",
            Self::Status => "`status`, processor time per node",
            Self::NodeList => "`node list`, processor time per node",
            Self::VerifyHosts => "`verify-hosts`, processor time per node",
            Self::Scrape => "scrape of /metrics, processor time per node",
            Self::IdleStep => "rollout step with nothing to do, processor time per node",
            Self::FanOut => "`trigger-update --at-once`, time by the clock per agent",
            Self::FanOutProcessor => "`trigger-update --at-once`, processor time per agent",
            Self::Report => "reports of 64 senders, time by the clock per report",
            Self::ReportProcessor => "reports, processor time of the server per report",
        }
    }

    pub(super) fn unit(self) -> Unit {
        match self {
            Self::Memory | Self::AgentMemory => Unit::Bytes,
            Self::Start
            | Self::Status
            | Self::NodeList
            | Self::VerifyHosts
            | Self::Scrape
            | Self::IdleStep
            | Self::FanOut
            | Self::FanOutProcessor
            | Self::Report
            | Self::ReportProcessor => Unit::Seconds,
        }
    }

    /// True if a value is for the whole fleet: the fixed costs are subtracted, and the rest is divided by the nodes.
    fn is_of_fleet(self) -> bool {
        match self {
            Self::Memory | Self::Start | Self::Status | Self::NodeList | Self::VerifyHosts | Self::Scrape => true,
            Self::AgentMemory
            | Self::IdleStep
            | Self::FanOut
            | Self::FanOutProcessor
            | Self::Report
            | Self::ReportProcessor => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reading {
    Measured { value: f64, detail: String },
    NotMeasured { reason: String },
}

impl Reading {
    pub(super) fn new(value: f64, detail: impl Into<String>) -> Self {
        Self::Measured { value, detail: detail.into() }
    }

    /// Processor time, with the time on the clock.
    pub(super) fn processor(time: Duration, clock: &Sample) -> Self {
        let fastest = Unit::Seconds.show(clock.min());
        Self::new(time.as_secs_f64(), format!("by the clock {fastest}, the fastest of {}", clock.count()))
    }

    /// A time for all of a number of nodes.
    pub(super) fn each(time: Duration, count: usize, detail: impl Into<String>) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are small")]
        Self::new(time.as_secs_f64() / count as f64, detail)
    }
}

/// Readings of one fleet.
#[derive(Clone, Debug)]
pub(super) struct FleetFigures {
    pub(super) nodes: u32,
    pub(super) readings: BTreeMap<Figure, Reading>,
}

impl FleetFigures {
    pub(super) fn new(nodes: u32) -> Self {
        Self { nodes, readings: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, figure: Figure, reading: Reading) {
        self.readings.insert(figure, reading);
    }

    /// The figures that are missing could not be measured.
    pub(super) fn fail(&mut self, error: &anyhow::Error) {
        for figure in Figure::ALL {
            let failed = || Reading::NotMeasured { reason: format!("{error:#}") };
            self.readings.entry(figure).or_insert_with(failed);
        }
    }

    fn value(&self, figure: Figure) -> Option<f64> {
        match self.readings.get(&figure)? {
            Reading::Measured { value, .. } => Some(*value),
            Reading::NotMeasured { .. } => None,
        }
    }
}

/// The rows of all fleets, from the smallest to the largest. `fixed` is a fleet of a few nodes, whose figures are the
/// fixed costs.
pub(super) fn rows(fixed: &FleetFigures, fleets: &[FleetFigures]) -> Vec<BenchRow> {
    let mut rows = Vec::new();
    for figure in Figure::ALL {
        let of_figure: Vec<(u32, BenchRow)> =
            fleets.iter().map(|fleet| (fleet.nodes, row(figure, fixed, fleet))).collect();
        let ratio = ratio(figure, &of_figure);
        rows.extend(of_figure.into_iter().map(|(_, row)| row));
        rows.push(ratio);
    }
    rows
}

fn row(figure: Figure, fixed: &FleetFigures, fleet: &FleetFigures) -> BenchRow {
    let (name, unit) = (format!("fleet of {} nodes: {}", fleet.nodes, figure.name()), figure.unit());
    let (value, detail) = match fleet.readings.get(&figure) {
        None => return BenchRow::not_measured(name, unit, "not in this run"),
        Some(Reading::NotMeasured { reason }) => return BenchRow::not_measured(name, unit, reason),
        Some(Reading::Measured { value, detail }) => (*value, detail),
    };
    let row = if figure.is_of_fleet() {
        let costs = fixed.value(figure).unwrap_or(0.0);
        let each = (value - costs) / f64::from(fleet.nodes - fixed.nodes);
        let whole = format!("{} in all", unit.show(value));
        let detail = if detail.is_empty() { whole } else { format!("{whole}; {detail}") };
        BenchRow::new(name, unit, each).detail(detail)
    } else {
        BenchRow::new(name, unit, value).detail(detail)
    };
    row.grows(figure.name(), fleet.nodes)
}

/// The largest measured fleet to the smallest one.
fn ratio(figure: Figure, rows: &[(u32, BenchRow)]) -> BenchRow {
    // A cost per node below the noise of a small fleet is zero or less.
    let mut measured = rows.iter().filter_map(|(nodes, row)| Some((*nodes, row.value.filter(|value| *value > 0.0)?)));
    let name = |to: &str| format!("{}: {to}", figure.name());
    let (Some((smallest, first)), Some((largest, last))) = (measured.next(), measured.next_back()) else {
        return BenchRow::not_measured(name("largest fleet to smallest"), Unit::Ratio, "fewer than two fleets");
    };
    let ratio = last / first;
    let detail = if ratio > FLAT { "not flat" } else { "flat" };
    BenchRow::new(name(&format!("{largest} nodes to {smallest}")), Unit::Ratio, ratio).at_most(FLAT).detail(detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::TargetVerdict;

    fn fleet(nodes: u32, figure: Figure, value: f64) -> FleetFigures {
        let mut fleet = FleetFigures::new(nodes);
        fleet.add(figure, Reading::new(value, ""));
        fleet
    }

    fn rows_of(figure: Figure, fixed: f64, values: &[(u32, f64)]) -> Vec<BenchRow> {
        let fleets: Vec<FleetFigures> = values.iter().map(|(nodes, value)| fleet(*nodes, figure, *value)).collect();
        let rows = rows(&fleet(10, figure, fixed), &fleets);
        rows.into_iter().filter(|row| row.measure.contains(figure.name())).collect()
    }

    #[test]
    fn fixed_costs_are_subtracted() {
        let rows = rows_of(Figure::Status, 0.004, &[(1_010, 0.005), (10_010, 0.014)]);
        let values: Vec<f64> = rows.iter().filter_map(|row| row.value).map(|value| (value * 1e9).round()).collect();
        assert_eq!(values, [1_000.0, 1_000.0, 1e9]);
        assert_eq!(rows[0].measure, "fleet of 1010 nodes: `status`, processor time per node");
        assert_eq!(rows[0].value_text(), "1 µs (5 ms in all)");
        assert_eq!((rows[2].verdict, rows[2].detail.as_str()), (TargetVerdict::Met, "flat"));
    }

    #[test]
    fn figure_that_grows_per_node_is_not_flat() {
        let rows = rows_of(Figure::Report, 0.0, &[(1_000, 100e-6), (5_000, 110e-6), (20_000, 120e-6)]);
        let last = rows.last().unwrap();
        assert_eq!(last.measure, "reports of 64 senders, time by the clock per report: 20000 nodes to 1000");
        assert_eq!((last.verdict, last.detail.as_str()), (TargetVerdict::Missed, "not flat"));
        assert_eq!(rows[0].growth.as_ref().unwrap().nodes, 1_000);
    }

    #[test]
    fn unmeasured_fleet_has_its_reason() {
        let mut large = FleetFigures::new(50_000);
        large.add(Figure::FanOut, Reading::NotMeasured { reason: "too few files".to_owned() });
        let fleets = [fleet(1_000, Figure::FanOut, 1e-6), fleet(5_000, Figure::FanOut, 1e-6), large];
        let rows = rows(&FleetFigures::new(10), &fleets);
        let rows: Vec<&BenchRow> = rows.iter().filter(|row| row.measure.contains(Figure::FanOut.name())).collect();
        assert_eq!(rows[2].value_text(), "not measured (too few files)");
        assert!(rows[3].measure.ends_with("clock per agent: 5000 nodes to 1000"), "{}", rows[3].measure);
    }

    #[test]
    fn failed_fleet_keeps_its_readings() {
        let mut failed = fleet(1_000, Figure::Memory, 1e6);
        failed.fail(&anyhow::anyhow!("the disk is full"));
        let rows = rows(&FleetFigures::new(10), &[failed]);
        assert!(rows[0].value.is_some());
        assert_eq!(rows[2].value_text(), "not measured (the disk is full)");
    }

    #[test]
    fn one_fleet_has_no_ratio() {
        let rows = rows_of(Figure::Memory, 0.0, &[(1_000, 1e6)]);
        assert_eq!(rows.last().unwrap().verdict, TargetVerdict::NotMeasured);
    }
}
