//! Transitions of the planner, one row each: phase, observed state and connection, and the decision.

use jiff::SignedDuration;

use muster_core::node::record::MachinePhase::{
    self, Allocating, Booting, Bootstrapping, Declared, Deploying, Provisioned,
};
use muster_core::node::record::MachineStage;
use muster_provision::driver::MachineState;
use muster_provision::lifecycle::{Decision, FailureCause, HoldReason, Policy, Step, StuckReason, decide};

use super::{LOG, at, broken, facts, failed, policy, record, underway, unknown};

const SILENT: bool = false;
const CONNECTED: bool = true;

fn goto(phase: MachinePhase) -> Decision {
    Decision::Goto { phase, attempt: 2 }
}

fn act(step: Step) -> Decision {
    Decision::Do { step, attempt: 2 }
}

fn fail(during: MachineStage) -> Decision {
    Decision::Fail { during, cause: FailureCause::Broken { cause: "it broke".into() }, attempt: 2 }
}

fn too_late(during: MachineStage) -> Decision {
    Decision::Fail { during, cause: FailureCause::Timeout { within: SignedDuration::from_secs(30) }, attempt: 2 }
}

fn controller_silent(second: i64) -> Decision {
    let reason = HoldReason::ControllerSilent { cause: "no route".into() };
    Decision::Hold { reason, recheck: Some(at(second + 1)) }
}

fn step_underway(stage: MachineStage, until: i64) -> Decision {
    Decision::Hold { reason: HoldReason::StepUnderway { stage }, recheck: Some(at(until)) }
}

/// All records are in their second attempt, in their phase since second 60, and are checked in second 70.
fn check(phase: &MachinePhase, rows: &[(MachineState, bool, Decision)]) {
    for (seen, connected, expected) in rows {
        let decision = decide(Some(&record(phase.clone(), 2)), &facts(seen.clone(), *connected), &policy(), at(70));
        assert_eq!(decision, *expected, "{} and seen {seen:?}, agent connected: {connected}", phase.word());
    }
}

#[test]
fn a_node_without_a_record_is_declared() {
    for seen in [MachineState::Absent, MachineState::Running, unknown()] {
        let declared = Decision::Goto { phase: Declared, attempt: 1 };
        assert_eq!(decide(None, &facts(seen, CONNECTED), &policy(), at(70)), declared);
    }
}

#[test]
fn declared_is_taken_from_where_its_machine_is() {
    check(
        &Declared,
        &[
            (MachineState::Absent, SILENT, goto(Allocating)),
            (MachineState::Allocated, SILENT, goto(Deploying)),
            (MachineState::Off, SILENT, goto(Booting)),
            (MachineState::Running, SILENT, goto(Bootstrapping)),
            (underway(MachineStage::Deploying), SILENT, goto(Deploying)),
            (broken(MachineStage::Deploying), SILENT, fail(MachineStage::Deploying)),
            (unknown(), SILENT, controller_silent(70)),
        ],
    );
}

#[test]
fn allocating() {
    check(
        &Allocating,
        &[
            (MachineState::Absent, SILENT, act(Step::Allocate)),
            (MachineState::Allocated, SILENT, goto(Deploying)),
            (MachineState::Off, SILENT, goto(Booting)),
            (MachineState::Running, SILENT, goto(Bootstrapping)),
            (underway(MachineStage::Allocating), SILENT, step_underway(MachineStage::Allocating, 90)),
            (broken(MachineStage::Allocating), SILENT, fail(MachineStage::Allocating)),
            (unknown(), SILENT, controller_silent(70)),
        ],
    );
}

#[test]
fn deploying() {
    check(
        &Deploying,
        &[
            (MachineState::Absent, SILENT, goto(Allocating)),
            (MachineState::Allocated, SILENT, act(Step::Deploy)),
            (MachineState::Off, SILENT, goto(Booting)),
            (MachineState::Running, SILENT, goto(Bootstrapping)),
            (underway(MachineStage::Deploying), SILENT, step_underway(MachineStage::Deploying, 90)),
            (broken(MachineStage::Deploying), SILENT, fail(MachineStage::Deploying)),
            (unknown(), SILENT, controller_silent(70)),
        ],
    );
}

#[test]
fn booting() {
    check(
        &Booting,
        &[
            (MachineState::Absent, SILENT, goto(Allocating)),
            (MachineState::Allocated, SILENT, goto(Deploying)),
            (MachineState::Off, SILENT, act(Step::Boot)),
            // The connection from before the machine was switched off.
            (MachineState::Off, CONNECTED, act(Step::Boot)),
            (MachineState::Running, SILENT, goto(Bootstrapping)),
            (underway(MachineStage::Booting), SILENT, step_underway(MachineStage::Booting, 90)),
            (broken(MachineStage::Booting), SILENT, fail(MachineStage::Booting)),
            (unknown(), SILENT, controller_silent(70)),
        ],
    );
}

