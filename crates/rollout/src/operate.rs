//! What an operator may say to a rollout. Each word rewrites the record under its revision, as every step does: once it is
//! acknowledged, nothing follows that was decided before it.

use std::collections::BTreeSet;

use jiff::Timestamp;
use muster_core::fleet::{Fleet, Node};
use muster_core::keys::Keys;
use muster_core::names::NodeName;
use muster_core::report::summary::clip;
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::{DesiredRecord, FailureCutoff, PauseReason, Promotion, RolloutPhase, RolloutRecord};
use muster_core::spelling;
use muster_core::txn::{Guard, Op, Revision, Txn};
use thiserror::Error;

use crate::health::{self, Health};
use crate::sight::Sight;
use crate::step::{Fact, Indexed, Survey, untouched};

/// So many nodes can be named in a record, so that it stays small: whoever sets more aside wants another plan.
pub const MOST_NAMED: usize = 80;
/// What somebody says is cut to this, in bytes, for the same reason.
pub const LONGEST_WORDS: usize = 300;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Grant nothing more until somebody resumes, whatever else has stopped it or stops it later.
    Pause {
        reason: String,
    },
    /// Go on. Failures that were seen no longer stop it; checks that could not say, or said no, are made again.
    Resume,
    Abort {
        reason: String,
    },
    /// Let the next wave begin: the gate has passed, or has stopped the rollout and somebody has looked. An operator's pause
    /// lasts all the same.
    Promote {
        /// And do not ask again in this rollout.
        full: bool,
    },
    /// Go on without a node. It stays where it is, whatever it was told last, until another rollout moves it. It is waited
    /// for no longer, and does not count as failed; while it is down it uses the budget up, as every node does that is down.
    Skip {
        node: NodeName,
    },
    /// Grant failed nodes once more; one whose agent is away when that is back. It no longer counts as failed until then. A
    /// rollout that stopped because of failures, or because nothing got better, goes on; one that an operator has paused does
    /// not.
    Retry(Retried),
    /// Let others use the slot of a node that will not give it back. If it is granted something again, it needs one again.
    Release {
        node: NodeName,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Retried {
    Nodes(Vec<NodeName>),
    AllFailed,
}

/// What a command changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operated {
    pub record: RolloutRecord,
    /// A node that is to stay where it is.
    pub kept: Option<Kept>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub node: NodeName,
    pub desired: DesiredRecord,
    pub record_at: Option<Revision>,
    pub desired_at: Option<Revision>,
}

#[derive(Debug, Error)]
pub enum OperateRefused {
    #[error("rollout {id} is {phase}: there is nothing to {verb} any more")]
    Over { id: RolloutId, phase: &'static str, verb: &'static str },
    #[error("no wave of rollout {id} waits for being promoted: {instead}")]
    NothingToPromote { id: RolloutId, instead: String },
    #[error("rollout {id} moved everybody at once: no node can be set aside or granted once more")]
    AtOnce { id: RolloutId },
    #[error("there is no node {node} in the design{}", did_you_mean(.nearest.as_ref()))]
    UnknownNode { node: NodeName, nearest: Option<String> },
    #[error("{node} has not failed in this rollout: {state}")]
    NotFailed { node: NodeName, state: &'static str },
    #[error("no node has failed in rollout {id}")]
    NobodyFailed { id: RolloutId },
    #[error(
        "nobody can tell who has failed in rollout {id}, since its plan cannot be read (`muster rollout status` says why); put \
         that right, or go on with `muster rollout resume`"
    )]
    NoPlan { id: RolloutId },
    #[error("{node} is well: it holds no slot, or gives it back in a moment, so there is nothing to release")]
    HoldsNoSlot { node: NodeName },
    #[error("{count} nodes are named in rollout {id} already, and a record holds no more; make a new plan instead")]
    TooMany { id: RolloutId, count: usize },
}

fn did_you_mean(nearest: Option<&String>) -> String {
    nearest.map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}

impl Command {
    /// Whether it cannot be carried out without the plan. What stops or ends a rollout can.
    pub(crate) fn needs_plan(&self) -> bool {
        match self {
            Command::Retry(_) => true,
            Command::Pause { .. }
            | Command::Resume
            | Command::Abort { .. }
            | Command::Promote { .. }
            | Command::Skip { .. }
            | Command::Release { .. } => false,
        }
    }
}

