//! What happens between runs: validations by the clock, hooks, previews.

use super::*;

use jiff::SignedDuration;

use crate::queue::hooks::{HookMemory, HookOn, sees};

const EVERY: Duration = Duration::from_secs(300);
const MOMENT: Duration = Duration::from_millis(1);

fn hook() -> HookOn {
    HookOn { name: "members".into(), keys: vec!["active_roles::db".into()] }
}

/// A node that runs a release, has these hooks, and has seen this fleet with them.
fn at_rest(hooks: &[HookOn], seen: &Snapshot) -> Story {
    let last = LastRun { lookups: Lookups::new(), ..ended(RunEnd::Validated, seen) };
    let mut story = Story::idle(Some(last));
    let validate_every = SignedDuration::try_from(EVERY).unwrap();
    story.applied = Some(AppliedRelease { desired: desired(1, "v1"), validate_every, hooks: hooks.to_vec() });
    story.snapshot = Some(seen.clone());
    story.seen = Some(seen.clone());
    for hook in hooks {
        let seen = sees(&hook.keys, seen);
        story.hooks.insert(hook.name.clone(), HookMemory { seen, ..HookMemory::default() });
    }
    // As after a run.
    story.queue.running = Some(Work::Run);
    story.happens(Event::Finished);
    story
}

impl Story {
    fn hook_ends(&mut self, well: bool) {
        let saw = sees(&hook().keys, self.snapshot.as_ref().unwrap());
        let memory = self.hooks.entry(hook().name).or_default();
        match well {
            true => *memory = HookMemory { seen: saw, ..HookMemory::default() },
            false => (memory.tried, memory.attempt) = (saw, memory.attempt + 1),
        }
        self.happens(Event::Finished);
    }
}

fn reacts() -> Action {
    let changes = vec![LookupChange { key: "active_roles::db".into(), what: "db1 added".into() }];
    Action::RunHooks { hooks: vec![hook()], causes: vec![Cause::LookedUp { changes }] }
}

#[test]
fn a_node_is_validated_by_the_clock_again_and_again() {
    let mut story = at_rest(&[], &dbs(&[]));
    for _ in 0..3 {
        assert_eq!(story.after(EVERY - MOMENT), Action::Wait);
        assert_eq!(story.after(MOMENT), Action::Validate);
        assert_eq!(story.after(EVERY * 2), Action::Wait, "one at a time");
        story.happens(Event::Finished);
    }
}

#[test]
fn a_node_that_was_brought_to_nothing_is_not() {
    let mut story = at_rest(&[], &dbs(&[]));
    story.applied = None;
    assert!(story.sleeps());
    assert_eq!(story.after(EVERY), Action::Wait);
}

#[test]
fn a_run_makes_up_for_a_validation() {
    let mut story = at_rest(&[], &dbs(&[]));
    story.now += EVERY;
    story.happens(asked());
    assert!(matches!(story.after(DEBOUNCE), Action::Start { .. }));
    story.finishes(ended(RunEnd::Validated, &dbs(&[])));
    assert_eq!(story.after(EVERY - MOMENT), Action::Wait);
    assert_eq!(story.after(MOMENT), Action::Validate);
}

#[test]
fn what_comes_during_a_validation_waits_for_its_end() {
    let mut story = at_rest(&[], &dbs(&[]));
    story.last = Some(ended(RunEnd::Validated, &dbs(&[])));
    assert_eq!(story.after(EVERY), Action::Validate);
    story.snapshot(dbs(&["db1"]));
    assert_eq!(story.after(DEBOUNCE), Action::Wait);
    story.happens(Event::Finished);
    assert!(matches!(story.after(Duration::ZERO), Action::Start { .. }));
}

#[test]
fn a_validation_that_fails_is_followed_by_a_run_and_one_that_passes_again_takes_that_back() {
    let mut story = at_rest(&[], &dbs(&[]));
    let broken = || LastRun { only_checks_failed: true, ..ended(RunEnd::Failed, &dbs(&[])) };
    assert_eq!(story.after(EVERY), Action::Validate);
    story.finishes(broken());
    let causes = vec![Cause::Retry { attempt: 1 }];
    assert_eq!(story.after(FIRST_RETRY), Action::Start { causes, failures: 1 });
    story.finishes(ended(RunEnd::Validated, &dbs(&[])));

    assert_eq!(story.after(EVERY), Action::Validate);
    story.finishes(broken());
    let due = story.queue.retry;
    assert!(due.is_some());
    // Another one, before the run is due, that fails again does not put the run off.
    story.queue.running = Some(Work::Validation);
    story.happens(Event::Finished);
    assert_eq!(story.queue.retry, due);
    story.queue.running = Some(Work::Validation);
    story.finishes(ended(RunEnd::Validated, &dbs(&[])));
    assert_eq!(story.queue.retry, None);
}

