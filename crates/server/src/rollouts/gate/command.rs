//! Gate checks that are programs.

use std::process::Stdio;
use std::time::Duration;

use muster_core::replica::ReplicaRecord;
use muster_marked::terminate_all;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::time::timeout;

use crate::rollouts::gate::{Answer, Subject};

/// So much of what it says is kept: its last line counts.
const KEPT: usize = 4096;
/// Whatever the program left behind in its pipes when it was over is there at once.
const REST: Duration = Duration::from_millis(200);

/// What a program needs to find others, its files, and how to write a date. Nothing else of the server's is passed on.
const PASSED_ON: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];

/// Runs it once. Whoever drops this ends the program, and all that it started in its group.
pub(super) async fn run_check(arguments: &[String], subject: &Subject, mark: &Mark) -> Answer {
    let Some((program, rest)) = arguments.split_first() else {
        return Answer::Inconclusive("the check names no program".to_owned());
    };
    let from = subject.from.as_ref().map(ToString::to_string).unwrap_or_default();
    let spawned = Command::new(program)
        .args(rest)
        // The server's own holds what is none of a check's business, the password of the store for one.
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
        // Of its own, so that all of it can be ended.
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
        // While it runs its pipes are emptied: one that is full would stop it.
        let mut reading = std::pin::pin!(async { tokio::join!(out.read(), err.read()) });
        let mut read = false;
        let ended = loop {
            tokio::select! {
                ended = child.wait() => break ended,
                _ = &mut reading, if !read => read = true,
            }
        };
        // What it left running in its group is ended with it, and gives its pipes up.
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
        Ok(Some(1)) => Answer::Failed(said.unwrap_or_else(|| format!("{program} ended with 1, and said nothing"))),
        Ok(Some(code)) => Answer::Inconclusive(with(format!("{program} ended with {code}"))),
        Ok(None) => Answer::Inconclusive(with(format!("{program} was ended by a signal"))),
        Err(error) => Answer::Inconclusive(format!("{program} could not be waited for: {error}")),
    }
}

/// The processes of a check. They end with it, however it ends.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // Nobody left in it is what one hopes for.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

/// The end of what a pipe gives.
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

/// The variable that all processes of a check have.
pub(super) const NAME: &str = "MUSTER_GATE_OF";
/// Nobody waits for what they say any more.
const GRACE: Duration = Duration::from_secs(1);

/// The same for every start of a server, and no other's: two of them cannot listen at one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark(String);

impl Mark {
    pub(crate) fn of(server: &ReplicaRecord) -> Self {
        Self(format!("{} {}", server.url, server.blobs.directory))
    }

    pub(super) fn value(&self) -> &str {
        &self.0
    }

    /// Ends what an earlier start of this server has left running.
    pub(crate) async fn end_leftovers(&self) {
        match terminate_all(NAME, &self.0, GRACE).await {
            Ok(ended) => {
                let pids = [&ended.terminated[..], &ended.killed].concat();
                if !pids.is_empty() {
                    tracing::info!(?pids, "programs of a gate that a killed server had left running were ended");
                }
                if !ended.is_complete() {
                    let left = ended.remaining;
                    tracing::warn!(?left, "programs of a gate that a killed server had left running cannot be ended");
                }
            }
            Err(error) => tracing::warn!(%error, "it cannot be told whether programs of a gate were left running"),
        }
    }
}