/// Says what a command changes; nothing if it is so already. Who has failed is what a step would say, by the plan.
pub fn operate(
    plan: Option<&Indexed>,
    record: &RolloutRecord,
    command: &Command,
    by: &str,
    sight: &Sight<'_>,
) -> Result<Option<Operated>, OperateRefused> {
    let mut next = record.clone();
    let mut kept = None;
    let by = &clip(by, LONGEST_WORDS);
    match command {
        Command::Pause { reason } => {
            is_open(record, "pause")?;
            let over = match &record.phase {
                // Who was first is the one to be asked.
                RolloutPhase::Paused { why: PauseReason::Operator { .. } } => return Ok(None),
                RolloutPhase::Paused { why } => Some(Box::new(why.clone())),
                RolloutPhase::Running
                | RolloutPhase::Completed
                | RolloutPhase::Aborted { .. }
                | RolloutPhase::RolledBack { .. }
                | RolloutPhase::Superseded { .. } => None,
            };
            let why = PauseReason::Operator { by: by.clone(), reason: clip(reason, LONGEST_WORDS), over };
            enter(&mut next, RolloutPhase::Paused { why }, sight.now);
        }
        Command::Resume => {
            is_open(record, "resume")?;
            if let RolloutPhase::Paused { why } = &record.phase {
                resume(&mut next, why, sight);
            }
        }
        Command::Abort { reason } => {
            if !matches!(record.phase, RolloutPhase::Aborted { .. }) {
                is_open(record, "abort")?;
                enter(
                    &mut next,
                    RolloutPhase::Aborted { by: by.clone(), reason: clip(reason, LONGEST_WORDS) },
                    sight.now,
                );
            }
        }
        Command::Promote { full } => {
            is_open(record, "promote")?;
            promote(&mut next, *full, by.clone(), sight)?;
        }
        Command::Skip { node } => {
            is_open(record, "skip")?;
            is_staged(record)?;
            let known = known(sight.fleet, node)?;
            if !record.skipped.contains(node) {
                has_room(record, 1)?;
                kept = keep(sight, record, node, known);
                next.skipped.insert(node.clone());
                next.retry.remove(node);
                next.released.remove(node);
                next.progress = sight.now;
            }
        }
        Command::Retry(which) => {
            is_open(record, "retry")?;
            is_staged(record)?;
            let plan = plan.ok_or(OperateRefused::NoPlan { id: record.id })?;
            retry(&mut next, which, &Survey::take(plan, record, sight), sight)?;
        }
        Command::Release { node } => {
            is_open(record, "release")?;
            let known = known(sight.fleet, node)?;
            if !record.released.contains(node) {
                if health::is_well(sight, record, node, known) {
                    return Err(OperateRefused::HoldsNoSlot { node: node.clone() });
                }
                has_room(record, 1)?;
                next.released.insert(node.clone());
                next.progress = sight.now;
            }
        }
    }
    if next == *record {
        return Ok(None);
    }
    next.seen = sight.fleet.revision;
    Ok(Some(Operated { record: next, kept }))
}

impl Operated {
    /// The transaction, refused if anything of the rollout was decided since `at`.
    pub fn txn(&self, fleet: &Fleet, at: Revision) -> Result<Txn, serde_json::Error> {
        let keys = Keys::new(&fleet.env);
        let mut txn = untouched(&keys, fleet, &self.record, at);
        txn.ops.push(Op::put_json(keys.rollout(self.record.id), &self.record)?);
        if let Some(Kept { node, desired, record_at, desired_at }) = &self.kept {
            txn.guards.push(Guard::observed(keys.node(node), *record_at));
            txn.guards.push(Guard::observed(keys.desired(node), *desired_at));
            txn.ops.push(Op::put_json(keys.desired(node), desired)?);
        }
        Ok(txn)
    }
}

fn enter(record: &mut RolloutRecord, phase: RolloutPhase, now: Timestamp) {
    record.phase = phase;
    record.phase_since = now;
    record.idle = None;
    record.progress = now;
}

