//! A line of the table: a number and its target. A number is the median of repeated measurements, because other load on the
//! machine distorts a mean.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A figure per node is flat if the largest fleet has at most this many times that of the smallest.
pub(crate) const FLAT: f64 = 1.15;

/// Unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    Bytes,
    Seconds,
    PerSecond,
    Count,
    /// A ratio of two numbers.
    Ratio,
}

/// Target of a number.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RowTarget {
    Under(f64),
    AtLeast(f64),
    AtMost(f64),
    /// Nothing at all.
    Zero,
    /// Without a target.
    Shown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TargetVerdict {
    Met,
    Missed,
    /// There is no target.
    Shown,
    NotMeasured,
}

/// A point of a growth chart: one figure of fleets of several sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct GrowthPoint {
    /// The figure: equal for all sizes.
    pub(crate) figure: String,
    pub(crate) nodes: u32,
}

/// A measured number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BenchRow {
    pub(crate) measure: String,
    pub(crate) target: RowTarget,
    pub(crate) unit: Unit,
    /// None if it could not be measured. The detail has the reason.
    pub(crate) value: Option<f64>,
    /// Additional information: spread, number of repetitions.
    pub(crate) detail: String,
    pub(crate) verdict: TargetVerdict,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) growth: Option<GrowthPoint>,
}

impl BenchRow {
    pub(crate) fn new(measure: impl Into<String>, unit: Unit, value: f64) -> Self {
        // A number that is not finite has no form in JSON.
        let value = value.is_finite().then_some(value);
        let verdict = if value.is_some() { TargetVerdict::Shown } else { TargetVerdict::NotMeasured };
        let (target, detail) = (RowTarget::Shown, String::new());
        Self { measure: measure.into(), target, unit, value, detail, verdict, growth: None }
    }

    pub(crate) fn not_measured(measure: impl Into<String>, unit: Unit, reason: impl Into<String>) -> Self {
        Self::new(measure, unit, f64::NAN).detail(reason)
    }

    pub(crate) fn under(self, limit: f64) -> Self {
        self.with_target(RowTarget::Under(limit), |value| value < limit)
    }

    pub(crate) fn at_least(self, limit: f64) -> Self {
        self.with_target(RowTarget::AtLeast(limit), |value| value >= limit)
    }

    pub(crate) fn at_most(self, limit: f64) -> Self {
        self.with_target(RowTarget::AtMost(limit), |value| value <= limit)
    }

    pub(crate) fn zero(self) -> Self {
        self.with_target(RowTarget::Zero, |value| value == 0.0)
    }

    fn with_target(mut self, target: RowTarget, met: impl Fn(f64) -> bool) -> Self {
        self.target = target;
        self.verdict = match self.value {
            None => TargetVerdict::NotMeasured,
            Some(value) if met(value) => TargetVerdict::Met,
            Some(_) => TargetVerdict::Missed,
        };
        self
    }

    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// The row is a point of the growth chart of a figure.
    pub(crate) fn grows(mut self, figure: impl Into<String>, nodes: u32) -> Self {
        self.growth = Some(GrowthPoint { figure: figure.into(), nodes });
        self
    }

    /// The direction in which the number improves. None if it has none.
    pub(crate) fn better(&self) -> Option<Better> {
        match (self.target, self.unit) {
            (RowTarget::AtLeast(_), _) => Some(Better::Higher),
            (RowTarget::Under(_) | RowTarget::AtMost(_) | RowTarget::Zero, _) => Some(Better::Lower),
            (RowTarget::Shown, Unit::PerSecond) => Some(Better::Higher),
            (RowTarget::Shown, Unit::Bytes | Unit::Seconds) => Some(Better::Lower),
            (RowTarget::Shown, Unit::Count | Unit::Ratio) => None,
        }
    }

    pub(crate) fn target_text(&self) -> String {
        match self.target {
            RowTarget::Under(limit) => format!("under {}", self.unit.show(limit)),
            RowTarget::AtLeast(limit) => format!("at least {}", self.unit.show(limit)),
            RowTarget::AtMost(limit) => format!("at most {}", self.unit.show(limit)),
            RowTarget::Zero => "none".to_owned(),
            RowTarget::Shown => String::new(),
        }
    }

    pub(crate) fn value_text(&self) -> String {
        let value = match self.value {
            None => "not measured".to_owned(),
            Some(0.0) if self.target == RowTarget::Zero => "none".to_owned(),
            Some(value) => self.unit.show(value),
        };
        if self.detail.is_empty() { value } else { format!("{value} ({})", self.detail) }
    }

    pub(crate) fn verdict_text(&self) -> &'static str {
        match self.verdict {
            TargetVerdict::Met => "met",
            TargetVerdict::Missed => "MISSED",
            TargetVerdict::Shown | TargetVerdict::NotMeasured => "",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    Higher,
    Lower,
}

/// A number of bytes as the value of a row.
pub(crate) fn bytes(number: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "shown in three digits")]
    let number = number as f64;
    number
}

const KIB: f64 = 1024.0;

