//! Repeated measurements. The median is used, because other load on the machine distorts a mean.

use std::time::Duration;

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
    fn the_median_is_not_moved_by_one_bad_moment() {
        let sample = Sample::new([5, 1, 900, 3, 4].map(Duration::from_millis));
        assert_eq!((sample.median(), sample.min(), sample.max()), (0.004, 0.001, 0.9));
        assert_eq!(sample.spread(), "median of 5; 1 ms to 900 ms");
    }
}
