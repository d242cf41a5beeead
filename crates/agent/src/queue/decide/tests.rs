//! One test per arrow: what is known, what happens, what is done about it.

mod between;
mod data;
mod pauses;

use super::*;

use muster_core::lookup::Lookups;
use muster_core::lookup::snapshot::{LeaderInfo, Snapshot};
use muster_core::names::{DataKey, NodeName, Role, Version};
use muster_core::release::manifest::SignedManifest;
use muster_core::report::reason::Need;
use muster_core::report::{Interfaces, LookupChange};
use muster_core::txn::Generation;

use crate::ledger::{AppliedRelease, LastRun};
use crate::queue::hooks::HookMemories;
use crate::queue::waiting::PausedUntil;

const DEBOUNCE: Duration = Duration::from_millis(10);
const FIRST_RETRY: Duration = Duration::from_secs(5);

/// A queue, what its agent has written down, and the time.
struct Story {
    queue: Queue,
    greeted: bool,
    role: Option<Role>,
    desired: Option<DesiredState>,
    snapshot: Option<Snapshot>,
    last: Option<LastRun>,
    /// What the last run saw.
    seen: Option<Snapshot>,
    applied: Option<AppliedRelease>,
    hooks: HookMemories,
    paused: Option<PausedUntil>,
    now: Instant,
}

impl Story {
    /// An agent that knows nothing.
    fn new() -> Self {
        Self {
            queue: Queue::default(),
            greeted: false,
            role: None,
            desired: None,
            snapshot: None,
            last: None,
            seen: None,
            applied: None,
            hooks: HookMemories::new(),
            paused: None,
            now: Instant::now(),
        }
    }

    /// An agent that has all it needs, and waits for nothing.
    fn idle(last: Option<LastRun>) -> Self {
        let role = Some(Role::new("web").unwrap());
        Self { greeted: true, role, desired: Some(desired(1, "v1")), snapshot: Some(dbs(&[])), last, ..Self::new() }
    }

    fn known(&self) -> Known<'_> {
        let failures = match (&self.last, &self.desired) {
            (Some(last), Some(desired)) if last.generation == desired.generation => last.attempt,
            (Some(_) | None, Some(_) | None) => 0,
        };
        Known {
            greeted: self.greeted,
            role: self.role.as_ref(),
            desired: self.desired.as_ref(),
            snapshot: self.snapshot.as_ref(),
            last: self.last.as_ref(),
            seen: self.seen.as_ref(),
            failures,
            applied: self.applied.as_ref(),
            hooks: &self.hooks,
            paused: self.paused,
        }
    }

    fn happens(&mut self, event: Event) -> Action {
        let retry = Backoff { first: FIRST_RETRY, cap: Duration::from_secs(300) };
        let pauses = Pauses { debounce: DEBOUNCE, retry, chance: 0.5 };
        let (queue, action) = decide(self.queue.clone(), self.known(), event, self.now, pauses);
        self.queue = queue;
        if let Action::Adopt(desired) = &action {
            self.desired = Some(desired.clone());
        }
        action
    }

    fn snapshot(&mut self, snapshot: Snapshot) -> Action {
        self.snapshot = Some(snapshot);
        self.happens(Event::SnapshotStored)
    }

    fn finishes(&mut self, last: LastRun) -> Action {
        self.last = Some(last);
        self.happens(Event::Finished)
    }

    /// Lets time pass.
    fn after(&mut self, time: Duration) -> Action {
        self.now += time;
        self.happens(Event::Tick)
    }

    /// The causes of the run that starts once the debounce is over.
    fn started(&mut self) -> Vec<Cause> {
        let action = self.after(DEBOUNCE);
        let Action::Start { causes, .. } = action else { panic!("no run started but {action:?}: {:?}", self.queue) };
        causes
    }

    fn sleeps(&self) -> bool {
        self.queue.wake_at(self.known()).is_none()
    }
}

