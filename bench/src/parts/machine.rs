//! Description of the machine for the table, without its name.

use std::path::Path;
use std::time::{Duration, SystemTime};
use std::{fmt, fs};

use anyhow::Context;
use jiff::{SignedDuration, Timestamp};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use crate::row::{self, Unit};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MachineInfo {
    processors: usize,
    model: String,
    memory_bytes: u64,
    kernel: String,
    /// File system of the work directory.
    file_system: String,
}

impl MachineInfo {
    /// Reads the properties of the machine and of a directory's file system.
    pub(crate) fn read(dir: &Path) -> anyhow::Result<Self> {
        let cpus = fs::read_to_string("/proc/cpuinfo").context("cannot read /proc/cpuinfo")?;
        let memory = fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
        let mounts = fs::read_to_string("/proc/self/mounts").context("cannot read /proc/self/mounts")?;
        let value = |text: &str, name: &str| {
            text.lines().find_map(|line| Some(line.strip_prefix(name)?.trim_start_matches([' ', '\t', ':']).to_owned()))
        };
        let kib = value(&memory, "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Ok(Self {
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            model: value(&cpus, "model name").unwrap_or_else(|| "unknown model".to_owned()),
            memory_bytes: kib.unwrap_or(0) * 1024,
            // Without the suffix, which often names the builder.
            kernel: kernel.trim().split('-').next().unwrap_or_default().to_owned(),
            file_system: file_system(&mounts, dir),
        })
    }

    /// Differences from the machine of an earlier run. Any of them makes numbers incomparable.
    pub(crate) fn differences(&self, before: &Self) -> Vec<String> {
        // A kernel reserves a little more or less of the same memory.
        const MEMORY_TOLERANCE: u64 = 50;
        let memory = |bytes: u64| Unit::Bytes.show(row::bytes(bytes));
        let facts = [
            ("processors", before.processors.to_string(), self.processors.to_string()),
            ("processor", before.model.clone(), self.model.clone()),
            ("file system", before.file_system.clone(), self.file_system.clone()),
        ];
        let mut differences: Vec<String> = facts
            .into_iter()
            .filter(|(_, before, now)| before != now)
            .map(|(what, before, now)| format!("{what}: {before} before, {now} now"))
            .collect();
        if self.memory_bytes.abs_diff(before.memory_bytes) > before.memory_bytes / MEMORY_TOLERANCE {
            differences.push(format!(
                "memory: {} before, {} now",
                memory(before.memory_bytes),
                memory(self.memory_bytes)
            ));
        }
        differences
    }

    pub(crate) fn kernel(&self) -> &str {
        &self.kernel
    }

    pub(crate) fn processors(&self) -> usize {
        self.processors
    }

    /// A machine for tests.
    #[cfg(test)]
    pub(crate) fn example() -> Self {
        Self {
            processors: 2,
            model: "Example CPU".to_owned(),
            memory_bytes: 8 << 30,
            kernel: "6.18".to_owned(),
            file_system: "ext4".to_owned(),
        }
    }
}

/// The type of the file system that a path is on: that of the longest mount point that it begins with.
fn file_system(mounts: &str, dir: &Path) -> String {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let fields = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        Some((fields.nth(1)?, fields.next()?))
    });
    let over = fields.filter(|(at, _)| dir.starts_with(at));
    // Of two mounts at the same place the later one hides the earlier.
    over.max_by_key(|(at, _)| at.len()).map_or_else(|| "unknown".to_owned(), |(_, kind)| kind.to_owned())
}

impl fmt::Display for MachineInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { processors, model, memory_bytes, kernel, file_system } = self;
        let memory = Unit::Bytes.show(row::bytes(*memory_bytes));
        write!(f, "{processors} processors ({model}), {memory} of memory, Linux {kernel}, files on {file_system}")?;
        if file_system == "tmpfs" {
            f.write_str(", where an fsync costs nothing: use --dir for a disk")?;
        }
        Ok(())
    }
}

/// Raises the limit of this process to the hard limit. Fails if that is too low.
pub(crate) fn allow_open_files(needed: u64) -> anyhow::Result<()> {
    match raise_open_files(needed)? {
        maximum if maximum < needed => {
            anyhow::bail!("{needed} open files are needed, and this machine allows {maximum} (ulimit -Hn)")
        }
        _ => Ok(()),
    }
}

/// Raises the limit of this process to the hard limit if it is lower than needed. Returns how many of the needed files the
/// machine allows.
pub(crate) fn raise_open_files(needed: u64) -> anyhow::Result<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(needed);
    }
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("cannot allow more open files")?;
    Ok(limit.maximum.map_or(needed, |maximum| maximum.min(needed)))
}

/// The time since the epoch, as a script sees it in `$EPOCHREALTIME`.
pub(crate) fn now() -> Duration {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
    let now = SystemTime::now();
    now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

pub(crate) fn timestamp() -> anyhow::Result<Timestamp> {
    Ok(Timestamp::from_duration(SignedDuration::try_from(now())?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_of_machines_are_listed() {
        let before = MachineInfo::example();
        let kernel =
            MachineInfo { kernel: "6.19".to_owned(), memory_bytes: before.memory_bytes + 4096, ..before.clone() };
        assert_eq!(kernel.differences(&before), Vec::<String>::new());
        let other = MachineInfo { processors: 4, memory_bytes: 16 << 30, ..before.clone() };
        assert_eq!(
            other.differences(&before),
            ["processors: 2 before, 4 now", "memory: 8,192 MiB before, 16,384 MiB now"]
        );
    }

    #[test]
    fn nearest_mount_point_is_used() {
        let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/b /tm xfs rw 0 0\n";
        assert_eq!(file_system(mounts, Path::new("/tmp/muster-bench-that-is-not-there")), "tmpfs");
        assert_eq!(file_system(mounts, Path::new("/var-that-is-not-there")), "ext4");
    }
}
