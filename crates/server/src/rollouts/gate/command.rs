//! Gate checks that are programs, and the processes that they leave behind.

use std::process::Stdio;
use std::time::Duration;

use muster_core::replica::ReplicaRecord;
use muster_marked::terminate_all;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::time::timeout;

use crate::rollouts::gate::{Answer, Subject};

/// Bytes of output that are kept. The last line becomes the message.
const KEPT: usize = 4096;
/// Wait for the rest of the output after the program has ended.
const REST: Duration = Duration::from_millis(200);

/// Variables that a program needs to find other programs and files, and to format dates. Nothing else of the server is passed.
const PASSED_ON: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];

/// Runs a check once. Dropping the future ends the program and its process group.
pub(super) async fn run_check(arguments: &[String], subject: &Subject, mark: &Mark) -> Answer {
    let Some((program, rest)) = arguments.split_first() else {
        return Answer::Inconclusive("the check names no program".to_owned());
    };
    let from = subject.from.as_ref().map(ToString::to_string).unwrap_or_default();
    let spawned = Command::new(program)
        .args(rest)
        // The server's environment may hold secrets, such as the password of the store.
        .env_clear()
        .envs(PASSED_ON.iter().filter_map(|name| Some((*name, std::env::var_os(name)?))))
        .env("MUSTER_ENV", subject.env.as_str())
        .env("MUSTER_ROLLOUT", subject.rollout.to_string())
        .env("MUSTER_FROM", from)
        .env("MUSTER_TO", subject.to.as_str())
        .env("MUSTER_STAGE", subject.stage.to_string())
        .env("MUSTER_WAVE", subject.wave.to_string())
        .env(NAME, mark.value())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A process group of its own, so that all processes can be ended.
        .process_group(0)
        .kill_on_drop(true)
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => return Answer::Inconclusive(format!("{program} cannot be run: {error}")),
    };
    let group = Group(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)));
    let (mut out, mut err) = (Tail::of(child.stdout.take()), Tail::of(child.stderr.take()));
    let ended = {
        // Pipes are read while the program runs: a full pipe would block it.
        let mut reading = std::pin::pin!(async { tokio::join!(out.read(), err.read()) });
        let mut read = false;
        let ended = loop {
            tokio::select! {
                ended = child.wait() => break ended,
                _ = &mut reading, if !read => read = true,
            }
        };
        // Processes left in the group are ended, which closes their pipes.
        drop(group);
        if !read {
            let _ = timeout(REST, reading).await;
        }
        ended
    };
    let said = err.last_line().or_else(|| out.last_line());
    let with = |text: String| said.as_ref().map_or(text.clone(), |said| format!("{text}: {said}"));
    match ended.map(|status| status.code()) {
        Ok(Some(0)) => Answer::Passed,
        Ok(Some(1)) => Answer::Failed(said.unwrap_or_else(|| format!("{program} exited with 1 without a message"))),
        Ok(Some(code)) => Answer::Inconclusive(with(format!("{program} exited with {code}"))),
        Ok(None) => Answer::Inconclusive(with(format!("{program} was killed by a signal"))),
        Err(error) => Answer::Inconclusive(format!("{program} could not be waited for: {error}")),
    }
}

/// Process group of a check. It is killed when the check ends, in any way.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // The group is usually empty.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

/// Last bytes of a pipe.
struct Tail<R> {
    from: Option<R>,
    kept: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Tail<R> {
    fn of(from: Option<R>) -> Self {
        Self { from, kept: Vec::new() }
    }

    async fn read(&mut self) {
        let Some(from) = &mut self.from else { return };
        let mut piece = [0; 1024];
        while let Ok(read @ 1..) = from.read(&mut piece).await {
            self.kept.extend_from_slice(piece.get(..read).unwrap_or_default());
            let over = self.kept.len().saturating_sub(KEPT);
            self.kept.drain(..over);
        }
    }

    fn last_line(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.kept);
        let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
        line.map(str::to_owned)
    }
}

/// Variable that marks all processes of a check.
pub(super) const NAME: &str = "MUSTER_GATE_OF";
/// Grace period of leftover processes. Their result is no longer needed.
const GRACE: Duration = Duration::from_secs(1);

/// Identifies the processes of one server across restarts. No two servers listen at the same address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark(String);

impl Mark {
    pub(crate) fn of(server: &ReplicaRecord) -> Self {
        Self(format!("{} {}", server.url, server.blobs.directory))
    }

    pub(super) fn value(&self) -> &str {
        &self.0
    }

    /// Ends processes that an earlier start of this server has left running after a kill.
    pub(crate) async fn end_leftovers(&self) {
        match terminate_all(NAME, &self.0, GRACE).await {
            Ok(ended) => {
                let pids = [&ended.terminated[..], &ended.killed].concat();
                if !pids.is_empty() {
                    tracing::info!(?pids, "leftover gate programs of a killed server were ended");
                }
                if !ended.is_complete() {
                    let left = ended.remaining;
                    tracing::warn!(?left, "leftover gate programs of a killed server cannot be ended");
                }
            }
            Err(error) => tracing::warn!(%error, "cannot find leftover gate programs"),
        }
    }
}
