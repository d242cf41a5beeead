//! Builds the transaction that applies an agent's report to the stored status of its node.
//!
//! The transaction is fenced by the revision of `observed/<node>`, so a report that two servers apply moves the status
//! once. `observed` says which status leaf exists, so a move deletes the old leaf by name without searching.

use jiff::Timestamp;

use crate::keys::Keys;
use crate::lookup::published::{self, PUBLISHED_LIMIT, Publication};
use crate::lookup::services::Services;
use crate::names::{NodeName, Role, Version};
use crate::node::decommission::RoleLookups;
use crate::node::service_state::{ConfigureResult, ServiceState, ValidationResult};
use crate::report::drift::DriftRecord;
use crate::report::history::{HistoryInput, HistoryUpdate, NodeHistory};
use crate::report::reason::RunReason;
use crate::report::record::{ActiveRole, LastRun, ObservedRecord, PastFailure, RunningVersion, StatusLeaf};
use crate::report::summary::{self, OBSERVED_LIMIT, clip};
use crate::report::{Cause, Outcome, Report, RunResult, Verdict};
use crate::txn::{Guard, Op, Revision, Txn};

/// Maximum length of a boot id. It is a UUID; anything longer is cut.
const LONGEST_BOOT: usize = 64;

/// Facts that a move is decided on.
#[derive(Clone, Copy, Debug)]
pub struct MoveInput<'a> {
    pub keys: &'a Keys,
    pub node: &'a NodeName,
    /// From the design. An agent cannot choose its role.
    pub role: &'a Role,
    /// Revision of the design record. A report does not restore a node that left the design since.
    pub designed_at: Revision,
    /// True if the node may be active. A leaving node may not.
    pub in_service: bool,
    pub observed: Option<(&'a ObservedRecord, Revision)>,
    pub history: &'a NodeHistory,
    /// Place of this report in the blobs.
    pub log: Option<&'a str>,
    pub now: Timestamp,
}

/// Effect of a report.
#[derive(Clone, Debug, PartialEq)]
pub enum StatusMove {
    Apply(Box<AppliedMove>),
    /// Duplicate: the report was applied before. The agent gets the same response.
    AlreadyApplied,
    /// Stale: older than the last applied report, or of an earlier incarnation. No-op.
    Outdated,
}

/// Transaction of a report, with the new records.
#[derive(Clone, Debug, PartialEq)]
pub struct AppliedMove {
    pub txn: Txn,
    pub observed: ObservedRecord,
    pub history: HistoryUpdate,
}

/// Decides the effect of a report.
pub fn decide(known: MoveInput<'_>, report: &Report) -> Result<StatusMove, serde_json::Error> {
    let before = known.observed.map(|(observed, _)| observed.clone()).unwrap_or_default();
    match (report.incarnation, report.seq).cmp(&(before.incarnation, before.seq)) {
        std::cmp::Ordering::Less => return Ok(StatusMove::Outdated),
        std::cmp::Ordering::Equal => return Ok(StatusMove::AlreadyApplied),
        std::cmp::Ordering::Greater => {}
    }

    if let Outcome::Previewed(_) = report.outcome {
        return preview(known, before, report);
    }

    // Validations from another epoch of the store do not count: the node may have moved elsewhere meanwhile.
    let same_epoch = before.last.as_ref().is_none_or(|last| last.generation.epoch == report.generation.epoch);
    let unaffected_state =
        before.state.as_ref().filter(|state| same_epoch && is_validation_of_previous_release(state, report));
    let kept_last_run = unaffected_state.and(before.last.clone());
    let state = match (unaffected_state, &kept_last_run) {
        (Some(state), Some(_)) => state.clone(),
        (Some(_) | None, Some(_) | None) => next_state(before.state.as_ref().filter(|_| same_epoch), report),
    };
    let history = history_input(known, &before, report);
    let open = history.next_open();
    let failed_since = next_failed_since(&before, &state, known.now);
    let is_last = kept_last_run.is_none();
    let last = kept_last_run.unwrap_or_else(|| summary::last_run(report, known.log));
    let mut after = ObservedRecord {
        incarnation: report.incarnation,
        seq: report.seq,
        since: if before.state.as_ref() == Some(&state) { before.since } else { Some(known.now) },
        failed_since,
        checks: next_checks(&before, report),
        boot: before.boot.clone(),
        rebooted: next_rebooted(&before, report),
        renewed: next_renewed(&before, report),
        running: next_running(before.running.as_ref().filter(|_| same_epoch), report),
        passed: next_passed(before.passed.as_ref(), report),
        interfaces: summary::interfaces(&report.facts.interfaces),
        services: next_services(&before, report),
        looked_up: next_looked_up(&before, report),
        published: before.published.clone(),
        drift: next_drift(&before, report),
        open,
        failure: failed_since.and_then(|_| next_failure(&before, report, known.log, is_last)),
        run_millis: next_run_millis(&before, &last),
        last: Some(last),
        state: Some(state.clone()),
    };
    let publication = next_publication(&before, report);
    if let Some(publication) = publication {
        after.published = Some(published::tag(publication)).filter(|_| !publication.is_empty());
    }
    let observed = encode(&mut after)?;
    let mut txn = fenced(known);
    move_leaf(&mut txn, known, before.state.as_ref(), &state, report)?;
    move_running(&mut txn, known, before.running.as_ref(), after.running.as_ref(), report)?;
    move_active(&mut txn, known, before.passed.as_ref(), &after, report)?;
    if let Some(publication) = publication {
        let key = known.keys.published(known.node);
        txn.ops.push(if publication.is_empty() { Op::delete(key) } else { Op::put_json(key, publication)? });
    }
    txn.ops.push(Op::put(known.keys.observed(known.node), observed));
    let history = history.write(after.drift.as_ref().map(|drift| &drift.run), &mut txn.ops)?;
    Ok(StatusMove::Apply(Box::new(AppliedMove { txn, observed: after, history })))
}

