//! From what is known of a node and a report to the one transaction that moves its status.
//!
//! Pure: the caller reads, this decides, the store carries out. The transaction is fenced by the revision of
//! `observed/<node>`, so two servers that both apply a report make one move; and it names the old leaf exactly, because
//! `observed` says where it stands, so no move has to search the store for what to remove.

use jiff::Timestamp;

use crate::keys::Keys;
use crate::lookup::published::{self, PUBLISHED_LIMIT, Publication};
use crate::names::{NodeName, Role, Version};
use crate::node::decommission::RoleLookups;
use crate::node::service_state::{ConfigureResult, ServiceState, ValidationResult};
use crate::report::reason::RunReason;
use crate::report::record::{ActiveRole, ObservedRecord, RunHistory, RunningVersion, StatusLeaf};
use crate::report::summary::{self, HistoryUpdate, OBSERVED_LIMIT, clip};
use crate::report::{Cause, Outcome, Report, RunResult, Verdict};
use crate::txn::{Guard, Op, Revision, Txn};

/// The identity of a start is a UUID; whatever else somebody sends is cut to this.
const LONGEST_BOOT: usize = 64;

/// What a move is decided on.
#[derive(Clone, Copy, Debug)]
pub struct MoveInput<'a> {
    pub keys: &'a Keys,
    pub node: &'a NodeName,
    /// From the design: a node cannot claim a role.
    pub role: &'a Role,
    /// When the design said it: a node that has left it meanwhile is not brought back by a report.
    pub designed_at: Revision,
    /// Whether the node may serve others, by its operator's word and the design's: one that leaves may not.
    pub in_service: bool,
    pub observed: Option<(&'a ObservedRecord, Revision)>,
    pub history: &'a RunHistory,
    /// Digest of the blob that holds this report.
    pub log: Option<&'a str>,
    pub now: Timestamp,
}

/// What a report does.
#[derive(Clone, Debug, PartialEq)]
pub enum StatusMove {
    Apply(Box<AppliedMove>),
    /// The same report was applied before: answering "done" again is right.
    AlreadyApplied,
    /// The report is older than what is known, or of an earlier incarnation: it changes nothing.
    Outdated,
}

/// A move that changes something.
#[derive(Clone, Debug, PartialEq)]
pub struct AppliedMove {
    pub txn: Txn,
    pub observed: ObservedRecord,
    pub history: RunHistory,
    /// Blobs that nothing refers to once the transaction is committed.
    pub dropped: Vec<String>,
}

/// Decides what a report changes.
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

    // What was proved in another life of the store proves nothing in this one: the node may have gone elsewhere meanwhile.
    let same_life = before.last.as_ref().is_none_or(|last| last.generation.epoch == report.generation.epoch);
    let left = before.state.as_ref().filter(|state| same_life && is_left_by_a_newer_run(state, report));
    let kept = left.and(before.last.clone());
    let state = match (left, &kept) {
        (Some(state), Some(_)) => state.clone(),
        (Some(_) | None, Some(_) | None) => next_state(before.state.as_ref().filter(|_| same_life), report),
    };
    let mut after = ObservedRecord {
        incarnation: report.incarnation,
        seq: report.seq,
        since: if before.state.as_ref() == Some(&state) { before.since } else { Some(known.now) },
        boot: before.boot.clone(),
        rebooted: next_rebooted(&before, report),
        running: next_running(before.running.as_ref().filter(|_| same_life), report),
        passed: next_passed(before.passed.as_ref(), report),
        interfaces: summary::interfaces(&report.facts.interfaces),
        looked_up: next_looked_up(&before, report),
        published: before.published.clone(),
        last: Some(kept.unwrap_or_else(|| summary::last_run(report, known.log))),
        state: Some(state.clone()),
    };
    let HistoryUpdate { history, text, dropped } = summary::record(known.history, report, known.log)?;
    if let Some(last) = &mut after.last
        && last.log.as_ref().is_some_and(|log| dropped.contains(log))
    {
        last.log = None;
    }
    let publication = next_publication(&before, report);
    if let Some(publication) = publication {
        after.published = Some(published::tag(publication)).filter(|_| !publication.is_empty());
    }
    let mut observed = serde_json::to_vec(&after)?;
    if observed.len() > OBSERVED_LIMIT {
        after.looked_up = RoleLookups::too_much();
        observed = serde_json::to_vec(&after)?;
    }
    if observed.len() > OBSERVED_LIMIT
        && let Some(last) = &mut after.last
    {
        last.first_failure = None;
        observed = serde_json::to_vec(&after)?;
    }

    let mut txn = fenced(known);
    move_leaf(&mut txn, known, before.state.as_ref(), &state, report)?;
    move_running(&mut txn, known, before.running.as_ref(), after.running.as_ref(), report)?;
    move_active(&mut txn, known, before.passed.as_ref(), &after, report)?;
    if let Some(publication) = publication {
        let key = known.keys.published(known.node);
        txn.ops.push(if publication.is_empty() { Op::delete(key) } else { Op::put_json(key, publication)? });
    }
    txn = txn.op(Op::put(known.keys.observed(known.node), observed)).op(Op::put(known.keys.history(known.node), text));
    Ok(StatusMove::Apply(Box::new(AppliedMove { txn, observed: after, history, dropped })))
}

/// What every move compares: nobody has moved the node since, and it has not left the design.
fn fenced(known: MoveInput<'_>) -> Txn {
    Txn::new()
        .guard(Guard::observed(known.keys.observed(known.node), known.observed.map(|(_, at)| at)))
        .guard(Guard::Unchanged { key: known.keys.node(known.node), since: known.designed_at })
}

