//! Tests of `decide`: stored state, event, action.

mod hooks_and_checks;
mod pauses;
mod timed_runs;

use super::*;

use muster_core::lookup::Lookups;
use muster_core::lookup::config_data::{Datum, Layer};
use muster_core::lookup::snapshot::{LeaderInfo, Snapshot};
use muster_core::names::{DataKey, NodeName, Role, RunId, Version};
use muster_core::release::manifest::SignedManifest;
use muster_core::release::timed_runs::DriftPolicy;
use muster_core::report::reason::Need;
use muster_core::report::{Interfaces, LookupChange};
use muster_core::txn::Generation;

use crate::queue::hooks::HookRecords;
use crate::queue::schedule::PausedUntil;
use crate::state::ledger::{AppliedRelease, PreviousRun};

const DEBOUNCE: Duration = Duration::from_millis(10);
const FIRST_RETRY: Duration = Duration::from_secs(5);

/// A schedule with the stored state that decisions read, and the time.
struct QueueFixture {
    schedule: Schedule,
    has_incarnation: bool,
    role: Option<Role>,
    desired: Option<DesiredState>,
    snapshot: Option<Snapshot>,
    last: Option<PreviousRun>,
    last_snapshot: Option<Snapshot>,
    applied: Option<AppliedRelease>,
    hooks: HookRecords,
    paused: Option<PausedUntil>,
    now: Instant,
}

impl QueueFixture {
    /// An agent without any state.
    fn new() -> Self {
        Self {
            schedule: Schedule::default(),
            has_incarnation: false,
            role: None,
            desired: None,
            snapshot: None,
            last: None,
            last_snapshot: None,
            applied: None,
            hooks: HookRecords::new(),
            paused: None,
            now: Instant::now(),
        }
    }

    /// An agent with all that a run needs, and nothing to do.
    fn idle(last: Option<PreviousRun>) -> Self {
        let role = Some(Role::new("web").unwrap());
        Self {
            has_incarnation: true,
            role,
            desired: Some(desired(1, "v1")),
            snapshot: Some(dbs(&[])),
            last,
            ..Self::new()
        }
    }

