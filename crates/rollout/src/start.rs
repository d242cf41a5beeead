//! How a rollout begins: one transaction, in which the environment gets its new version, and nobody moves yet.

use muster_core::fleet::{Fleet, Node};
use muster_core::keys::Keys;
use muster_core::names::{NodeName, Version};
use muster_core::node::service_state::ServiceState;
use muster_core::release::AllowOlder;
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::RolloutPlan;
use muster_core::rollout::record::{ActiveRollout, FromVersion, PauseReason, RolloutPhase, RolloutRecord, WaveState};
use muster_core::txn::{Generation, Guard, Op, Revision, Txn};
use thiserror::Error;

use crate::health::grant_of;
use crate::outgrown;
use crate::sight::Sight;
use crate::unwell::is_still_being_made;

/// So many rollouts are remembered.
pub const REMEMBERED: usize = 50;
/// So many are forgotten at a time, so that the transaction stays small.
const FORGOTTEN_AT_ONCE: usize = 8;

/// Who wants a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Starting {
    /// Made by whoever asks: the same request again is the same rollout.
    pub request: String,
    pub by: String,
    /// Take the place of a rollout that is not over.
    pub supersede: bool,
}

/// A rollout that begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    pub id: RolloutId,
    /// None if the same request has started it before.
    pub txn: Option<Txn>,
}

#[derive(Debug, Error)]
pub enum StartRefused {
    #[error(
        "rollout {id} to {to} is {phase}: {}; end it with `muster rollout abort`, or take its place with --supersede",
        how_far(*.sent, *.validated)
    )]
    Open { id: RolloutId, to: Version, phase: &'static str, sent: usize, validated: usize },
    #[error("the environment is being destroyed")]
    Destroying,
    #[error("the environment is being restored from a backup; wait until that is done, then start again")]
    Restoring,
    #[error(
        "nobody can say what the nodes should run: rollouts/active in the store cannot be read; put it right (muster status \
         says what is wrong with it), then start again"
    )]
    Unreadable,
    #[error("release {version} is not in the environment; push it with `muster release push`, then start again")]
    NoRelease { version: Version },
    #[error("release {version} is another one than the one that was planned for; make a new plan")]
    AnotherRelease { version: Version },
    #[error(
        "this plan takes rollout {id} back: such a plan is not started but made and begun together, by \
         `muster rollout rollback`"
    )]
    IsWayBack { id: RolloutId },
    #[error("rollout {id} is {phase}; there is nothing of it to go back from")]
    NotGoverning { id: RolloutId, phase: &'static str },
    #[error("rollout {id} was rolled back by rollout {by} already")]
    RolledBackAlready { id: RolloutId, by: RolloutId },
    #[error(
        "rollout {id} is itself the way back from rollout {back_from}, to {to}; to leave {to}, start a version, or say \
         `--id {id}`"
    )]
    IsRollback { id: RolloutId, back_from: RolloutId, to: Version },
    #[error("what is to be stored cannot be written as JSON")]
    Unwritable(#[from] serde_json::Error),
}

fn how_far(sent: usize, validated: usize) -> String {
    let nodes = match sent {
        0 => return "it has sent no node there yet".to_owned(),
        1 => "1 node".to_owned(),
        _ => format!("{sent} nodes"),
    };
    let are = if validated == 1 { "is" } else { "are" };
    format!("it has sent {nodes} there, of which {validated} {are} validated")
}

/// Begins a rollout. `plan_digest` names the blob that holds the plan.
pub fn start(
    sight: &Sight<'_>,
    plan: &RolloutPlan,
    plan_digest: &str,
    starting: Starting,
) -> Result<Started, StartRefused> {
    if let Some(record) = of_request(sight.fleet, &starting.request) {
        return Ok(Started { id: record.id, txn: None });
    }
    // It must end the rollout that it takes back, and has laxer rules than anybody may ask for.
    if let Some(id) = plan.rolls_back {
        return Err(StartRefused::IsWayBack { id });
    }
    let open = sight.fleet.deciding_rollout().filter(|(record, _)| record.phase.is_open());
    let Some((old, at)) = open else { return begin(sight, plan, plan_digest, starting, None) };
    may_take_over(sight.fleet, starting.supersede)?;
    begin(sight, plan, plan_digest, starting, Some((old, at, &|by| RolloutPhase::Superseded { by })))
}