#[test]
fn a_hook_reacts_to_what_it_is_about_and_there_is_no_run() {
    let mut story = at_rest(&[hook()], &dbs(&[]));
    story.snapshot(dbs(&["db1"]));
    assert_eq!(story.after(DEBOUNCE - MOMENT), Action::Wait);
    assert_eq!(story.after(MOMENT), reacts());
    story.hook_ends(true);
    assert_eq!(story.after(EVERY - MOMENT), Action::Wait);

    let mut others = dbs(&["db1"]);
    others.active_roles.insert(Role::new("web").unwrap(), Default::default());
    story.snapshot(others);
    assert_eq!(story.queue.hooks_due, None, "another role is nothing to it");
}

#[test]
fn a_hook_that_never_ran_runs_after_the_first_run() {
    let mut story = at_rest(&[hook()], &dbs(&["db1"]));
    story.hooks.clear();
    story.happens(asked());
    story.started();
    story.finishes(ended(RunEnd::Validated, &dbs(&["db1"])));
    assert!(matches!(story.after(Duration::ZERO), Action::RunHooks { .. }));
}

#[test]
fn a_hook_that_fails_tries_again_with_growing_pauses_and_at_once_when_there_is_something_new() {
    let mut story = at_rest(&[hook()], &dbs(&[]));
    story.snapshot(dbs(&["db1"]));
    assert_eq!(story.after(DEBOUNCE), reacts());
    story.hook_ends(false);
    assert_eq!(story.after(FIRST_RETRY - MOMENT), Action::Wait);
    assert_eq!(story.after(MOMENT), reacts());
    story.hook_ends(false);
    let mut others = dbs(&["db1"]);
    others.active_roles.insert(Role::new("web").unwrap(), Default::default());
    story.snapshot(others);
    assert_eq!(story.after(FIRST_RETRY), Action::Wait, "what is nothing to it shortens no pause");
    assert_eq!(story.after(FIRST_RETRY), reacts());
    story.hook_ends(false);
    story.snapshot(dbs(&["db1", "db2"]));
    assert!(matches!(story.after(DEBOUNCE), Action::RunHooks { .. }));
    story.hook_ends(true);
    assert_eq!(story.queue.hooks_due, None);
}

#[test]
fn what_changed_back_before_the_hook_could_react_is_nothing_to_react_to() {
    let mut story = at_rest(&[hook()], &dbs(&[]));
    story.snapshot(dbs(&["db1"]));
    story.snapshot(dbs(&[]));
    assert_eq!(story.after(DEBOUNCE), Action::Wait);
}

#[test]
fn a_run_goes_before_hooks_and_hooks_go_after_it() {
    let mut story = at_rest(&[hook()], &dbs(&[]));
    story.last = Some(ended(RunEnd::Validated, &dbs(&[])));
    story.snapshot(dbs(&["db1"]));
    assert!(matches!(story.after(DEBOUNCE), Action::Start { .. }), "the run has looked the same key up");
    story.finishes(ended(RunEnd::Validated, &dbs(&["db1"])));
    assert!(matches!(story.after(Duration::ZERO), Action::RunHooks { .. }));
}

#[test]
fn a_preview_is_made_at_once_before_the_run_and_changes_nothing() {
    let mut story = Story::idle(Some(ended(RunEnd::Validated, &dbs(&[]))));
    story.happens(Event::Desired(desired(2, "v2")));
    story.happens(Event::PreviewAsked { id: "1".into(), by: "ada".into() });
    story.happens(Event::PreviewAsked { id: "2".into(), by: "bob".into() });
    let bob = Cause::Operator { id: "2".into(), by: "bob".into() };
    assert_eq!(story.after(Duration::ZERO), Action::Preview { causes: vec![operator(), bob] });
    story.happens(Event::Finished);
    assert_eq!(story.started(), [version("v2")]);
}

#[test]
fn a_preview_waits_for_the_run_that_goes_on() {
    let mut story = Story::idle(None);
    story.happens(asked());
    story.started();
    story.happens(Event::PreviewAsked { id: "1".into(), by: "ada".into() });
    assert_eq!(story.after(Duration::ZERO), Action::Wait);
    story.finishes(ended(RunEnd::Validated, &dbs(&[])));
    assert_eq!(story.after(Duration::ZERO), Action::Preview { causes: vec![operator()] });
}
