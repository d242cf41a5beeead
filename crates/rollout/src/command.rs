//! Commands of operators to a rollout, and their effect on its record.
//!
//! A command rewrites the record under its revision, as every step does: once it is acknowledged, no decision that was
//! made before it takes effect.

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

use crate::decision::DecisionInput;
use crate::health::{self, Health};
use crate::step::{IndexedPlan, NodeFacts, Survey, unchanged_guards};

/// Nodes that a record may name, which keeps it small. To skip more of them, make another plan.
pub const MAX_NAMED_NODES: usize = 80;
/// Text of operators and checks is cut to this many bytes, for the same reason.
pub const MAX_TEXT: usize = 300;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RolloutCommand {
    /// Grants nothing until the rollout is resumed, whatever else has stopped it or stops it later.
    Pause {
        reason: String,
    },
    /// Continues. Failures up to now no longer stop the rollout. A gate that failed or was inconclusive is checked
    /// again.
    Resume,
    Abort {
        reason: String,
    },
    /// Starts the next wave after a gate has passed, or after an operator has reviewed a gate that has not. A pause by
    /// an operator stays in effect.
    Promote {
        /// Also promotes all later waves of this rollout.
        full: bool,
    },
    /// Continues without a node. It stays at its last desired version until another rollout moves it. The rollout does
    /// not wait for it and does not count it as failed. While it is down it uses the budget, as every node does.
    Skip {
        node: NodeName,
    },
    /// Grants failed nodes again, and a node with a disconnected agent once it is back. Until then it does not count as
    /// failed. A rollout that stopped because of failures or without progress continues; one that an operator paused
    /// does not.
    Retry(RetryTarget),
    /// Frees the budget slot of a node that will not recover. If it is granted again, it needs a slot again.
    Release {
        node: NodeName,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryTarget {
    Nodes(Vec<NodeName>),
    AllFailed,
}

/// The change that a command makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandEffect {
    pub record: RolloutRecord,
    /// The node that a skip keeps at its version.
    pub skipped: Option<SkippedNode>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedNode {
    pub node: NodeName,
    pub desired: DesiredRecord,
    pub record_at: Option<Revision>,
    pub desired_at: Option<Revision>,
}

#[derive(Debug, Error)]
pub enum CommandRefused {
    #[error("rollout {id} is {phase}: there is nothing to {verb} any more")]
    RolloutEnded { id: RolloutId, phase: &'static str, verb: &'static str },
    #[error("no wave of rollout {id} waits for a promotion: {instead}")]
    NothingToPromote { id: RolloutId, instead: String },
    #[error("rollout {id} moved all nodes at once: nodes cannot be skipped or retried")]
    AtOnce { id: RolloutId },
    #[error("there is no node {node} in the design{}", did_you_mean(.nearest.as_ref()))]
    UnknownNode { node: NodeName, nearest: Option<String> },
    #[error("{node} has not failed in this rollout: {state}")]
    NotFailed { node: NodeName, state: &'static str },
    #[error("no node has failed in rollout {id}")]
    NoFailedNode { id: RolloutId },
    #[error(
        "the failed nodes of rollout {id} are unknown, since its plan cannot be read (`muster rollout status` shows why); \
         restore the plan, or continue with `muster rollout resume`"
    )]
    NoPlan { id: RolloutId },
    #[error("{node} is healthy: it holds no slot, or frees it in a moment")]
    HoldsNoSlot { node: NodeName },
    #[error("rollout {id} names {count} nodes already, and its record has no room for more; make a new plan")]
    TooManyNodes { id: RolloutId, count: usize },
}

fn did_you_mean(nearest: Option<&String>) -> String {
    nearest.map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}

impl RolloutCommand {
    /// True if the command needs the plan. Commands that stop or end a rollout do not.
    pub(crate) fn needs_plan(&self) -> bool {
        match self {
            RolloutCommand::Retry(_) => true,
            RolloutCommand::Pause { .. }
            | RolloutCommand::Resume
            | RolloutCommand::Abort { .. }
            | RolloutCommand::Promote { .. }
            | RolloutCommand::Skip { .. }
            | RolloutCommand::Release { .. } => false,
        }
    }
}

/// The change that a command makes; none if it is a no-op. A node has failed if a step would count it as failed.
pub fn apply_command(
    plan: Option<&IndexedPlan>,
    record: &RolloutRecord,
    command: &RolloutCommand,
    by: &str,
    input: &DecisionInput<'_>,
) -> Result<Option<CommandEffect>, CommandRefused> {
    let mut next = record.clone();
    let mut skipped = None;
    let by = &clip(by, MAX_TEXT);
    match command {
        RolloutCommand::Pause { reason } => {
            check_open(record, "pause")?;
            // The first pause stays: its author is the one to contact.
            if matches!(record.phase, RolloutPhase::Paused { why: PauseReason::Operator { .. } }) {
                return Ok(None);
            }
            pause(&mut next, by.clone(), clip(reason, MAX_TEXT), input.now);
        }
        RolloutCommand::Resume => {
            check_open(record, "resume")?;
            if let RolloutPhase::Paused { why } = &record.phase {
                resume(&mut next, why, input);
            }
        }
        RolloutCommand::Abort { reason } => {
            if !matches!(record.phase, RolloutPhase::Aborted { .. }) {
                check_open(record, "abort")?;
                enter_phase(
                    &mut next,
                    RolloutPhase::Aborted { by: by.clone(), reason: clip(reason, MAX_TEXT) },
                    input.now,
                );
            }
        }
        RolloutCommand::Promote { full } => {
            check_open(record, "promote")?;
            promote(&mut next, *full, by.clone(), input)?;
        }
        RolloutCommand::Skip { node } => {
            check_open(record, "skip")?;
            let known = known_node(input.fleet, node)?;
            // An at-once rollout has moved all nodes already, except those that are cordoned.
            if known.cordon().is_none() {
                check_staged(record)?;
            }
            if !record.operator.skipped.contains(node) {
                check_room(record, 1)?;
                skipped = keep_version(input, record, node, known);
                next.operator.skipped.insert(node.clone());
                next.operator.retry.remove(node);
                next.operator.released.remove(node);
                next.steps.progress = input.now;
            }
        }
        RolloutCommand::Retry(which) => {
            check_open(record, "retry")?;
            check_staged(record)?;
            let plan = plan.ok_or(CommandRefused::NoPlan { id: record.id })?;
            retry(&mut next, which, &Survey::new(plan, record, input), input)?;
        }
        RolloutCommand::Release { node } => {
            check_open(record, "release")?;
            let known = known_node(input.fleet, node)?;
            if !record.operator.released.contains(node) {
                if health::is_available(input, record, node, known) {
                    return Err(CommandRefused::HoldsNoSlot { node: node.clone() });
                }
                check_room(record, 1)?;
                next.operator.released.insert(node.clone());
                next.steps.progress = input.now;
            }
        }
    }
    if next == *record {
        return Ok(None);
    }
    next.steps.seen = input.fleet.revision;
    Ok(Some(CommandEffect { record: next, skipped }))
}

fn pause(record: &mut RolloutRecord, by: String, reason: String, now: Timestamp) {
    let over = match &record.phase {
        RolloutPhase::Paused { why } => Some(Box::new(why.clone())),
        RolloutPhase::Running
        | RolloutPhase::Completed
        | RolloutPhase::Aborted { .. }
        | RolloutPhase::RolledBack { .. }
        | RolloutPhase::Superseded { .. } => None,
    };
    enter_phase(record, RolloutPhase::Paused { why: PauseReason::Operator { by, reason, over } }, now);
}

impl CommandEffect {
    /// The transaction. It is refused if the rollout's record was rewritten since `at`.
    pub fn txn(&self, fleet: &Fleet, at: Revision) -> Result<Txn, serde_json::Error> {
        let keys = Keys::new(&fleet.env);
        let mut txn = unchanged_guards(&keys, fleet, &self.record, at);
        txn.ops.push(Op::put_json(keys.rollout(self.record.id), &self.record)?);
        if let Some(SkippedNode { node, desired, record_at, desired_at }) = &self.skipped {
            txn.guards.push(Guard::observed(keys.node(node), *record_at));
            txn.guards.push(Guard::observed(keys.desired(node), *desired_at));
            txn.ops.push(Op::put_json(keys.desired(node), desired)?);
        }
        Ok(txn)
    }
}

fn enter_phase(record: &mut RolloutRecord, phase: RolloutPhase, now: Timestamp) {
    record.phase = phase;
    record.phase_since = now;
    record.steps.idle = None;
    record.steps.progress = now;
}

fn resume(record: &mut RolloutRecord, why: &PauseReason, input: &DecisionInput<'_>) {
    match why {
        PauseReason::Operator { over: Some(why), .. } | PauseReason::NoRollbackTarget { why } => {
            return resume(record, why, input);
        }
        PauseReason::Failures { .. } => record.operator.reviewed = Some(everything_visible(input)),
        PauseReason::GateFailed { .. } | PauseReason::GateInconclusive { .. } => drop_verdict(record),
        // Failures during an operator's pause have not been reviewed when the pause ends.
        PauseReason::Operator { over: None, .. } | PauseReason::NoProgress { .. } | PauseReason::Blocked { .. } => {}
    }
    if reports_changed(record, input) {
        drop_verdict(record);
    }
    enter_phase(record, RolloutPhase::Running, input.now);
}

/// Drops the gate's verdict, and the gate is checked again before it can be promoted. A promotion that was made
/// meanwhile stays.
fn drop_verdict(record: &mut RolloutRecord) {
    if let Some(wave) = record.waves.last_mut().filter(|wave| wave.promoted.is_none()) {
        wave.gate = None;
    }
}

/// True if a node has reported something else since the wave settled. No step ran while the rollout was paused: the
/// next one would drop a promotion that was based on the old reports, without notice.
fn reports_changed(record: &RolloutRecord, input: &DecisionInput<'_>) -> bool {
    let Some(settled) = record.waves.last().and_then(|wave| wave.settled) else { return false };
    let is_other = |node: &Node| node.state().is_none_or(|(state, leaf)| !state.is_validated() || leaf.since > settled);
    let is_granted = |name| input.fleet.granted(name).is_some_and(|(grant, _)| grant.rollout == record.id);
    input.fleet.designed().any(|(name, node, _)| is_granted(name) && is_other(node))
}

/// Everything that is visible now.
fn everything_visible(input: &DecisionInput<'_>) -> FailureCutoff {
    FailureCutoff::up_to(input.fleet.epoch(), input.fleet.revision, input.now)
}

fn promote(
    record: &mut RolloutRecord,
    full: bool,
    by: String,
    input: &DecisionInput<'_>,
) -> Result<(), CommandRefused> {
    match waits_for_promotion(record) {
        Ok(()) => {}
        Err(_) if full => {
            record.operator.promotes_all = true;
            return Ok(());
        }
        Err(instead) => return Err(CommandRefused::NothingToPromote { id: record.id, instead }),
    }
    record.operator.promotes_all |= full;
    let Some(wave) = record.waves.last_mut().filter(|wave| wave.promoted.is_none()) else { return Ok(()) };
    wave.promoted = Some(Promotion { by, at: input.now });
    // The operator has reviewed the verdict. A pause by an operator stays in effect.
    if let RolloutPhase::Paused { why: PauseReason::GateFailed { .. } | PauseReason::GateInconclusive { .. } } =
        &record.phase
    {
        enter_phase(record, RolloutPhase::Running, input.now);
    }
    Ok(())
}

/// Checks that the current wave waits for a promotion. The error is what it waits for instead.
fn waits_for_promotion(record: &RolloutRecord) -> Result<(), String> {
    let Some(wave) = record.waves.last() else { return Err("it has no waves".to_owned()) };
    let instead = match (wave.passed, &wave.promoted, wave.settled, &wave.gate) {
        (Some(_), _, _, _) => "its last wave has passed",
        // Two operators may promote at the same time.
        (None, Some(_), _, _) | (None, None, Some(_), Some(_)) => return Ok(()),
        (None, None, None, _) if record.steps.idle.is_some() => {
            "its nodes wait for a window, or are paused or cordoned"
        }
        (None, None, None, _) => "its nodes are still being moved",
        (None, None, Some(_), None) => "the wave still soaks, and its gate has not been checked",
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
    which: &RetryTarget,
    survey: &Survey,
    input: &DecisionInput<'_>,
) -> Result<(), CommandRefused> {
    let mut again = BTreeSet::new();
    let mut all = None;
    match which {
        RetryTarget::Nodes(nodes) => {
            for name in nodes {
                known_node(input.fleet, name)?;
                if !record.operator.retry.contains(name) {
                    let state = survey.facts_of(name).map_or(Err("it is not in the fleet"), retryable);
                    state.map_err(|state| CommandRefused::NotFailed { node: name.clone(), state })?;
                    again.insert(name.clone());
                }
            }
            check_room(record, again.len())?;
        }
        RetryTarget::AllFailed => {
            let failed = survey.facts.iter().filter(|fact| fact.failed_how().is_some());
            again.extend(failed.filter_map(|fact| survey.name(fact)).cloned());
            if again.is_empty() && record.operator.retry.is_empty() && record.operator.retry_before.is_none() {
                return Err(CommandRefused::NoFailedNode { id: record.id });
            }
            if check_room(record, again.difference(&record.operator.retry).count()).is_err() {
                again.clear();
                all = Some(everything_visible(input));
            }
        }
    }
    record.operator.retry.append(&mut again);
    record.operator.retry_before = all.or(record.operator.retry_before);
    let stopped_by_them = |why: &PauseReason| match why {
        PauseReason::Failures { .. } | PauseReason::NoProgress { .. } | PauseReason::NoRollbackTarget { .. } => true,
        PauseReason::Operator { .. }
        | PauseReason::GateFailed { .. }
        | PauseReason::GateInconclusive { .. }
        | PauseReason::Blocked { .. } => false,
    };
    if matches!(&record.phase, RolloutPhase::Paused { why } if stopped_by_them(why)) {
        enter_phase(record, RolloutPhase::Running, input.now);
    }
    Ok(())
}

/// Checks that a node may be retried: it has failed. The error is its state.
fn retryable(fact: &NodeFacts) -> Result<(), &'static str> {
    match fact.health {
        Health::Failed { .. } => Ok(()),
        // A retry is pending already.
        Health::Waiting if fact.grant_at.is_some() => Ok(()),
        Health::Waiting => Err("it has not started yet"),
        Health::Moving { .. } => Err("it is being moved"),
        Health::Pending { .. } => Err("it waits for other nodes"),
        Health::Away { .. } => Err("it has been moved, and its agent is disconnected"),
        Health::Soaking { .. } | Health::Healthy { .. } => Err("it has been moved"),
        Health::Skipped => Err("it was skipped"),
        Health::Unprovisioned => Err("it has no machine yet"),
    }
}

/// Keeps the node at its last desired version and generation, and its agent gets no new desired state.
fn keep_version(
    input: &DecisionInput<'_>,
    record: &RolloutRecord,
    name: &NodeName,
    node: &Node,
) -> Option<SkippedNode> {
    let desired = input.fleet.desired_of(name)?;
    let desired = DesiredRecord {
        version: desired.version,
        rollout: record.id,
        granted: input.now,
        expires: None,
        allow_older: desired.allow_older,
        confirm_within: desired.confirm_within,
        kept: Some(desired.generation),
    };
    let desired_at = node.desired.as_ref().map(|(_, at)| *at);
    Some(SkippedNode { node: name.clone(), desired, record_at: node.record_at, desired_at })
}

fn check_open(record: &RolloutRecord, verb: &'static str) -> Result<(), CommandRefused> {
    if record.phase.is_open() {
        return Ok(());
    }
    Err(CommandRefused::RolloutEnded { id: record.id, phase: record.phase.word(), verb })
}

fn check_staged(record: &RolloutRecord) -> Result<(), CommandRefused> {
    if record.at_once { Err(CommandRefused::AtOnce { id: record.id }) } else { Ok(()) }
}

fn check_room(record: &RolloutRecord, more: usize) -> Result<(), CommandRefused> {
    let count = record.operator.skipped.len() + record.operator.released.len() + record.operator.retry.len();
    if count + more > MAX_NAMED_NODES { Err(CommandRefused::TooManyNodes { id: record.id, count }) } else { Ok(()) }
}

fn known_node<'a>(fleet: &'a Fleet, name: &NodeName) -> Result<&'a Node, CommandRefused> {
    fleet.get(name).filter(|node| node.is_designed()).ok_or_else(|| {
        let names = fleet.designed().map(|(name, _, _)| name.as_str());
        let nearest = spelling::nearest(name.as_str(), names).map(str::to_owned);
        CommandRefused::UnknownNode { node: name.clone(), nearest }
    })
}
