//! Starts a rollout: one transaction sets the environment's version. No node moves yet.

use muster_core::fleet::{Fleet, Node};
use muster_core::keys::Keys;
use muster_core::names::{NodeName, Version};
use muster_core::node::service_state::ServiceState;
use muster_core::release::AllowOlder;
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::RolloutPlan;
use muster_core::rollout::record::{
    ActiveRollout, FromVersion, OperatorDecisions, PauseReason, RolloutPhase, RolloutRecord, StepProgress, WaveState,
};
use muster_core::txn::Generation;
use muster_core::txn::{Guard, Op, Revision, Txn};
use thiserror::Error;

use crate::decision::DecisionInput;
use crate::health::grant_of;
use crate::preflight::is_unprovisioned;
use crate::record_limit;

/// Rollout records that are kept.
pub const MAX_RECORDS: usize = 50;
/// Old records that one transaction deletes, which keeps it small.
const MAX_DELETED_RECORDS: usize = 8;

/// Author and options of a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartOptions {
    /// Id of the request, chosen by the client. The same id again is the same rollout.
    pub request: String,
    pub by: String,
    /// Replace a rollout that has not ended.
    pub supersede: bool,
}

/// A rollout that is about to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartTxn {
    pub id: RolloutId,
    /// None if the same request has started it before.
    pub txn: Option<Txn>,
}

#[derive(Debug, Error)]
pub enum StartRefused {
    #[error(
        "rollout {id} to {to} is {phase}: {}; end it with `muster rollout abort`, or replace it with --supersede",
        describe_progress(*.sent, *.validated)
    )]
    Open { id: RolloutId, to: Version, phase: &'static str, sent: usize, validated: usize },
    #[error("the environment is being destroyed")]
    Destroying,
    #[error("the environment is being restored from a backup; wait until the restore has finished, then start again")]
    Restoring,
    #[error(
        "the desired version of the nodes is unknown, since rollouts/active in the store cannot be read; repair it \
         (`muster status` shows the problem), then start again"
    )]
    Unreadable,
    #[error("release {version} is not in the environment; push it with `muster release push`, then start again")]
    NoRelease { version: Version },
    #[error("release {version} is not the one that the plan was made for; make a new plan")]
    ReleaseChanged { version: Version },
    #[error("this plan rolls rollout {id} back, and such a plan cannot be started: use `muster rollout rollback`")]
    RollbackPlan { id: RolloutId },
    #[error("rollout {id} is {phase} and no longer active: there is nothing to roll back")]
    NotActive { id: RolloutId, phase: &'static str },
    #[error("rollout {id} was rolled back by rollout {by} already")]
    AlreadyRolledBack { id: RolloutId, by: RolloutId },
    #[error(
        "rollout {id} is itself the rollback of rollout {back_from}, to {to}; to leave {to}, start another version, or use \
         `--id {id}`"
    )]
    IsRollback { id: RolloutId, back_from: RolloutId, to: Version },
    #[error("the rollout record cannot be serialised as JSON")]
    Serialize(#[from] serde_json::Error),
}

fn describe_progress(sent: usize, validated: usize) -> String {
    let nodes = match sent {
        0 => return "it has started no node yet".to_owned(),
        1 => "1 node".to_owned(),
        _ => format!("{sent} nodes"),
    };
    let are = if validated == 1 { "is" } else { "are" };
    format!("it has started {nodes}, of which {validated} {are} validated")
}

/// Starts a rollout. `plan_digest` names the blob with the plan.
pub fn start(
    input: &DecisionInput<'_>,
    plan: &RolloutPlan,
    plan_digest: &str,
    starting: StartOptions,
) -> Result<StartTxn, StartRefused> {
    if let Some(record) = rollout_of_request(input.fleet, &starting.request) {
        return Ok(StartTxn { id: record.id, txn: None });
    }
    // A rollback must also end the rollout that it rolls back, and has weaker rules than a client may request.
    if let Some(id) = plan.rolls_back {
        return Err(StartRefused::RollbackPlan { id });
    }
    let open = input.fleet.active_rollout_record().filter(|(record, _)| record.phase.is_open());
    let Some((old, at)) = open else { return start_txn(input, plan, plan_digest, starting, None) };
    check_supersede(input.fleet, starting.supersede)?;
    start_txn(input, plan, plan_digest, starting, Some((old, at, &|by| RolloutPhase::Superseded { by })))
}

/// Refuses to start while another rollout is open, unless it is superseded. An at-once rollout has nothing left to
/// grant and can always be replaced.
pub fn check_supersede(fleet: &Fleet, supersede: bool) -> Result<(), StartRefused> {
    match fleet.active_rollout_record() {
        Some((old, _)) if old.phase.is_open() && !supersede && !old.at_once => {
            let (sent, validated) = granted_and_validated(fleet, old);
            Err(StartRefused::Open { id: old.id, to: old.to.clone(), phase: old.phase.word(), sent, validated })
        }
        Some(_) | None => Ok(()),
    }
}

