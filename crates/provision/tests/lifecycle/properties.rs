//! Properties of the planner for any record and any state of a machine.

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use muster_core::node::record::{MachinePhase, MachineRecord, MachineStage};
use muster_provision::driver::MachineState;
use muster_provision::lifecycle::{
    FailureCause, MachineDecision, MachineFacts, MachineHoldReason, MachineStep, PendingDecommission, Policy, decide,
    enter, fail,
};

use super::{at, broken, facts, failed, policy, record, underway, unknown};

fn stage() -> impl Strategy<Value = MachineStage> {
    prop::sample::select(MachineStage::ALL.to_vec())
}

fn seen() -> impl Strategy<Value = MachineState> {
    prop_oneof![
        Just(MachineState::Absent),
        Just(MachineState::Allocated),
        Just(MachineState::Off),
        Just(MachineState::Running),
        stage().prop_map(underway),
        stage().prop_map(broken),
        Just(unknown()),
    ]
}

fn phase() -> impl Strategy<Value = MachinePhase> {
    prop_oneof![
        Just(MachinePhase::Declared),
        stage().prop_map(MachineStage::phase),
        Just(MachinePhase::Provisioned),
        (stage(), 0..600_i64).prop_map(|(stage, second)| failed(stage, Some(at(second)))),
    ]
}

/// A driver that performs all steps, some with a delay and some only after refusals.
struct Model {
    seen: MachineState,
    /// Number of observations in which a step is in progress.
    slow: u32,
    left: u32,
    /// Number of steps that are refused before one is accepted.
    refusals: u32,
    becomes: MachineState,
    steps: Vec<MachineStep>,
}

impl Model {
    fn observe(&mut self) -> MachineState {
        if matches!(self.seen, MachineState::Underway { .. }) {
            if self.left == 0 {
                self.seen = self.becomes.clone();
            } else {
                self.left -= 1;
            }
        }
        self.seen.clone()
    }

    fn step(&mut self, step: MachineStep) -> bool {
        self.steps.push(step);
        if self.refusals > 0 {
            self.refusals -= 1;
            return false;
        }
        self.becomes = match step {
            MachineStep::Allocate => MachineState::Allocated,
            MachineStep::Deploy => MachineState::Off,
            MachineStep::Boot => MachineState::Running,
            MachineStep::Release => MachineState::Absent,
        };
        self.left = self.slow;
        self.seen = if self.slow == 0 { self.becomes.clone() } else { underway(step.stage()) };
        true
    }
}

/// Result of a step that was in progress at the first observation.
fn after_underway(seen: &MachineState) -> MachineState {
    match seen {
        MachineState::Underway { stage: MachineStage::Allocating } => MachineState::Allocated,
        MachineState::Underway { stage: MachineStage::Deploying } => MachineState::Off,
        MachineState::Underway { stage: MachineStage::Releasing } => MachineState::Absent,
        MachineState::Underway { .. } => MachineState::Running,
        settled => settled.clone(),
    }
}

struct Walk {
    end: MachineRecord,
    retired: bool,
    decisions: Vec<MachineDecision>,
}

/// Reconciles until the machine is provisioned, or until the limit of rounds.
fn walk(start: MachineRecord, model: &mut Model, hello_after: SignedDuration, policy: &Policy) -> Walk {
    walk_leaving(start, model, hello_after, policy, None)
}

/// The same for a node that may leave.
fn walk_leaving(
    start: MachineRecord,
    model: &mut Model,
    hello_after: SignedDuration,
    policy: &Policy,
    leaving: Option<PendingDecommission>,
) -> Walk {
    let mut walk = Walk { end: start, retired: false, decisions: Vec::new() };
    let mut now: Timestamp = at(60);
    let mut running_since = None;
    // The longest sequences wait for ten minutes, in rounds of a second.
    for _ in 0..2000 {
        let seen = model.observe();
        running_since = if seen == MachineState::Running { running_since.or(Some(now)) } else { None };
        let connected = running_since.is_some_and(|since| now >= since + hello_after);
        let facts = MachineFacts { leaving: leaving.clone(), ..facts(seen, connected) };
        let decision = decide(Some(&walk.end), &facts, policy, now);
        walk.decisions.push(decision.clone());
        match decision {
            MachineDecision::Hold { .. } if walk.end.phase == MachinePhase::Provisioned && leaving.is_none() => break,
            MachineDecision::Hold { reason: MachineHoldReason::GaveUp { .. } | MachineHoldReason::Lost, .. } => break,
            MachineDecision::Hold { .. } => now += SignedDuration::from_secs(1),
            MachineDecision::Goto { phase, attempt } => walk.end = enter("model", phase, attempt, now),
            MachineDecision::Fail { during, cause, attempt } => {
                walk.end = fail("model", during, &cause, attempt, policy, now)
            }
            MachineDecision::Do { step, attempt } | MachineDecision::Retry { step, attempt } => {
                let retried = matches!(decision, MachineDecision::Retry { .. });
                if !model.step(step) {
                    let cause = FailureCause::Refused { cause: "no".into(), permanent: false };
                    walk.end = fail("model", step.stage(), &cause, attempt, policy, now);
                } else if retried {
                    walk.end = enter("model", step.stage().phase(), attempt, now);
                }
            }
            MachineDecision::Retire => {
                walk.retired = true;
                break;
            }
        }
    }
    walk
}

