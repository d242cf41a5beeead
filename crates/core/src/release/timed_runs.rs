//! Timed runs of `release.yaml`: they find drift, which is a difference that no run has made.

use std::fmt;
use std::str::FromStr;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Default interval of timed runs: the one of Puppet's own agent.
pub const RUN_EVERY: SignedDuration = SignedDuration::from_mins(30);
/// Minimum interval of timed runs.
pub const RUN_EVERY_LEAST: SignedDuration = SignedDuration::from_secs(1);

/// Timed runs of a release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimedRuns {
    #[schema(value_type = String)]
    pub run_every: RunInterval,
    pub drift: DriftPolicy,
}

/// `drift`: reaction of timed runs to a difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DriftPolicy {
    #[default]
    Repair,
    /// Timed runs change nothing, and report the difference.
    Report,
}

/// `run_every`: a duration, or `never`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum RunInterval {
    Never,
    Every(SignedDuration),
}

impl RunInterval {
    /// The interval; `None` without timed runs.
    pub fn duration(self) -> Option<SignedDuration> {
        match self {
            RunInterval::Never => None,
            RunInterval::Every(every) => Some(every),
        }
    }

    pub(super) fn problem(self) -> Option<String> {
        let too_short = self.duration().is_some_and(|every| every < RUN_EVERY_LEAST);
        too_short.then(|| format!("run_every must be at least {} s, or `never`", RUN_EVERY_LEAST.as_secs()))
    }
}

impl Default for RunInterval {
    fn default() -> Self {
        RunInterval::Every(RUN_EVERY)
    }
}

impl FromStr for RunInterval {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "never" {
            return Ok(RunInterval::Never);
        }
        let every = text.parse().map_err(|error| format!("{text:?} is neither a duration nor `never`: {error}"))?;
        Ok(RunInterval::Every(every))
    }
}

impl TryFrom<String> for RunInterval {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for RunInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunInterval::Never => f.write_str("never"),
            RunInterval::Every(every) => write!(f, "{every:#}"),
        }
    }
}

impl From<RunInterval> for String {
    fn from(interval: RunInterval) -> Self {
        interval.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<RunInterval, serde_json::Error> {
        serde_json::from_value(serde_json::json!(text))
    }

    #[test]
    fn interval_is_a_duration_or_never() {
        for (text, duration) in
            [("30m", Some(SignedDuration::from_mins(30))), ("1s", Some(RUN_EVERY_LEAST)), ("never", None)]
        {
            let interval = parse(text).unwrap();
            assert_eq!((interval.duration(), interval.problem()), (duration, None));
            assert_eq!(serde_json::to_value(interval).unwrap(), text);
        }
        let error = parse("often").unwrap_err().to_string();
        assert!(error.contains("\"often\" is neither a duration nor `never`"), "{error}");
        for text in ["0s", "999ms", "-30m"] {
            assert_eq!(parse(text).unwrap().problem().unwrap(), "run_every must be at least 1 s, or `never`");
        }
    }
}
