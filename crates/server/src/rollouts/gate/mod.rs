//! Checks at the end of a wave, and their common verdict.
//!
//! A check is repeated until it passes or has no retries left; the first check that does not pass decides. A check that
//! cannot be executed is inconclusive, not failed.

mod command;

use std::error::Error;
use std::time::Duration;

use jiff::SignedDuration;
use muster_core::names::{EnvName, Version};
use muster_core::report::summary::clip;
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::GateVerdict;
use muster_core::rollout::strategy::{GateCheck, GateCheckKind, GateHttpCheck};
use reqwest::redirect::Policy;
use tokio::time::{sleep, timeout};

use crate::api::chain;
use crate::clock::Clock;

pub(crate) use command::Mark;

/// Longest message of a check, in characters. It is shown in a line and stored in a key.
const LONGEST_MESSAGE: usize = 300;

/// Wave that a check is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) env: EnvName,
    pub(crate) rollout: RolloutId,
    pub(crate) from: Option<Version>,
    pub(crate) to: Version,
    pub(crate) stage: u32,
    pub(crate) wave: u32,
}

/// Result of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Passed,
    Failed(String),
    /// The check could not be executed or gave no result.
    Inconclusive(String),
}

/// Runs all checks in order, and returns their verdict.
pub(crate) async fn ask(checks: &[GateCheck], subject: &Subject, mark: &Mark, clock: &Clock) -> GateVerdict {
    for check in checks {
        let name = check.name.clone();
        match ask_one(check, subject, mark).await {
            Answer::Passed => tracing::debug!(env = %subject.env, rollout = %subject.rollout, name, "a check passed"),
            Answer::Failed(message) => {
                return GateVerdict::Failed { at: clock.now(), check: name, message: one_line(&message) };
            }
            Answer::Inconclusive(message) => {
                return GateVerdict::Inconclusive { at: clock.now(), check: name, message: one_line(&message) };
            }
        }
    }
    GateVerdict::Passed { at: clock.now() }
}

/// Runs a check until it passes or has no retries left. The last attempt counts.
async fn ask_one(check: &GateCheck, subject: &Subject, mark: &Mark) -> Answer {
    let mut left = check.retries;
    loop {
        let answer = try_once(check, subject, mark).await;
        if answer == Answer::Passed || left == 0 {
            return answer;
        }
        left -= 1;
        sleep(length(check.every)).await;
    }
}

async fn try_once(check: &GateCheck, subject: &Subject, mark: &Mark) -> Answer {
    let patience = length(check.timeout);
    let asked = async {
        match &check.kind {
            GateCheckKind::Http(http) => ask_http(http).await,
            GateCheckKind::Command(arguments) => command::run_check(arguments, subject, mark).await,
        }
    };
    match timeout(patience, asked).await {
        Ok(answer) => answer,
        Err(_) => Answer::Inconclusive(format!("no answer within {} s", patience.as_secs_f64())),
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

#[cfg(test)]
mod tests;

/// Redirects that are followed.
const REDIRECTS: usize = 3;
/// Bytes of a failed response that are read for its first line.
const BODY: usize = 4096;
const CONNECT: Duration = Duration::from_secs(5);

/// Requests the URL once. The caller sets the timeout.
async fn ask_http(check: &GateHttpCheck) -> Answer {
    if check.url.starts_with("https:") {
        let text = "https is not supported by this server; use a command instead, `[curl, -fsS, URL]` for instance";
        return Answer::Inconclusive(text.to_owned());
    }
    // A new client for each request: a kept connection could reach the server from before the wave.
    let client = reqwest::Client::builder().no_proxy().redirect(Policy::limited(REDIRECTS)).connect_timeout(CONNECT);
    let response = match client.build() {
        Ok(client) => client.get(&check.url).send().await,
        Err(error) => Err(error),
    };
    let mut response = match response {
        Ok(response) => response,
        Err(error) => return Answer::Inconclusive(format!("no answer: {}", cause(&error))),
    };
    let status = response.status();
    let passes = match check.status {
        Some(wanted) => status.as_u16() == wanted,
        None => status.is_success(),
    };
    if passes {
        return Answer::Passed;
    }
    let mut body = Vec::new();
    while body.len() < BODY
        && let Ok(Some(piece)) = response.chunk().await
    {
        body.extend_from_slice(&piece);
    }
    body.truncate(BODY);
    let body = String::from_utf8_lossy(&body);
    let wanted = check.status.map(|wanted| format!(", expected {wanted}")).unwrap_or_default();
    let said = body.lines().map(str::trim).find(|line| !line.is_empty());
    let said = said.map(|line| format!(": {line}")).unwrap_or_default();
    Answer::Failed(format!("the response has status {status}{wanted}{said}"))
}

/// Cause of an error without the URL, which the check names.
fn cause(error: &reqwest::Error) -> String {
    error.source().map(chain).unwrap_or_else(|| error.to_string())
}
