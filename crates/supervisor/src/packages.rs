//! Package managers: their locks, and installations that were interrupted.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;

use rustix::process::{Flock, FlockType, fcntl_getlk};

use crate::files::PackagePolicy;

/// Pid of a process that holds one of the locks. `Some(0)`: a process of another namespace.
pub fn lock_holder(policy: &PackagePolicy) -> Option<i32> {
    policy.locks.iter().find_map(|path| {
        let file = File::open(path).ok()?;
        let holder = fcntl_getlk(&file, &Flock::from(FlockType::WriteLock)).ok()??;
        Some(holder.pid.map_or(0, |pid| pid.as_raw_nonzero().get()))
    })
}

/// True if dpkg has unfinished installations, which `dpkg --audit` would name and `dpkg --configure -a` completes.
pub(crate) fn dpkg_is_interrupted(dpkg: &Path) -> bool {
    // Numbered files are changes of the database that dpkg had no time to merge.
    let is_update = |entry: fs::DirEntry| entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok());
    if fs::read_dir(dpkg.join("updates")).is_ok_and(|entries| entries.flatten().any(is_update)) {
        return true;
    }
    let Ok(status) = File::open(dpkg.join("status")) else { return false };
    BufReader::new(status).split(b'\n').map_while(Result::ok).any(|line| is_unfinished(&line))
}

/// `Status: install ok half-configured`: the last word is the state of the package.
fn is_unfinished(line: &[u8]) -> bool {
    let Some(words) = line.strip_prefix(b"Status: ") else { return false };
    let state = words.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    let unfinished: [&[u8]; 5] =
        [b"half-installed", b"unpacked", b"half-configured", b"triggers-awaited", b"triggers-pending"];
    unfinished.contains(&state)
}