fn history_input<'a>(known: MoveInput<'a>, before: &'a ObservedRecord, report: &'a Report) -> HistoryInput<'a> {
    let MoveInput { keys, node, history, log, .. } = known;
    HistoryInput { keys, node, history, before, report, log }
}

/// Encodes a record within its limit. The lookups and failures of other runs are dropped if they do not fit.
fn encode(record: &mut ObservedRecord) -> Result<Vec<u8>, serde_json::Error> {
    let mut text = serde_json::to_vec(record)?;
    if text.len() > OBSERVED_LIMIT {
        record.looked_up = RoleLookups::truncated();
        text = serde_json::to_vec(record)?;
    }
    if text.len() > OBSERVED_LIMIT
        && let Some(last) = &mut record.last
    {
        last.first_failure = None;
        record.failure = None;
        text = serde_json::to_vec(record)?;
    }
    Ok(text)
}

/// Guards of each move: the status did not change, and the node is still in the design.
fn fenced(known: MoveInput<'_>) -> Txn {
    Txn::new()
        .guard(Guard::observed(known.keys.observed(known.node), known.observed.map(|(_, at)| at)))
        .guard(Guard::Unchanged { key: known.keys.node(known.node), since: known.designed_at })
}

/// A preview does not change the status. It is recorded in the history and in the order of reports. A timed one finds drift.
fn preview(known: MoveInput<'_>, before: ObservedRecord, report: &Report) -> Result<StatusMove, serde_json::Error> {
    let renewed = next_renewed(&before, report);
    let drift = match report.causes == [Cause::Schedule] {
        true => DriftRecord::after_preview(before.drift.as_ref(), report, known.now),
        false => before.drift.clone(),
    };
    let mut txn = fenced(known);
    let history = history_input(known, &before, report);
    let open = history.next_open();
    let history = history.write(drift.as_ref().map(|drift| &drift.run), &mut txn.ops)?;
    let mut after = ObservedRecord { incarnation: report.incarnation, seq: report.seq, renewed, drift, open, ..before };
    txn.ops.push(Op::put(known.keys.observed(known.node), encode(&mut after)?));
    Ok(StatusMove::Apply(Box::new(AppliedMove { txn, observed: after, history })))
}

/// New publication of the node, if it changed. A publication over the limit is ignored; agents do not send one.
fn next_publication<'a>(before: &ObservedRecord, report: &'a Report) -> Option<&'a Publication> {
    let publication = match report.outcome {
        Outcome::Configured(RunResult::Unchanged | RunResult::Changed) => report.published.as_ref()?,
        Outcome::Configured(RunResult::Failed | RunResult::Pending) | Outcome::Validated(_) | Outcome::Previewed(_) => {
            return None;
        }
    };
    let tag = Some(published::tag(publication)).filter(|_| !publication.is_empty());
    (tag != before.published && published::size(publication) <= PUBLISHED_LIMIT).then_some(publication)
}

