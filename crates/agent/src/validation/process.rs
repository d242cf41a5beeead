//! Passes when the process whose number is in a file is alive, and is the one that the file was written for.
//!
//! A pid file may outlive its process, by a power cut for example, and then its number may go to another one. That one is
//! younger than the file. Ages are compared and not times of day: the boot time that `/proc/stat` gives is another one in
//! some containers. They agree unless the clock of the machine was set forward since the file was written; then the
//! message says what to do.

use std::fs;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};

use crate::clock;
use crate::process::stat::Stat;

/// The clocks tick in hundredths of a second, and files are stamped with one that is a little behind.
const TOLERANCE: Duration = Duration::from_secs(1);

pub(super) fn check(pidfile: &str) -> Result<String, String> {
    let text = fs::read_to_string(pidfile).map_err(|error| format!("{pidfile}: {error}"))?;
    let pid: i32 = text.trim().parse().map_err(|_| format!("{pidfile} holds no process number: {:?}", text.trim()))?;
    let Some(stat) = Stat::read(pid) else { return Err(format!("process {pid} of {pidfile} is not there")) };
    if stat.has_ended() {
        return Err(format!("process {pid} of {pidfile} has ended"));
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
