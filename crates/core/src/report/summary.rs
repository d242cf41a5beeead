//! Bounded summaries of reports for the store. The whole report is a blob.

use crate::lookup::services::{self, Services};
use crate::report::drift::RepairedDrift;
use crate::report::reason::{Need, ReleaseRefusal, RunReason};
use crate::report::record::{LastRun, PastRun};
use crate::report::shorten::shorten;
use crate::report::{Cause, FirstFailure, Interfaces, LookupChange, Report, ResourceError, RunOptions};

/// Maximum size of `observed/<node>` in bytes.
pub const OBSERVED_LIMIT: usize = 5 * 1024;

// The parts of `observed` are bounded so that their sum stays below its limit: errors 2 × 0.5 KiB, the reason 0.6 KiB,
// causes 0.7 KiB, interfaces 0.8 KiB, services 1 KiB, drift 0.3 KiB, and 0.6 KiB of names, digests and times. An open run has
// no errors, and its own part is smaller. The first failure, the lookups and the past failure come last and are dropped if
// they do not fit.
const ERRORS: usize = 2;
const INTERFACES: usize = 12;
const CAUSES: usize = 3;
const LIST: usize = 4;
const CHANGES: usize = 3;
const MESSAGE: usize = 240;
const WORD: usize = 80;