/// A preview moves nothing; it is remembered, and counts in the order of reports.
fn preview(known: MoveInput<'_>, before: ObservedRecord, report: &Report) -> Result<StatusMove, serde_json::Error> {
    let after = ObservedRecord { incarnation: report.incarnation, seq: report.seq, ..before };
    let HistoryUpdate { history, text, dropped } = summary::record(known.history, report, known.log)?;
    let txn = fenced(known)
        .op(Op::put_json(known.keys.observed(known.node), &after)?)
        .op(Op::put(known.keys.history(known.node), text));
    Ok(StatusMove::Apply(Box::new(AppliedMove { txn, observed: after, history, dropped })))
}

/// What the node publishes from now on, if that is something else than before. More than it may publish is as if it had
/// said nothing: its agent does not send that.
fn next_publication<'a>(before: &ObservedRecord, report: &'a Report) -> Option<&'a Publication> {
    let said = match report.outcome {
        Outcome::Configured(RunResult::Unchanged | RunResult::Changed) => report.published.as_ref()?,
        Outcome::Configured(RunResult::Failed | RunResult::Pending) | Outcome::Validated(_) | Outcome::Previewed(_) => {
            return None;
        }
    };
    let tag = Some(published::tag(said)).filter(|_| !said.is_empty());
    (tag != before.published && published::size(said) <= PUBLISHED_LIMIT).then_some(said)
}

/// What an agent that says hello gets.
#[derive(Clone, Debug, PartialEq)]
pub struct IncarnationGrant {
    pub incarnation: u64,
    /// None if the agent is the one that is known, on a machine that was not started again: nothing is written.
    pub txn: Option<Txn>,
}

/// Welcomes an agent: it keeps its incarnation if that is the newest, else it gets the next. If its machine was started
/// again, others do not count on it until it has proved itself once more.
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

/// Whether checks between runs were of the release that the node was brought to last, while a newer run waits or has failed
/// before it changed anything. They say whether others may count on the node; where it stands, and why, is still what the
/// newer run left.
fn is_left_by_a_newer_run(state: &ServiceState, report: &Report) -> bool {
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
        // Nothing changed, so what the validation said of this version still stands; it is being made again anyway.
        Outcome::Configured(RunResult::Unchanged) => match before {
            Some(state @ ServiceState::Validated { version: at, .. }) if *at == version => state.clone(),
            Some(ServiceState::Validated { .. } | ServiceState::Configured { .. }) | None => {
                ServiceState::Configured { result: ConfigureResult::Success, version }
            }
        },
        Outcome::Configured(RunResult::Changed) => {
            ServiceState::Configured { result: ConfigureResult::Success, version }
        }
        Outcome::Configured(RunResult::Failed) => {
            ServiceState::Configured { result: ConfigureResult::Failure, version }
        }
        Outcome::Configured(RunResult::Pending) => {
            ServiceState::Configured { result: ConfigureResult::Pending, version }
        }
        Outcome::Validated(Verdict::Passed) => ServiceState::Validated { result: ValidationResult::Success, version },
        Outcome::Validated(Verdict::Failed) => ServiceState::Validated { result: ValidationResult::Failure, version },
        // Decided before; here it would leave the node where it is, or at nothing that it has proved.
        Outcome::Previewed(_) => {
            before.cloned().unwrap_or(ServiceState::Configured { result: ConfigureResult::Pending, version })
        }
    }
}

fn next_running(before: Option<&Version>, report: &Report) -> Option<Version> {
    match report.outcome {
        Outcome::Validated(Verdict::Passed) => Some(report.version.clone()),
        Outcome::Validated(Verdict::Failed) => None,
        Outcome::Configured(_) if before == Some(&report.version) || applied_nothing(report) => before.cloned(),
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

/// A validation follows a run that has told what it looked up.
fn next_looked_up(before: &ObservedRecord, report: &Report) -> RoleLookups {
    match report.outcome {
        Outcome::Configured(RunResult::Unchanged | RunResult::Changed) => RoleLookups::of(&report.lookups),
        Outcome::Configured(RunResult::Failed | RunResult::Pending) | Outcome::Validated(_) | Outcome::Previewed(_) => {
            before.looked_up.clone()
        }
    }
}

/// A validation proves something of the machine as it runs now only if it was made since the machine's last start.
fn next_rebooted(before: &ObservedRecord, report: &Report) -> bool {
    let since_start = report.facts.boot.is_none() || report.facts.boot == before.boot;
    match report.outcome {
        Outcome::Validated(Verdict::Passed) => !since_start,
        Outcome::Validated(Verdict::Failed) => false,
        Outcome::Configured(_) | Outcome::Previewed(_) => before.rebooted,
    }
}

/// Whether the run left the node exactly as it was: it stopped before it touched anything.
pub fn applied_nothing(report: &Report) -> bool {
    match report.outcome {
        Outcome::Configured(RunResult::Pending) => true,
        Outcome::Configured(RunResult::Failed) => match &report.reason {
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
                | RunReason::PendingIgnored { .. }
                | RunReason::Machine { .. }
                | RunReason::ChecksFailed { .. }
                | RunReason::HooksFailed { .. }
                | RunReason::PublishedTooMuch { .. }
                | RunReason::NotPublished { .. }
                | RunReason::NotGoneBack { .. },
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
    let leaf = StatusLeaf { since: known.now, run: report.run.clone(), log: known.log.map(str::to_owned) };
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

/// Others see a node from its first passed validation until one fails: an upgrade in between does not hide it.
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
            let value = ActiveRole { role: known.role.clone(), interfaces: after.interfaces.clone() };
            // Written even if it was there: the node may have been withdrawn as lost since.
            Op::put_json(key, &value)?
        } else {
            Op::delete(key)
        });
    }
    Ok(())
}