    fn view(&self) -> LedgerView<'_> {
        let failures = match (&self.last, &self.desired) {
            (Some(last), Some(desired)) if last.generation == desired.generation => last.attempt,
            (Some(_) | None, Some(_) | None) => 0,
        };
        LedgerView {
            has_incarnation: self.has_incarnation,
            role: self.role.as_ref(),
            desired: self.desired.as_ref(),
            snapshot: self.snapshot.as_ref(),
            last: self.last.as_ref(),
            last_snapshot: self.last_snapshot.as_ref(),
            failures,
            applied: self.applied.as_ref(),
            hooks: &self.hooks,
            unconfirmed: false,
            paused: self.paused,
        }
    }

    fn handle(&mut self, event: QueueEvent) -> QueueAction {
        let retry = RetryBackoff { first: FIRST_RETRY, cap: Duration::from_secs(300) };
        let pauses = DecisionTimings { debounce: DEBOUNCE, retry, chance: 0.5, phase: 0.25, first: FirstWork::Run };
        let (schedule, action) = decide(self.schedule.clone(), self.view(), event, self.now, pauses);
        self.schedule = schedule;
        if let QueueAction::Adopt(desired) = &action {
            self.desired = Some(desired.clone());
        }
        action
    }

    fn snapshot(&mut self, snapshot: Snapshot) -> QueueAction {
        self.snapshot = Some(snapshot);
        self.handle(QueueEvent::SnapshotStored)
    }

    fn finishes(&mut self, last: PreviousRun) -> QueueAction {
        self.last = Some(last);
        self.handle(QueueEvent::Finished)
    }

    /// Advances the time.
    fn after(&mut self, time: Duration) -> QueueAction {
        self.now += time;
        self.handle(QueueEvent::Tick)
    }

    /// Causes of the run that starts after the debounce.
    fn started(&mut self) -> Vec<Cause> {
        let action = self.after(DEBOUNCE);
        let QueueAction::Start { causes, .. } = action else {
            panic!("no run started but {action:?}: {:?}", self.schedule)
        };
        causes
    }

    fn is_idle(&self) -> bool {
        self.schedule.wake_at(self.view()).is_none()
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

fn started(adopted: Option<(Work, RunPhase)>) -> QueueEvent {
    QueueEvent::Started { adopted, waiting: Vec::new(), previews: Vec::new() }
}

fn run_requested() -> QueueEvent {
    QueueEvent::RunRequested(Cause::operator("1", "ada"))
}

fn operator() -> Cause {
    Cause::operator("1", "ada")
}

/// A snapshot in which these nodes of role `db` are active.
fn dbs(nodes: &[&str]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let nodes = nodes.iter().map(|node| (NodeName::new(*node).unwrap(), Interfaces::default())).collect();
    snapshot.active_roles.insert(Role::new("db").unwrap(), nodes);
    snapshot
}

/// A run at generation 1 that looked up role `db` in this snapshot.
fn ended(end: LedgerRunEnd, seen: &Snapshot) -> PreviousRun {
    let key = "active_roles::db".to_owned();
    PreviousRun {
        run: RunId::new("r1").unwrap(),
        generation: Generation { epoch: 1, number: 1 },
        end,
        needs: Vec::new(),
        lookups: Lookups::from([(key.clone(), seen.tag(&key))]),
        attempt: u32::from(end == LedgerRunEnd::Failed),
        first_failure: None,
        only_checks_failed: false,
        lost: false,
    }
}

fn waiting_for(want: u32, seen: &Snapshot) -> PreviousRun {
    let need = Need::Role { role: Role::new("db").unwrap(), want, have: 0 };
    PreviousRun { needs: vec![need], ..ended(LedgerRunEnd::Pending, seen) }
}

fn version(version: &str) -> Cause {
    Cause::Version { version: Version::new(version).unwrap() }
}

fn looked_up() -> Cause {
    Cause::LookedUp { changes: vec![LookupChange { key: "active_roles::db".into(), what: String::new() }] }
}

#[test]
fn rollback_waits_only_for_the_slot() {
    let mut queue = QueueFixture::idle(Some(ended(LedgerRunEnd::Failed, &dbs(&[]))));
    let rolled_back =
        || QueueEvent::RolledBack { version: Version::new("v1").unwrap(), within: SignedDuration::from_mins(5) };
    let cause = || Cause::AutoRollback { version: Version::new("v1").unwrap(), within: SignedDuration::from_mins(5) };
    queue.schedule.retry = Some(PendingRetry { attempt: 1, due: queue.now + FIRST_RETRY });
    queue.schedule.running = Some(Work::Validation);
    queue.handle(rolled_back());
    assert_eq!(queue.after(Duration::ZERO), QueueAction::Wait, "the checks continue");
    queue.schedule.running = None;
    assert_eq!(queue.after(Duration::ZERO), QueueAction::Start { causes: vec![cause()], failures: 1 });
    queue.handle(QueueEvent::Desired(desired(2, "v2")));
    queue.handle(rolled_back());
    assert_eq!(queue.schedule.waiting, [version("v2"), cause()], "together with the waiting causes");
}

#[test]
fn new_agent_runs_when_its_state_is_complete() {
    let mut queue = QueueFixture::new();
    queue.handle(started(None));
    assert_eq!(queue.after(FIRST_HELLO_TIMEOUT), QueueAction::Wait);
    queue.has_incarnation = true;
    queue.role = Some(Role::new("web").unwrap());
    queue.handle(QueueEvent::Connected { new_incarnation: false, identity: None });
    assert_eq!(queue.after(DEBOUNCE), QueueAction::Wait);
    assert_eq!(queue.handle(QueueEvent::Desired(desired(1, "v1"))), QueueAction::Adopt(desired(1, "v1")));
    assert_eq!(queue.after(DEBOUNCE), QueueAction::Wait);
    assert!(queue.is_idle(), "it waits for a snapshot");
    queue.snapshot(dbs(&[]));
    assert_eq!(queue.started(), [Cause::AgentStarted, version("v1")]);
}

#[test]
fn restarted_agent_runs_without_a_server_after_a_timeout() {
    let mut queue = QueueFixture::idle(None);
    queue.handle(started(None));
    assert_eq!(queue.after(FIRST_HELLO_TIMEOUT / 2), QueueAction::Wait);
    let causes = vec![Cause::AgentStarted];
    assert_eq!(queue.after(FIRST_HELLO_TIMEOUT / 2), QueueAction::Start { causes, failures: 0 });
}

#[test]
fn adopted_applier_takes_the_place_of_the_first_run() {
    let mut queue = QueueFixture::idle(None);
    queue.handle(started(Some((Work::Run, RunPhase::Applying))));
    assert_eq!(queue.after(FIRST_HELLO_TIMEOUT * 2), QueueAction::Wait);
    queue.finishes(ended(LedgerRunEnd::Validated, &dbs(&[])));
    assert!(queue.is_idle());

    let mut queue = QueueFixture::idle(None);
    queue.handle(started(Some((Work::Run, RunPhase::Validating))));
    assert_eq!(queue.after(FIRST_HELLO_TIMEOUT * 2), QueueAction::Wait, "the slot is taken");
    queue.finishes(ended(LedgerRunEnd::Validated, &dbs(&[])));
    assert_eq!(queue.after(Duration::ZERO), QueueAction::Start { causes: vec![Cause::AgentStarted], failures: 0 });
}

#[test]
fn lost_run_is_followed_by_another_after_the_hello() {
    let mut queue = QueueFixture::idle(None);
    queue.handle(started(Some((Work::Run, RunPhase::Applying))));
    let causes = vec![Cause::AgentStarted, Cause::Interrupted { run: RunId::new("r0").unwrap() }];
    queue.handle(QueueEvent::AdoptionEnded { causes: causes.clone() });
    assert_eq!(queue.after(FIRST_HELLO_TIMEOUT / 2), QueueAction::Wait);
    assert_eq!(queue.after(FIRST_HELLO_TIMEOUT / 2), QueueAction::Start { causes, failures: 0 });
}

/// In a reboot the supervisor may end before the agent, which then records the loss.
#[test]
fn loss_that_an_earlier_agent_recorded_is_a_cause() {
    let lost = PreviousRun { lost: true, ..ended(LedgerRunEnd::Failed, &dbs(&[])) };
    let causes = vec![Cause::AgentStarted, Cause::Interrupted { run: lost.run.clone() }];
    let mut queue = QueueFixture::idle(None);
    queue.last = Some(lost.clone());
    queue.handle(started(None));
    assert_eq!(queue.after(FIRST_HELLO_TIMEOUT), QueueAction::Start { causes, failures: 1 });

    let mut queue = QueueFixture::idle(None);
    queue.last = Some(lost);
    queue.handle(started(Some((Work::Run, RunPhase::Applying))));
    queue.finishes(ended(LedgerRunEnd::Validated, &dbs(&[])));
    assert!(queue.is_idle(), "the adopted run is the one that follows");
}

#[test]
fn restarted_agent_runs_the_new_state_of_the_server() {
    let mut queue = QueueFixture::idle(None);
    queue.handle(started(None));
    queue.handle(QueueEvent::Connected { new_incarnation: false, identity: None });
    queue.handle(QueueEvent::Desired(desired(2, "v2")));
    assert_eq!(queue.started(), [Cause::AgentStarted, version("v2")]);
}

#[test]
fn only_a_newer_generation_is_adopted() {
    let mut queue = QueueFixture::idle(None);
    queue.desired = Some(desired(5, "v5"));
    assert_eq!(queue.handle(QueueEvent::Desired(desired(4, "v4"))), QueueAction::RefuseOlder);
    assert_eq!(queue.handle(QueueEvent::Desired(desired(5, "v5"))), QueueAction::IgnoreDuplicate);
    assert!(queue.is_idle());
    let restored = DesiredState { generation: Generation { epoch: 2, number: 1 }, ..desired(1, "v1") };
    assert_eq!(queue.handle(QueueEvent::Desired(restored.clone())), QueueAction::Adopt(restored));
    assert_eq!(queue.started(), [version("v1")]);
}

#[test]
fn concurrent_causes_make_one_run() {
    let mut queue = QueueFixture::idle(Some(ended(LedgerRunEnd::Validated, &dbs(&[]))));
    queue.handle(QueueEvent::Desired(desired(2, "v2")));
    queue.snapshot(dbs(&["db1"]));
    queue.handle(run_requested());
    assert_eq!(queue.after(DEBOUNCE / 2), QueueAction::Wait);
    assert_eq!(queue.started(), [version("v2"), looked_up(), operator()]);
    assert!(queue.is_idle());
}

#[test]
fn causes_during_a_run_make_one_further_run() {
    let mut queue = QueueFixture::idle(None);
    queue.handle(run_requested());
    queue.started();
    queue.handle(QueueEvent::Desired(desired(2, "v2")));
    queue.handle(QueueEvent::Desired(desired(3, "v3")));
    queue.handle(run_requested());
    assert_eq!(queue.after(Duration::from_secs(60)), QueueAction::Wait, "one run at a time");
    assert!(queue.is_idle());
    queue.finishes(ended(LedgerRunEnd::Validated, &dbs(&[])));
    let causes = vec![version("v3"), operator()];
    assert_eq!(queue.after(Duration::ZERO), QueueAction::Start { causes, failures: 0 });
}

#[test]
fn only_changed_lookups_wake_a_node() {
    let mut queue = QueueFixture::idle(Some(ended(LedgerRunEnd::Validated, &dbs(&["db1"]))));
    queue.snapshot(dbs(&["db1"]));
    assert!(queue.is_idle(), "the same snapshot again, for example after a reconnection");
    let mut other_role = dbs(&["db1"]);
    other_role.active_roles.insert(Role::new("web").unwrap(), Default::default());
    queue.snapshot(other_role);
    assert!(queue.is_idle(), "another role");
    queue.snapshot(dbs(&["db1", "db2"]));
    assert_eq!(queue.started(), [looked_up()]);
}

#[test]
fn change_during_a_run_counts_at_its_end() {
    let mut queue = QueueFixture::idle(None);
    queue.handle(run_requested());
    queue.started();
    queue.snapshot(dbs(&["db1"]));
    queue.finishes(ended(LedgerRunEnd::Validated, &dbs(&[])));
    let causes = vec![looked_up()];
    assert_eq!(queue.after(Duration::ZERO), QueueAction::Start { causes, failures: 0 });
}

#[test]
fn pending_node_waits_for_all_its_needs() {
    let mut queue = QueueFixture::idle(Some(waiting_for(2, &dbs(&[]))));
    queue.snapshot(dbs(&["db1"]));
    assert!(queue.is_idle(), "one of two is not enough");
    queue.snapshot(dbs(&["db1", "db2"]));
    assert_eq!(queue.started(), [looked_up()]);
}

#[test]
fn leader_or_publication_wakes_a_pending_node() {
    let db = || Role::new("db").unwrap();
    let key = || DataKey::new("db::binlog").unwrap();
    let node = NodeName::new("db1").unwrap();
    let mut led = dbs(&[]);
    let leader = LeaderInfo { host: node.host(), node: node.clone(), epoch: 1, interfaces: Interfaces::new() };
    led.leaders.insert(db(), leader);
    let mut published = dbs(&[]);
    published.published.insert(key(), [(node, "x".into())].into());
    for (need, looked_up, available) in [
        (Need::Leader { role: db() }, "leader::db", led),
        (Need::Published { key: key(), want: 1, have: 0 }, "published::db::binlog", published),
    ] {
        let lookups = [looked_up, "active_roles::db"].map(|key| (key.to_owned(), dbs(&[]).tag(key))).into();
        let last = PreviousRun { needs: vec![need], lookups, ..ended(LedgerRunEnd::Pending, &dbs(&[])) };
        let mut queue = QueueFixture::idle(Some(last));
        queue.snapshot(dbs(&["db1"]));
        assert!(queue.is_idle(), "another key has changed, so the run would end the same way");
        queue.snapshot(available);
        let changes = vec![LookupChange { key: looked_up.into(), what: String::new() }];
        assert_eq!(queue.started(), [Cause::LookedUp { changes }]);
    }
}

#[test]
fn pending_run_without_a_wake_up_is_retried_by_time() {
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
        let mut queue = QueueFixture::idle(None);
        queue.snapshot = Some(fleet.clone());
        queue.handle(run_requested());
        queue.started();
        let mut last = PreviousRun { needs, ..ended(LedgerRunEnd::Pending, &fleet) };
        if !looked_up {
            last.lookups.clear();
        }
        queue.finishes(last);
        assert_eq!(queue.is_idle(), !again, "{case}");
        let pause = Duration::from_secs(300);
        assert_eq!(queue.after(pause - Duration::from_millis(1)), QueueAction::Wait, "{case}");
        let causes = vec![Cause::Retry { attempt: 1 }];
        let expected = if again { QueueAction::Start { causes, failures: 0 } } else { QueueAction::Wait };
        assert_eq!(queue.after(Duration::from_millis(1)), expected, "{case}");
    }
}

