//! Thousands of connections need thousands of open files; most machines allow 1,024 unless a program asks.

use anyhow::Context;
use rustix::process::{Resource, getrlimit, setrlimit};

/// Allows this process as many as the machine lets it have, and fails if those are too few.
pub(crate) fn allow(needed: u64) -> anyhow::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let enough = limit.maximum.is_none_or(|maximum| maximum >= needed);
    anyhow::ensure!(enough, "{needed} open files are needed, and this machine allows {:?} (ulimit -Hn)", limit.maximum);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("cannot allow more open files")
}
