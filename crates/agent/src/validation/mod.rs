//! Runs the checks of a release for the node's role, concurrently, each with its deadline.

mod checks;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use muster_core::release::spec::{Check, CheckKind};
use muster_core::report::{CheckResult, Interfaces, Verdict};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::applier::Job;
use crate::process::children::Children;

/// The pause between two attempts of a check grows from the first to the longest: a service that is about to start is
/// found at once, and a slow one is not polled all the time.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Result of a check with its number in the release, which names its output file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckRun {
    pub number: usize,
    pub result: CheckResult,
}

/// Runs all checks for the node's role and calls `finished` for each. `None` if the agent shuts down.
pub async fn validate(
    job: &Job<'_>,
    children: &Children,
    cancel: &CancellationToken,
    finished: impl Fn(&CheckResult),
) -> Option<Vec<CheckRun>> {
    let checks = job.release.spec.validate.iter().enumerate().filter(|(_, check)| check.is_for(job.role));
    let made = checks.map(async |(number, check)| {
        let result = run_check(job, number, check, children, cancel).await;
        finished(&result);
        CheckRun { number, result }
    });
    let results = join_all(made).await;
    if cancel.is_cancelled() { None } else { Some(results) }
}

async fn run_check(
    job: &Job<'_>,
    number: usize,
    check: &Check,
    children: &Children,
    cancel: &CancellationToken,
) -> CheckResult {
    let started = Instant::now();
    let deadline = Duration::try_from(check.deadline).unwrap_or_default();
    let tried = async {
        let interfaces = job.node.interfaces.addresses();
        let fill = |text: &str| fill(text, &interfaces, &job.node.root);
        match check.kind()? {
            CheckKind::Exec(path) => checks::check_executable(job, number, path, deadline, children, cancel).await,
            CheckKind::Tcp(address) => {
                let address = fill(address)?;
                retry(started, deadline, || checks::check_tcp(&address)).await
            }
            CheckKind::Http(http) => {
                let url = fill(&http.url)?;
                retry(started, deadline, || checks::check_http(&url, http.expect.as_deref(), job.secrets)).await
            }
            CheckKind::Process(process) => {
                let pidfile = fill(&process.pidfile)?;
                let (known, boot) = (job.node.layout.processes(), job.node.boot.as_deref());
                retry(started, deadline, || async { checks::check_process(&pidfile, &known, boot) }).await
            }
            CheckKind::File(file) => {
                let path = fill(&file.path)?;
                let check = || checks::check_file(&path, file.contains.as_deref(), file.absent, job.secrets);
                retry(started, deadline, || async { check() }).await
            }
        }
    };
    let outcome = tokio::select! {
        outcome = tried => outcome,
        // The supervisor of an executable ends it; all other checks can be dropped.
        () = cancel.cancelled(), if check.exec.is_none() => Err("the agent shuts down".to_owned()),
    };
    let (verdict, message) = match outcome.and_then(|message| has_addresses(job, check).map(|()| message)) {
        Ok(message) => (Verdict::Passed, message),
        Err(message) => (Verdict::Failed, message),
    };
    let millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let message = job.secrets.text(&message).into_owned();
    CheckResult { name: check.name.clone(), verdict, message, millis }
}

/// An error if the check proves a service, and the node does not have the interface of that service.
fn has_addresses(job: &Job<'_>, check: &Check) -> Result<(), String> {
    let proven = job.release.spec.services_of(job.role).filter(|(_, service)| service.check == check.name);
    for (name, service) in proven {
        service
            .address(&job.node.interfaces.addresses())
            .map_err(|problem| format!("service {name} has no address: {problem}"))?;
    }
    Ok(())
}

/// Retries until the check passes or the deadline is reached. Then the last answer counts.
async fn retry<F, T>(started: Instant, deadline: Duration, attempt: F) -> Result<String, String>
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

/// Replaces `{name}` by the address of the interface, or by the node's root. An unknown name is an error, because the check
/// would test something else than intended.
fn fill(text: &str, interfaces: &Interfaces, root: &Path) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, behind)) = after.split_once('}') else { break };
        filled.push_str(before);
        match (name, interfaces.get(name)) {
            ("root", _) => filled.push_str(&root.display().to_string()),
            (_, Some(address)) => filled.push_str(address),
            (_, None) => {
                let known: Vec<_> = interfaces.names().map(|name| format!("{{{name}}}")).collect();
                return Err(format!("unknown placeholder {{{name}}}: use {} or {{root}}", known.join(", ")));
            }
        }
        rest = behind;
    }
    filled.push_str(rest);
    Ok(filled)
}