#[test]
fn pending_run_with_a_wake_up_is_not_retried_by_time() {
    let mut queue = QueueFixture::idle(None);
    queue.handle(run_requested());
    queue.started();
    queue.finishes(waiting_for(1, &dbs(&[])));
    assert!(queue.is_idle());
    queue.handle(QueueEvent::Desired(desired(2, "v2")));
    assert_eq!(queue.started(), [version("v2")]);
}

#[test]
fn need_met_during_a_pending_run_starts_another() {
    let mut queue = QueueFixture::idle(None);
    queue.handle(run_requested());
    queue.started();
    queue.snapshot(dbs(&["db1"]));
    queue.finishes(waiting_for(1, &dbs(&[])));
    assert_eq!(queue.started(), [looked_up()]);
}

#[test]
fn any_change_wakes_a_node_with_a_free_text_need() {
    let need = Need::Other { reason: "the schema".into() };
    let mut queue =
        QueueFixture::idle(Some(PreviousRun { needs: vec![need], ..ended(LedgerRunEnd::Pending, &dbs(&[])) }));
    queue.snapshot(dbs(&["db1"]));
    assert_eq!(queue.started(), [looked_up()]);
}

#[test]
fn failed_run_is_retried_with_backoff() {
    let mut queue = QueueFixture::idle(None);
    queue.handle(run_requested());
    queue.started();
    for (attempt, pause) in [(1, 5), (2, 10), (3, 20), (7, 300), (100, 300)] {
        queue.finishes(PreviousRun { attempt, ..ended(LedgerRunEnd::Failed, &dbs(&[])) });
        let pause = Duration::from_secs(pause);
        assert_eq!(queue.schedule.wake_at(queue.view()), Some(queue.now + pause));
        assert_eq!(queue.after(pause - Duration::from_millis(1)), QueueAction::Wait);
        let causes = vec![Cause::Retry { attempt }];
        assert_eq!(queue.after(Duration::from_millis(1)), QueueAction::Start { causes, failures: attempt });
    }
}

