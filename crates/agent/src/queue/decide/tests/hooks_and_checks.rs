//! Work besides runs: periodic validations, hooks, previews.

use super::*;

use jiff::SignedDuration;
use muster_core::report::RunOptions;

use crate::queue::hooks::{HookRecord, HookTrigger, values};

const EVERY: Duration = Duration::from_secs(300);
const TICK: Duration = Duration::from_millis(1);

fn hook() -> HookTrigger {
    HookTrigger { name: "members".into(), keys: vec!["active_roles::db".into()] }
}

/// A converged node whose hooks have run with this snapshot.
fn converged(hooks: &[HookTrigger], seen: &Snapshot) -> QueueFixture {
    let last = PreviousRun { lookups: Lookups::new(), ..ended(LedgerRunEnd::Validated, seen) };
    let mut queue = QueueFixture::idle(Some(last));
    let validate_every = SignedDuration::try_from(EVERY).unwrap();
    let applied = AppliedRelease {
        desired: desired(1, "v1"),
        validate_every,
        run_every: None,
        drift: DriftPolicy::Repair,
        hooks: hooks.to_vec(),
    };
    queue.applied = Some(applied);
    queue.snapshot = Some(seen.clone());
    queue.last_snapshot = Some(seen.clone());
    for hook in hooks {
        let succeeded_with = values(&hook.keys, seen);
        queue.hooks.insert(hook.name.clone(), HookRecord { succeeded_with, ..HookRecord::default() });
    }
    // A run has just ended.
    queue.schedule.running = Some(Work::Run);
    queue.handle(QueueEvent::Finished);
    queue
}

impl QueueFixture {
    fn hook_ends(&mut self, success: bool) {
        let current = values(&hook().keys, self.snapshot.as_ref().unwrap());
        let record = self.hooks.entry(hook().name).or_default();
        match success {
            true => *record = HookRecord { succeeded_with: current, ..HookRecord::default() },
            false => (record.failed_with, record.failures) = (current, record.failures + 1),
        }
        self.handle(QueueEvent::Finished);
    }
}

fn hooks_run() -> QueueAction {
    let changes = vec![LookupChange { key: "active_roles::db".into(), what: "db1 added".into() }];
    QueueAction::RunHooks { hooks: vec![hook()], causes: vec![Cause::LookedUp { changes }] }
}

#[test]
fn new_incarnation_validates_again() {
    let mut queue = converged(&[], &dbs(&[]));
    queue.handle(QueueEvent::Connected { new_incarnation: false, identity: None });
    assert_eq!(queue.after(DEBOUNCE), QueueAction::Wait);
    queue.handle(QueueEvent::Connected { new_incarnation: true, identity: None });
    assert_eq!(queue.after(DEBOUNCE), QueueAction::Validate);
}

#[test]
fn validation_repeats_at_its_interval() {
    let mut queue = converged(&[], &dbs(&[]));
    for _ in 0..3 {
        assert_eq!(queue.after(EVERY - TICK), QueueAction::Wait);
        assert_eq!(queue.after(TICK), QueueAction::Validate);
        assert_eq!(queue.after(EVERY * 2), QueueAction::Wait, "one at a time");
        queue.handle(QueueEvent::Finished);
    }
}

#[test]
fn node_without_an_applied_release_is_not_validated() {
    let mut queue = converged(&[], &dbs(&[]));
    queue.applied = None;
    assert!(queue.is_idle());
    assert_eq!(queue.after(EVERY), QueueAction::Wait);
}

#[test]
fn run_postpones_the_next_validation() {
    let mut queue = converged(&[], &dbs(&[]));
    queue.now += EVERY;
    queue.handle(run_requested());
    assert!(matches!(queue.after(DEBOUNCE), QueueAction::Start { .. }));
    queue.finishes(ended(LedgerRunEnd::Validated, &dbs(&[])));
    assert_eq!(queue.after(EVERY - TICK), QueueAction::Wait);
    assert_eq!(queue.after(TICK), QueueAction::Validate);
}

#[test]
fn change_during_a_validation_waits_for_its_end() {
    let mut queue = converged(&[], &dbs(&[]));
    queue.last = Some(ended(LedgerRunEnd::Validated, &dbs(&[])));
    assert_eq!(queue.after(EVERY), QueueAction::Validate);
    queue.snapshot(dbs(&["db1"]));
    assert_eq!(queue.after(DEBOUNCE), QueueAction::Wait);
    queue.handle(QueueEvent::Finished);
    assert!(matches!(queue.after(Duration::ZERO), QueueAction::Start { .. }));
}

#[test]
fn failed_validation_schedules_a_run_until_one_passes() {
    let mut queue = converged(&[], &dbs(&[]));
    let broken = || PreviousRun { only_checks_failed: true, ..ended(LedgerRunEnd::Failed, &dbs(&[])) };
    assert_eq!(queue.after(EVERY), QueueAction::Validate);
    queue.finishes(broken());
    let causes = vec![Cause::Retry { attempt: 1 }];
    assert_eq!(queue.after(FIRST_RETRY), QueueAction::Start { causes, failures: 1 });
    queue.finishes(ended(LedgerRunEnd::Validated, &dbs(&[])));

    assert_eq!(queue.after(EVERY), QueueAction::Validate);
    queue.finishes(broken());
    let due = queue.schedule.retry;
    assert!(due.is_some());
    // Another failure before the run is due does not delay the run.
    queue.schedule.running = Some(Work::Validation);
    queue.handle(QueueEvent::Finished);
    assert_eq!(queue.schedule.retry, due);
    queue.schedule.running = Some(Work::Validation);
    queue.finishes(ended(LedgerRunEnd::Validated, &dbs(&[])));
    assert_eq!(queue.schedule.retry, None);
}

