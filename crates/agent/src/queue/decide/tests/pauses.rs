//! Pauses: the node is not changed, causes are kept, and validations continue.

use super::*;

use jiff::SignedDuration;

use crate::queue::hooks::HookTrigger;

const EVERY: Duration = Duration::from_secs(60);

/// A paused node with a release and a hook.
fn paused(until: PausedUntil) -> QueueFixture {
    let mut queue = QueueFixture::idle(Some(ended(LedgerRunEnd::Validated, &dbs(&[]))));
    let validate_every = SignedDuration::try_from(EVERY).unwrap();
    let hooks = vec![HookTrigger { name: "members".into(), keys: vec!["active_roles::db".into()] }];
    queue.applied = Some(AppliedRelease {
        desired: desired(1, "v1"),
        validate_every,
        run_every: None,
        drift: DriftPolicy::Repair,
        hooks,
    });
    queue.paused = Some(until);
    queue
}

#[test]
fn paused_runs_and_hooks_keep_their_causes() {
    let mut queue = paused(PausedUntil::Resumed);
    queue.snapshot(dbs(&["db1"]));
    queue.handle(QueueEvent::Desired(desired(2, "v2")));
    queue.handle(run_requested());
    assert_eq!(queue.after(Duration::from_secs(100_000)), QueueAction::Wait);
    assert!(queue.is_idle(), "only an operator ends this pause");
    queue.paused = None;
    queue.handle(QueueEvent::PauseStored);
    let causes = vec![looked_up(), version("v2"), operator()];
    assert_eq!(queue.after(Duration::ZERO), QueueAction::Start { causes, failures: 0 });
    queue.finishes(ended(LedgerRunEnd::Validated, &dbs(&["db1"])));
    assert!(matches!(queue.after(Duration::ZERO), QueueAction::RunHooks { .. }));
}

#[test]
fn expired_pause_starts_the_waiting_run() {
    let mut queue = paused(PausedUntil::Resumed);
    let end = queue.now + Duration::from_secs(30);
    queue.paused = Some(PausedUntil::Time(end));
    queue.handle(run_requested());
    assert_eq!(queue.after(Duration::from_secs(29)), QueueAction::Wait);
    assert_eq!(queue.schedule.wake_at(queue.view()), Some(end));
    assert!(matches!(queue.after(Duration::from_secs(1)), QueueAction::Start { .. }));
}

#[test]
fn end_of_a_pause_is_no_cause() {
    let mut queue = paused(PausedUntil::Resumed);
    queue.applied = None;
    queue.paused = None;
    queue.handle(QueueEvent::PauseStored);
    assert!(queue.is_idle());
}

#[test]
fn validations_and_previews_continue_in_a_pause() {
    let mut queue = paused(PausedUntil::Resumed);
    queue.schedule.running = Some(Work::Run);
    queue.handle(QueueEvent::Finished);
    assert_eq!(queue.after(EVERY), QueueAction::Validate);
    queue.handle(QueueEvent::Finished);
    queue.handle(QueueEvent::PreviewRequested(Cause::operator("1", "ada")));
    assert_eq!(queue.after(Duration::ZERO), QueueAction::Preview { causes: vec![operator()] });
}

#[test]
fn failed_validation_in_a_pause_runs_after_the_pause() {
    let mut queue = paused(PausedUntil::Resumed);
    queue.schedule.running = Some(Work::Validation);
    queue.finishes(ended(LedgerRunEnd::Failed, &dbs(&[])));
    assert_eq!(queue.after(EVERY), QueueAction::Validate, "not the run");
    queue.handle(QueueEvent::Finished);
    queue.paused = None;
    let causes = vec![Cause::Retry { attempt: 1 }];
    assert_eq!(queue.after(Duration::ZERO), QueueAction::Start { causes, failures: 1 });
}

#[test]
fn paused_agent_validates_after_its_start() {
    let mut queue = paused(PausedUntil::Resumed);
    queue.handle(started(None));
    assert_eq!(queue.after(FIRST_HELLO_TIMEOUT), QueueAction::Validate);
    queue.handle(QueueEvent::Finished);
    queue.paused = None;
    assert!(matches!(queue.after(Duration::ZERO), QueueAction::Start { .. }));
}