proptest! {
    #[test]
    fn every_machine_gets_provisioned(
        phase in phase(), seen in seen(), slow in 0..5_u32, refusals in 0..3_u32, hello in 0..100_i64,
    ) {
        // The controller is reachable again.
        let seen = if matches!(seen, MachineState::Unknown { .. }) { MachineState::Off } else { seen };
        let becomes = after_underway(&seen);
        let mut model = Model { seen, slow, left: slow, refusals, becomes, steps: Vec::new() };
        let patient = Policy { poll_interval: Some(SignedDuration::from_secs(1)), ..policy() };
        let walk = walk(record(phase, 1), &mut model, SignedDuration::from_secs(hello), &patient);
        let last = &walk.decisions[walk.decisions.len().saturating_sub(10)..];
        prop_assert_eq!(&walk.end.phase, &MachinePhase::Provisioned, "{:?}", last);
    }

    #[test]
    fn no_step_is_requested_twice(phase in phase(), seen in seen(), slow in 0..5_u32) {
        let seen = if matches!(seen, MachineState::Unknown { .. }) { MachineState::Off } else { seen };
        let becomes = after_underway(&seen);
        let mut model = Model { seen, slow, left: slow, refusals: 0, becomes, steps: Vec::new() };
        let walk = walk(record(phase, 1), &mut model, SignedDuration::ZERO, &policy());
        for (index, step) in model.steps.iter().enumerate() {
            prop_assert!(!model.steps[index + 1..].contains(step), "{:?}: {:?}", model.steps, walk.decisions);
        }
        for pair in walk.decisions.windows(2) {
            let waits = matches!(pair[0], MachineDecision::Hold { .. });
            prop_assert!(waits || pair[0] != pair[1], "{:?}", walk.decisions);
        }
    }

    #[test]
    fn unchanged_record_is_not_written(
        phase in phase(), seen in seen(), connected: bool, attempt in 1..6_u32, second in 0..1000_i64,
    ) {
        let before = record(phase, attempt);
        match decide(Some(&before), &facts(seen, connected), &policy(), at(second)) {
            MachineDecision::Goto { phase, attempt } => prop_assert_ne!((phase, attempt), (before.phase, before.attempt)),
            MachineDecision::Fail { .. } => prop_assert_ne!(before.phase.word(), "failed"),
            MachineDecision::Hold { recheck, .. } => prop_assert!(recheck.is_none_or(|recheck| recheck > at(second))),
            MachineDecision::Do { .. } | MachineDecision::Retry { .. } | MachineDecision::Retire => {}
        }
    }

    #[test]
    fn attempts_only_grow_until_the_machine_has_settled(
        phase in phase(), seen in seen(), connected: bool, attempt in 1..6_u32, second in 60..300_i64,
    ) {
        // A node that is added again after its release starts from the beginning.
        prop_assume!(!phase.is_releasing());
        let before = record(phase, attempt);
        match decide(Some(&before), &facts(seen, connected), &policy(), at(second)) {
            MachineDecision::Goto { attempt: next, .. } | MachineDecision::Fail { attempt: next, .. }
            | MachineDecision::Do { attempt: next, .. } | MachineDecision::Retry { attempt: next, .. } => {
                prop_assert!(next == attempt || next == attempt + 1);
            }
            MachineDecision::Hold { .. } | MachineDecision::Retire => {}
        }
    }

    #[test]
    fn every_decommissioned_machine_is_released(
        phase in phase(), seen in seen(), slow in 0..5_u32, refusals in 0..20_u32, waits in 0..3_usize,
    ) {
        let seen = if matches!(seen, MachineState::Unknown { .. }) { MachineState::Running } else { seen };
        let becomes = after_underway(&seen);
        let mut model = Model { seen, slow, left: slow, refusals, becomes, steps: Vec::new() };
        let patient = Policy { poll_interval: Some(SignedDuration::from_secs(1)), ..policy() };
        // The nodes that it waits for never run.
        let waits_for: Vec<_> = (1..=waits).map(|number| format!("lb{number}").parse().unwrap()).collect();
        let leaving = PendingDecommission { waits_for: waits_for.clone(), until: at(180) };
        let released = phase.is_releasing();
        let walk = walk_leaving(record(phase, 1), &mut model, SignedDuration::ZERO, &patient, Some(leaving));
        let last = &walk.decisions[walk.decisions.len().saturating_sub(10)..];
        prop_assert!(walk.retired, "{last:?}");
        prop_assert_eq!(model.observe(), MachineState::Absent);
        prop_assert!(model.steps.iter().all(|step| *step == MachineStep::Release), "{:?}", model.steps);
        let waited = walk.decisions.iter().filter(|decision| {
            matches!(decision, MachineDecision::Hold { reason: MachineHoldReason::OthersRunFirst { .. }, .. })
        });
        // From second 60 on, in rounds of a second.
        prop_assert_eq!(waited.count(), if waits == 0 || released { 0 } else { 120 });
    }
}
