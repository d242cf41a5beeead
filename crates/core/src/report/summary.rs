//! Bounded summaries of reports for the store. The whole report is a blob.

use crate::lookup::services::{self, Services};
use crate::names::RunId;
use crate::report::drift::RepairedDrift;
use crate::report::reason::{Need, ReleaseRefusal, RunReason};
use crate::report::record::{LastRun, PastRun, RunHistory};
use crate::report::shorten::shorten;
use crate::report::{Cause, FirstFailure, Interfaces, LookupChange, Report, ResourceError, RunOptions};

/// Maximum size of `observed/<node>` in bytes.
pub const OBSERVED_LIMIT: usize = 5 * 1024;
/// Number of runs in `history/<node>`.
pub const HISTORY_LENGTH: usize = 20;
/// Maximum size of `history/<node>` in bytes, well below the limit of a value (16 KiB).
const HISTORY_LIMIT: usize = 12 * 1024;

// The parts of `observed` are bounded so that their sum stays below its limit: errors 2 × 0.5 KiB, the reason 0.6 KiB,
// causes 0.7 KiB, interfaces 0.8 KiB, services 1 KiB, drift 0.3 KiB, and 0.6 KiB of names, digests and times. The first
// failure and the lookups come last and are dropped if they do not fit.
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

/// A history with one more report.
#[derive(Debug)]
pub(crate) struct HistoryUpdate {
    pub(crate) history: RunHistory,
    /// As stored. Computed for the size check and reused.
    pub(crate) text: Vec<u8>,
    /// Blobs of the runs that were dropped.
    pub(crate) dropped: Vec<String>,
}

/// Adds a report to the history. Both reports of a run make one entry. The oldest runs are dropped, except the `kept` one.
pub(crate) fn record(
    history: &RunHistory,
    report: &Report,
    log: Option<&str>,
    kept: Option<&RunId>,
) -> Result<HistoryUpdate, serde_json::Error> {
    let mut runs = history.0.clone();
    let known = runs.iter().position(|past| past.run == report.run).map(|at| runs.remove(at));
    let logs = known.map(|past| past.logs).unwrap_or_default();
    runs.insert(
        0,
        PastRun {
            run: report.run.clone(),
            version: report.version.clone(),
            outcome: report.outcome,
            causes: causes(&report.causes),
            started: report.started,
            ended: report.ended,
            reason: report.reason.as_ref().map(|reason| shorten(&past_reason(reason, report), MESSAGE)),
            checks: report.check_count(),
            repaired: RepairedDrift::of(report),
            logs: logs.into_iter().chain(log.map(str::to_owned)).collect(),
        },
    );
    let mut history = RunHistory(runs);
    let mut dropped = Vec::new();
    let drop_oldest = |history: &mut RunHistory| {
        let oldest = history.0.iter().rposition(|past| Some(&past.run) != kept).unwrap_or_default();
        history.0.remove(oldest).logs
    };
    while history.0.len() > HISTORY_LENGTH {
        dropped.extend(drop_oldest(&mut history));
    }
    loop {
        let text = serde_json::to_vec(&history)?;
        if text.len() <= HISTORY_LIMIT || history.0.len() <= 1 {
            return Ok(HistoryUpdate { history, text, dropped });
        }
        dropped.extend(drop_oldest(&mut history));
    }
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
        let history = record(&RunHistory::default(), &report, None, None).unwrap().history;
        assert_eq!(history.0[0].reason.as_deref(), Some(said));
        let long = invalid(&[&"x".repeat(5000), "y", "z"]);
        assert_eq!(last_run(&long, None).errors.len(), ERRORS);
        let history = record(&RunHistory::default(), &long, None, None).unwrap().history;
        assert!(history.0[0].reason.as_ref().unwrap().len() <= MESSAGE);
    }

    #[test]
    fn clip_cuts_at_character_boundaries() {
        assert_eq!(clip("short", 10), "short");
        assert_eq!(clip("äöüäöü", 8), "äö…");
        assert_eq!(tail("/a/long/path/site.pp", 8), "…/site.pp");
    }
}