/// Cuts a text to at most `limit` bytes and marks the cut.
pub fn clip(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    const MARK: &str = "…";
    let end = (0..=limit.saturating_sub(MARK.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}{MARK}", &text[..end])
}

/// The first interfaces. A node with more than a dozen must name the relevant ones in its content.
pub(crate) fn interfaces(all: &Interfaces) -> Interfaces {
    let legal = |(name, address): &(&str, &str)| name.len() <= 16 && address.len() <= 46;
    if all.len() <= INTERFACES && all.iter().all(|interface| legal(&interface)) {
        return all.clone();
    }
    all.iter().filter(legal).take(INTERFACES).map(|(name, address)| (name.to_owned(), address.to_owned())).collect()
}

/// The services, or none over the limit; agents do not send more, because the build of the release refuses it.
pub(crate) fn services(all: &Services) -> Services {
    if services::size(all) <= services::SERVICES_LIMIT { all.clone() } else { Services::new() }
}

pub(crate) fn last_run(report: &Report, log: Option<&str>) -> LastRun {
    LastRun {
        run: report.run.clone(),
        outcome: report.outcome,
        version: report.version.clone(),
        digest: clip(&report.digest, WORD),
        generation: report.generation,
        causes: causes(&report.causes),
        reason: report.reason.as_ref().map(reason),
        attempt: report.attempt,
        started: report.started,
        ended: report.ended,
        counts: report.counts,
        first_failure: report.first_failure.as_ref().map(first_failure),
        errors: report.all_errors().iter().take(ERRORS).map(error).collect(),
        log: log.map(str::to_owned),
    }
}

/// A run that is over, after its last report. `first` is the run as its earlier report has left it.
pub(crate) fn past_run(report: &Report, log: Option<&str>, first: Option<PastRun>) -> PastRun {
    PastRun {
        run: report.run.clone(),
        version: report.version.clone(),
        outcome: report.outcome,
        causes: causes(&report.causes),
        started: report.started,
        ended: report.ended,
        reason: short_reason(report),
        checks: report.check_count(),
        repaired: repaired(report, first.as_ref()),
        logs: first.into_iter().flat_map(|first| first.logs).chain(log.map(str::to_owned)).collect(),
    }
}

/// Drift that the run has repaired. The report of its validation has no changes.
pub(crate) fn repaired(report: &Report, first: Option<&PastRun>) -> Option<RepairedDrift> {
    RepairedDrift::of(report).or_else(|| first?.repaired.clone())
}

/// Reason of a run that was not successful, as in the history.
pub(crate) fn short_reason(report: &Report) -> Option<String> {
    report.reason.as_ref().map(|reason| short(&past_reason(reason, report)))
}

/// A message, shortened to its limit.
pub(crate) fn short(message: &str) -> String {
    shorten(message, MESSAGE)
}

/// Reason of a run in its history. Failed checks and hooks have their messages.
fn past_reason(reason: &RunReason, report: &Report) -> String {
    let errors = report.all_errors();
    if errors.is_empty() || !matches!(reason, RunReason::ChecksFailed { .. } | RunReason::HooksFailed { .. }) {
        return reason.to_string();
    }
    errors.iter().map(ResourceError::to_string).collect::<Vec<_>>().join("; ")
}

fn causes(all: &[Cause]) -> Vec<Cause> {
    let short = |cause: &Cause| match cause {
        Cause::LookedUp { changes } => {
            let short =
                |change: &LookupChange| LookupChange { key: clip(&change.key, WORD), what: clip(&change.what, WORD) };
            Cause::LookedUp { changes: changes.iter().take(CHANGES).map(short).collect() }
        }
        Cause::Operator { id, by, options } => {
            let options =
                RunOptions { tags: options.tags.iter().map(|tag| clip(tag, WORD)).collect(), ..options.clone() };
            Cause::Operator { id: clip(id, WORD), by: clip(by, WORD), options }
        }
        Cause::AgentStarted
        | Cause::Version { .. }
        | Cause::Identity { .. }
        | Cause::Retry { .. }
        | Cause::Interrupted { .. }
        | Cause::Schedule
        | Cause::AutoRollback { .. } => cause.clone(),
    };
    all.iter().take(CAUSES).map(short).collect()
}

fn error(error: &ResourceError) -> ResourceError {
    ResourceError {
        resource: error.resource.as_deref().map(|resource| clip(resource, WORD)),
        // The end of a path is the more specific part.
        file: error.file.as_deref().map(|file| tail(file, WORD)),
        line: error.line,
        message: shorten(&error.message, MESSAGE),
    }
}

fn first_failure(first: &FirstFailure) -> FirstFailure {
    FirstFailure { error: error(&first.error), ..first.clone() }
}

fn tail(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let start = (text.len() - limit..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    format!("…{}", &text[start..])
}

fn needs(all: &[Need]) -> Vec<Need> {
    let short = |need: &Need| match need {
        Need::Role { .. } | Need::Leader { .. } | Need::Published { .. } => need.clone(),
        Need::Other { reason } => Need::Other { reason: clip(reason, WORD) },
    };
    all.iter().take(LIST).map(short).collect()
}

fn reason(reason: &RunReason) -> RunReason {
    match reason {
        RunReason::Waiting { needs: all } => RunReason::Waiting { needs: needs(all) },
        RunReason::PendingIgnored { needs: all } => RunReason::PendingIgnored { needs: needs(all) },
        RunReason::ExitCode { program, code } => RunReason::ExitCode { program: clip(program, WORD), code: *code },
        RunReason::Killed { program, signal } => RunReason::Killed { program: clip(program, WORD), signal: *signal },
        RunReason::Deadline { program, seconds } => {
            RunReason::Deadline { program: clip(program, WORD), seconds: *seconds }
        }
        RunReason::NotInstalled { program } => RunReason::NotInstalled { program: clip(program, WORD) },
        RunReason::Release { problem } => RunReason::Release { problem: clip(problem, MESSAGE) },
        RunReason::Machine { problem } => RunReason::Machine { problem: clip(problem, MESSAGE) },
        RunReason::DigestMismatch { expected, found } => {
            RunReason::DigestMismatch { expected: clip(expected, WORD), found: clip(found, WORD) }
        }
        RunReason::ChecksFailed { names } => {
            RunReason::ChecksFailed { names: names.iter().take(LIST).map(|name| clip(name, WORD)).collect() }
        }
        RunReason::HooksFailed { names } => {
            RunReason::HooksFailed { names: names.iter().take(LIST).map(|name| clip(name, WORD)).collect() }
        }
        RunReason::Lost { run, refreshes } => RunReason::Lost {
            run: run.clone(),
            refreshes: refreshes.iter().take(LIST).map(|name| clip(name, WORD)).collect(),
        },
        RunReason::NotPublished { problem } => RunReason::NotPublished { problem: clip(problem, MESSAGE) },
        RunReason::AutoRollbackFailed { version, within, problem } => {
            RunReason::AutoRollbackFailed { version: version.clone(), within: *within, problem: clip(problem, MESSAGE) }
        }
        RunReason::NoPreview { program } => RunReason::NoPreview { program: clip(program, WORD) },
        RunReason::ReleaseRefused { refusal: it } => RunReason::ReleaseRefused { refusal: refusal(it) },
        RunReason::NotCompiled
        | RunReason::ResourcesFailed { .. }
        | RunReason::Interrupted { .. }
        | RunReason::PublishedTooMuch { .. } => reason.clone(),
    }
}

fn refusal(refusal: &ReleaseRefusal) -> ReleaseRefusal {
    match refusal {
        ReleaseRefusal::UnknownKey { signed_by } => {
            ReleaseRefusal::UnknownKey { signed_by: signed_by.iter().take(LIST).map(|key| clip(key, WORD)).collect() }
        }
        ReleaseRefusal::BadSignature { key } => ReleaseRefusal::BadSignature { key: clip(key, WORD) },
        ReleaseRefusal::ManifestMismatch { what } => ReleaseRefusal::ManifestMismatch { what: clip(what, MESSAGE) },
        ReleaseRefusal::Unsafe { problem } => ReleaseRefusal::Unsafe { problem: clip(problem, MESSAGE) },
        ReleaseRefusal::OtherContent { version, known, found } => ReleaseRefusal::OtherContent {
            version: version.clone(),
            known: clip(known, WORD),
            found: clip(found, WORD),
        },
        ReleaseRefusal::Expired { .. } | ReleaseRefusal::Older { .. } | ReleaseRefusal::OtherEnvironment { .. } => {
            refusal.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invalid(messages: &[&str]) -> Report {
        let check = |message: &&str| serde_json::json!({"name": "greets", "verdict": "failed", "message": message, "millis": 1});
        serde_json::from_value(serde_json::json!({"node": "web1", "incarnation": 1, "seq": 1, "run": "r1",
            "phase": "validated", "result": "failed", "version": "v1", "digest": "", "causes": [],
            "generation": {"epoch": 1, "number": 1}, "facts": {"interfaces": {}},
            "reason": {"kind": "checks_failed", "names": ["greets"]}, "started": "2027-01-15T08:00:00Z",
            "ended": "2027-01-15T08:00:01Z", "checks": messages.iter().map(check).collect::<Vec<_>>()}))
        .unwrap()
    }

    #[test]
    fn failed_checks_have_their_message() {
        let report = invalid(&["answered 500; it said: out of memory"]);
        let said = "check greets: answered 500; it said: out of memory";
        assert_eq!(last_run(&report, None).errors[0].to_string(), said);
        assert_eq!(past_run(&report, None, None).reason.as_deref(), Some(said));
        let long = invalid(&[&"x".repeat(5000), "y", "z"]);
        assert_eq!(last_run(&long, None).errors.len(), ERRORS);
        assert!(past_run(&long, None, None).reason.unwrap().len() <= MESSAGE);
    }

    #[test]
    fn clip_cuts_at_character_boundaries() {
        assert_eq!(clip("short", 10), "short");
        assert_eq!(clip("äöüäöü", 8), "äö…");
        assert_eq!(tail("/a/long/path/site.pp", 8), "…/site.pp");
    }
}