fn desired(number: u64, version: &str) -> DesiredState {
    let generation = Generation { epoch: 1, number };
    let digest = "sha256:x".to_owned();
    DesiredState {
        generation,
        version: Version::new(version).unwrap(),
        digest,
        serial: 1,
        allow_older: false,
        confirm_within: None,
        manifest: SignedManifest::default(),
    }
}

fn started(interrupted: Option<&str>) -> Event {
    let interrupted = interrupted.map(|run| RunId::new(run).unwrap());
    Event::Started { interrupted, waiting: Vec::new(), previews: Vec::new() }
}

fn asked() -> Event {
    Event::RunAsked { id: "1".into(), by: "ada".into() }
}

fn operator() -> Cause {
    Cause::Operator { id: "1".into(), by: "ada".into() }
}

/// A fleet in which these nodes of role `db` are active.
fn dbs(nodes: &[&str]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let nodes = nodes.iter().map(|node| (NodeName::new(*node).unwrap(), Interfaces::default())).collect();
    snapshot.active_roles.insert(Role::new("db").unwrap(), nodes);
    snapshot
}

/// A run at generation 1 that looked up role `db` in this fleet.
fn ended(end: RunEnd, seen: &Snapshot) -> LastRun {
    let key = "active_roles::db".to_owned();
    LastRun {
        run: RunId::new("r1").unwrap(),
        generation: Generation { epoch: 1, number: 1 },
        end,
        needs: Vec::new(),
        lookups: Lookups::from([(key.clone(), seen.tag(&key))]),
        attempt: u32::from(end == RunEnd::Failed),
        first_failure: None,
        only_checks_failed: false,
    }
}

fn waiting_for(want: u32, seen: &Snapshot) -> LastRun {
    let need = Need::Role { role: Role::new("db").unwrap(), want, have: 0 };
    LastRun { needs: vec![need], ..ended(RunEnd::Pending, seen) }
}

fn version(version: &str) -> Cause {
    Cause::Version { version: Version::new(version).unwrap() }
}

fn looked_up() -> Cause {
    Cause::LookedUp { changes: vec![LookupChange { key: "active_roles::db".into(), what: String::new() }] }
}

#[test]
fn who_goes_back_waits_for_nothing_but_the_slot() {
    let mut story = Story::idle(Some(ended(RunEnd::Failed, &dbs(&[]))));
    let gave_up = || Event::GaveUp { version: Version::new("v1").unwrap(), within: SignedDuration::from_mins(5) };
    let cause = || Cause::WentBack { version: Version::new("v1").unwrap(), within: SignedDuration::from_mins(5) };
    story.queue.retry = Some(Retry { attempt: 1, due: story.now + FIRST_RETRY });
    story.queue.running = Some(Work::Validation);
    story.happens(gave_up());
    assert_eq!(story.after(Duration::ZERO), Action::Wait, "the checks go on");
    story.queue.running = None;
    assert_eq!(story.after(Duration::ZERO), Action::Start { causes: vec![cause()], failures: 1 });
    story.happens(Event::Desired(desired(2, "v2")));
    story.happens(gave_up());
    assert_eq!(story.queue.waiting, [version("v2"), cause()], "and goes with whatever waits");
}

#[test]
fn a_new_agent_runs_as_soon_as_it_has_all_it_needs_and_not_before() {
    let mut story = Story::new();
    story.happens(started(None));
    assert_eq!(story.after(START_PATIENCE), Action::Wait);
    story.greeted = true;
    story.role = Some(Role::new("web").unwrap());
    story.happens(Event::Greeted);
    assert_eq!(story.after(DEBOUNCE), Action::Wait);
    assert_eq!(story.happens(Event::Desired(desired(1, "v1"))), Action::Adopt(desired(1, "v1")));
    assert_eq!(story.after(DEBOUNCE), Action::Wait);
    assert!(story.sleeps(), "without a snapshot there is nothing to wake up for");
    story.snapshot(dbs(&[]));
    assert_eq!(story.started(), [Cause::AgentStarted, version("v1")]);
}

