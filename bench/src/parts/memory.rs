//! What the kernel says of a process.

use std::fs;
use std::time::Duration;

use anyhow::Context;

/// The memory of a process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// All pages that are in memory, shared ones too.
    pub(crate) rss: u64,
    /// The same, with each shared page divided by the number of those who share it.
    pub(crate) pss: u64,
    /// What it has for itself and has written to.
    pub(crate) anonymous: u64,
}

pub(crate) fn of(pid: u32) -> anyhow::Result<Memory> {
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

/// The most that a process has had in memory since it started, or since [`forget_peak`].
pub(crate) fn peak(pid: u32) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    Ok(kib.with_context(|| format!("{path} is not understood"))? * 1024)
}

/// From now on the peak is counted anew.
pub(crate) fn forget_peak(pid: u32) -> anyhow::Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    fs::write(&path, "5").with_context(|| format!("cannot write {path}"))
}

/// How much processor time a process has used.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_is_read() {
        let text = "55d0-7ffe ---p 00000000 00:00 0    [rollup]\nRss:    8420 kB\nPss:    4211 kB\nPss_Dirty: 9 kB\nAnonymous:   1024 kB\n";
        let memory = Memory { rss: 8420 * 1024, pss: 4211 * 1024, anonymous: 1024 * 1024 };
        assert_eq!(parse(text), Some(memory));
        assert!(of(std::process::id()).unwrap().rss > 0);
        assert!(cpu(std::process::id()).is_ok());
        forget_peak(std::process::id()).unwrap();
        assert!(peak(std::process::id()).unwrap() > 0);
    }
}
