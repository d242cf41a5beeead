//! Axes: positions of numbers, and the numbers of ticks.

use crate::row::Unit;

/// A logarithmic axis of whole powers of a base.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LogScale {
    base: f64,
    /// Exponents of the ends.
    low: i32,
    high: i32,
    /// Positions of the ends.
    from: f64,
    to: f64,
}

impl LogScale {
    /// An axis that contains all positive values. None without any.
    pub(super) fn around(unit: Unit, values: impl IntoIterator<Item = f64>, from: f64, to: f64) -> Option<Self> {
        let base: f64 = match unit {
            // 1 KiB, 16 KiB, 256 KiB, 4 MiB: powers of ten have no round numbers in these units.
            Unit::Bytes => 16.0,
            Unit::Seconds | Unit::PerSecond | Unit::Count | Unit::Ratio => 10.0,
        };
        let positive = values.into_iter().filter(|value| *value > 0.0 && value.is_finite());
        let logs: Vec<f64> = positive.map(|value| value.ln() / base.ln()).collect();
        // Tolerates the rounding of the logarithm.
        let least = logs.iter().copied().reduce(f64::min)? + 1e-9;
        let most = logs.iter().copied().reduce(f64::max)? - 1e-9;
        #[expect(clippy::cast_possible_truncation, reason = "the logarithm of a number has at most three digits")]
        let (low, high) = (least.floor() as i32, most.ceil() as i32);
        Some(Self { base, low, high: high.max(low + 1), from, to })
    }

    pub(super) fn position(&self, value: f64) -> f64 {
        let share = (value.ln() / self.base.ln() - f64::from(self.low)) / f64::from(self.high - self.low);
        self.from + share * (self.to - self.from)
    }

    /// The powers of the base.
    pub(super) fn ticks(&self) -> impl Iterator<Item = f64> + use<> {
        let Self { base, low, high, .. } = *self;
        (low..=high).map(move |exponent| base.powi(exponent))
    }
}

/// The end of an axis from zero: the smallest round number of a unit that contains a value.
pub(super) fn round_end(unit: Unit, value: f64) -> f64 {
    const KIB: f64 = 1024.0;
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let prefix = match unit {
        Unit::Bytes if value > KIB * KIB => KIB * KIB,
        Unit::Bytes if value > KIB => KIB,
        Unit::Bytes | Unit::Seconds | Unit::PerSecond | Unit::Count | Unit::Ratio => 1.0,
    };
    let power = prefix * 10_f64.powf((value / prefix).log10().floor());
    let steps = [1.0, 1.2, 1.6, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    // Tolerates the rounding of the logarithm.
    steps.iter().map(|step| step * power).find(|end| *end >= value * (1.0 - 1e-9)).unwrap_or(power * 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithmic_axis_contains_all_values() {
        let scale = LogScale::around(Unit::Seconds, [0.002, 0.0, 5.0, f64::NAN], 100.0, 500.0).unwrap();
        assert_eq!((scale.low, scale.high), (-3, 1));
        for (value, position) in [(0.001, 100.0), (10.0, 500.0), (0.1, 300.0)] {
            assert!((scale.position(value) - position).abs() < 1e-9, "{value}: {}", scale.position(value));
        }
        assert_eq!(scale.ticks().count(), 5);
        assert_eq!(LogScale::around(Unit::Count, [0.0], 0.0, 1.0), None);
        let one = LogScale::around(Unit::Count, [1.0], 0.0, 1.0).unwrap();
        assert_eq!((one.low, one.high), (0, 1));
        let sizes = LogScale::around(Unit::Bytes, [1024.0, 5e6], 0.0, 1.0).unwrap();
        let ticks: Vec<String> = sizes.ticks().map(|tick| Unit::Bytes.show(tick)).collect();
        assert_eq!(ticks, ["256 B", "4 KiB", "64 KiB", "1 MiB", "16 MiB"]);
    }

    #[test]
    fn linear_axis_ends_at_a_round_number() {
        let ends = [(0.0, 1.0), (1.0, 1.0), (1.8, 2.0), (870.0, 1000.0), (0.0021, 0.003), (7.0, 8.0)];
        for (value, end) in ends {
            let found = round_end(Unit::Seconds, value);
            assert!((found - end).abs() < 1e-9, "{value}: {found}");
        }
        assert_eq!(Unit::Bytes.show(round_end(Unit::Bytes, 9_900.0)), "10 KiB");
    }
}