#[test]
fn an_agent_that_remembers_runs_without_the_server_after_a_moment() {
    let mut story = Story::idle(None);
    story.happens(started(Some("r0")));
    assert_eq!(story.after(START_PATIENCE / 2), Action::Wait);
    let run = RunId::new("r0").unwrap();
    let causes = vec![Cause::AgentStarted, Cause::Interrupted { run }];
    assert_eq!(story.after(START_PATIENCE / 2), Action::Start { causes, failures: 0 });
}

#[test]
fn and_with_the_server_at_once_with_what_it_says() {
    let mut story = Story::idle(None);
    story.happens(started(None));
    story.happens(Event::Greeted);
    story.happens(Event::Desired(desired(2, "v2")));
    assert_eq!(story.started(), [Cause::AgentStarted, version("v2")]);
}

#[test]
fn only_a_newer_generation_is_adopted() {
    let mut story = Story::idle(None);
    story.desired = Some(desired(5, "v5"));
    assert_eq!(story.happens(Event::Desired(desired(4, "v4"))), Action::RefuseOlder);
    assert_eq!(story.happens(Event::Desired(desired(5, "v5"))), Action::IgnoreKnown);
    assert!(story.sleeps());
    let restored = DesiredState { generation: Generation { epoch: 2, number: 1 }, ..desired(1, "v1") };
    assert_eq!(story.happens(Event::Desired(restored.clone())), Action::Adopt(restored));
    assert_eq!(story.started(), [version("v1")]);
}

#[test]
fn causes_that_come_together_make_one_run() {
    let mut story = Story::idle(Some(ended(RunEnd::Validated, &dbs(&[]))));
    story.happens(Event::Desired(desired(2, "v2")));
    story.snapshot(dbs(&["db1"]));
    story.happens(asked());
    assert_eq!(story.after(DEBOUNCE / 2), Action::Wait);
    assert_eq!(story.started(), [version("v2"), looked_up(), operator()]);
    assert!(story.sleeps());
}

#[test]
fn what_comes_during_a_run_makes_one_run_after_it() {
    let mut story = Story::idle(None);
    story.happens(asked());
    story.started();
    story.happens(Event::Desired(desired(2, "v2")));
    story.happens(Event::Desired(desired(3, "v3")));
    story.happens(asked());
    assert_eq!(story.after(Duration::from_secs(60)), Action::Wait, "one run at a time");
    assert!(story.sleeps());
    story.finishes(ended(RunEnd::Validated, &dbs(&[])));
    let causes = vec![version("v3"), operator()];
    assert_eq!(story.after(Duration::ZERO), Action::Start { causes, failures: 0 });
}

#[test]
fn a_node_wakes_up_when_what_it_looked_up_is_different_and_only_then() {
    let mut story = Story::idle(Some(ended(RunEnd::Validated, &dbs(&["db1"]))));
    story.snapshot(dbs(&["db1"]));
    assert!(story.sleeps(), "the same again, after a reconnection for example");
    let mut others = dbs(&["db1"]);
    others.active_roles.insert(Role::new("web").unwrap(), Default::default());
    story.snapshot(others);
    assert!(story.sleeps(), "another role is nothing to it");
    story.snapshot(dbs(&["db1", "db2"]));
    assert_eq!(story.started(), [looked_up()]);
}

#[test]
fn what_changed_under_a_run_is_seen_at_its_end() {
    let mut story = Story::idle(None);
    story.happens(asked());
    story.started();
    story.snapshot(dbs(&["db1"]));
    story.finishes(ended(RunEnd::Validated, &dbs(&[])));
    let causes = vec![looked_up()];
    assert_eq!(story.after(Duration::ZERO), Action::Start { causes, failures: 0 });
}

#[test]
fn a_pending_node_sleeps_until_all_it_needs_is_there() {
    let mut story = Story::idle(Some(waiting_for(2, &dbs(&[]))));
    story.snapshot(dbs(&["db1"]));
    assert!(story.sleeps(), "one of two is not enough");
    story.snapshot(dbs(&["db1", "db2"]));
    assert_eq!(story.started(), [looked_up()]);
}