/// Incarnation of an agent that connects.
#[derive(Clone, Debug, PartialEq)]
pub struct IncarnationGrant {
    pub incarnation: u64,
    /// None if nothing has to be written: the agent has the newest incarnation, and the machine was not restarted.
    pub txn: Option<Txn>,
}

/// Assigns an incarnation to an agent that connects. It keeps its incarnation if that is the newest, else it gets the
/// next. After a restart of the machine the node is not active until it validates again.
pub fn assign_incarnation(
    keys: &Keys,
    node: &NodeName,
    observed: Option<(&ObservedRecord, Revision)>,
    has: Option<u64>,
    boot: Option<&str>,
) -> Result<IncarnationGrant, serde_json::Error> {
    let before = observed.map(|(observed, _)| observed.clone()).unwrap_or_default();
    let known = has.filter(|has| *has > 0 && *has >= before.incarnation);
    let rebooted = boot.is_some() && boot != before.boot.as_deref();
    if let Some(incarnation) = known
        && !rebooted
    {
        return Ok(IncarnationGrant { incarnation, txn: None });
    }
    let mut after = before.clone();
    if known.is_none() {
        after.incarnation = after.incarnation.saturating_add(1);
        after.seq = 0;
        after.renewed = before.passed.is_some();
    }
    let mut txn = Txn::new().guard(Guard::observed(keys.observed(node), observed.map(|(_, at)| at)));
    if rebooted {
        after.boot = boot.map(|boot| clip(boot, LONGEST_BOOT));
        if let Some(passed) = &before.passed {
            after.rebooted = true;
            txn = txn.op(Op::delete(keys.active_role(passed, node)));
        }
    }
    let incarnation = known.unwrap_or(after.incarnation);
    Ok(IncarnationGrant { incarnation, txn: Some(txn.op(Op::put_json(keys.observed(node), &after)?)) })
}

/// Returns whether a periodic validation was of the last applied release while a newer run is pending or failed before it
/// changed anything. Such a validation decides whether the node is active. State and reason stay those of the newer
/// run.
fn is_validation_of_previous_release(state: &ServiceState, report: &Report) -> bool {
    let is_unfinished = match state {
        ServiceState::Configured { result: ConfigureResult::Pending | ConfigureResult::Failure, version } => {
            *version != report.version
        }
        ServiceState::Configured { result: ConfigureResult::Success, .. } | ServiceState::Validated { .. } => false,
    };
    is_unfinished && matches!(report.outcome, Outcome::Validated(_)) && report.causes == [Cause::Schedule]
}

fn next_state(before: Option<&ServiceState>, report: &Report) -> ServiceState {
    let version = report.version.clone();
    match report.outcome {
        // Nothing changed, so the last validation of this version still holds. It is repeated anyway. A timed run may have
        // repaired drift: the node serves until its checks fail, and a rollout does not wait for it again.
        Outcome::Configured(result @ (RunResult::Unchanged | RunResult::Changed)) => {
            let is_repair = report.causes == [Cause::Schedule];
            let still_holds = |state: &&ServiceState| match state {
                ServiceState::Validated { version: at, .. } => {
                    *at == version && (result == RunResult::Unchanged || (is_repair && state.is_validated()))
                }
                ServiceState::Configured { .. } => false,
            };
            let configured = || ServiceState::Configured { result: ConfigureResult::Success, version: version.clone() };
            before.filter(still_holds).cloned().unwrap_or_else(configured)
        }
        Outcome::Configured(RunResult::Failed) => {
            ServiceState::Configured { result: ConfigureResult::Failure, version }
        }
        Outcome::Configured(RunResult::Pending) => {
            ServiceState::Configured { result: ConfigureResult::Pending, version }
        }
        Outcome::Validated(Verdict::Passed) => ServiceState::Validated { result: ValidationResult::Success, version },
        Outcome::Validated(Verdict::Failed) => ServiceState::Validated { result: ValidationResult::Failure, version },
        // Handled before. This arm would leave the state unchanged.
        Outcome::Previewed(_) => {
            before.cloned().unwrap_or(ServiceState::Configured { result: ConfigureResult::Pending, version })
        }
    }
}

