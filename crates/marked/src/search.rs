//! Searches `/proc` for processes that carry a mark.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;

use crate::process::{Process, is_gone};

/// The processes that carry the mark `name=value` in their environment, without the calling process.
///
/// The crate documentation lists the processes that are not found. Fails only if `/proc` itself cannot be read.
pub fn find(name: &str, value: impl AsRef<OsStr>) -> io::Result<Vec<Process>> {
    let mark = [name.as_bytes(), b"=", value.as_ref().as_bytes()].concat();
    let own = std::process::id();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if pid == own || !carries(pid, &mark)? {
            continue;
        }
        // The pid may have been reused between the read and the open: read again while the pidfd is held.
        if let Some(process) = Process::open(pid)?
            && carries(pid, &mark)?
            && !process.has_ended()?
        {
            found.push(process);
        }
    }
    Ok(found)
}

/// True if the environment of `pid` contains exactly this entry.
fn carries(pid: u32, mark: &[u8]) -> io::Result<bool> {
    match fs::read(format!("/proc/{pid}/environ")) {
        Ok(environment) => Ok(environment.split(|byte| *byte == 0).any(|entry| entry == mark)),
        Err(error) if is_gone(&error) || error.kind() == io::ErrorKind::PermissionDenied => Ok(false),
        Err(error) => Err(error),
    }
}
