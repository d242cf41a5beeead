//! Timed runs: a validated node runs at its own times.

use super::*;

use jiff::SignedDuration;

const EVERY: Duration = Duration::from_secs(1800);

/// A node that has just ended a run of a release with this interval. Its times are a quarter after each interval.
fn validated(every: Option<Duration>) -> QueueFixture {
    let mut queue = QueueFixture::idle(None);
    queue.schedule.begin = Some(queue.now);
    queue.schedule.running = Some(Work::Run);
    queue.applied = Some(AppliedRelease {
        desired: desired(1, "v1"),
        validate_every: SignedDuration::from_hours(1000),
        run_every: every.map(|every| SignedDuration::try_from(every).unwrap()),
        drift: DriftPolicy::Repair,
        hooks: Vec::new(),
    });
    queue.finishes(ended(LedgerRunEnd::Validated, &dbs(&[])));
    queue
}

fn timed() -> QueueAction {
    QueueAction::Start { causes: vec![Cause::Schedule], failures: 0 }
}

#[test]
fn validated_node_runs_at_its_times() {
    let mut queue = validated(Some(EVERY));
    let begin = queue.now;
    // A quarter of the interval is too soon after the run.
    let mut due = begin + EVERY.mul_f64(1.25);
    for _ in 0..3 {
        assert_eq!(queue.schedule.wake_at(queue.view()), Some(due));
        assert_eq!(queue.after(due - queue.now - Duration::from_nanos(1)), QueueAction::Wait);
        assert_eq!(queue.after(Duration::from_nanos(1)), timed());
        queue.now += Duration::from_secs(20);
        queue.finishes(ended(LedgerRunEnd::Validated, &dbs(&[])));
        due += EVERY;
    }
}

#[test]
fn node_without_an_interval_makes_no_timed_runs() {
    let mut queue = validated(None);
    assert_eq!(queue.schedule.timed_due, None);
    queue.schedule.validation_due = None;
    assert!(queue.is_idle());
}

#[test]
fn other_run_counts_as_a_timed_one() {
    let mut queue = validated(Some(EVERY));
    let due = queue.now + EVERY.mul_f64(1.25);
    queue.now = due - Duration::from_secs(60);
    queue.handle(run_requested());
    assert_eq!(queue.started(), [operator()]);
    queue.finishes(ended(LedgerRunEnd::Validated, &dbs(&[])));
    assert_eq!(queue.schedule.timed_due, Some(due + EVERY));
}

#[test]
fn node_that_is_paused_or_not_validated_skips_its_times() {
    let states: [fn(&mut QueueFixture); 4] = [
        |queue| queue.paused = Some(PausedUntil::Resumed),
        |queue| queue.last = Some(ended(LedgerRunEnd::Failed, &dbs(&[]))),
        |queue| queue.last = Some(waiting_for(1, &dbs(&[]))),
        |queue| queue.desired = Some(desired(2, "v2")),
    ];
    for (number, change) in states.into_iter().enumerate() {
        let mut queue = validated(Some(EVERY));
        let due = queue.schedule.timed_due.unwrap();
        let (desired, last) = (queue.desired.clone(), queue.last.clone());
        change(&mut queue);
        assert_eq!(queue.after(due - queue.now), QueueAction::Wait, "{number}");
        (queue.paused, queue.desired, queue.last) = (None, desired, last);
        assert_eq!(queue.handle(QueueEvent::PauseStored), QueueAction::Wait, "{number}");
        assert_eq!(queue.after(EVERY - Duration::from_nanos(1)), QueueAction::Wait, "{number}: not made up for");
        assert_eq!(queue.after(Duration::from_nanos(1)), timed(), "{number}");
    }
}

#[test]
fn work_in_progress_delays_a_timed_run() {
    let mut queue = validated(Some(EVERY));
    queue.schedule.running = Some(Work::Validation);
    assert_eq!(queue.schedule.wake_at(queue.view()), None);
    assert_eq!(queue.after(EVERY * 2), QueueAction::Wait);
    queue.handle(QueueEvent::Finished);
    assert_eq!(queue.after(Duration::ZERO), timed());
}

#[test]
fn node_that_reports_drift_makes_timed_previews() {
    let mut queue = validated(Some(EVERY));
    let applied = queue.applied.take().unwrap();
    queue.applied = Some(AppliedRelease { drift: DriftPolicy::Report, ..applied });
    let due = queue.schedule.timed_due.unwrap();
    let preview = QueueAction::Preview { causes: vec![Cause::Schedule] };
    assert_eq!(queue.after(due - queue.now), preview);
    queue.handle(QueueEvent::Finished);
    assert_eq!(queue.after(EVERY), preview);
}

#[test]
fn new_version_cancels_a_timed_preview() {
    let mut queue = validated(Some(EVERY));
    let applied = queue.applied.take().unwrap();
    queue.applied = Some(AppliedRelease { drift: DriftPolicy::Report, ..applied });
    queue.now = queue.schedule.timed_due.unwrap();
    queue.handle(QueueEvent::PreviewRequested(operator()));
    assert_eq!(queue.after(Duration::ZERO), QueueAction::Preview { causes: vec![operator()] });
    assert_eq!(queue.schedule.previews, [Cause::Schedule], "it follows the requested one");
    queue.handle(QueueEvent::Desired(desired(2, "v2")));
    queue.handle(QueueEvent::Finished);
    assert_eq!(queue.started(), [version("v2")]);
}