#[test]
fn bootstrapping_waits_for_the_agents_hello() {
    let hello = Decision::Hold { reason: HoldReason::AgentHello { until: at(180) }, recheck: Some(at(180)) };
    check(
        &Bootstrapping,
        &[
            (MachineState::Absent, SILENT, goto(Allocating)),
            (MachineState::Allocated, SILENT, goto(Deploying)),
            (MachineState::Off, CONNECTED, goto(Booting)),
            (MachineState::Running, SILENT, hello),
            (MachineState::Running, CONNECTED, goto(Provisioned)),
            (unknown(), CONNECTED, goto(Provisioned)),
            (unknown(), SILENT, controller_silent(70)),
            (underway(MachineStage::Booting), SILENT, step_underway(MachineStage::Booting, 180)),
            (broken(MachineStage::Booting), SILENT, fail(MachineStage::Booting)),
            (broken(MachineStage::Booting), CONNECTED, fail(MachineStage::Booting)),
        ],
    );
}

#[test]
fn provisioned_stays_so_until_its_machine_is_seen_otherwise() {
    let stays = Decision::Hold { reason: HoldReason::Provisioned, recheck: None };
    check(
        &Provisioned,
        &[
            (MachineState::Running, CONNECTED, stays.clone()),
            // The connection of the agent is checked by liveness, not here.
            (MachineState::Running, SILENT, stays.clone()),
            (underway(MachineStage::Booting), SILENT, stays),
            (MachineState::Off, SILENT, goto(Booting)),
            (MachineState::Absent, SILENT, goto(Allocating)),
            (MachineState::Allocated, SILENT, goto(Deploying)),
            (broken(MachineStage::Booting), SILENT, fail(MachineStage::Booting)),
            (unknown(), SILENT, controller_silent(70)),
        ],
    );
}

#[test]
fn failed_waits_for_its_next_attempt() {
    let waits = Decision::Hold { reason: HoldReason::NextAttempt { attempt: 3, at: at(80) }, recheck: Some(at(80)) };
    check(
        &failed(MachineStage::Booting, Some(at(80))),
        &[
            (MachineState::Off, SILENT, waits.clone()),
            (broken(MachineStage::Booting), SILENT, waits.clone()),
            // The agent crashes repeatedly. A new connection does not make it healthy.
            (broken(MachineStage::Booting), CONNECTED, waits.clone()),
            (unknown(), SILENT, waits),
            (MachineState::Running, CONNECTED, goto(Provisioned)),
        ],
    );
}

#[test]
fn failed_is_tried_again_from_where_the_machine_is() {
    let retry = |step| Decision::Retry { step, attempt: 3 };
    let again = |phase| Decision::Goto { phase, attempt: 3 };
    check(
        &failed(MachineStage::Deploying, Some(at(70))),
        &[
            (MachineState::Absent, SILENT, retry(Step::Allocate)),
            (MachineState::Allocated, SILENT, retry(Step::Deploy)),
            (MachineState::Off, SILENT, retry(Step::Boot)),
            (MachineState::Running, SILENT, again(Bootstrapping)),
            (underway(MachineStage::Deploying), SILENT, again(Deploying)),
            (broken(MachineStage::Allocating), SILENT, retry(Step::Allocate)),
            (broken(MachineStage::Deploying), SILENT, retry(Step::Deploy)),
            (broken(MachineStage::Booting), SILENT, retry(Step::Boot)),
            (broken(MachineStage::Bootstrapping), SILENT, retry(Step::Boot)),
            (unknown(), SILENT, controller_silent(70)),
            (MachineState::Running, CONNECTED, goto(Provisioned)),
        ],
    );
}

#[test]
fn failure_without_attempts_is_stuck_until_the_agent_connects() {
    let gave_up = StuckReason::GaveUp { during: MachineStage::Booting, cause: "it broke".into(), attempt: 2 };
    check(
        &failed(MachineStage::Booting, None),
        &[
            (MachineState::Off, SILENT, Decision::Stuck { reason: gave_up.clone() }),
            (MachineState::Running, SILENT, Decision::Stuck { reason: gave_up }),
            (MachineState::Running, CONNECTED, goto(Provisioned)),
        ],
    );
}

