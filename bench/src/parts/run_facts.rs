//! Facts of a run that are kept with its numbers: the date, the versions of the programs, and the load of the machine.

use std::path::Path;
use std::process::{Command, Stdio};
use std::{fmt, fs};

use jiff::{Timestamp, Unit as TimeUnit};
use serde::{Deserialize, Serialize};

use super::machine;
use crate::bench::Bench;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunFacts {
    pub(crate) date: Timestamp,
    /// Version of `muster`. None if the program is not there.
    pub(crate) muster: Option<String>,
    /// Commit of the working directory. None outside of a repository.
    pub(crate) commit: Option<String>,
    /// Version of etcd. None if it is not on the PATH.
    pub(crate) etcd: Option<String>,
    /// Runnable threads of the last minute, at the start. None if it is not known.
    pub(crate) load_average: Option<f64>,
}

impl RunFacts {
    pub(crate) fn read(bench: &Bench) -> anyhow::Result<Self> {
        let muster = bench.muster().ok().and_then(|muster| first_line(muster, &["--version"]));
        let commit = first_line(Path::new("git"), &["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]);
        let etcd = first_line(Path::new("etcd"), &["--version"]);
        let version = |text: String| text.rsplit(' ').next().map(str::to_owned);
        Ok(Self {
            date: machine::timestamp()?.round(TimeUnit::Second)?,
            muster: muster.and_then(version),
            commit,
            etcd: etcd.and_then(version),
            load_average: fs::read_to_string("/proc/loadavg").ok().and_then(|text| load_average(&text)),
        })
    }

    /// True if other programs took a part of the processors that a number shows.
    pub(crate) fn is_loaded(&self, processors: usize) -> bool {
        /// Runnable threads per processor: an idle machine has fewer.
        const IDLE: f64 = 0.25;
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let processors = processors as f64;
        self.load_average.is_some_and(|load| load > IDLE * processors)
    }

    /// Facts for tests.
    #[cfg(test)]
    pub(crate) fn example() -> Self {
        Self {
            date: "2026-11-19T10:00:00Z".parse().unwrap(),
            muster: Some("0.1.0".to_owned()),
            commit: Some("0123456789ab".to_owned()),
            etcd: Some("3.4.23".to_owned()),
            load_average: Some(0.1),
        }
    }
}

impl fmt::Display for RunFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { date, muster, commit, etcd, load_average } = self;
        let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
        write!(f, "{date}, muster {} (commit {}), etcd {}", known(muster), known(commit), known(etcd))?;
        match load_average {
            Some(load) => write!(f, ", load average {load:.2} at the start"),
            None => Ok(()),
        }
    }
}

/// First line of a program's output. None if it cannot be started, or fails.
fn first_line(program: &Path, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    text.lines().next().map(|line| line.trim().to_owned())
}

/// The average of the last minute from `/proc/loadavg`.
fn load_average(text: &str) -> Option<f64> {
    text.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_average_is_that_of_the_last_minute() {
        assert_eq!(load_average("1.31 0.54 0.28 4/103 22174\n"), Some(1.31));
        assert_eq!(load_average("unknown"), None);
    }

    #[test]
    fn machine_is_loaded_above_a_quarter_of_its_processors() {
        let load = |load| RunFacts { load_average: load, ..RunFacts::example() };
        assert!(load(Some(0.6)).is_loaded(2));
        assert!(!load(Some(0.4)).is_loaded(2));
        assert!(!load(None).is_loaded(2));
    }
}
