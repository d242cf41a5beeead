//! Proves that the node does what it should: all checks of its role side by side, a deadline each, every result kept.

mod exec;
mod file;
mod http;
mod placeholders;
mod process;
mod tcp;

use std::future::Future;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use muster_core::release::spec::{Check, CheckKind};
use muster_core::report::{CheckResult, Verdict};

use crate::applier::Job;
use crate::process::children::Children;

/// The pause before a check is tried again grows from the first to the longest: something that is about to be there is
/// seen at once, and something that takes long is not asked for all the time.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A check that was made, and where it is in the release: by that its output is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    pub number: usize,
    pub result: CheckResult,
}

/// Makes all checks that are for the node's role, and tells of each as it ends. None if the agent is to end.
pub async fn validate(
    job: &Job<'_>,
    children: &Children,
    cancel: &CancellationToken,
    tell: impl Fn(&CheckResult),
) -> Option<Vec<Checked>> {
    let checks = job.release.spec.validate.iter().enumerate().filter(|(_, check)| check.is_for(job.role));
    let made = checks.map(async |(number, check)| {
        let result = one(job, number, check, children, cancel).await;
        tell(&result);
        Checked { number, result }
    });
    let results = join_all(made).await;
    if cancel.is_cancelled() { None } else { Some(results) }
}

async fn one(
    job: &Job<'_>,
    number: usize,
    check: &Check,
    children: &Children,
    cancel: &CancellationToken,
) -> CheckResult {
    let started = Instant::now();
    let deadline = Duration::try_from(check.deadline).unwrap_or_default();
    let tried = async {
        let fill = |text: &str| placeholders::fill(text, &job.node.interfaces, &job.node.root);
        match check.kind()? {
            CheckKind::Exec(path) => exec::check(job, number, path, deadline, children, cancel).await,
            CheckKind::Tcp(address) => {
                let address = fill(address)?;
                until(started, deadline, || tcp::check(&address)).await
            }
            CheckKind::Http(http) => {
                let url = fill(&http.url)?;
                until(started, deadline, || http::check(&url, http.expect.as_deref(), job.secrets)).await
            }
            CheckKind::Process(process) => {
                let pidfile = fill(&process.pidfile)?;
                let (memory, boot) = (job.node.layout.processes(), job.node.boot.as_deref());
                until(started, deadline, || async { process::check(&pidfile, &memory, boot) }).await
            }
            CheckKind::File(file) => {
                let path = fill(&file.path)?;
                let look = || file::check(&path, file.contains.as_deref(), file.absent, job.secrets);
                until(started, deadline, || async { look() }).await
            }
        }
    };
    let outcome = tokio::select! {
        outcome = tried => outcome,
        // An executable is ended in order by its supervisor; whatever else is being tried can just be dropped.
        () = cancel.cancelled(), if check.exec.is_none() => Err("the agent was ended".to_owned()),
    };
    let (verdict, message) = match outcome {
        Ok(message) => (Verdict::Passed, message),
        Err(message) => (Verdict::Failed, message),
    };
    let millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let message = job.secrets.text(&message).into_owned();
    CheckResult { name: check.name.clone(), verdict, message, millis }
}

/// Tries until it passes or the deadline is there; then the last answer is what counts.
async fn until<F, T>(started: Instant, deadline: Duration, attempt: F) -> Result<String, String>
where
    F: Fn() -> T,
    T: Future<Output = Result<String, String>>,
{
    let end = started + deadline;
    let mut pause = FIRST_PAUSE;
    let mut tries = 0u32;
    let mut last = "no answer".to_owned();
    loop {
        tries += 1;
        match timeout_at(end, attempt()).await {
            Ok(Ok(message)) => return Ok(message),
            Ok(Err(message)) => last = message,
            Err(_) if tries == 1 => return Err(format!("no answer within {} s", deadline.as_secs_f32())),
            Err(_) => {}
        }
        if Instant::now() + pause >= end {
            tokio::time::sleep_until(end).await;
            return Err(format!("{last} (tried {tries} times in {} s)", deadline.as_secs_f32()));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests;