/// Nodes that a rollout has granted its target, and how many of them have validated it. The counts in the record are of
/// its last step.
fn granted_and_validated(fleet: &Fleet, record: &RolloutRecord) -> (usize, usize) {
    let sent = || fleet.designed().filter_map(|(_, node, _)| grant_of(record, node).map(|(_, at)| (node, at)));
    let is_there = |(node, at): &(&Node, Revision)| {
        let runs_it = |state: &ServiceState| state.is_validated() && *state.version() == record.to;
        node.has_answered(Generation { epoch: fleet.epoch(), number: at.0 })
            && node.state().is_some_and(|(state, _)| runs_it(state))
    };
    (sent().count(), sent().filter(is_there).count())
}

/// Starts the rollback of a rollout, and ends that rollout. This happens once: the old record names its rollback, and
/// is compared.
pub fn roll_back(
    input: &DecisionInput<'_>,
    plan: &RolloutPlan,
    plan_digest: &str,
    starting: StartOptions,
    back_from: (&RolloutRecord, Revision),
    why: &PauseReason,
) -> Result<StartTxn, StartRefused> {
    if let Some(record) = rollout_of_request(input.fleet, &starting.request) {
        return Ok(StartTxn { id: record.id, txn: None });
    }
    let (old, at) = back_from;
    check_can_roll_back(input.fleet, old)?;
    let ended = |by| RolloutPhase::RolledBack { by, why: why.clone() };
    start_txn(input, plan, plan_digest, starting, Some((old, at, &ended)))
}

/// True if a rollout can be rolled back: it is the active one, and was not rolled back before.
pub fn check_can_roll_back(fleet: &Fleet, old: &RolloutRecord) -> Result<(), StartRefused> {
    match &old.phase {
        RolloutPhase::RolledBack { by, .. } => return Err(StartRefused::AlreadyRolledBack { id: old.id, by: *by }),
        RolloutPhase::Running
        | RolloutPhase::Paused { .. }
        | RolloutPhase::Completed
        | RolloutPhase::Aborted { .. }
        | RolloutPhase::Superseded { .. } => {}
    }
    if fleet.active_rollout_pointer().is_none_or(|(active, _)| active.id != old.id) {
        return Err(StartRefused::NotActive { id: old.id, phase: old.phase.word() });
    }
    Ok(())
}

/// The version to roll back to: the last one that the whole fleet has validated, other than the version of `except`.
pub fn stable_version(fleet: &Fleet, except: RolloutId) -> Option<Version> {
    let left = fleet.rollouts().get(&except).map(|(record, _)| &record.to);
    validated_versions(fleet, Some(except)).map(|(_, version)| version).find(|version| Some(*version) != left).cloned()
}

/// Versions that the whole fleet has validated, the last one first, with the rollouts whose records prove it.
///
/// A complete rollout proves its target: no node was skipped or failed, and at least one validated. A rollout also proves
/// the version that every node had validated when it started, since the first version of an environment may come without a
/// rollout, and any number of rollouts may end early after it. The version that a rollback leaves is not proved by the
/// rollback, except for `undone`, the rollout that is rolled back now.
fn validated_versions(fleet: &Fleet, undone: Option<RolloutId>) -> impl Iterator<Item = (RolloutId, &Version)> {
    let records = fleet.rollouts().values().rev().map(|(record, _)| record);
    records.flat_map(move |record| {
        let target = is_complete(record).then_some(&record.to);
        let is_left = record.rolls_back.is_some() && undone != Some(record.id);
        let from = record.from.as_ref().filter(|_| record.from_validated && !is_left);
        [target, from].into_iter().flatten().map(|version| (record.id, version))
    })
}

fn is_complete(record: &RolloutRecord) -> bool {
    record.phase == RolloutPhase::Completed && record.all_nodes_at_target
}

/// True if every node of the design has validated a version, and has no other desired version since.
fn is_validated_by_all(fleet: &Fleet, version: &Version) -> bool {
    let mut nodes = fleet.designed().filter(|(_, node, _)| !is_unprovisioned(node)).peekable();
    let runs = |node: &Node| node.state().is_some_and(|(state, _)| state.is_validated() && state.version() == version);
    let proves = |name: &NodeName, node: &Node| runs(node) && !fleet.late().contains(name);
    nodes.peek().is_some() && nodes.all(|(name, node, _)| proves(name, node))
}

/// A rollout that ends by the start of another one, and its final phase.
type EndedRollout<'a> = (&'a RolloutRecord, Revision, &'a dyn Fn(RolloutId) -> RolloutPhase);