/// A successful run has removed all differences, unless it had tags.
fn next_drift(before: &ObservedRecord, report: &Report) -> Option<DriftRecord> {
    let is_complete = Cause::options(&report.causes).tags.is_empty();
    match report.outcome {
        Outcome::Configured(RunResult::Unchanged | RunResult::Changed) if is_complete => None,
        Outcome::Configured(RunResult::Unchanged | RunResult::Changed) => before.drift.clone(),
        Outcome::Configured(RunResult::Failed | RunResult::Pending) | Outcome::Validated(_) | Outcome::Previewed(_) => {
            before.drift.clone()
        }
    }
}

fn next_checks(before: &ObservedRecord, report: &Report) -> Option<u32> {
    match report.outcome {
        Outcome::Validated(Verdict::Passed) => report.check_count(),
        Outcome::Validated(Verdict::Failed) => None,
        Outcome::Configured(_) | Outcome::Previewed(_) => before.checks,
    }
}

/// A failure ends when a validation passes.
fn next_failed_since(before: &ObservedRecord, state: &ServiceState, now: Timestamp) -> Option<Timestamp> {
    let failing = before.failing_since();
    match state {
        state if state.is_validated() => None,
        state if state.is_failure() => failing.or(Some(now)),
        ServiceState::Configured { .. } | ServiceState::Validated { .. } => failing,
    }
}

/// The last failed run, if it is not the last one. It is known as long as the node has failed.
fn next_failure(before: &ObservedRecord, report: &Report, log: Option<&str>, is_last: bool) -> Option<PastFailure> {
    if report.outcome.is_failure() {
        let failure = || PastFailure {
            run: report.run.clone(),
            reason: summary::short_reason(report),
            log: log.map(str::to_owned),
        };
        return (!is_last).then(failure);
    }
    let replaced = before.last.as_ref().filter(|last| is_last && last.outcome.is_failure());
    replaced.map(past_failure).or_else(|| before.failure.clone())
}

fn past_failure(last: &LastRun) -> PastFailure {
    let errors: Vec<String> = last.errors.iter().map(ToString::to_string).collect();
    let reason = match &last.reason {
        Some(RunReason::ChecksFailed { .. } | RunReason::HooksFailed { .. }) if !errors.is_empty() => {
            Some(errors.join("; "))
        }
        reason => reason.as_ref().map(ToString::to_string),
    };
    PastFailure { run: last.run.clone(), reason: reason.map(|reason| summary::short(&reason)), log: last.log.clone() }
}

/// Time of the last complete run, if the node has made another one since.
fn next_run_millis(before: &ObservedRecord, last: &LastRun) -> Option<u64> {
    if last.run_time().is_some() {
        return None;
    }
    let replaced = before.last.as_ref().and_then(LastRun::run_time);
    replaced.and_then(|time| u64::try_from(time.as_millis()).ok()).or(before.run_millis)
}

fn next_running(before: Option<&Version>, report: &Report) -> Option<Version> {
    match report.outcome {
        Outcome::Validated(Verdict::Passed) => Some(report.version.clone()),
        Outcome::Validated(Verdict::Failed) => None,
        Outcome::Configured(_)
            if before == Some(&report.version) || applied_nothing(report.outcome, report.reason.as_ref()) =>
        {
            before.cloned()
        }
        Outcome::Configured(_) => None,
        Outcome::Previewed(_) => before.cloned(),
    }
}

fn next_passed(before: Option<&Version>, report: &Report) -> Option<Version> {
    match report.outcome {
        Outcome::Validated(Verdict::Passed) => Some(report.version.clone()),
        Outcome::Validated(Verdict::Failed) => None,
        Outcome::Configured(_) | Outcome::Previewed(_) => before.cloned(),
    }
}

fn next_services(before: &ObservedRecord, report: &Report) -> Services {
    match report.outcome {
        Outcome::Validated(Verdict::Passed) => summary::services(&report.services),
        Outcome::Validated(Verdict::Failed) => Services::new(),
        Outcome::Configured(_) | Outcome::Previewed(_) => before.services.clone(),
    }
}

/// A validation has no lookups of its own.
fn next_looked_up(before: &ObservedRecord, report: &Report) -> RoleLookups {
    match report.outcome {
        Outcome::Configured(RunResult::Unchanged | RunResult::Changed) => RoleLookups::new(&report.lookups),
        Outcome::Configured(RunResult::Failed | RunResult::Pending) | Outcome::Validated(_) | Outcome::Previewed(_) => {
            before.looked_up.clone()
        }
    }
}

