//! The questions that are asked at the end of a wave, and the one answer that they come to.
//!
//! Each is asked until it passes, or has been tried as often as the strategy says; the first that does not pass ends it.
//! There are three answers: yes, no, and that nobody can say. What cannot be asked is no "no".

mod command;
mod http;
mod mark;

use std::time::Duration;

use jiff::SignedDuration;
use muster_core::names::{EnvName, Version};
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::GateVerdict;
use muster_core::rollout::strategy::{CheckKind, GateCheck};
use muster_core::summary::clip;
use tokio::time::{sleep, timeout};

use crate::clock::Clock;

pub(crate) use mark::Mark;

/// What a check says is shown in a line, and kept in a key.
const LONGEST_MESSAGE: usize = 300;

/// What the checks are told about the wave that they are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) env: EnvName,
    pub(crate) rollout: RolloutId,
    pub(crate) from: Option<Version>,
    pub(crate) to: Version,
    pub(crate) stage: u32,
    pub(crate) wave: u32,
}

/// The answer to one try.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Passed,
    Failed(String),
    /// Nobody can say.
    Inconclusive(String),
}

/// Asks all checks, one after the other, and returns what they come to.
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

/// Tries a check until it passes, or as often as it may be. The last try counts.
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
            CheckKind::Http(http) => http::ask(http).await,
            CheckKind::Command(arguments) => command::ask(arguments, subject, mark).await,
        }
    };
    match timeout(patience, asked).await {
        Ok(answer) => answer,
        Err(_) => Answer::Inconclusive(format!("no answer within {} s", patience.as_secs_f64())),
    }
}

/// A strategy holds no negative lengths; one that was written by hand waits for nothing.
fn length(signed: SignedDuration) -> Duration {
    Duration::try_from(signed).unwrap_or_default()
}

fn one_line(message: &str) -> String {
    let plain: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    clip(plain.trim(), LONGEST_MESSAGE).to_owned()
}

#[cfg(test)]
mod tests;