/// What a node waits for, and a fleet in which it is there.
#[test]
fn a_pending_node_wakes_when_a_leader_or_a_publication_is_there() {
    let db = || Role::new("db").unwrap();
    let key = || DataKey::new("db::binlog").unwrap();
    let node = NodeName::new("db1").unwrap();
    let mut led = dbs(&[]);
    let leader = LeaderInfo { host: node.host(), node: node.clone(), epoch: 1, interfaces: Interfaces::new() };
    led.leaders.insert(db(), leader);
    let mut told = dbs(&[]);
    told.published.insert(key(), [(node, "x".into())].into());
    for (need, looked_up, there) in [
        (Need::Leader { role: db() }, "leader::db", led),
        (Need::Published { key: key(), want: 1, have: 0 }, "published::db::binlog", told),
    ] {
        let lookups = [looked_up, "active_roles::db"].map(|key| (key.to_owned(), dbs(&[]).tag(key))).into();
        let last = LastRun { needs: vec![need], lookups, ..ended(RunEnd::Pending, &dbs(&[])) };
        let mut story = Story::idle(Some(last));
        story.snapshot(dbs(&["db1"]));
        assert!(story.sleeps(), "another key has changed: the run could only say the same as before");
        story.snapshot(there);
        let changes = vec![LookupChange { key: looked_up.into(), what: String::new() }];
        assert_eq!(story.started(), [Cause::LookedUp { changes }]);
    }
}

/// What a pending run needs, whether it has looked anything up, and whether it is made again by the clock.
#[test]
fn a_pending_run_that_nobody_would_wake_is_made_again_after_the_longest_pause() {
    let role = || Need::Role { role: Role::new("db").unwrap(), want: 1, have: 0 };
    let other = || Need::Other { reason: "the licence".into() };
    for (needs, looked_up, fleet, again) in [
        (vec![other()], false, dbs(&[]), true),
        (vec![other()], true, dbs(&[]), true),
        (vec![], false, dbs(&[]), true),
        (vec![], true, dbs(&[]), false),
        (vec![role()], true, dbs(&[]), false),
        (vec![role(), other()], true, dbs(&[]), false),
        (vec![role(), other()], true, dbs(&["db1"]), true),
    ] {
        let case = format!("{needs:?} {looked_up} {fleet:?}");
        let mut story = Story::idle(None);
        story.snapshot = Some(fleet.clone());
        story.happens(asked());
        story.started();
        let mut last = LastRun { needs, ..ended(RunEnd::Pending, &fleet) };
        if !looked_up {
            last.lookups.clear();
        }
        story.finishes(last);
        assert_eq!(story.sleeps(), !again, "{case}");
        let pause = Duration::from_secs(300);
        assert_eq!(story.after(pause - Duration::from_millis(1)), Action::Wait, "{case}");
        let causes = vec![Cause::Retry { attempt: 1 }];
        let expected = if again { Action::Start { causes, failures: 0 } } else { Action::Wait };
        assert_eq!(story.after(Duration::from_millis(1)), expected, "{case}");
    }
}

#[test]
fn a_pending_run_that_will_be_woken_is_not_retried_by_the_clock() {
    let mut story = Story::idle(None);
    story.happens(asked());
    story.started();
    story.finishes(waiting_for(1, &dbs(&[])));
    assert!(story.sleeps());
    story.happens(Event::Desired(desired(2, "v2")));
    assert_eq!(story.started(), [version("v2")]);
}

#[test]
fn what_a_pending_run_needs_may_come_while_it_runs() {
    let mut story = Story::idle(None);
    story.happens(asked());
    story.started();
    story.snapshot(dbs(&["db1"]));
    story.finishes(waiting_for(1, &dbs(&[])));
    assert_eq!(story.started(), [looked_up()]);
}

#[test]
fn a_reason_of_the_contents_own_is_judged_by_the_content() {
    let need = Need::Other { reason: "the schema".into() };
    let mut story = Story::idle(Some(LastRun { needs: vec![need], ..ended(RunEnd::Pending, &dbs(&[])) }));
    story.snapshot(dbs(&["db1"]));
    assert_eq!(story.started(), [looked_up()]);
}