fn resume(record: &mut RolloutRecord, why: &PauseReason, sight: &Sight<'_>) {
    match why {
        PauseReason::Operator { over: Some(why), .. } | PauseReason::NoRollbackTarget { why } => {
            return resume(record, why, sight);
        }
        PauseReason::Failures { .. } => record.forgiven = Some(until_now(sight)),
        PauseReason::GateFailed { .. } | PauseReason::GateInconclusive { .. } => forget_checks(record),
        // What has failed while an operator's pause lasted was not seen by whoever ends that.
        PauseReason::Operator { over: None, .. } | PauseReason::NoProgress { .. } | PauseReason::Blocked { .. } => {}
    }
    if has_moved(record, sight) {
        forget_checks(record);
    }
    enter(record, RolloutPhase::Running, sight.now);
}

/// They are made again before anybody can promote on their word. Who has promoted meanwhile has looked.
fn forget_checks(record: &mut RolloutRecord) {
    if let Some(wave) = record.waves.last_mut().filter(|wave| wave.promoted.is_none()) {
        wave.gate = None;
    }
}

/// Whether a node has said something else since the wave was whole. Nobody has looked while the rollout stood still: a
/// promotion that is taken on what was there before would be forgotten at the next look, and nobody would be told.
fn has_moved(record: &RolloutRecord, sight: &Sight<'_>) -> bool {
    let Some(settled) = record.waves.last().and_then(|wave| wave.settled) else { return false };
    let is_other = |node: &Node| node.state().is_none_or(|(state, leaf)| !state.is_validated() || leaf.since > settled);
    let is_granted = |name| sight.fleet.granted(name).is_some_and(|(grant, _)| grant.rollout == record.id);
    sight.fleet.designed().any(|(name, node, _)| is_granted(name) && is_other(node))
}

/// What is there to be seen now.
fn until_now(sight: &Sight<'_>) -> FailureCutoff {
    FailureCutoff::than(sight.fleet.epoch(), sight.fleet.revision, sight.now)
}

fn promote(record: &mut RolloutRecord, full: bool, by: String, sight: &Sight<'_>) -> Result<(), OperateRefused> {
    match waits_for_promotion(record) {
        Ok(()) => {}
        Err(_) if full => {
            record.full = true;
            return Ok(());
        }
        Err(instead) => return Err(OperateRefused::NothingToPromote { id: record.id, instead }),
    }
    record.full |= full;
    let Some(wave) = record.waves.last_mut().filter(|wave| wave.promoted.is_none()) else { return Ok(()) };
    wave.promoted = Some(Promotion { by, at: sight.now });
    // Somebody has looked at what the checks said, and goes on. An operator's own pause is another matter.
    if let RolloutPhase::Paused { why: PauseReason::GateFailed { .. } | PauseReason::GateInconclusive { .. } } =
        &record.phase
    {
        enter(record, RolloutPhase::Running, sight.now);
    }
    Ok(())
}

/// Whether the wave that goes on is a person's turn. Else what it waits for instead.
fn waits_for_promotion(record: &RolloutRecord) -> Result<(), String> {
    let Some(wave) = record.waves.last() else { return Err("it has no waves".to_owned()) };
    let instead = match (wave.passed, &wave.promoted, wave.settled, &wave.gate) {
        (Some(_), _, _, _) => "its last wave has passed",
        // Two operators may say it at the same moment: it is said.
        (None, Some(_), _, _) | (None, None, Some(_), Some(_)) => return Ok(()),
        (None, None, None, _) if record.idle.is_some() => {
            "its nodes wait until a window opens, or until they are no longer paused"
        }
        (None, None, None, _) => "its nodes are still being moved",
        (None, None, Some(_), None) => "the wave is still being watched, and its checks have not been made",
    };
    match &record.phase {
        RolloutPhase::Paused { why: why @ PauseReason::Operator { .. } } => Err(format!("it is {why}")),
        RolloutPhase::Paused { why } => Err(format!("it is paused: {why}")),
        RolloutPhase::Running
        | RolloutPhase::Completed
        | RolloutPhase::Aborted { .. }
        | RolloutPhase::RolledBack { .. }
        | RolloutPhase::Superseded { .. } => Err(instead.to_owned()),
    }
}

