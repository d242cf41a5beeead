//! Passes when the process whose number is in a file is alive.

use std::fs;

pub(super) fn check(pidfile: &str) -> Result<String, String> {
    let text = fs::read_to_string(pidfile).map_err(|error| format!("{pidfile}: {error}"))?;
    let pid: u32 = text.trim().parse().map_err(|_| format!("{pidfile} holds no process number: {:?}", text.trim()))?;
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) if has_ended(&stat) => Err(format!("process {pid} of {pidfile} has ended")),
        Ok(_) => Ok(format!("process {pid} is alive")),
        Err(_) => Err(format!("process {pid} of {pidfile} is not there")),
    }
}

/// A process that has ended and that nobody has reaped yet is still listed.
fn has_ended(stat: &str) -> bool {
    let state = stat.rsplit_once(')').and_then(|(_, fields)| fields.split_whitespace().next());
    matches!(state, Some("Z" | "X"))
}