#[test]
fn a_failed_run_is_made_again_after_growing_pauses() {
    let mut story = Story::idle(None);
    story.happens(asked());
    story.started();
    for (attempt, pause) in [(1, 5), (2, 10), (3, 20), (7, 300), (100, 300)] {
        story.finishes(LastRun { attempt, ..ended(RunEnd::Failed, &dbs(&[])) });
        let pause = Duration::from_secs(pause);
        assert_eq!(story.queue.wake_at(story.known()), Some(story.now + pause));
        assert_eq!(story.after(pause - Duration::from_millis(1)), Action::Wait);
        let causes = vec![Cause::Retry { attempt }];
        assert_eq!(story.after(Duration::from_millis(1)), Action::Start { causes, failures: attempt });
    }
}

#[test]
fn another_version_ends_the_waiting_for_a_retry_and_begins_to_count_anew() {
    let mut story = Story::idle(None);
    story.happens(asked());
    story.started();
    story.finishes(LastRun { attempt: 4, ..ended(RunEnd::Failed, &dbs(&[])) });
    story.happens(Event::Desired(desired(2, "v2")));
    assert_eq!(story.queue.retry, None);
    assert_eq!(story.after(DEBOUNCE), Action::Start { causes: vec![version("v2")], failures: 0 });
}

#[test]
fn something_else_may_come_before_the_retry_and_takes_its_place() {
    let mut story = Story::idle(None);
    story.happens(asked());
    story.started();
    story.finishes(ended(RunEnd::Failed, &dbs(&[])));
    story.snapshot(dbs(&["db1"]));
    assert_eq!(story.after(DEBOUNCE), Action::Start { causes: vec![looked_up()], failures: 1 });
    assert_eq!(story.after(FIRST_RETRY), Action::Wait);
}

#[test]
fn a_stream_of_changes_cannot_hold_up_the_run_for_the_first() {
    let mut story = Story::idle(Some(ended(RunEnd::Validated, &dbs(&[]))));
    let names: Vec<String> = (1..=11).map(|number| format!("db{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for count in 1..=10 {
        story.snapshot(dbs(&names[..count]));
        let action = story.after(DEBOUNCE / 10);
        match count {
            10 => assert!(matches!(action, Action::Start { .. }), "ten changes make one run: {action:?}"),
            _ => assert_eq!(action, Action::Wait),
        }
    }
    story.snapshot(dbs(&names));
    story.finishes(ended(RunEnd::Validated, &dbs(&names[..10])));
    assert_eq!(story.started(), [looked_up()], "what came during the run makes one more");
}

#[test]
fn a_run_says_in_words_what_has_changed_since_the_last() {
    let mut story = Story::idle(Some(ended(RunEnd::Validated, &dbs(&["db1"]))));
    story.seen = Some(dbs(&["db1"]));
    story.snapshot(dbs(&["db1", "db2"]));
    story.snapshot(dbs(&["db2", "db3"]));
    let said: Vec<String> = story.started().iter().map(ToString::to_string).collect();
    assert_eq!(said, ["active_roles::db changed: db2, db3 added, db1 gone"]);
}

#[test]
fn who_waited_before_a_restart_still_waits() {
    let mut story = Story::idle(None);
    let waiting = vec![looked_up(), operator()];
    let ada = Cause::Operator { id: "2".into(), by: "ada".into() };
    story.happens(Event::Started { interrupted: None, waiting, previews: vec![ada.clone()] });
    assert_eq!(story.after(START_PATIENCE), Action::Preview { causes: vec![ada] });
    story.happens(Event::Finished);
    let causes = vec![looked_up(), operator(), Cause::AgentStarted];
    assert_eq!(story.after(Duration::ZERO), Action::Start { causes, failures: 0 });
}

#[test]
fn the_servers_absence_is_no_event_at_all() {
    let mut story = Story::idle(Some(ended(RunEnd::Validated, &dbs(&[]))));
    assert_eq!(story.after(Duration::from_secs(100_000)), Action::Wait);
    story.happens(Event::Greeted);
    assert!(story.sleeps(), "nor is its return");
}