/// Whether a rollout may begin: none is under way, or its place is to be taken. One that told everybody at its start has
/// nothing left to grant: it only watches, and gives way.
pub fn may_take_over(fleet: &Fleet, supersede: bool) -> Result<(), StartRefused> {
    match fleet.deciding_rollout() {
        Some((old, _)) if old.phase.is_open() && !supersede && !old.at_once => {
            let (sent, validated) = sent_by(fleet, old);
            Err(StartRefused::Open { id: old.id, to: old.to.clone(), phase: old.phase.word(), sent, validated })
        }
        Some(_) | None => Ok(()),
    }
}

/// How many nodes a rollout has sent to its target, and how many of those have said that they are there. What its record says
/// was so at its last step; and how many it moves in all, only its plan says.
fn sent_by(fleet: &Fleet, record: &RolloutRecord) -> (usize, usize) {
    let sent = || fleet.designed().filter_map(|(_, node, _)| grant_of(record, node).map(|(_, at)| (node, at)));
    let is_there = |(node, at): &(&Node, Revision)| {
        let runs_it = |state: &ServiceState| state.is_validated() && *state.version() == record.to;
        node.has_answered(Generation { epoch: fleet.epoch(), number: at.0 })
            && node.state().is_some_and(|(state, _)| runs_it(state))
    };
    (sent().count(), sent().filter(is_there).count())
}

/// Begins the rollout that goes back from another one, and ends that. It does so once: the record of the old one says by
/// which it was rolled back, and is compared.
pub fn roll_back(
    sight: &Sight<'_>,
    plan: &RolloutPlan,
    plan_digest: &str,
    starting: Starting,
    back_from: (&RolloutRecord, Revision),
    why: &PauseReason,
) -> Result<Started, StartRefused> {
    if let Some(record) = of_request(sight.fleet, &starting.request) {
        return Ok(Started { id: record.id, txn: None });
    }
    let (old, at) = back_from;
    may_go_back(sight.fleet, old)?;
    let ended = |by| RolloutPhase::RolledBack { by, why: why.clone() };
    begin(sight, plan, plan_digest, starting, Some((old, at, &ended)))
}

/// Whether a rollout can be gone back from: it was not yet, and it decides what nodes run.
pub fn may_go_back(fleet: &Fleet, old: &RolloutRecord) -> Result<(), StartRefused> {
    match &old.phase {
        RolloutPhase::RolledBack { by, .. } => return Err(StartRefused::RolledBackAlready { id: old.id, by: *by }),
        RolloutPhase::Running
        | RolloutPhase::Paused { .. }
        | RolloutPhase::Completed
        | RolloutPhase::Aborted { .. }
        | RolloutPhase::Superseded { .. } => {}
    }
    if fleet.active_rollout().is_none_or(|(active, _)| active.id != old.id) {
        return Err(StartRefused::NotGoverning { id: old.id, phase: old.phase.word() });
    }
    Ok(())
}

/// The last version that a whole rollout has validated (nobody set aside, nobody failed, somebody well), for going back from another one; or, where none has, what every node
/// had proved when that one began: the first version of an environment comes with its nodes, not by a rollout. Going back
/// from a version to itself is not going back.
pub fn stable_version(fleet: &Fleet, except: RolloutId) -> Option<Version> {
    let leaving = fleet.rollouts().get(&except).map(|(record, _)| record);
    let left = leaving.map(|record| &record.to);
    let completed = fleet.rollouts().values().rev().filter(|(record, _)| is_whole(record));
    let others = completed.filter(|(record, _)| record.id != except && Some(&record.to) != left);
    let proved = leaving.filter(|record| record.from_proved && record.from.as_ref() != left);
    others.map(|(record, _)| record.to.clone()).next().or_else(|| proved.and_then(|record| record.from.clone()))
}

fn is_whole(record: &RolloutRecord) -> bool {
    record.phase == RolloutPhase::Completed && record.whole
}

/// Whether every node of the design has proved that it runs a version, and was told nothing else since.
fn is_proved(fleet: &Fleet, version: &Version) -> bool {
    let mut nodes = fleet.designed().filter(|(_, node, _)| !is_still_being_made(node)).peekable();
    let runs = |node: &Node| node.state().is_some_and(|(state, _)| state.is_validated() && state.version() == version);
    let proves = |name: &NodeName, node: &Node| runs(node) && !fleet.late().contains(name);
    nodes.peek().is_some() && nodes.all(|(name, node, _)| proves(name, node))
}