fn start_txn(
    input: &DecisionInput<'_>,
    plan: &RolloutPlan,
    plan_digest: &str,
    starting: StartOptions,
    ended: Option<EndedRollout<'_>>,
) -> Result<StartTxn, StartRefused> {
    let DecisionInput { fleet, now, .. } = *input;
    check_can_start(fleet, plan)?;
    let keys = Keys::new(&fleet.env);
    let active = fleet.active_rollout_pointer();
    let newest = fleet.rollouts().keys().next_back().copied().unwrap_or_default();
    let id = newest.max(active.map(|(active, _)| active.id).unwrap_or_default()).next();
    // Without a version there is nothing that nodes could keep.
    let base = fleet.base();
    let at_once = plan.at_once || base.is_none();
    let floor = if at_once { id } else { active.map(|(active, _)| active.floor).unwrap_or_default() };
    let from = base.map(|base| FromVersion {
        version: base.version,
        generation: base.generation,
        allow_older: base.allow_older,
    });
    let record = RolloutRecord {
        id,
        request: starting.request,
        from: from.as_ref().map(|from| from.version.clone()),
        from_validated: from.as_ref().is_some_and(|from| is_validated_by_all(fleet, &from.version)),
        to: plan.to.clone(),
        plan: plan_digest.to_owned(),
        outcome: None,
        rolls_back: plan.rolls_back,
        at_once,
        by: starting.by.clone(),
        started: now,
        phase: RolloutPhase::Running,
        phase_since: now,
        waves: plan.waves.first().filter(|_| !at_once).map(|_| WaveState::begun(now)).into_iter().collect(),
        all_nodes_at_target: false,
        operator: OperatorDecisions::default(),
        steps: StepProgress { healthy: 0, progress: now, idle: None, grants: 0, seen: fleet.revision },
    };
    let pointer = ActiveRollout { id, from, to: plan.to.clone(), floor, at_once, completed: false };
    let current_at = fleet.current_version().map(|(_, at)| at);
    let mut txn = Txn::new()
        .guard(Guard::Absent { key: keys.destroying() })
        .guard(Guard::Absent { key: keys.restoring() })
        .guard(Guard::observed(keys.active_rollout(), active.map(|(_, at)| at)))
        .guard(Guard::observed(keys.current_version(), current_at))
        .guard(Guard::Absent { key: keys.rollout(id) })
        .op(Op::put(keys.current_version(), plan.to.as_str()))
        .op(permission(&keys, plan, starting.by)?)
        .op(Op::put_json(keys.active_rollout(), &pointer)?)
        .op(Op::put_json(keys.rollout(id), &record)?);
    let mut kept = None;
    if let Some((old, at, phase)) = ended {
        let mut old = RolloutRecord { phase: phase(id), phase_since: now, ..old.clone() };
        old.steps.seen = fleet.revision;
        record_limit::fit(&mut old);
        txn = txn
            .guard(Guard::Unchanged { key: keys.rollout(old.id), since: at })
            .op(Op::put_json(keys.rollout(old.id), &old)?);
        kept = Some(old.id);
    }
    for old in expired_records(fleet).filter(|old| Some(old.id) != kept) {
        txn.ops.push(Op::delete(keys.rollout(old.id)));
    }
    Ok(StartTxn { id, txn: Some(txn) })
}

fn check_can_start(fleet: &Fleet, plan: &RolloutPlan) -> Result<(), StartRefused> {
    if fleet.restoring().is_some() {
        return Err(StartRefused::Restoring);
    }
    if fleet.destroying().is_some() {
        return Err(StartRefused::Destroying);
    }
    if fleet.rollouts_unreadable() {
        return Err(StartRefused::Unreadable);
    }
    match fleet.releases().get(&plan.to) {
        None => Err(StartRefused::NoRelease { version: plan.to.clone() }),
        Some(release) if release.digest != plan.digest => {
            Err(StartRefused::ReleaseChanged { version: plan.to.clone() })
        }
        Some(_) => Ok(()),
    }
}

/// The permission is written with the version that it is for, and ends with it.
fn permission(keys: &Keys, plan: &RolloutPlan, by: String) -> Result<Op, serde_json::Error> {
    if plan.allow_older {
        Op::put_json(keys.allow_older(), &AllowOlder { version: plan.to.clone(), by })
    } else {
        Ok(Op::delete(keys.allow_older()))
    }
}

/// The rollout that a request has started.
pub(crate) fn rollout_of_request<'a>(fleet: &'a Fleet, request: &str) -> Option<&'a RolloutRecord> {
    let same = fleet.rollouts().values().find(|(record, _)| !request.is_empty() && record.request == request);
    same.map(|(record, _)| record)
}

/// Rollout records that can be deleted. Those that prove the last two validated versions are kept however old they are:
/// one of them is the version to roll back to.
fn expired_records(fleet: &Fleet) -> impl Iterator<Item = &RolloutRecord> {
    let records = || fleet.rollouts().values().map(|(record, _)| record);
    let last = validated_versions(fleet, None).next();
    let other = validated_versions(fleet, None).find(|(_, version)| last.is_some_and(|(_, last)| last != *version));
    let needed: Vec<RolloutId> = last.into_iter().chain(other).map(|(id, _)| id).collect();
    let active = fleet.active_rollout_pointer().map(|(active, _)| active.id);
    // The rollout that starts counts too.
    let old = records().rev().skip(MAX_RECORDS.saturating_sub(1));
    let old = old.filter(move |record| !needed.contains(&record.id) && Some(record.id) != active);
    old.take(MAX_DELETED_RECORDS)
}
