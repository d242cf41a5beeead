//! A command that is run to its end while somebody looks at what it takes.
//!
//! The kernel tells the largest memory of all children that a process has waited for, as one number. So each command gets
//! a process of its own that has no other child: this program once more, with `--watch`. That process is small, which
//! matters too: until a child has begun its own program, it counts with the memory of whoever made it.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Context;
use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};

use super::process::command;
use crate::bench::Bench;
use crate::report;

/// What a command has taken.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Taken {
    /// From before its process was made until it had ended.
    pub(crate) seconds: f64,
    /// Processor time, that of all threads.
    pub(crate) processor: f64,
    /// The most memory that was resident at any time, in bytes.
    pub(crate) peak: f64,
}

/// Runs a command to its end, in a process that does nothing else. It must succeed.
pub(crate) async fn run(bench: &Bench, dir: &Path, words: &[OsString]) -> anyhow::Result<Taken> {
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
    report::answer(&Taken { seconds, processor, peak })
}