fn retry(
    record: &mut RolloutRecord,
    which: &Retried,
    survey: &Survey<'_>,
    sight: &Sight<'_>,
) -> Result<(), OperateRefused> {
    let mut again = BTreeSet::new();
    let mut all = None;
    match which {
        Retried::Nodes(nodes) => {
            for name in nodes {
                known(sight.fleet, name)?;
                if !record.retry.contains(name) {
                    let state = survey.of(name).map_or(Err("it is not there"), retryable);
                    state.map_err(|state| OperateRefused::NotFailed { node: name.clone(), state })?;
                    again.insert(name.clone());
                }
            }
            has_room(record, again.len())?;
        }
        Retried::AllFailed => {
            let failed = survey.facts.iter().filter(|fact| fact.failed_how().is_some());
            again.extend(failed.map(|fact| fact.name.clone()));
            if again.is_empty() && record.retry.is_empty() && record.retry_before.is_none() {
                return Err(OperateRefused::NobodyFailed { id: record.id });
            }
            if has_room(record, again.difference(&record.retry).count()).is_err() {
                again.clear();
                all = Some(until_now(sight));
            }
        }
    }
    record.retry.append(&mut again);
    record.retry_before = all.or(record.retry_before);
    let stopped_by_them = |why: &PauseReason| match why {
        PauseReason::Failures { .. } | PauseReason::NoProgress { .. } | PauseReason::NoRollbackTarget { .. } => true,
        PauseReason::Operator { .. }
        | PauseReason::GateFailed { .. }
        | PauseReason::GateInconclusive { .. }
        | PauseReason::Blocked { .. } => false,
    };
    if matches!(&record.phase, RolloutPhase::Paused { why } if stopped_by_them(why)) {
        enter(record, RolloutPhase::Running, sight.now);
    }
    Ok(())
}

/// Whether a node may be granted once more: it has failed. Else how it stands.
fn retryable(fact: &Fact<'_>) -> Result<(), &'static str> {
    match fact.health {
        Health::Failed { .. } => Ok(()),
        // It is to be granted once more already.
        Health::Waiting if fact.grant_at.is_some() => Ok(()),
        Health::Waiting => Err("it was not granted anything yet"),
        Health::Moving { .. } => Err("it is on its way"),
        Health::Pending { .. } => Err("it waits for others"),
        Health::Away { .. } => Err("it has been moved, and its agent is away"),
        Health::Soaking { .. } | Health::Healthy { .. } => Err("it has been moved"),
        Health::Skipped => Err("it was set aside"),
        Health::NotThere => Err("its machine is not there yet"),
    }
}

/// The node stays at what it was told last, under the generation under which it was told: it is not told anew.
fn keep(sight: &Sight<'_>, record: &RolloutRecord, name: &NodeName, node: &Node) -> Option<Kept> {
    let told = sight.fleet.desired_of(name)?;
    let desired = DesiredRecord {
        version: told.version,
        rollout: record.id,
        granted: sight.now,
        expires: None,
        allow_older: told.allow_older,
        confirm_within: told.confirm_within,
        kept: Some(told.generation),
    };
    let desired_at = node.desired.as_ref().map(|(_, at)| *at);
    Some(Kept { node: name.clone(), desired, record_at: node.record_at, desired_at })
}

fn is_open(record: &RolloutRecord, verb: &'static str) -> Result<(), OperateRefused> {
    if record.phase.is_open() {
        return Ok(());
    }
    Err(OperateRefused::Over { id: record.id, phase: record.phase.word(), verb })
}

fn is_staged(record: &RolloutRecord) -> Result<(), OperateRefused> {
    if record.at_once { Err(OperateRefused::AtOnce { id: record.id }) } else { Ok(()) }
}

fn has_room(record: &RolloutRecord, more: usize) -> Result<(), OperateRefused> {
    let count = record.skipped.len() + record.released.len() + record.retry.len();
    if count + more > MOST_NAMED { Err(OperateRefused::TooMany { id: record.id, count }) } else { Ok(()) }
}

fn known<'a>(fleet: &'a Fleet, name: &NodeName) -> Result<&'a Node, OperateRefused> {
    fleet.get(name).filter(|node| node.is_designed()).ok_or_else(|| {
        let names = fleet.designed().map(|(name, _, _)| name.as_str());
        let nearest = spelling::nearest(name.as_str(), names).map(str::to_owned);
        OperateRefused::UnknownNode { node: name.clone(), nearest }
    })
}
