//! Passes when the process whose number is in a file is alive, and is the one that the file was written for.
//!
//! A pid file may outlive its process, by a power cut for example, and then its number may go to another one. That one is
//! younger than the file. Ages are compared and not times of day: the boot time that `/proc/stat` gives is another one in
//! some containers. They agree unless the clock of the machine was set forward since the file was written. So a process that
//! has passed once is remembered, by its number and by when it was started on a clock that nobody can set: it stays the one
//! of its file, whatever becomes of the time.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::durable;
use crate::process::stat::Stat;

/// The clocks tick in hundredths of a second, and files are stamped with one that is a little behind.
const TOLERANCE: Duration = Duration::from_secs(1);

/// One process, told from all others that have the same number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    pid: i32,
    /// In clock ticks since the machine was started.
    started: u64,
    /// Which start of the machine that was.
    boot: Option<String>,
}

/// The processes that have passed, by their pid files. What cannot be read was never there: it is but a memory.
#[derive(Debug, Default)]
struct Passed {
    by_file: BTreeMap<String, Identity>,
}

impl Passed {
    fn read(path: &Path) -> Self {
        let by_file = fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Self { by_file: by_file.unwrap_or_default() }
    }

    fn remember(mut self, path: &Path, pidfile: &str, identity: Identity) {
        // Those of services that are gone for good.
        self.by_file.retain(|file, _| Path::new(file).exists());
        self.by_file.insert(pidfile.to_owned(), identity);
        if let Err(error) = durable::replace_json(path, &self.by_file) {
            tracing::debug!(error = error.in_one_line(), "a process that has passed is not remembered");
        }
    }
}

/// `memory` is a file of the agent's own.
pub(super) fn check(pidfile: &str, memory: &Path, boot: Option<&str>) -> Result<String, String> {
    let text = fs::read_to_string(pidfile).map_err(|error| format!("{pidfile}: {error}"))?;
    let pid: i32 = text.trim().parse().map_err(|_| format!("{pidfile} holds no process number: {:?}", text.trim()))?;
    let Some(stat) = Stat::read(pid) else { return Err(format!("process {pid} of {pidfile} is not there")) };
    if stat.has_ended() {
        return Err(format!("process {pid} of {pidfile} has ended"));
    }
    let identity = Identity { pid, started: stat.started, boot: boot.map(str::to_owned) };
    let passed = Passed::read(memory);
    if passed.by_file.get(pidfile) == Some(&identity) {
        return Ok(format!("process {pid} is alive"));
    }
    let file = age_of_file(pidfile).map_err(|error| format!("{pidfile}: {error}"))?;
    let process = age_of_process(&stat);
    if process + TOLERANCE < file {
        return Err(format!(
            "process {pid} is not the one of {pidfile}: it was started {} s after the file was written (if the clock was \
             set since, restart the service)",
            (file - process).as_secs()
        ));
    }
    passed.remember(memory, pidfile, identity);
    Ok(format!("process {pid} is alive"))
}

/// How long ago it was written; nothing if that is yet to come.
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
    fn a_process_that_has_passed_stays_the_one_of_its_file_when_the_clock_is_set_forward() {
        let dir = tempfile::tempdir().unwrap();
        let (pidfile, memory) = (dir.path().join("it.pid"), dir.path().join("processes.json"));
        let mut service = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        fs::write(&pidfile, service.id().to_string()).unwrap();
        let check = |boot| check(&pidfile.display().to_string(), &memory, Some(boot));
        check("a").unwrap();
        // An hour forward for the machine is an hour back for its files.
        let written = std::time::SystemTime::from(clock::now()) - Duration::from_secs(3600);
        fs::File::options().write(true).open(&pidfile).unwrap().set_modified(written).unwrap();
        check("a").unwrap();
        let refused = check("b").unwrap_err();
        assert!(refused.contains("is not the one of"), "after another start it may be anybody: {refused}");
        fs::write(&memory, "not JSON").unwrap();
        check("a").unwrap_err();
        service.kill().unwrap();
        service.wait().unwrap();
        check("a").unwrap_err();
    }
}
