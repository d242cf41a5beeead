//! Tests of the queue with a simulated node: complete runs in virtual time, and a kill between any two effects.

mod simulated_world;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use muster_agent::queue::auto_rollback::RollbackStage;
use muster_agent::queue::io::Input;
use muster_agent::run::WorkOrder;
use muster_agent::state::ledger::{LedgerRunEnd, Work};
use muster_core::lookup::snapshot::Snapshot;
use muster_core::names::{HostName, Role, Version};
use muster_core::node::pause::{NodePause, PauseRecord, PauseScope};
use muster_core::release::manifest::SignedManifest;
use muster_core::release::timed_runs::DriftPolicy;
use muster_core::report::reason::RunReason;
use muster_core::report::{Cause, Outcome, Report, ResourceChange, RunResult, Verdict};
use muster_core::txn::Generation;
use muster_wire::sync::{DesiredState, RequestedRun};

use simulated_world::{Killed, SimulatedWorld};

const WITHIN: SignedDuration = SignedDuration::from_secs(60);

/// State that the server sends to a connecting agent.
#[derive(Clone, Copy)]
struct ServerState {
    number: u64,
    version: &'static str,
    /// A requested run, or preview: id and noop.
    request: Option<(&'static str, bool)>,
}

const STATES: [ServerState; 4] = [
    ServerState { number: 1, version: "v1", request: None },
    ServerState { number: 2, version: "v2", request: None },
    ServerState { number: 2, version: "v2", request: Some(("a", false)) },
    ServerState { number: 2, version: "v2", request: Some(("b", true)) },
];

/// A desired state; the second one requires a confirmation.
fn desired(number: u64, version: &str) -> DesiredState {
    DesiredState {
        generation: Generation { epoch: 1, number },
        version: Version::new(version).unwrap(),
        digest: format!("sha256:{version}"),
        serial: number,
        allow_older: false,
        confirm_within: (number == 2).then_some(WITHIN),
        manifest: SignedManifest { payload: String::new(), signatures: Vec::new() },
    }
}

/// Connects the agent and sends what it does not have.
fn connect(world: &mut SimulatedWorld, state: ServerState) -> Result<(), Killed> {
    let (role, now) = (Role::new("web").unwrap(), Timestamp::UNIX_EPOCH);
    world.happens(Input::Hello { incarnation: 1, role, host_name: None, now, renewed: false })?;
    world.happens(Input::Desired(desired(state.number, state.version)))?;
    world.happens(Input::Snapshot(Arc::<Snapshot>::default()))?;
    if let Some((id, noop)) = state.request.filter(|(id, _)| world.ledger().run_request.as_deref() != Some(*id)) {
        world.happens(Input::RunRequested(RequestedRun {
            id: id.into(),
            by: "ada".into(),
            noop,
            ..RequestedRun::default()
        }))?;
    }
    world.settle()
}

/// Runs all states with an agent that is killed after `lives_for` effects and restarted. Returns the world, and whether it
/// was killed.
fn run_all(lives_for: usize) -> (SimulatedWorld, bool) {
    let mut world = SimulatedWorld::new(lives_for);
    let mut died = false;
    let mut started = world.happens(Input::Started).is_ok();
    for state in STATES {
        while !started || connect(&mut world, state).is_err() {
            assert!(!died, "it was killed once");
            died = true;
            world.left = usize::MAX;
            world.restart();
            started = world.happens(Input::Started).is_ok();
        }
    }
    (world, died)
}

#[test]
fn agent_killed_between_any_two_effects_recovers() {
    let (complete, died) = run_all(usize::MAX);
    assert!(!died);
    assert_eq!(complete.log.orders.len(), 4, "a start, a version, a requested run and a requested preview");
    let effects = usize::MAX - complete.left;
    assert!(effects > 40, "enough effects to kill it between: {effects}");
    for lives_for in 0..effects {
        let (world, died) = run_all(lives_for);
        assert!(died, "{lives_for}");
        check(&world, lives_for);
    }
}

fn check(world: &SimulatedWorld, lives_for: usize) {
    let ledger = world.ledger();
    let last = ledger.last.as_ref().unwrap();
    assert_eq!((last.generation.number, last.end), (2, LedgerRunEnd::Validated), "{lives_for}");
    assert_eq!(ledger.local.as_ref().unwrap().version.as_str(), "v2", "{lives_for}");
    assert_eq!(world.unsent_reports(), 0, "{lives_for}");
    assert_eq!(ledger.current_rollback().unwrap().stage, RollbackStage::Confirmed, "{lives_for}: confirmed");
    let taken = &world.log.accepted;
    assert!(taken.windows(2).all(|pair| pair[0].seq < pair[1].seq), "{lives_for}: in order, and each once");
    for order in &world.log.orders {
        let of_it: Vec<_> = taken.iter().filter(|report| report.run == order.run.run).collect();
        let is_reported = match order.run.work {
            // A request is answered by this work, or by the next.
            Work::Preview | Work::Validation | Work::Hooks => continue,
            Work::Run => of_it.iter().any(|report| match report.outcome {
                Outcome::Validated(_) | Outcome::Configured(RunResult::Failed) => true,
                Outcome::Configured(_) | Outcome::Previewed(_) => false,
            }),
        };
        assert!(is_reported, "{lives_for}: no report of {:?}", order.run);
    }
    for (id, noop) in STATES.iter().filter_map(|state| state.request) {
        let answered = taken.iter().any(|report| {
            let is_preview = matches!(report.outcome, Outcome::Previewed(_));
            is_preview == noop
                && report.causes.iter().any(|cause| format!("{cause:?}").contains(&format!("id: {id:?}")))
        });
        assert!(answered, "{lives_for}: request {id} was not answered");
    }
}

#[test]
fn killed_agent_adopts_its_run_and_reports_it_once() {
    let (complete, _) = run_all(usize::MAX);
    let runs = |world: &SimulatedWorld| world.log.orders.iter().filter(|order| order.run.work == Work::Run).count();
    for lives_for in 0..usize::MAX - complete.left {
        let (world, _) = run_all(lives_for);
        let results = world.log.accepted.iter().filter(|report| matches!(report.outcome, Outcome::Validated(_)));
        let mut of_run: Vec<_> = results.map(|report| &report.run).collect();
        let count = of_run.len();
        of_run.dedup();
        assert_eq!(of_run.len(), count, "{lives_for}: a run is validated once");
        let failed = world.log.accepted.iter().any(|report| report.outcome == Outcome::Configured(RunResult::Failed));
        assert!(!failed, "{lives_for}: no run was cut off");
        // At most one more: an agent that starts between two runs, or in the checks of one, makes a run.
        assert!(runs(&world) <= runs(&complete) + 1, "{lives_for}");
    }
}

#[test]
fn rebooted_machine_reports_its_run_as_lost_and_makes_a_full_run() {
    let mut world = SimulatedWorld::new(usize::MAX);
    world.happens(Input::Started).unwrap();
    connect(&mut world, STATES[0]).unwrap();
    world
        .happens(Input::RunRequested(RequestedRun { id: "a".into(), by: "ada".into(), ..RequestedRun::default() }))
        .unwrap();
    world.next_tick().unwrap();
    let run = world.ledger().running.as_ref().unwrap().run.clone();
    world.reboot();
    world.happens(Input::Started).unwrap();
    let last = world.ledger().last.clone().unwrap();
    assert_eq!((&last.run, last.end, last.lost), (&run, LedgerRunEnd::Failed, true));
    world.happens(Input::Pause(Some(pause()))).unwrap();
    world.next_tick().unwrap();
    world.step().unwrap();
    assert_eq!(world.log.orders.last().unwrap().run.work, Work::Validation, "checks run in a pause");
    assert!(world.ledger().last.as_ref().unwrap().lost, "and prove nothing after a lost run");
    assert_eq!(world.unsent_reports(), 1);
    world.happens(Input::Pause(None)).unwrap();
    world.settle().unwrap();
    let reports: Vec<_> = world.log.accepted.iter().skip_while(|report| report.run != run).collect();
    assert_eq!(reports[0].reason, Some(RunReason::Lost { run: run.clone(), refreshes: Vec::new() }));
    assert_eq!(reports[1].causes, [Cause::AgentStarted, Cause::Interrupted { run }]);
    assert_eq!(reports[2].outcome, Outcome::Validated(Verdict::Passed));
    assert!(!world.ledger().last.as_ref().unwrap().lost);
}

/// The server sends v2, which requires a confirmation, and becomes unreachable.
fn disconnect(world: &mut SimulatedWorld) -> Result<(), Killed> {
    world.happens(Input::Desired(desired(2, "v2")))?;
    world.reachable = false;
    world.settle()
}

/// Converges an agent to v1, then sends v2 and disconnects. It is killed after `lives_for` effects.
fn disconnected(lives_for: usize) -> (SimulatedWorld, bool) {
    let mut world = SimulatedWorld::new(usize::MAX);
    let first = world.happens(Input::Started).and_then(|_| connect(&mut world, STATES[0]));
    first.unwrap();
    world.left = lives_for;
    let died = disconnect(&mut world).is_err();
    if died {
        world.left = usize::MAX;
        world.restart();
        world.happens(Input::Started).and_then(|_| disconnect(&mut world)).unwrap();
    }
    (world, died)
}

#[test]
fn unreachable_agent_rolls_back_wherever_it_is_killed() {
    let (complete, died) = disconnected(usize::MAX);
    assert!(!died);
    let versions = |world: &SimulatedWorld| {
        let orders = world.log.orders.iter().filter(|order| order.run.work == Work::Run);
        orders.map(|order| (order.run.generation.number, order.run.version.to_string())).collect::<Vec<_>>()
    };
    let expected = [(1, "v1"), (2, "v2"), (2, "v1")].map(|(number, version)| (number, version.to_owned()));
    assert_eq!(versions(&complete), expected);
    let effects = usize::MAX - complete.left;
    for lives_for in 0..effects {
        let (mut world, died) = disconnected(lives_for);
        assert!(died, "{lives_for}");
        let ledger = world.ledger();
        assert_eq!(ledger.rolled_back_generation().map(|generation| generation.number), Some(2), "{lives_for}");
        assert_eq!(ledger.local.as_ref().unwrap().version.as_str(), "v1", "{lives_for}");
        let last = ledger.last.as_ref().unwrap();
        assert_eq!(
            (last.generation.number, last.end),
            (2, LedgerRunEnd::Validated),
            "{lives_for}: it reports the generation"
        );
        let mut runs = versions(&world);
        runs.dedup();
        assert_eq!(runs, expected, "{lives_for}: v2 is not tried again");

        // The server is back with the same state: neither that nor a requested run starts v2.
        world.reachable = true;
        connect(&mut world, ServerState { request: Some(("a", false)), ..STATES[1] }).unwrap();
        let mut runs = versions(&world);
        runs.dedup();
        assert_eq!(runs, expected, "{lives_for}");
        let taken = &world.log.accepted;
        let last = taken.last().unwrap();
        assert_eq!((last.generation.number, last.version.as_str()), (2, "v1"), "{lives_for}");
        assert_eq!(last.outcome, Outcome::Validated(Verdict::Passed), "{lives_for}");
        let went_back = Cause::AutoRollback { version: desired(2, "v2").version, within: WITHIN };
        assert!(taken.iter().any(|report| report.causes.contains(&went_back)), "{lives_for}");
        // A newer generation is applied.
        connect(&mut world, ServerState { number: 3, version: "v2", request: None }).unwrap();
        assert_eq!(world.ledger().local.as_ref().unwrap().version.as_str(), "v2", "{lives_for}");
        assert_eq!(world.ledger().auto_rollback, None, "{lives_for}");
    }
}

#[test]
fn impossible_rollback_is_reported_once() {
    for (cached, problem) in [(false, "v1 is gone"), (true, "the node has run no other release")] {
        let mut world = SimulatedWorld::new(usize::MAX);
        world.happens(Input::Started).unwrap();
        if !cached {
            connect(&mut world, STATES[0]).unwrap();
        }
        world.is_cached = cached;
        world.reachable = false;
        connect(&mut world, STATES[1]).unwrap();
        assert_eq!(world.ledger().rolled_back_generation(), None);
        assert_eq!(world.ledger().local.as_ref().unwrap().version.as_str(), "v2");
        // The next periodic validation reports only this.
        world.next_tick().unwrap();
        world.reachable = true;
        world.settle().unwrap();
        let last = world.log.accepted.last().unwrap();
        let (version, problem) = (desired(2, "v2").version, problem.to_owned());
        assert_eq!(last.reason, Some(RunReason::AutoRollbackFailed { version, within: WITHIN, problem }));
        assert_eq!(last.outcome, Outcome::Validated(Verdict::Passed));
        world.next_tick().unwrap();
        world.settle().unwrap();
        assert_eq!(world.log.accepted.iter().filter(|report| report.reason.is_some()).count(), 1, "once");
    }
}

#[test]
fn confirmed_release_stays_without_a_server() {
    let mut world = SimulatedWorld::new(usize::MAX);
    world.happens(Input::Started).unwrap();
    connect(&mut world, STATES[0]).unwrap();
    connect(&mut world, STATES[1]).unwrap();
    world.reachable = false;
    for _ in 0..10 {
        world.next_tick().unwrap();
        world.settle().unwrap();
    }
    world.restart();
    world.happens(Input::Started).unwrap();
    for _ in 0..10 {
        world.next_tick().unwrap();
        world.settle().unwrap();
    }
    assert_eq!(world.ledger().local.as_ref().unwrap().version.as_str(), "v2");
    assert_eq!(world.ledger().current_rollback().unwrap().stage, RollbackStage::Confirmed);
}

#[test]
fn restarted_agent_tries_to_report_before_it_rolls_back() {
    for reachable in [true, false] {
        let mut world = SimulatedWorld::new(usize::MAX);
        world.happens(Input::Started).unwrap();
        connect(&mut world, STATES[0]).unwrap();
        world.happens(Input::Desired(desired(2, "v2"))).unwrap();
        world.reachable = false;
        world.until_unconfirmed();
        world.pass(Duration::from_secs(100_000));
        world.restart();
        world.happens(Input::Started).unwrap();
        world.reachable = reachable;
        world.settle().unwrap();
        let version = if reachable { "v2" } else { "v1" };
        assert_eq!(world.ledger().local.as_ref().unwrap().version.as_str(), version);
    }
}

#[test]
fn pause_delays_the_rollback() {
    let (paused, mut world) = (pause(), SimulatedWorld::new(usize::MAX));
    world.happens(Input::Started).unwrap();
    connect(&mut world, STATES[0]).unwrap();
    world.happens(Input::Desired(desired(2, "v2"))).unwrap();
    world.reachable = false;
    world.until_unconfirmed();
    world.happens(Input::Pause(Some(paused))).unwrap();
    for _ in 0..10 {
        world.step().unwrap();
    }
    assert!(
        world.ledger().rolled_back_generation().is_some() && world.ledger().has_waiting_rollback(),
        "{:?}",
        world.ledger().auto_rollback
    );
    assert_eq!(world.ledger().applied.as_ref().unwrap().desired.version.as_str(), "v2", "a pause blocks changes");
    world.happens(Input::Pause(None)).unwrap();
    world.settle().unwrap();
    assert_eq!(world.ledger().local.as_ref().unwrap().version.as_str(), "v1");
}

fn pause() -> NodePause {
    let (by, reason, since) = ("ada".into(), "disk swap".into(), Timestamp::UNIX_EPOCH);
    NodePause { scope: PauseScope::Global, pause: PauseRecord { by, reason, since, until: None } }
}

/// A validated node whose releases have timed runs.
fn timed_world(lives_for: usize) -> SimulatedWorld {
    let mut world = SimulatedWorld::new(usize::MAX);
    world.run_every = Some(SignedDuration::from_mins(30));
    world.happens(Input::Started).unwrap();
    connect(&mut world, STATES[0]).unwrap();
    world.result = RunResult::Unchanged;
    world.left = lives_for;
    world
}

fn timed_runs(world: &SimulatedWorld) -> usize {
    let is_timed = |order: &&WorkOrder| order.run.work == Work::Run && order.run.causes == [Cause::Schedule];
    world.log.orders.iter().filter(is_timed).count()
}

/// Continues until this many timed runs have ended.
fn until_timed_runs(world: &mut SimulatedWorld, count: usize) -> Result<(), Killed> {
    while timed_runs(world) < count {
        world.next_tick()?;
        world.settle()?;
    }
    Ok(())
}

#[test]
fn timed_run_is_reported_only_if_it_changed_something() {
    let mut world = timed_world(usize::MAX);
    let reports = world.log.accepted.len();
    until_timed_runs(&mut world, 3).unwrap();
    assert_eq!(world.log.accepted.len(), reports, "nothing has changed");
    world.result = RunResult::Changed;
    until_timed_runs(&mut world, 4).unwrap();
    let new: Vec<_> = world.log.accepted[reports..].iter().map(|report| (report.outcome, &report.causes[..])).collect();
    let schedule = &[Cause::Schedule][..];
    let expected =
        [(Outcome::Configured(RunResult::Changed), schedule), (Outcome::Validated(Verdict::Passed), schedule)];
    assert_eq!(new, expected);
    world.result = RunResult::Unchanged;
    until_timed_runs(&mut world, 6).unwrap();
    assert_eq!(world.log.accepted.len(), reports + 2);
}

#[test]
fn first_timed_run_of_an_incarnation_is_reported() {
    let mut world = timed_world(usize::MAX);
    let (role, now) = (Role::new("web").unwrap(), Timestamp::UNIX_EPOCH);
    world.happens(Input::Hello { incarnation: 2, role, host_name: None, now, renewed: false }).unwrap();
    let reports = world.log.accepted.len();
    until_timed_runs(&mut world, 2).unwrap();
    let new: Vec<_> = world.log.accepted[reports..].iter().map(|report| report.outcome).collect();
    assert_eq!(new, [Outcome::Validated(Verdict::Passed)], "its first validation, and no run");
}

#[test]
fn another_host_name_causes_a_run() {
    let mut world = timed_world(usize::MAX);
    let hello = |host_name: Option<&str>| Input::Hello {
        incarnation: 1,
        role: Role::new("web").unwrap(),
        host_name: host_name.map(|name| HostName::new(name).unwrap()),
        now: Timestamp::UNIX_EPOCH,
        renewed: false,
    };
    let reports = world.log.accepted.len();
    for name in [None, Some("web1")] {
        world.happens(hello(name)).unwrap();
        world.settle().unwrap();
        assert_eq!(world.log.accepted.len(), reports, "{name:?} is the name that the node has");
    }
    world.happens(hello(Some("www.example.org"))).unwrap();
    world.settle().unwrap();
    let causes: Vec<_> = world.log.accepted[reports..].iter().flat_map(|report| &report.causes).collect();
    let identity = Cause::Identity { role: Role::new("web").unwrap(), host: "www.example.org".into() };
    assert_eq!(causes, [&identity, &identity], "one run, with two reports");
    assert_eq!(world.ledger().host_name.as_ref().unwrap().as_str(), "www.example.org");
}

#[test]
fn agent_killed_in_a_timed_run_reports_nothing_of_it() {
    let effects = {
        let mut world = timed_world(usize::MAX);
        until_timed_runs(&mut world, 1).unwrap();
        usize::MAX - world.left
    };
    for lives_for in 0..effects {
        let mut world = timed_world(lives_for);
        assert!(until_timed_runs(&mut world, 1).is_err(), "{lives_for}");
        let reports = world.log.accepted.len();
        world.left = usize::MAX;
        world.restart();
        world.happens(Input::Started).unwrap();
        connect(&mut world, STATES[0]).unwrap();
        until_timed_runs(&mut world, 2).unwrap();
        let causes: Vec<_> = world.log.accepted[reports..].iter().map(|report| &report.causes[..]).collect();
        assert!(causes.iter().all(|causes| *causes != [Cause::Schedule]), "{lives_for}: {causes:?}");
    }
}

#[test]
fn clock_that_is_set_does_not_shift_a_timed_run() {
    let times = |set: SignedDuration| {
        let mut world = timed_world(usize::MAX);
        // The wait has begun.
        world.next_tick().unwrap();
        world.settle().unwrap();
        world.clock_off = set;
        until_timed_runs(&mut world, 2).unwrap();
        world.elapsed()
    };
    let hour = SignedDuration::from_hours(1);
    assert_eq!(times(-hour), times(SignedDuration::ZERO));
    assert_eq!(times(hour), times(SignedDuration::ZERO));
}

/// A preview that finds this difference, or none.
fn drift(resource: Option<&str>) -> Vec<ResourceChange> {
    let change = |resource: &str| ResourceChange {
        resource: resource.to_owned(),
        property: Some("content".to_owned()),
        noop: true,
        ..ResourceChange::default()
    };
    resource.map(change).into_iter().collect()
}

#[test]
fn drift_is_reported_once_and_until_a_run() {
    let mut world = timed_world(usize::MAX);
    world.drift = DriftPolicy::Report;
    connect(&mut world, ServerState { request: Some(("a", false)), ..STATES[0] }).unwrap();
    let reports = world.log.accepted.len();
    let check = |world: &mut SimulatedWorld, resource: Option<&str>| {
        world.changes = drift(resource);
        world.result = if resource.is_some() { RunResult::Changed } else { RunResult::Unchanged };
        let (reported, previews) = (world.log.accepted.len(), timed_previews(world));
        while timed_previews(world) == previews {
            world.next_tick().unwrap();
            world.settle().unwrap();
        }
        world.log.accepted.len() - reported
    };
    assert_eq!(check(&mut world, None), 0, "the run has found no difference");
    assert_eq!(check(&mut world, Some("File[/a]")), 1);
    assert_eq!(check(&mut world, Some("File[/a]")), 0, "it is known");
    assert_eq!(check(&mut world, Some("File[/b]")), 1);
    assert_eq!(check(&mut world, None), 1, "it is gone");
    assert_eq!(check(&mut world, None), 0);
    assert_eq!(check(&mut world, Some("Notify[hello]")), 0, "a notification is no difference");
    assert_eq!(check(&mut world, Some("File[/a]")), 1);
    let previewed =
        |report: &Report| matches!(report.outcome, Outcome::Previewed(_)) && report.causes == [Cause::Schedule];
    assert!(world.log.accepted[reports..].iter().all(previewed), "{:?}", world.log.accepted);
    // A run removes it.
    connect(&mut world, ServerState { request: Some(("b", false)), ..STATES[0] }).unwrap();
    assert_eq!(check(&mut world, None), 0);
    assert_eq!(timed_runs(&world), 0);
}

fn timed_previews(world: &SimulatedWorld) -> usize {
    let is_timed = |order: &&WorkOrder| order.run.work == Work::Preview && order.run.causes == [Cause::Schedule];
    world.log.orders.iter().filter(is_timed).count()
}
