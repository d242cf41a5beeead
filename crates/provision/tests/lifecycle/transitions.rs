//! Transitions of the planner, one row each: phase, observed state and connection, and the decision.

use jiff::SignedDuration;
use muster_core::node::record::MachinePhase::{
    Allocating, Booting, Bootstrapping, Declared, Deploying, Provisioned, Releasing,
};
use muster_core::node::record::{MachinePhase, MachineStage};
use muster_provision::driver::MachineState;
use muster_provision::lifecycle::{
    FailureCause, MachineDecision, MachineFacts, MachineHoldReason, MachineStep, PendingDecommission, Policy, decide,
};

use super::{LOG, at, broken, facts, failed, policy, record, underway, unknown};

const SILENT: bool = false;
const CONNECTED: bool = true;

fn goto(phase: MachinePhase) -> MachineDecision {
    MachineDecision::Goto { phase, attempt: 2 }
}

fn act(step: MachineStep) -> MachineDecision {
    MachineDecision::Do { step, attempt: 2 }
}

fn fail(during: MachineStage) -> MachineDecision {
    MachineDecision::Fail { during, cause: FailureCause::Broken { cause: "it broke".into() }, attempt: 2 }
}

fn too_late(during: MachineStage) -> MachineDecision {
    MachineDecision::Fail { during, cause: FailureCause::Timeout { within: SignedDuration::from_secs(30) }, attempt: 2 }
}

fn controller_silent(second: i64) -> MachineDecision {
    let reason = MachineHoldReason::ControllerSilent { cause: "no route".into() };
    MachineDecision::Hold { reason, recheck: Some(at(second + 1)) }
}

fn step_underway(stage: MachineStage, until: i64) -> MachineDecision {
    MachineDecision::Hold { reason: MachineHoldReason::StepUnderway { stage }, recheck: Some(at(until)) }
}

/// All records are in their second attempt, in their phase since second 60, and are checked in second 70.
fn check(phase: &MachinePhase, rows: &[(MachineState, bool, MachineDecision)]) {
    for (seen, connected, expected) in rows {
        let decision = decide(Some(&record(phase.clone(), 2)), &facts(seen.clone(), *connected), &policy(), at(70));
        assert_eq!(decision, *expected, "{} and seen {seen:?}, agent connected: {connected}", phase.word());
    }
}

#[test]
fn node_without_a_record_is_declared() {
    for seen in [MachineState::Absent, MachineState::Running, unknown()] {
        let declared = MachineDecision::Goto { phase: Declared, attempt: 1 };
        assert_eq!(decide(None, &facts(seen, CONNECTED), &policy(), at(70)), declared);
    }
}