impl Unit {
    /// A number with its unit, with about three significant digits.
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Unit::Bytes if value >= KIB * KIB => format!("{} MiB", digits(value / KIB / KIB)),
            Unit::Bytes if value >= KIB => format!("{} KiB", digits(value / KIB)),
            Unit::Bytes => format!("{value:.0} B"),
            Unit::Seconds if value >= 1.0 => format!("{} s", digits(value)),
            Unit::Seconds if value >= 0.001 => format!("{} ms", digits(value * 1e3)),
            Unit::Seconds if value >= 1e-6 => format!("{} µs", digits(value * 1e6)),
            Unit::Seconds => format!("{} ns", digits(value * 1e9)),
            Unit::PerSecond => format!("{}/s", digits(value)),
            Unit::Count => digits(value),
            Unit::Ratio => format!("{value:.3}"),
        }
    }
}

fn digits(value: f64) -> String {
    match value {
        value if value.fract() == 0.0 || value >= 100.0 => grouped(value.round()),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// `12345` as `12,345`.
fn grouped(value: f64) -> String {
    let text = format!("{value:.0}");
    let mut out = String::with_capacity(text.len() + 3);
    for (at, digit) in text.chars().enumerate() {
        if at > 0 && (text.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// In seconds, sorted.
    values: Vec<f64>,
}

impl Sample {
    pub(crate) fn new(values: impl IntoIterator<Item = Duration>) -> Self {
        let mut values: Vec<f64> = values.into_iter().map(|value| value.as_secs_f64()).collect();
        values.sort_by(f64::total_cmp);
        Self { values }
    }

    /// The middle one, or the larger of the two in the middle.
    pub(crate) fn median(&self) -> f64 {
        self.values.get(self.values.len() / 2).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn min(&self) -> f64 {
        self.values.first().copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn max(&self) -> f64 {
        self.values.last().copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn count(&self) -> usize {
        self.values.len()
    }

    /// "median of 20; 9.12 ms to 14.0 ms"
    pub(crate) fn spread(&self) -> String {
        let show = |value| crate::row::Unit::Seconds.show(value);
        format!("median of {}; {} to {}", self.values.len(), show(self.min()), show(self.max()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_people_write_them() {
        let shown = [
            (Unit::Bytes, 12.0 * KIB * KIB, "12 MiB"),
            (Unit::Bytes, 6.123 * KIB * KIB, "6.12 MiB"),
            (Unit::Bytes, 2560.0, "2.50 KiB"),
            (Unit::Bytes, 17.0, "17 B"),
            (Unit::Seconds, 1.5, "1.50 s"),
            (Unit::Seconds, 0.0123, "12.3 ms"),
            (Unit::Seconds, 0.000_42, "420 µs"),
            (Unit::Seconds, 0.000_000_042, "42 ns"),
            (Unit::PerSecond, 12345.6, "12,346/s"),
            (Unit::Count, 7.0, "7"),
            (Unit::Ratio, 0.0271, "0.027"),
        ];
        for (unit, value, text) in shown {
            assert_eq!(unit.show(value), text);
        }
    }

    #[test]
    fn verdict_compares_value_and_target() {
        let row = |value| BenchRow::new("m", Unit::Seconds, value).under(0.1);
        assert_eq!((row(0.09).verdict, row(0.1).verdict), (TargetVerdict::Met, TargetVerdict::Missed));
        let ratio = |value| BenchRow::new("m", Unit::Ratio, value).at_least(0.5);
        assert_eq!((ratio(0.5).verdict, ratio(0.49).verdict), (TargetVerdict::Met, TargetVerdict::Missed));
        let count = |value| BenchRow::new("m", Unit::Count, value).at_most(10.0);
        assert_eq!((count(10.0).verdict, count(11.0).verdict), (TargetVerdict::Met, TargetVerdict::Missed));
        assert_eq!(count(3.0).target_text(), "at most 10");
        assert_eq!(BenchRow::new("m", Unit::Count, 0.0).zero().verdict, TargetVerdict::Met);
        assert_eq!(BenchRow::new("m", Unit::Count, 1.0).zero().verdict_text(), "MISSED");
    }

    #[test]
    fn number_that_is_not_finite_was_not_measured() {
        let row = BenchRow::not_measured("m", Unit::Seconds, "too few files").under(1.0);
        assert_eq!((row.value, row.verdict), (None, TargetVerdict::NotMeasured));
        assert_eq!((row.value_text().as_str(), row.verdict_text()), ("not measured (too few files)", ""));
        let kept: BenchRow = serde_json::from_str(&serde_json::to_string(&row).unwrap()).unwrap();
        assert_eq!(kept, row);
    }

    #[test]
    fn median_ignores_one_outlier() {
        let sample = Sample::new([5, 1, 900, 3, 4].map(Duration::from_millis));
        assert_eq!((sample.median(), sample.min(), sample.max()), (0.004, 0.001, 0.9));
        assert_eq!(sample.spread(), "median of 5; 1 ms to 900 ms");
    }
}