#[test]
fn new_version_cancels_the_retry_and_resets_the_count() {
    let mut queue = QueueFixture::idle(None);
    queue.handle(run_requested());
    queue.started();
    queue.finishes(PreviousRun { attempt: 4, ..ended(LedgerRunEnd::Failed, &dbs(&[])) });
    queue.handle(QueueEvent::Desired(desired(2, "v2")));
    assert_eq!(queue.schedule.retry, None);
    assert_eq!(queue.after(DEBOUNCE), QueueAction::Start { causes: vec![version("v2")], failures: 0 });
}

#[test]
fn other_cause_replaces_the_retry() {
    let mut queue = QueueFixture::idle(None);
    queue.handle(run_requested());
    queue.started();
    queue.finishes(ended(LedgerRunEnd::Failed, &dbs(&[])));
    queue.snapshot(dbs(&["db1"]));
    assert_eq!(queue.after(DEBOUNCE), QueueAction::Start { causes: vec![looked_up()], failures: 1 });
    assert_eq!(queue.after(FIRST_RETRY), QueueAction::Wait);
}

#[test]
fn further_changes_do_not_delay_the_first() {
    let mut queue = QueueFixture::idle(Some(ended(LedgerRunEnd::Validated, &dbs(&[]))));
    let names: Vec<String> = (1..=11).map(|number| format!("db{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for count in 1..=10 {
        queue.snapshot(dbs(&names[..count]));
        let action = queue.after(DEBOUNCE / 10);
        match count {
            10 => assert!(matches!(action, QueueAction::Start { .. }), "ten changes make one run: {action:?}"),
            _ => assert_eq!(action, QueueAction::Wait),
        }
    }
    queue.snapshot(dbs(&names));
    queue.finishes(ended(LedgerRunEnd::Validated, &dbs(&names[..10])));
    assert_eq!(queue.started(), [looked_up()], "a change during the run makes one more");
}

#[test]
fn cause_describes_the_changes_since_the_last_run() {
    let mut queue = QueueFixture::idle(Some(ended(LedgerRunEnd::Validated, &dbs(&["db1"]))));
    queue.last_snapshot = Some(dbs(&["db1"]));
    queue.snapshot(dbs(&["db1", "db2"]));
    queue.snapshot(dbs(&["db2", "db3"]));
    let said: Vec<String> = queue.started().iter().map(ToString::to_string).collect();
    assert_eq!(said, ["active_roles::db changed: db2, db3 added, db1 gone"]);
}

#[test]
fn waiting_causes_survive_a_restart() {
    let mut queue = QueueFixture::idle(None);
    let waiting = vec![looked_up(), operator()];
    let ada = Cause::operator("2", "ada");
    queue.handle(QueueEvent::Started { adopted: None, waiting, previews: vec![ada.clone()] });
    assert_eq!(queue.after(FIRST_HELLO_TIMEOUT), QueueAction::Preview { causes: vec![ada] });
    queue.handle(QueueEvent::Finished);
    let causes = vec![looked_up(), operator(), Cause::AgentStarted];
    assert_eq!(queue.after(Duration::ZERO), QueueAction::Start { causes, failures: 0 });
}

#[test]
fn unreachable_server_is_no_event() {
    let mut queue = QueueFixture::idle(Some(ended(LedgerRunEnd::Validated, &dbs(&[]))));
    assert_eq!(queue.after(Duration::from_secs(100_000)), QueueAction::Wait);
    queue.handle(QueueEvent::Connected { new_incarnation: false, identity: None });
    assert!(queue.is_idle(), "nor is its return");
}

// Configuration data.

const DATA_KEYS: [&str; 2] = ["active_roles::db", "data::ntp_servers"];

/// The snapshot with a datum.
fn with_datum(mut snapshot: Snapshot, number: u32) -> Snapshot {
    let datum = Datum { value: number.into(), secret: false, tag: None, unavailable: None, layer: Layer::Global };
    snapshot.data.insert(DataKey::new("ntp_servers").unwrap(), datum);
    snapshot
}

/// A node whose last run has looked up a role and the datum.
fn idle_with_datum() -> QueueFixture {
    let seen = with_datum(dbs(&[]), 0);
    let lookups = DATA_KEYS.map(|key| (key.to_owned(), seen.tag(key))).into();
    QueueFixture::idle(Some(PreviousRun { lookups, ..ended(LedgerRunEnd::Validated, &seen) }))
}

fn changed(keys: &[&str]) -> Cause {
    let change = |key: &&str| LookupChange { key: (*key).to_owned(), what: String::new() };
    Cause::LookedUp { changes: keys.iter().map(change).collect() }
}

#[test]
fn data_changes_within_a_second_make_one_run() {
    let mut queue = idle_with_datum();
    let begin = queue.now;
    for number in 1..=10 {
        queue.snapshot(with_datum(dbs(&[]), number));
        assert_eq!(queue.after(DATA_DEBOUNCE / 11), QueueAction::Wait, "change {number}");
    }
    let left = DATA_DEBOUNCE - (queue.now - begin);
    assert_eq!(queue.after(left), QueueAction::Start { causes: vec![changed(&DATA_KEYS[1..])], failures: 0 });
    assert!(queue.is_idle());
}

#[test]
fn changed_role_is_not_delayed_by_a_datum() {
    let mut queue = idle_with_datum();
    queue.snapshot(with_datum(dbs(&[]), 1));
    assert_eq!(queue.after(DEBOUNCE), QueueAction::Wait);
    queue.snapshot(with_datum(dbs(&["db1"]), 1));
    assert_eq!(queue.started(), [changed(&DATA_KEYS)]);
}

#[test]
fn requested_run_is_not_delayed_by_a_datum() {
    let mut queue = idle_with_datum();
    queue.snapshot(with_datum(dbs(&[]), 1));
    queue.handle(run_requested());
    assert_eq!(queue.started(), [changed(&DATA_KEYS[1..]), operator()]);
}
