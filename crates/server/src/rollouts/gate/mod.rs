//! Runs the gate of a rollout: HTTP and command checks after a wave, combined into one verdict.
//!
//! A check is repeated until it passes or has no retries left; the first check that does not pass decides. A check that
//! cannot be executed is inconclusive, not failed. A check is an HTTP request or a program; the processes that a program leaves
//! behind are killed.

pub(crate) mod commands;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::process::Stdio;
use std::time::Duration;

use jiff::SignedDuration;
use muster_core::names::{EnvName, Version};
use muster_core::replica::ReplicaRecord;
use muster_core::report::summary::clip;
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::GateVerdict;
use muster_core::rollout::strategy::{GateCheck, GateCheckKind, GateHttpCheck};
use muster_marked::terminate_all;
use reqwest::redirect::Policy;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use self::commands::GateCommands;
use crate::api::chain;
use crate::app::Clock;

/// Longest message of a check, in characters. It is shown in a line and stored in a key.
const LONGEST_MESSAGE: usize = 300;

/// Wave whose checks run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GateContext {
    pub(crate) env: EnvName,
    pub(crate) rollout: RolloutId,
    pub(crate) from: Option<Version>,
    pub(crate) to: Version,
    pub(crate) stage: u32,
    pub(crate) wave: u32,
}

/// Result of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
enum GateCheckResult {
    Passed,
    Failed(String),
    /// The check could not be executed or gave no result.
    Inconclusive(String),
}

/// Runs all checks in order, and returns their verdict.
pub(crate) async fn run_checks(
    checks: &[GateCheck],
    context: &GateContext,
    commands: &GateCommands,
    mark: &GateMark,
    clock: &Clock,
) -> GateVerdict {
    for check in checks {
        let name = check.name.clone();
        match run_check(check, context, commands, mark).await {
            GateCheckResult::Passed => {
                tracing::debug!(env = %context.env, rollout = %context.rollout, name, "a check passed")
            }
            GateCheckResult::Failed(message) => {
                return GateVerdict::Failed { at: clock.now(), check: name, message: one_line(&message) };
            }
            GateCheckResult::Inconclusive(message) => {
                return GateVerdict::Inconclusive { at: clock.now(), check: name, message: one_line(&message) };
            }
        }
    }
    GateVerdict::Passed { at: clock.now() }
}

/// Runs a check until it passes or has no retries left. The last attempt counts.
async fn run_check(
    check: &GateCheck,
    context: &GateContext,
    commands: &GateCommands,
    mark: &GateMark,
) -> GateCheckResult {
    let mut left = check.retries;
    loop {
        let result = attempt(check, context, commands, mark).await;
        if result == GateCheckResult::Passed || left == 0 {
            return result;
        }
        left -= 1;
        sleep(length(check.every)).await;
    }
}

async fn attempt(
    check: &GateCheck,
    context: &GateContext,
    commands: &GateCommands,
    mark: &GateMark,
) -> GateCheckResult {
    let limit = length(check.timeout);
    let result = async {
        match &check.kind {
            GateCheckKind::Http(http) => run_http_check(http).await,
            GateCheckKind::Command(arguments) => run_program(arguments, context, commands, mark).await,
        }
    };
    match timeout(limit, result).await {
        Ok(result) => result,
        Err(_) => GateCheckResult::Inconclusive(format!("no answer within {} s", limit.as_secs_f64())),
    }
}

/// Converts a length. A negative one in a handwritten strategy is zero.
fn length(signed: SignedDuration) -> Duration {
    Duration::try_from(signed).unwrap_or_default()
}

fn one_line(message: &str) -> String {
    let plain: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    clip(plain.trim(), LONGEST_MESSAGE).to_owned()
}

/// Redirects that are followed.
const REDIRECTS: usize = 3;
/// Bytes of a failed response that are read for its first line.
const BODY: usize = 4096;
const CONNECT: Duration = Duration::from_secs(5);