#[test]
fn changed_key_runs_the_hook_without_a_run() {
    let mut queue = converged(&[hook()], &dbs(&[]));
    queue.snapshot(dbs(&["db1"]));
    assert_eq!(queue.after(DEBOUNCE - TICK), QueueAction::Wait);
    assert_eq!(queue.after(TICK), hooks_run());
    queue.hook_ends(true);
    assert_eq!(queue.after(EVERY - TICK), QueueAction::Wait);

    let mut other_role = dbs(&["db1"]);
    other_role.active_roles.insert(Role::new("web").unwrap(), Default::default());
    queue.snapshot(other_role);
    assert_eq!(queue.schedule.hooks_due, None, "another role does not trigger it");
}

#[test]
fn new_hook_runs_after_the_first_run() {
    let mut queue = converged(&[hook()], &dbs(&["db1"]));
    queue.hooks.clear();
    queue.handle(run_requested());
    queue.started();
    queue.finishes(ended(LedgerRunEnd::Validated, &dbs(&["db1"])));
    assert!(matches!(queue.after(Duration::ZERO), QueueAction::RunHooks { .. }));
}

#[test]
fn failed_hook_is_retried_with_backoff_or_at_a_change() {
    let mut queue = converged(&[hook()], &dbs(&[]));
    queue.snapshot(dbs(&["db1"]));
    assert_eq!(queue.after(DEBOUNCE), hooks_run());
    queue.hook_ends(false);
    assert_eq!(queue.after(FIRST_RETRY - TICK), QueueAction::Wait);
    assert_eq!(queue.after(TICK), hooks_run());
    queue.hook_ends(false);
    let mut other_role = dbs(&["db1"]);
    other_role.active_roles.insert(Role::new("web").unwrap(), Default::default());
    queue.snapshot(other_role);
    assert_eq!(queue.after(FIRST_RETRY), QueueAction::Wait, "an unrelated change does not shorten the pause");
    assert_eq!(queue.after(FIRST_RETRY), hooks_run());
    queue.hook_ends(false);
    queue.snapshot(dbs(&["db1", "db2"]));
    assert!(matches!(queue.after(DEBOUNCE), QueueAction::RunHooks { .. }));
    queue.hook_ends(true);
    assert_eq!(queue.schedule.hooks_due, None);
}

#[test]
fn reverted_change_does_not_run_the_hook() {
    let mut queue = converged(&[hook()], &dbs(&[]));
    queue.snapshot(dbs(&["db1"]));
    queue.snapshot(dbs(&[]));
    assert_eq!(queue.after(DEBOUNCE), QueueAction::Wait);
}

#[test]
fn run_comes_before_hooks() {
    let mut queue = converged(&[hook()], &dbs(&[]));
    queue.last = Some(ended(LedgerRunEnd::Validated, &dbs(&[])));
    queue.snapshot(dbs(&["db1"]));
    assert!(matches!(queue.after(DEBOUNCE), QueueAction::Start { .. }), "the run has looked up the same key");
    queue.finishes(ended(LedgerRunEnd::Validated, &dbs(&["db1"])));
    assert!(matches!(queue.after(Duration::ZERO), QueueAction::RunHooks { .. }));
}

#[test]
fn preview_comes_before_the_run() {
    let mut queue = QueueFixture::idle(Some(ended(LedgerRunEnd::Validated, &dbs(&[]))));
    queue.handle(QueueEvent::Desired(desired(2, "v2")));
    queue.handle(QueueEvent::PreviewRequested(Cause::operator("1", "ada")));
    queue.handle(QueueEvent::PreviewRequested(Cause::operator("2", "bob")));
    let bob = Cause::operator("2", "bob");
    assert_eq!(queue.after(Duration::ZERO), QueueAction::Preview { causes: vec![operator(), bob] });
    queue.handle(QueueEvent::Finished);
    assert_eq!(queue.started(), [version("v2")]);
}

#[test]
fn preview_waits_for_the_run_in_progress() {
    let mut queue = QueueFixture::idle(None);
    queue.handle(run_requested());
    queue.started();
    queue.handle(QueueEvent::PreviewRequested(Cause::operator("1", "ada")));
    assert_eq!(queue.after(Duration::ZERO), QueueAction::Wait);
    queue.finishes(ended(LedgerRunEnd::Validated, &dbs(&[])));
    assert_eq!(queue.after(Duration::ZERO), QueueAction::Preview { causes: vec![operator()] });
}

#[test]
fn previews_with_other_options_are_separate() {
    let mut queue = QueueFixture::idle(Some(ended(LedgerRunEnd::Validated, &dbs(&[]))));
    let request = |id: &str, tags: &[&str]| Cause::Operator {
        id: id.into(),
        by: "ada".into(),
        options: RunOptions { tags: tags.iter().map(|tag| (*tag).to_owned()).collect(), ..RunOptions::default() },
    };
    let requests = [request("1", &["a"]), request("2", &[]), request("3", &["a"])];
    for request in requests.clone() {
        queue.handle(QueueEvent::PreviewRequested(request));
    }
    let [first, second, third] = requests;
    assert_eq!(queue.after(Duration::ZERO), QueueAction::Preview { causes: vec![first, third] });
    queue.handle(QueueEvent::Finished);
    assert_eq!(queue.after(Duration::ZERO), QueueAction::Preview { causes: vec![second] });
}