#[test]
fn what_takes_too_long_has_failed() {
    for (phase, seen, stage) in [
        (Allocating, MachineState::Absent, MachineStage::Allocating),
        (Allocating, underway(MachineStage::Allocating), MachineStage::Allocating),
        (Deploying, MachineState::Allocated, MachineStage::Deploying),
        (Deploying, underway(MachineStage::Deploying), MachineStage::Deploying),
        (Booting, MachineState::Off, MachineStage::Booting),
        (Booting, underway(MachineStage::Booting), MachineStage::Booting),
    ] {
        let decision =
            |second| decide(Some(&record(phase.clone(), 2)), &facts(seen.clone(), SILENT), &policy(), at(second));
        assert_ne!(decision(89), too_late(stage));
        assert_eq!(decision(90), too_late(stage));
        // The driver's controller is unreachable: that is no failure of the machine.
        let silence = decide(Some(&record(phase.clone(), 2)), &facts(unknown(), SILENT), &policy(), at(90));
        assert_eq!(silence, controller_silent(90));
    }
}

#[test]
fn missing_hello_fails_and_names_the_log() {
    let decision =
        |second| decide(Some(&record(Bootstrapping, 2)), &facts(MachineState::Running, SILENT), &policy(), at(second));
    let cause = FailureCause::NoHello { within: SignedDuration::from_mins(2), log: Some(LOG.into()) };
    assert!(matches!(decision(179), Decision::Hold { .. }));
    assert_eq!(decision(180), Decision::Fail { during: MachineStage::Bootstrapping, cause, attempt: 2 });
}

#[test]
fn time_for_the_hello_starts_with_the_server() {
    let policy = Policy { serving_since: at(3600), ..policy() };
    let decision = decide(Some(&record(Bootstrapping, 2)), &facts(MachineState::Running, SILENT), &policy, at(3610));
    let until = at(3720);
    assert_eq!(decision, Decision::Hold { reason: HoldReason::AgentHello { until }, recheck: Some(until) });
}

#[test]
fn a_new_start_tries_again_what_had_failed_or_was_given_up() {
    for retry in [None, Some(at(7200))] {
        let restarted = Policy { serving_since: at(3600), ..policy() };
        let record = record(failed(MachineStage::Booting, retry), 5);
        let decision = decide(Some(&record), &facts(MachineState::Off, SILENT), &restarted, at(3600));
        assert_eq!(decision, Decision::Retry { step: Step::Boot, attempt: 1 });

        let taken_over = Policy { retry_old_failures: false, ..restarted };
        let decision = decide(Some(&record), &facts(MachineState::Off, SILENT), &taken_over, at(3600));
        assert!(matches!(decision, Decision::Stuck { .. } | Decision::Hold { .. }), "{decision:?}");
    }
}

#[test]
fn a_machine_that_proved_itself_begins_anew() {
    let settled = policy().settled;
    for (up_for, attempt) in [(settled - SignedDuration::from_secs(1), 2), (settled, 1)] {
        let now = at(60) + up_for;
        let decide = |seen| decide(Some(&record(Provisioned, 2)), &facts(seen, SILENT), &policy(), now);
        assert_eq!(decide(MachineState::Off), Decision::Goto { phase: Booting, attempt });
        assert!(matches!(decide(broken(MachineStage::Booting)), Decision::Fail { attempt: a, .. } if a == attempt));
    }
}

#[test]
fn a_lost_machine_is_replaced_only_where_that_loses_nothing() {
    let policy = Policy { replace_lost: false, ..policy() };
    let lost = Decision::Stuck { reason: StuckReason::Lost };
    let due = Some(at(70));
    for seen in [MachineState::Absent, MachineState::Allocated] {
        for phase in [Booting, Bootstrapping, Provisioned, failed(MachineStage::Booting, due)] {
            let decision = decide(Some(&record(phase, 2)), &facts(seen.clone(), SILENT), &policy, at(70));
            assert_eq!(decision, lost);
        }
        // Nothing was installed on these machines yet.
        for phase in [Declared, Allocating, Deploying, failed(MachineStage::Deploying, due)] {
            let decision = decide(Some(&record(phase, 2)), &facts(seen.clone(), SILENT), &policy, at(70));
            assert_ne!(decision, lost);
        }
    }
}

#[test]
fn a_driver_that_tells_of_no_changes_is_asked_from_time_to_time() {
    let policy = Policy { poll_interval: Some(SignedDuration::from_secs(10)), ..policy() };
    let recheck =
        |phase, seen, connected| match decide(Some(&record(phase, 2)), &facts(seen, connected), &policy, at(75)) {
            Decision::Hold { recheck, .. } => recheck,
            other => panic!("{other:?}"),
        };
    assert_eq!(recheck(Provisioned, MachineState::Running, CONNECTED), Some(at(85)));
    assert_eq!(recheck(Booting, underway(MachineStage::Booting), SILENT), Some(at(85)));
    assert_eq!(recheck(failed(MachineStage::Booting, Some(at(80))), MachineState::Off, SILENT), Some(at(80)));
}