/// Requests the URL once. The caller sets the timeout.
async fn run_http_check(check: &GateHttpCheck) -> GateCheckResult {
    if check.url.starts_with("https:") {
        let text =
            "https is not supported by this server; use a command instead, a script with `curl -fsS URL` for instance";
        return GateCheckResult::Inconclusive(text.to_owned());
    }
    // A new client for each request: a kept connection could reach the server from before the wave.
    let client = muster_wire::client::plain_http().redirect(Policy::limited(REDIRECTS)).connect_timeout(CONNECT);
    let response = match client.build() {
        Ok(client) => client.get(&check.url).send().await,
        Err(error) => Err(error),
    };
    let mut response = match response {
        Ok(response) => response,
        Err(error) => return GateCheckResult::Inconclusive(format!("no answer: {}", cause(&error))),
    };
    let status = response.status();
    let passes = match check.status {
        Some(expected) => status.as_u16() == expected,
        None => status.is_success(),
    };
    if passes {
        return GateCheckResult::Passed;
    }
    let mut body = Vec::new();
    while body.len() < BODY
        && let Ok(Some(piece)) = response.chunk().await
    {
        body.extend_from_slice(&piece);
    }
    body.truncate(BODY);
    let body = String::from_utf8_lossy(&body);
    let expected = check.status.map(|expected| format!(", expected {expected}")).unwrap_or_default();
    let message = body.lines().map(str::trim).find(|line| !line.is_empty());
    let message = message.map(|line| format!(": {line}")).unwrap_or_default();
    GateCheckResult::Failed(format!("the response has status {status}{expected}{message}"))
}

/// Cause of an error without the URL, which the check names.
fn cause(error: &reqwest::Error) -> String {
    error.source().map(chain).unwrap_or_else(|| error.to_string())
}

/// Bytes of output that are kept. The last line becomes the message.
const KEPT: usize = 4096;
/// Wait for the rest of the output after the program has ended.
const REST: Duration = Duration::from_millis(200);

/// Variables that a program needs to find other programs and files, and to format dates. Nothing else of the server is passed.
const PASSED_ON: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];

/// Runs a check once. Dropping the future ends the program and its process group.
async fn run_program(
    arguments: &[String],
    context: &GateContext,
    commands: &GateCommands,
    mark: &GateMark,
) -> GateCheckResult {
    let Some((program, rest)) = arguments.split_first() else {
        return GateCheckResult::Inconclusive("the check names no program".to_owned());
    };
    // The directory, the server's options or the file may have changed since the design was applied.
    let file = match commands.resolve(program) {
        Ok(file) => file,
        Err(error) => return GateCheckResult::Inconclusive(chain(&error)),
    };
    let from = context.from.as_ref().map(ToString::to_string).unwrap_or_default();
    let spawned = Command::new(file)
        .args(rest)
        // The server's environment may hold secrets, such as the password of the store.
        .env_clear()
        .envs(PASSED_ON.iter().filter_map(|name| Some((*name, std::env::var_os(name)?))))
        .env("MUSTER_ENV", context.env.as_str())
        .env("MUSTER_ROLLOUT", context.rollout.to_string())
        .env("MUSTER_FROM", from)
        .env("MUSTER_TO", context.to.as_str())
        .env("MUSTER_STAGE", context.stage.to_string())
        .env("MUSTER_WAVE", context.wave.to_string())
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
        Err(error) => return GateCheckResult::Inconclusive(format!("{program} cannot be run: {error}")),
    };
    let group = ProcessGroup(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)));
    let (mut out, mut err) = (OutputTail::new(child.stdout.take()), OutputTail::new(child.stderr.take()));
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
    let message = err.last_line().or_else(|| out.last_line());
    let with = |text: String| message.as_ref().map_or(text.clone(), |message| format!("{text}: {message}"));
    match ended.map(|status| status.code()) {
        Ok(Some(0)) => GateCheckResult::Passed,
        Ok(Some(1)) => {
            GateCheckResult::Failed(message.unwrap_or_else(|| format!("{program} exited with 1 without a message")))
        }
        Ok(Some(code)) => GateCheckResult::Inconclusive(with(format!("{program} exited with {code}"))),
        Ok(None) => GateCheckResult::Inconclusive(with(format!("{program} was killed by a signal"))),
        Err(error) => GateCheckResult::Inconclusive(format!("{program} could not be waited for: {error}")),
    }
}

/// Process group of a check. It is killed when the check ends, in any way.
struct ProcessGroup(Option<Pid>);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // The group is usually empty.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

/// Last bytes of a pipe.
struct OutputTail<R> {
    from: Option<R>,
    kept: Vec<u8>,
}

impl<R: AsyncRead + Unpin> OutputTail<R> {
    fn new(from: Option<R>) -> Self {
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
const NAME: &str = "MUSTER_GATE_OF";
/// Grace period of leftover processes. Their result is no longer needed.
const GRACE: Duration = Duration::from_secs(1);

/// Identifies the processes of one server across restarts. No two servers listen at the same address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GateMark(String);

impl GateMark {
    pub(crate) fn new(server: &ReplicaRecord) -> Self {
        Self(format!("{} {}", server.url, server.blobs.directory))
    }

    fn value(&self) -> &str {
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