/// A rollout whose place is taken, and how it ends by that.
type Ended<'a> = (&'a RolloutRecord, Revision, &'a dyn Fn(RolloutId) -> RolloutPhase);

fn begin(
    sight: &Sight<'_>,
    plan: &RolloutPlan,
    plan_digest: &str,
    starting: Starting,
    ended: Option<Ended<'_>>,
) -> Result<Started, StartRefused> {
    let Sight { fleet, now, .. } = *sight;
    may_begin(fleet, plan)?;
    let keys = Keys::new(&fleet.env);
    let active = fleet.active_rollout();
    let newest = fleet.rollouts().keys().next_back().copied().unwrap_or_default();
    let id = newest.max(active.map(|(active, _)| active.id).unwrap_or_default()).next();
    // Before the first version there is nothing that nodes could stay at.
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
        from_proved: from.as_ref().is_some_and(|from| is_proved(fleet, &from.version)),
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
        whole: false,
        full: false,
        skipped: Default::default(),
        released: Default::default(),
        retry: Default::default(),
        retry_before: None,
        forgiven: None,
        said: Vec::new(),
        healthy: 0,
        progress: now,
        idle: None,
        grants: 0,
        seen: fleet.revision,
    };
    let governing = ActiveRollout { id, from, to: plan.to.clone(), floor, at_once, completed: false };
    let current_at = fleet.current_version().map(|(_, at)| at);
    let mut txn = Txn::new()
        .guard(Guard::Absent { key: keys.destroying() })
        .guard(Guard::Absent { key: keys.restoring() })
        .guard(Guard::observed(keys.active_rollout(), active.map(|(_, at)| at)))
        .guard(Guard::observed(keys.current_version(), current_at))
        .guard(Guard::Absent { key: keys.rollout(id) })
        .op(Op::put(keys.current_version(), plan.to.as_str()))
        .op(permission(&keys, plan, starting.by)?)
        .op(Op::put_json(keys.active_rollout(), &governing)?)
        .op(Op::put_json(keys.rollout(id), &record)?);
    let mut kept = None;
    if let Some((old, at, phase)) = ended {
        let mut old = RolloutRecord { phase: phase(id), phase_since: now, seen: fleet.revision, ..old.clone() };
        outgrown::fit(&mut old);
        txn = txn
            .guard(Guard::Unchanged { key: keys.rollout(old.id), since: at })
            .op(Op::put_json(keys.rollout(old.id), &old)?);
        kept = Some(old.id);
    }
    for old in outlived(fleet).filter(|old| Some(old.id) != kept) {
        txn.ops.push(Op::delete(keys.rollout(old.id)));
    }
    Ok(Started { id, txn: Some(txn) })
}

fn may_begin(fleet: &Fleet, plan: &RolloutPlan) -> Result<(), StartRefused> {
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
            Err(StartRefused::AnotherRelease { version: plan.to.clone() })
        }
        Some(_) => Ok(()),
    }
}

/// Written with the version: the permission is for this choice of it, and for no later one.
fn permission(keys: &Keys, plan: &RolloutPlan, by: String) -> Result<Op, serde_json::Error> {
    if plan.allow_older {
        Op::put_json(keys.allow_older(), &AllowOlder { version: plan.to.clone(), by })
    } else {
        Ok(Op::delete(keys.allow_older()))
    }
}

/// The rollout that a request has begun.
pub(crate) fn of_request<'a>(fleet: &'a Fleet, request: &str) -> Option<&'a RolloutRecord> {
    let same = fleet.rollouts().values().find(|(record, _)| !request.is_empty() && record.request == request);
    same.map(|(record, _)| record)
}

/// Rollouts that need not be remembered any more. The last ones that were completed are, however old: they say where one
/// can go back to.
fn outlived(fleet: &Fleet) -> impl Iterator<Item = &RolloutRecord> {
    let records = || fleet.rollouts().values().map(|(record, _)| record);
    let completed = records().rev().filter(|record| is_whole(record));
    let needed: Vec<RolloutId> = completed.take(2).map(|record| record.id).collect();
    let active = fleet.active_rollout().map(|(active, _)| active.id);
    // The one that begins is remembered too.
    let old = records().rev().skip(REMEMBERED.saturating_sub(1));
    let old = old.filter(move |record| !needed.contains(&record.id) && Some(record.id) != active);
    old.take(FORGOTTEN_AT_ONCE)
}
