//! Process check: passes if the process of a pid file is running, and is the one that the file was written for.
//!
//! A pid file may outlive its process, for example after a power failure, and the pid may be reused. The new process is
//! younger than the file. The check compares ages and not times of day, because the boot time in `/proc/stat` is wrong in
//! some containers. The ages are wrong if the clock was set forward after the file was written. The agent therefore stores
//! the pid and start time of each process that has passed: it stays valid when the clock is set.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::process::stat::Stat;
use crate::state::durable;

/// Clock ticks are hundredths of a second, and the clock of file times lags a little.
const TOLERANCE: Duration = Duration::from_secs(1);

/// Identity of a process that distinguishes it from later ones with the same pid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ProcessIdentity {
    pid: i32,
    /// In clock ticks since boot.
    started: u64,
    /// Boot id.
    boot: Option<String>,
}

/// Processes that have passed, by pid file. An unreadable file counts as empty.
#[derive(Debug, Default)]
struct KnownProcesses {
    by_file: BTreeMap<String, ProcessIdentity>,
}

impl KnownProcesses {
    fn read(path: &Path) -> Self {
        let by_file = fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Self { by_file: by_file.unwrap_or_default() }
    }

    fn add(mut self, path: &Path, pidfile: &str, identity: ProcessIdentity) {
        // Remove services that are gone.
        self.by_file.retain(|file, _| Path::new(file).exists());
        self.by_file.insert(pidfile.to_owned(), identity);
        if let Err(error) = durable::replace_json(path, &self.by_file) {
            tracing::debug!(error = error.in_one_line(), "cannot store a process that has passed");
        }
    }
}

/// `known` is the file of [`KnownProcesses`].
pub(super) fn check(pidfile: &str, known: &Path, boot: Option<&str>) -> Result<String, String> {
    let text = fs::read_to_string(pidfile).map_err(|error| format!("{pidfile}: {error}"))?;
    let pid: i32 = text.trim().parse().map_err(|_| format!("{pidfile} contains no pid: {:?}", text.trim()))?;
    let Some(stat) = Stat::read(pid) else { return Err(format!("process {pid} of {pidfile} does not exist")) };
    if stat.has_ended() {
        return Err(format!("process {pid} of {pidfile} has ended"));
    }
    let identity = ProcessIdentity { pid, started: stat.started, boot: boot.map(str::to_owned) };
    let processes = KnownProcesses::read(known);
    if processes.by_file.get(pidfile) == Some(&identity) {
        return Ok(format!("process {pid} is running"));
    }
    let file = age_of_file(pidfile).map_err(|error| format!("{pidfile}: {error}"))?;
    let process = age_of_process(&stat);
    if process + TOLERANCE < file {
        return Err(format!(
            "process {pid} is not the one of {pidfile}: it was started {} s after the file was written (if the clock was \
             set since then, restart the service)",
            (file - process).as_secs()
        ));
    }
    processes.add(known, pidfile, identity);
    Ok(format!("process {pid} is running"))
}

/// Age of a file; zero if its time is in the future.
fn age_of_file(path: &str) -> std::io::Result<Duration> {
    let written = fs::metadata(path)?.modified()?;
    Ok(std::time::SystemTime::from(clock::now()).duration_since(written).unwrap_or_default())
}

fn age_of_process(stat: &Stat) -> Duration {
    let up = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default();
    let ticks = clock_ticks_per_second().max(1);
    let millis = stat.started.saturating_mul(1000) / ticks;
    up.saturating_sub(Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_process_passes_after_the_clock_is_set_forward() {
        let dir = tempfile::tempdir().unwrap();
        let (pidfile, known) = (dir.path().join("it.pid"), dir.path().join("processes.json"));
        let mut service = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        fs::write(&pidfile, service.id().to_string()).unwrap();
        let check = |boot| check(&pidfile.display().to_string(), &known, Some(boot));
        check("a").unwrap();
        // Setting the clock one hour forward makes files one hour older.
        let written = std::time::SystemTime::from(clock::now()) - Duration::from_secs(3600);
        fs::File::options().write(true).open(&pidfile).unwrap().set_modified(written).unwrap();
        check("a").unwrap();
        let refused = check("b").unwrap_err();
        assert!(refused.contains("is not the one of"), "after a reboot it may be another process: {refused}");
        fs::write(&known, "not JSON").unwrap();
        check("a").unwrap_err();
        service.kill().unwrap();
        service.wait().unwrap();
        check("a").unwrap_err();
    }
}
