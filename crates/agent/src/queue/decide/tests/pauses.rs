//! Pauses: nothing is changed on the node, nothing is forgotten, and it is looked at all the same.

use super::*;

use jiff::SignedDuration;

use crate::queue::hooks::HookOn;

const EVERY: Duration = Duration::from_secs(60);

/// A node that runs a release, with a hook, and is paused.
fn paused(until: PausedUntil) -> Story {
    let mut story = Story::idle(Some(ended(RunEnd::Validated, &dbs(&[]))));
    let validate_every = SignedDuration::try_from(EVERY).unwrap();
    let hooks = vec![HookOn { name: "members".into(), keys: vec!["active_roles::db".into()] }];
    story.applied = Some(AppliedRelease { desired: desired(1, "v1"), validate_every, hooks });
    story.paused = Some(until);
    story
}

#[test]
fn runs_and_hooks_wait_with_all_their_causes() {
    let mut story = paused(PausedUntil::Resumed);
    story.snapshot(dbs(&["db1"]));
    story.happens(Event::Desired(desired(2, "v2")));
    story.happens(asked());
    assert_eq!(story.after(Duration::from_secs(100_000)), Action::Wait);
    assert!(story.sleeps(), "only a person ends this one");
    story.paused = None;
    story.happens(Event::PauseStored);
    let causes = vec![looked_up(), version("v2"), operator()];
    assert_eq!(story.after(Duration::ZERO), Action::Start { causes, failures: 0 });
    story.finishes(ended(RunEnd::Validated, &dbs(&["db1"])));
    assert!(matches!(story.after(Duration::ZERO), Action::RunHooks { .. }));
}

#[test]
fn a_pause_that_ends_by_itself_lets_the_waiting_run_go() {
    let mut story = paused(PausedUntil::Resumed);
    let end = story.now + Duration::from_secs(30);
    story.paused = Some(PausedUntil::Time(end));
    story.happens(asked());
    assert_eq!(story.after(Duration::from_secs(29)), Action::Wait);
    assert_eq!(story.queue.wake_at(story.known()), Some(end));
    assert!(matches!(story.after(Duration::from_secs(1)), Action::Start { .. }));
}

#[test]
fn the_end_of_a_pause_alone_is_no_cause() {
    let mut story = paused(PausedUntil::Resumed);
    story.applied = None;
    story.paused = None;
    story.happens(Event::PauseStored);
    assert!(story.sleeps());
}

#[test]
fn validations_and_previews_go_on() {
    let mut story = paused(PausedUntil::Resumed);
    story.queue.running = Some(Work::Run);
    story.happens(Event::Finished);
    assert_eq!(story.after(EVERY), Action::Validate);
    story.happens(Event::Finished);
    story.happens(Event::PreviewAsked { id: "1".into(), by: "ada".into() });
    assert_eq!(story.after(Duration::ZERO), Action::Preview { causes: vec![operator()] });
}

#[test]
fn a_validation_that_fails_in_a_pause_is_followed_by_a_run_when_it_is_over() {
    let mut story = paused(PausedUntil::Resumed);
    story.queue.running = Some(Work::Validation);
    story.finishes(ended(RunEnd::Failed, &dbs(&[])));
    assert_eq!(story.after(EVERY), Action::Validate, "and not the run");
    story.happens(Event::Finished);
    story.paused = None;
    let causes = vec![Cause::Retry { attempt: 1 }];
    assert_eq!(story.after(Duration::ZERO), Action::Start { causes, failures: 1 });
}

#[test]
fn a_paused_agent_that_starts_validates_and_does_not_run() {
    let mut story = paused(PausedUntil::Resumed);
    story.happens(started(None));
    assert_eq!(story.after(START_PATIENCE), Action::Validate);
    story.happens(Event::Finished);
    story.paused = None;
    assert!(matches!(story.after(Duration::ZERO), Action::Start { .. }));
}
