//! Memory and processor time of a process, from /proc.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};

use super::process::command;
use crate::bench::Bench;
use crate::report;

/// The memory of a process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// All resident pages, including shared ones.
    pub(crate) rss: u64,
    /// The same, with each shared page divided by the number of those who share it.
    pub(crate) pss: u64,
    /// Private pages that it has written.
    pub(crate) anonymous: u64,
}

pub(crate) fn read(pid: u32) -> anyhow::Result<Memory> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    parse(&text).with_context(|| format!("{path} is not understood"))
}

fn parse(text: &str) -> Option<Memory> {
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
    };
    Some(Memory { rss: bytes("Rss")?, pss: bytes("Pss")?, anonymous: bytes("Anonymous")? })
}

/// The most that a process has had in memory since it started, or since [`reset_peak`].
pub(crate) fn peak(pid: u32) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    Ok(kib.with_context(|| format!("{path} is not understood"))? * 1024)
}

/// Resets the peak.
pub(crate) fn reset_peak(pid: u32) -> anyhow::Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    fs::write(&path, "5").with_context(|| format!("cannot write {path}"))
}

/// Processor time of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cpu {
    pub(crate) own: Duration,
    /// That of the processes that it has started and that have ended.
    pub(crate) children: Duration,
}

impl Cpu {
    pub(crate) fn less(self, before: &Self) -> Self {
        let less = |after: Duration, before| after.saturating_sub(before);
        Self { own: less(self.own, before.own), children: less(self.children, before.children) }
    }
}

pub(crate) fn cpu(pid: u32) -> anyhow::Result<Cpu> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    // The name of the program is in brackets and may hold anything.
    let after = text.rsplit_once(')').map(|(_, after)| after);
    let ticks = after.and_then(|after| {
        let mut fields = after.split_whitespace().skip(11).map(str::parse::<u64>);
        let mut both = || Some(fields.next()?.ok()? + fields.next()?.ok()?);
        Some((both()?, both()?))
    });
    let (own, children) = ticks.with_context(|| format!("{path} is not understood"))?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let time = |ticks| Duration::from_millis(ticks * 1000 / per_second);
    Ok(Cpu { own: time(own), children: time(children) })
}

/// Resource usage of a command.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct ResourceUsage {
    /// From before its process is created until it has ended.
    pub(crate) seconds: f64,
    /// Processor time of all threads.
    pub(crate) processor: f64,
    /// The most memory that was resident at any time, in bytes.
    pub(crate) peak: f64,
}

/// Runs a command in a process that does nothing else. It must succeed.
pub(crate) async fn run(bench: &Bench, dir: &Path, words: &[OsString]) -> anyhow::Result<ResourceUsage> {
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    let mut watcher = command(bench, &own, dir);
    watcher.arg("--watch").args(words).stdin(Stdio::null());
    let output = watcher.output().await.context("cannot start this program once more")?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{}", said.trim_end());
    serde_json::from_slice(&output.stdout).context("what it has taken is not understood")
}

/// The other side: runs the command, and prints what it has taken.
pub(crate) fn watch(words: &[OsString]) -> anyhow::Result<()> {
    let (program, args) = words.split_first().context("--watch needs a command")?;
    let mut child = Command::new(program);
    child.args(args).stdin(Stdio::null()).stdout(Stdio::piped());
    let begin = Instant::now();
    let output = child.spawn().and_then(std::process::Child::wait_with_output);
    let seconds = begin.elapsed().as_secs_f64();
    let output = output.with_context(|| format!("cannot start {}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    anyhow::ensure!(output.status.success(), "{} ended with {}: {said}", program.display(), output.status);
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("the kernel does not tell what was used")?;
    #[expect(clippy::cast_precision_loss, reason = "shown in three digits")]
    let time = |value: nix::sys::time::TimeVal| value.tv_sec() as f64 + value.tv_usec() as f64 / 1e6;
    #[expect(clippy::cast_precision_loss, reason = "shown in three digits")]
    let peak = usage.max_rss() as f64 * 1024.0;
    let processor = time(usage.user_time()) + time(usage.system_time());
    report::answer(&ResourceUsage { seconds, processor, peak })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_is_read() {
        let text = "55d0-7ffe ---p 00000000 00:00 0    [rollup]\nRss:    8420 kB\nPss:    4211 kB\nPss_Dirty: 9 kB\nAnonymous:   1024 kB\n";
        let memory = Memory { rss: 8420 * 1024, pss: 4211 * 1024, anonymous: 1024 * 1024 };
        assert_eq!(parse(text), Some(memory));
        assert!(read(std::process::id()).unwrap().rss > 0);
        assert!(cpu(std::process::id()).is_ok());
        reset_peak(std::process::id()).unwrap();
        assert!(peak(std::process::id()).unwrap() > 0);
    }
}