#[test]
fn declared_node_continues_from_the_observed_state() {
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
fn allocating_transitions() {
    check(
        &Allocating,
        &[
            (MachineState::Absent, SILENT, act(MachineStep::Allocate)),
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
fn deploying_transitions() {
    check(
        &Deploying,
        &[
            (MachineState::Absent, SILENT, goto(Allocating)),
            (MachineState::Allocated, SILENT, act(MachineStep::Deploy)),
            (MachineState::Off, SILENT, goto(Booting)),
            (MachineState::Running, SILENT, goto(Bootstrapping)),
            (underway(MachineStage::Deploying), SILENT, step_underway(MachineStage::Deploying, 90)),
            (broken(MachineStage::Deploying), SILENT, fail(MachineStage::Deploying)),
            (unknown(), SILENT, controller_silent(70)),
        ],
    );
}

#[test]
fn booting_transitions() {
    check(
        &Booting,
        &[
            (MachineState::Absent, SILENT, goto(Allocating)),
            (MachineState::Allocated, SILENT, goto(Deploying)),
            (MachineState::Off, SILENT, act(MachineStep::Boot)),
            // The connection from before the machine was switched off.
            (MachineState::Off, CONNECTED, act(MachineStep::Boot)),
            (MachineState::Running, SILENT, goto(Bootstrapping)),
            (underway(MachineStage::Booting), SILENT, step_underway(MachineStage::Booting, 90)),
            (broken(MachineStage::Booting), SILENT, fail(MachineStage::Booting)),
            (unknown(), SILENT, controller_silent(70)),
        ],
    );
}

#[test]
fn bootstrapping_waits_for_the_agents_hello() {
    let hello =
        MachineDecision::Hold { reason: MachineHoldReason::AgentHello { until: at(180) }, recheck: Some(at(180)) };
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
fn provisioned_node_changes_only_with_its_machine() {
    let stays = MachineDecision::Hold { reason: MachineHoldReason::Provisioned, recheck: None };
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
fn failed_machine_waits_for_its_next_attempt() {
    let waits = MachineDecision::Hold {
        reason: MachineHoldReason::NextAttempt { attempt: 3, at: at(80) },
        recheck: Some(at(80)),
    };
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
fn failed_machine_is_retried_from_the_observed_state() {
    let retry = |step| MachineDecision::Retry { step, attempt: 3 };
    let again = |phase| MachineDecision::Goto { phase, attempt: 3 };
    check(
        &failed(MachineStage::Deploying, Some(at(70))),
        &[
            (MachineState::Absent, SILENT, retry(MachineStep::Allocate)),
            (MachineState::Allocated, SILENT, retry(MachineStep::Deploy)),
            (MachineState::Off, SILENT, retry(MachineStep::Boot)),
            (MachineState::Running, SILENT, again(Bootstrapping)),
            (underway(MachineStage::Deploying), SILENT, again(Deploying)),
            (broken(MachineStage::Allocating), SILENT, retry(MachineStep::Allocate)),
            (broken(MachineStage::Deploying), SILENT, retry(MachineStep::Deploy)),
            (broken(MachineStage::Booting), SILENT, retry(MachineStep::Boot)),
            (broken(MachineStage::Bootstrapping), SILENT, retry(MachineStep::Boot)),
            (unknown(), SILENT, controller_silent(70)),
            (MachineState::Running, CONNECTED, goto(Provisioned)),
        ],
    );
}

#[test]
fn failure_without_attempts_is_stuck_until_the_agent_connects() {
    let gave_up = MachineHoldReason::GaveUp { during: MachineStage::Booting, cause: "it broke".into(), attempt: 2 };
    check(
        &failed(MachineStage::Booting, None),
        &[
            (MachineState::Off, SILENT, MachineDecision::Hold { reason: gave_up.clone(), recheck: None }),
            (MachineState::Running, SILENT, MachineDecision::Hold { reason: gave_up, recheck: None }),
            (MachineState::Running, CONNECTED, goto(Provisioned)),
        ],
    );
}

#[test]
fn stage_over_its_timeout_fails() {
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
    assert!(matches!(decision(179), MachineDecision::Hold { .. }));
    assert_eq!(decision(180), MachineDecision::Fail { during: MachineStage::Bootstrapping, cause, attempt: 2 });
}

#[test]
fn time_for_the_hello_starts_with_the_server() {
    let policy = Policy { serving_since: at(3600), ..policy() };
    let decision = decide(Some(&record(Bootstrapping, 2)), &facts(MachineState::Running, SILENT), &policy, at(3610));
    let until = at(3720);
    assert_eq!(
        decision,
        MachineDecision::Hold { reason: MachineHoldReason::AgentHello { until }, recheck: Some(until) }
    );
}

#[test]
fn restart_retries_old_failures() {
    for retry in [None, Some(at(7200))] {
        let restarted = Policy { serving_since: at(3600), ..policy() };
        let record = record(failed(MachineStage::Booting, retry), 5);
        let decision = decide(Some(&record), &facts(MachineState::Off, SILENT), &restarted, at(3600));
        assert_eq!(decision, MachineDecision::Retry { step: MachineStep::Boot, attempt: 1 });

        let taken_over = Policy { retry_old_failures: false, ..restarted };
        let decision = decide(Some(&record), &facts(MachineState::Off, SILENT), &taken_over, at(3600));
        assert!(matches!(decision, MachineDecision::Hold { .. }), "{decision:?}");
    }
}

#[test]
fn settled_machine_counts_attempts_from_one() {
    let settled = policy().settled;
    for (up_for, attempt) in [(settled - SignedDuration::from_secs(1), 2), (settled, 1)] {
        let now = at(60) + up_for;
        let decide = |seen| decide(Some(&record(Provisioned, 2)), &facts(seen, SILENT), &policy(), now);
        assert_eq!(decide(MachineState::Off), MachineDecision::Goto { phase: Booting, attempt });
        assert!(
            matches!(decide(broken(MachineStage::Booting)), MachineDecision::Fail { attempt: a, .. } if a == attempt)
        );
    }
}

#[test]
fn lost_machine_is_replaced_only_if_allowed() {
    let policy = Policy { replace_lost: false, ..policy() };
    let lost = MachineDecision::Hold { reason: MachineHoldReason::Lost, recheck: None };
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
fn driver_without_change_reports_is_polled() {
    let policy = Policy { poll_interval: Some(SignedDuration::from_secs(10)), ..policy() };
    let recheck =
        |phase, seen, connected| match decide(Some(&record(phase, 2)), &facts(seen, connected), &policy, at(75)) {
            MachineDecision::Hold { recheck, .. } => recheck,
            other => panic!("{other:?}"),
        };
    assert_eq!(recheck(Provisioned, MachineState::Running, CONNECTED), Some(at(85)));
    assert_eq!(recheck(Booting, underway(MachineStage::Booting), SILENT), Some(at(85)));
    assert_eq!(recheck(failed(MachineStage::Booting, Some(at(80))), MachineState::Off, SILENT), Some(at(80)));
}

fn decommission(waits_for: &[&str]) -> PendingDecommission {
    let waits_for = waits_for.iter().map(|name| name.parse().unwrap()).collect();
    PendingDecommission { waits_for, until: at(180) }
}

/// Decision for a record in its second attempt, in its phase since second 60.
fn leaving(phase: &MachinePhase, seen: MachineState, waits_for: &[&str], second: i64) -> MachineDecision {
    let facts = MachineFacts { leaving: Some(decommission(waits_for)), ..facts(seen, true) };
    decide(Some(&record(phase.clone(), 2)), &facts, &policy(), at(second))
}

const RELEASE: MachineDecision = MachineDecision::Goto { phase: Releasing, attempt: 1 };

fn not_leaving() -> Vec<MachinePhase> {
    let failures =
        [MachineStage::Allocating, MachineStage::Deploying, MachineStage::Booting].map(|stage| failed(stage, None));
    let phases = [Declared, Allocating, Deploying, Booting, Bootstrapping, Provisioned];
    phases.into_iter().chain(failures).collect()
}

fn all_states() -> Vec<MachineState> {
    let mut all =
        vec![MachineState::Absent, MachineState::Allocated, MachineState::Off, MachineState::Running, unknown()];
    all.extend(MachineStage::ALL.iter().flat_map(|stage| [underway(*stage), broken(*stage)]));
    all
}

#[test]
fn decommissioned_machine_waits_for_dependent_nodes() {
    for phase in not_leaving() {
        for seen in all_states() {
            let waits_for = vec!["lb1".parse().unwrap()];
            let waits = MachineHoldReason::OthersRunFirst { waits_for, until: at(180) };
            let hold = MachineDecision::Hold { reason: waits, recheck: Some(at(180)) };
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
fn releasing_releases_the_machine_in_any_state() {
    let act = MachineDecision::Do { step: MachineStep::Release, attempt: 2 };
    let silent = MachineHoldReason::ControllerSilent { cause: "no route".into() };
    let stage = MachineStage::Releasing;
    let rows = [
        (MachineState::Allocated, act.clone()),
        (MachineState::Off, act.clone()),
        (MachineState::Running, act.clone()),
        (underway(MachineStage::Booting), act.clone()),
        (broken(MachineStage::Booting), act),
        (
            underway(stage),
            MachineDecision::Hold { reason: MachineHoldReason::StepUnderway { stage }, recheck: Some(at(180)) },
        ),
        (
            broken(stage),
            MachineDecision::Fail {
                during: stage,
                cause: FailureCause::Broken { cause: "it broke".into() },
                attempt: 2,
            },
        ),
        (unknown(), MachineDecision::Hold { reason: silent, recheck: Some(at(71)) }),
        (MachineState::Absent, MachineDecision::Retire),
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
        let failed = MachineDecision::Fail { during, cause: cause.clone(), attempt: 2 };
        assert_eq!(leaving(&Releasing, seen, &[], 180), failed);
    }
    for attempt in [1, 5, 100] {
        let record = muster_provision::lifecycle::fail("model", during, &cause, attempt, &policy(), at(70));
        assert!(matches!(record.phase, MachinePhase::Failed { retry: Some(_), .. }), "{record:?}");
    }
}

#[test]
fn failed_release_is_retried_when_due() {
    let during = MachineStage::Releasing;
    let waits = MachineDecision::Hold {
        reason: MachineHoldReason::NextAttempt { attempt: 3, at: at(80) },
        recheck: Some(at(80)),
    };
    let retry = MachineDecision::Retry { step: MachineStep::Release, attempt: 3 };
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
    assert_eq!(leaving(&failed(during, Some(at(80))), MachineState::Absent, &[], 70), MachineDecision::Retire);
    let gave_up = MachineHoldReason::GaveUp { during, cause: "it broke".into(), attempt: 2 };
    assert_eq!(
        leaving(&failed(during, None), MachineState::Running, &[], 70),
        MachineDecision::Hold { reason: gave_up, recheck: None }
    );
    // The controller was restarted, and the problem may be fixed.
    let restarted = Policy { serving_since: at(3600), ..policy() };
    let facts = MachineFacts { leaving: Some(decommission(&[])), ..facts(MachineState::Off, false) };
    let decision = decide(Some(&record(failed(during, None), 5)), &facts, &restarted, at(3600));
    assert_eq!(decision, MachineDecision::Retry { step: MachineStep::Release, attempt: 1 });
}

#[test]
fn node_needed_again_continues_from_the_observed_state() {
    let restart = MachineDecision::Goto { phase: Declared, attempt: 1 };
    for seen in all_states() {
        for phase in [Releasing, failed(MachineStage::Releasing, None), failed(MachineStage::Releasing, Some(at(80)))] {
            assert_eq!(decide(Some(&record(phase, 2)), &facts(seen.clone(), false), &policy(), at(70)), restart);
        }
    }
    // A machine that is being released, or failed to be, does not count as one that is being created.
    let decide = |seen| decide(Some(&record(Declared, 2)), &facts(seen, false), &policy(), at(70));
    let stage = MachineStage::Releasing;
    let hold = MachineDecision::Hold { reason: MachineHoldReason::StepUnderway { stage }, recheck: Some(at(90)) };
    assert_eq!(decide(underway(stage)), hold);
    let cause = FailureCause::Broken { cause: "it broke".into() };
    assert_eq!(decide(broken(stage)), MachineDecision::Fail { during: MachineStage::Allocating, cause, attempt: 2 });
}
