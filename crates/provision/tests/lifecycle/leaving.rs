//! Transitions of nodes that leave, and of nodes that are added again.

use jiff::SignedDuration;

use muster_core::node::record::MachinePhase::{
    self, Allocating, Booting, Bootstrapping, Declared, Deploying, Provisioned, Releasing,
};
use muster_core::node::record::MachineStage;
use muster_provision::driver::MachineState;
use muster_provision::lifecycle::{
    Decision, Decommission, FailureCause, HoldReason, MachineFacts, Policy, Step, StuckReason, decide,
};

use super::{at, broken, facts, failed, policy, record, underway, unknown};

fn departure(waits_for: &[&str]) -> Decommission {
    let waits_for = waits_for.iter().map(|name| name.parse().unwrap()).collect();
    Decommission { waits_for, until: at(180) }
}

/// Decision for a record in its second attempt, in its phase since second 60.
fn leaving(phase: &MachinePhase, seen: MachineState, waits_for: &[&str], second: i64) -> Decision {
    let facts = MachineFacts { leaving: Some(departure(waits_for)), ..facts(seen, true) };
    decide(Some(&record(phase.clone(), 2)), &facts, &policy(), at(second))
}

const RELEASE: Decision = Decision::Goto { phase: Releasing, attempt: 1 };

fn not_leaving() -> Vec<MachinePhase> {
    let failures =
        [MachineStage::Allocating, MachineStage::Deploying, MachineStage::Booting].map(|stage| failed(stage, None));
    let phases = [Declared, Allocating, Deploying, Booting, Bootstrapping, Provisioned];
    phases.into_iter().chain(failures).collect()
}

fn every_sight() -> Vec<MachineState> {
    let mut all =
        vec![MachineState::Absent, MachineState::Allocated, MachineState::Off, MachineState::Running, unknown()];
    all.extend(MachineStage::ALL.iter().flat_map(|stage| [underway(*stage), broken(*stage)]));
    all
}

#[test]
fn decommissioned_machine_waits_for_dependent_nodes() {
    for phase in not_leaving() {
        for seen in every_sight() {
            let waits_for = vec!["lb1".parse().unwrap()];
            let waits = HoldReason::OthersRunFirst { waits_for, until: at(180) };
            let hold = Decision::Hold { reason: waits, recheck: Some(at(180)) };
            assert_eq!(leaving(&phase, seen.clone(), &["lb1"], 70), hold, "{phase:?}, {seen:?}");
            assert_eq!(leaving(&phase, seen.clone(), &["lb1"], 179), hold, "{phase:?}, {seen:?}");
            assert_eq!(
                leaving(&phase, seen.clone(), &["lb1"], 180),
                RELEASE,
                "their time is over: {phase:?}, {seen:?}"
            );
            assert_eq!(leaving(&phase, seen.clone(), &[], 70), RELEASE, "no node needs it: {phase:?}, {seen:?}");
        }
    }
}

#[test]
fn releasing_gives_the_machine_back_whatever_it_is() {
    let act = Decision::Do { step: Step::Release, attempt: 2 };
    let silent = HoldReason::ControllerSilent { cause: "no route".into() };
    let stage = MachineStage::Releasing;
    let rows = [
        (MachineState::Allocated, act.clone()),
        (MachineState::Off, act.clone()),
        (MachineState::Running, act.clone()),
        (underway(MachineStage::Booting), act.clone()),
        (broken(MachineStage::Booting), act),
        (underway(stage), Decision::Hold { reason: HoldReason::StepUnderway { stage }, recheck: Some(at(180)) }),
        (
            broken(stage),
            Decision::Fail { during: stage, cause: FailureCause::Broken { cause: "it broke".into() }, attempt: 2 },
        ),
        (unknown(), Decision::Hold { reason: silent, recheck: Some(at(71)) }),
        (MachineState::Absent, Decision::Retire),
    ];
    for (seen, expected) in rows {
        // The release has begun, so the nodes that it waited for no longer matter.
        assert_eq!(leaving(&Releasing, seen.clone(), &["lb1"], 70), expected, "{seen:?}");
    }
}

#[test]
fn release_that_times_out_is_retried_for_ever() {
    let during = MachineStage::Releasing;
    let cause = FailureCause::Timeout { within: SignedDuration::from_mins(2) };
    for seen in [MachineState::Running, underway(during)] {
        let failed = Decision::Fail { during, cause: cause.clone(), attempt: 2 };
        assert_eq!(leaving(&Releasing, seen, &[], 180), failed);
    }
    for attempt in [1, 5, 100] {
        let record = muster_provision::lifecycle::fail("model", during, &cause, attempt, &policy(), at(70));
        assert!(matches!(record.phase, MachinePhase::Failed { retry: Some(_), .. }), "{record:?}");
    }
}

#[test]
fn a_release_that_failed_is_repeated_when_it_is_due() {
    let during = MachineStage::Releasing;
    let waits = Decision::Hold { reason: HoldReason::NextAttempt { attempt: 3, at: at(80) }, recheck: Some(at(80)) };
    let retry = Decision::Retry { step: Step::Release, attempt: 3 };
    for seen in [
        MachineState::Allocated,
        MachineState::Off,
        MachineState::Running,
        broken(during),
        broken(MachineStage::Booting),
        unknown(),
    ] {
        assert_eq!(leaving(&failed(during, Some(at(80))), seen.clone(), &[], 70), waits, "{seen:?}");
        assert_eq!(leaving(&failed(during, Some(at(80))), seen.clone(), &[], 80), retry, "{seen:?}");
    }
    assert_eq!(leaving(&failed(during, Some(at(80))), MachineState::Absent, &[], 70), Decision::Retire);
    let gave_up = StuckReason::GaveUp { during, cause: "it broke".into(), attempt: 2 };
    assert_eq!(leaving(&failed(during, None), MachineState::Running, &[], 70), Decision::Stuck { reason: gave_up });
    // The controller was restarted, and the problem may be fixed.
    let restarted = Policy { serving_since: at(3600), ..policy() };
    let facts = MachineFacts { leaving: Some(departure(&[])), ..facts(MachineState::Off, false) };
    let decision = decide(Some(&record(failed(during, None), 5)), &facts, &restarted, at(3600));
    assert_eq!(decision, Decision::Retry { step: Step::Release, attempt: 1 });
}

#[test]
fn one_that_is_wanted_again_begins_with_what_is_there() {
    let anew = Decision::Goto { phase: Declared, attempt: 1 };
    for seen in every_sight() {
        for phase in [Releasing, failed(MachineStage::Releasing, None), failed(MachineStage::Releasing, Some(at(80)))] {
            assert_eq!(decide(Some(&record(phase, 2)), &facts(seen.clone(), false), &policy(), at(70)), anew);
        }
    }
    // A machine that is being released, or failed to be, does not count as one that is being created.
    let decide = |seen| decide(Some(&record(Declared, 2)), &facts(seen, false), &policy(), at(70));
    let stage = MachineStage::Releasing;
    let hold = Decision::Hold { reason: HoldReason::StepUnderway { stage }, recheck: Some(at(90)) };
    assert_eq!(decide(underway(stage)), hold);
    let cause = FailureCause::Broken { cause: "it broke".into() };
    assert_eq!(decide(broken(stage)), Decision::Fail { during: MachineStage::Allocating, cause, attempt: 2 });
}