/// A validation counts for the running machine only if it was made since the last boot.
fn next_rebooted(before: &ObservedRecord, report: &Report) -> bool {
    let since_start = report.facts.boot.is_none() || report.facts.boot == before.boot;
    match report.outcome {
        Outcome::Validated(Verdict::Passed) => !since_start,
        Outcome::Validated(Verdict::Failed) => false,
        Outcome::Configured(_) | Outcome::Previewed(_) => before.rebooted,
    }
}

/// A validation proves what runs only in the incarnation that reported it.
fn next_renewed(before: &ObservedRecord, report: &Report) -> bool {
    match report.outcome {
        Outcome::Validated(_) => false,
        Outcome::Configured(_) | Outcome::Previewed(_) => {
            before.renewed || (before.passed.is_some() && report.incarnation > before.incarnation)
        }
    }
}

/// Returns whether the run stopped before it changed anything.
pub fn applied_nothing(outcome: Outcome, reason: Option<&RunReason>) -> bool {
    match outcome {
        Outcome::Configured(RunResult::Pending) => true,
        Outcome::Configured(RunResult::Failed) => match reason {
            Some(
                RunReason::NotCompiled
                | RunReason::NotInstalled { .. }
                | RunReason::Release { .. }
                | RunReason::ReleaseRefused { .. }
                | RunReason::NoPreview { .. }
                | RunReason::DigestMismatch { .. },
            ) => true,
            Some(
                RunReason::Waiting { .. }
                | RunReason::ResourcesFailed { .. }
                | RunReason::ExitCode { .. }
                | RunReason::Killed { .. }
                | RunReason::Deadline { .. }
                | RunReason::Interrupted { .. }
                | RunReason::Lost { .. }
                | RunReason::PendingIgnored { .. }
                | RunReason::Machine { .. }
                | RunReason::ChecksFailed { .. }
                | RunReason::HooksFailed { .. }
                | RunReason::PublishedTooMuch { .. }
                | RunReason::NotPublished { .. }
                | RunReason::AutoRollbackFailed { .. },
            )
            | None => false,
        },
        Outcome::Previewed(_) => true,
        Outcome::Configured(RunResult::Unchanged | RunResult::Changed) | Outcome::Validated(_) => false,
    }
}

fn move_leaf(
    txn: &mut Txn,
    known: MoveInput<'_>,
    before: Option<&ServiceState>,
    after: &ServiceState,
    report: &Report,
) -> Result<(), serde_json::Error> {
    if before == Some(after) {
        return Ok(());
    }
    if let Some(before) = before {
        txn.ops.push(Op::delete(known.keys.status(before, known.node)));
    }
    let log = known.log.map(|_| known.keys.log_path(known.node, &report.run));
    let leaf = StatusLeaf { since: known.now, run: report.run.clone(), log };
    txn.ops.push(Op::put_json(known.keys.status(after, known.node), &leaf)?);
    Ok(())
}

fn move_running(
    txn: &mut Txn,
    known: MoveInput<'_>,
    before: Option<&Version>,
    after: Option<&Version>,
    report: &Report,
) -> Result<(), serde_json::Error> {
    if before == after {
        return Ok(());
    }
    if let Some(before) = before {
        txn.ops.push(Op::delete(known.keys.running_version(before, known.node)));
    }
    if let Some(after) = after {
        let value = RunningVersion { since: known.now, run: report.run.clone() };
        txn.ops.push(Op::put_json(known.keys.running_version(after, known.node), &value)?);
    }
    Ok(())
}

/// A node is active from its first passed validation until one fails. An upgrade in between does not change that.
fn move_active(
    txn: &mut Txn,
    known: MoveInput<'_>,
    before: Option<&Version>,
    after: &ObservedRecord,
    report: &Report,
) -> Result<(), serde_json::Error> {
    if matches!(report.outcome, Outcome::Configured(_)) {
        return Ok(());
    }
    if let Some(before) = before.filter(|before| Some(*before) != after.passed.as_ref()) {
        txn.ops.push(Op::delete(known.keys.active_role(before, known.node)));
    }
    if let Some(passed) = &after.passed {
        let key = known.keys.active_role(passed, known.node);
        txn.ops.push(if known.in_service && !after.rebooted {
            let value = ActiveRole::new(known.role.clone(), after);
            // Written even if it exists: the node may have been withdrawn as lost meanwhile.
            Op::put_json(key, &value)?
        } else {
            Op::delete(key)
        });
    }
    Ok(())
}
