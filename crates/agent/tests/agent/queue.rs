//! The agent's queue, driven as a simulator drives it: whole runs in no time, and a kill between any two things that it does.

mod simulated_world;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use muster_agent::queue::auto_rollback::RollbackStage;
use muster_agent::queue::io::Input;
use muster_agent::state::ledger::{RunEnd, Work};
use muster_core::lookup::snapshot::Snapshot;
use muster_core::names::{Role, Version};
use muster_core::node::pause::{NodePause, PauseRecord, PauseScope};
use muster_core::release::manifest::SignedManifest;
use muster_core::report::reason::RunReason;
use muster_core::report::{Cause, Outcome, RunResult, Verdict};
use muster_core::txn::Generation;
use muster_wire::sync::DesiredState;

use simulated_world::{Killed, World};

const WITHIN: SignedDuration = SignedDuration::from_secs(60);

/// What the server says to whoever comes, at one time of the story.
#[derive(Clone, Copy)]
struct Says {
    number: u64,
    version: &'static str,
    /// A run that a person asks for, or a preview.
    asked: Option<(&'static str, bool)>,
}

const STORY: [Says; 4] = [
    Says { number: 1, version: "v1", asked: None },
    Says { number: 2, version: "v2", asked: None },
    Says { number: 2, version: "v2", asked: Some(("a", false)) },
    Says { number: 2, version: "v2", asked: Some(("b", true)) },
];

/// A version; the second is on trial.
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

/// Greets an agent, and says what it does not know.
fn greet(world: &mut World, says: Says) -> Result<(), Killed> {
    let (role, now) = (Role::new("web").unwrap(), Timestamp::UNIX_EPOCH);
    world.happens(Input::Hello { incarnation: 1, role, now, renewed: false })?;
    world.happens(Input::Desired(desired(says.number, says.version)))?;
    world.happens(Input::Snapshot(Arc::<Snapshot>::default()))?;
    if let Some((id, noop)) = says.asked.filter(|(id, _)| world.ledger().run_request.as_deref() != Some(*id)) {
        world.happens(Input::RunRequested { id: id.into(), by: "ada".into(), noop })?;
    }
    world.settle()
}

/// Tells the whole story to an agent that dies after so many things that it did, and starts again. Gives what is left of
/// them when it has come to its end.
fn tell(lives_for: usize) -> (World, bool) {
    let mut world = World::new(lives_for);
    let mut died = false;
    let mut started = world.happens(Input::Started).is_ok();
    for says in STORY {
        while !started || greet(&mut world, says).is_err() {
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
fn an_agent_that_is_killed_between_any_two_things_that_it_does_goes_on_as_if_nothing_had_happened() {
    let (whole, died) = tell(usize::MAX);
    assert!(!died);
    assert_eq!(whole.seen.orders.len(), 4, "a start, a version, a run and a preview that were asked for");
    let things = usize::MAX - whole.left;
    assert!(things > 40, "there is something to kill it in: {things}");
    for lives_for in 0..things {
        let (world, died) = tell(lives_for);
        assert!(died, "{lives_for}");
        check(&world, lives_for);
    }
}

fn check(world: &World, lives_for: usize) {
    let ledger = world.ledger();
    let last = ledger.last.as_ref().unwrap();
    assert_eq!((last.generation.number, last.end), (2, RunEnd::Validated), "{lives_for}");
    assert_eq!(ledger.local.as_ref().unwrap().version.as_str(), "v2", "{lives_for}");
    assert_eq!(world.waits_to_be_sent(), 0, "{lives_for}");
    assert_eq!(ledger.current_rollback().unwrap().stage, RollbackStage::Confirmed, "{lives_for}: a server knows of it");
    let taken = &world.seen.taken;
    assert!(taken.windows(2).all(|pair| pair[0].seq < pair[1].seq), "{lives_for}: in order, and each once");
    for order in &world.seen.orders {
        let of_it: Vec<_> = taken.iter().filter(|report| report.run == order.run.run).collect();
        let told = match order.run.work {
            // What was asked for is answered; if not by this one, then by the one after it.
            Work::Preview | Work::Validation | Work::Hooks => continue,
            Work::Run => of_it.iter().any(|report| match report.outcome {
                Outcome::Validated(_) | Outcome::Configured(RunResult::Failed) => true,
                Outcome::Configured(_) | Outcome::Previewed(_) => false,
            }),
        };
        assert!(told, "{lives_for}: nobody knows what became of {:?}", order.run);
    }
    for (id, noop) in STORY.iter().filter_map(|says| says.asked) {
        let answered = taken.iter().any(|report| {
            let is_preview = matches!(report.outcome, Outcome::Previewed(_));
            is_preview == noop
                && report.causes.iter().any(|cause| format!("{cause:?}").contains(&format!("id: {id:?}")))
        });
        assert!(answered, "{lives_for}: {id} was asked for, and not answered");
    }
}

/// The server says that the node should run v2, on trial, and is not heard of again.
fn leave_alone(world: &mut World) -> Result<(), Killed> {
    world.happens(Input::Desired(desired(2, "v2")))?;
    world.reachable = false;
    world.settle()
}

/// Brings an agent to v1, and then leaves it alone with v2. It dies after so many things that it did.
fn left_alone(lives_for: usize) -> (World, bool) {
    let mut world = World::new(usize::MAX);
    let first = world.happens(Input::Started).and_then(|_| greet(&mut world, STORY[0]));
    first.unwrap();
    world.left = lives_for;
    let died = leave_alone(&mut world).is_err();
    if died {
        world.left = usize::MAX;
        world.restart();
        world.happens(Input::Started).and_then(|_| leave_alone(&mut world)).unwrap();
    }
    (world, died)
}

#[test]
fn an_agent_that_nobody_hears_of_goes_back_wherever_it_is_killed() {
    let (whole, died) = left_alone(usize::MAX);
    assert!(!died);
    let versions = |world: &World| {
        let orders = world.seen.orders.iter().filter(|order| order.run.work == Work::Run);
        orders.map(|order| (order.run.generation.number, order.run.version.to_string())).collect::<Vec<_>>()
    };
    let expected = [(1, "v1"), (2, "v2"), (2, "v1")].map(|(number, version)| (number, version.to_owned()));
    assert_eq!(versions(&whole), expected);
    let things = usize::MAX - whole.left;
    for lives_for in 0..things {
        let (mut world, died) = left_alone(lives_for);
        assert!(died, "{lives_for}");
        let ledger = world.ledger();
        assert_eq!(ledger.rolled_back_generation().map(|generation| generation.number), Some(2), "{lives_for}");
        assert_eq!(ledger.local.as_ref().unwrap().version.as_str(), "v1", "{lives_for}");
        let last = ledger.last.as_ref().unwrap();
        assert_eq!(
            (last.generation.number, last.end),
            (2, RunEnd::Validated),
            "{lives_for}: it answers what it was told"
        );
        let mut runs = versions(&world);
        runs.dedup();
        assert_eq!(runs, expected, "{lives_for}: v2 is not tried again");

        // The server is back and says the same: nothing comes of it, nor of a person who asks for a run.
        world.reachable = true;
        greet(&mut world, Says { asked: Some(("a", false)), ..STORY[1] }).unwrap();
        let mut runs = versions(&world);
        runs.dedup();
        assert_eq!(runs, expected, "{lives_for}");
        let taken = &world.seen.taken;
        let told = taken.last().unwrap();
        assert_eq!((told.generation.number, told.version.as_str()), (2, "v1"), "{lives_for}");
        assert_eq!(told.outcome, Outcome::Validated(Verdict::Passed), "{lives_for}");
        let went_back = Cause::AutoRollback { version: desired(2, "v2").version, within: WITHIN };
        assert!(taken.iter().any(|report| report.causes.contains(&went_back)), "{lives_for}");
        // A newer generation is taken as ever.
        greet(&mut world, Says { number: 3, version: "v2", asked: None }).unwrap();
        assert_eq!(world.ledger().local.as_ref().unwrap().version.as_str(), "v2", "{lives_for}");
        assert_eq!(world.ledger().auto_rollback, None, "{lives_for}");
    }
}

#[test]
fn one_that_cannot_go_back_stays_and_says_so() {
    for (cache, says) in [(false, "v1 is gone"), (true, "the node has run no other release")] {
        let mut world = World::new(usize::MAX);
        world.happens(Input::Started).unwrap();
        if !cache {
            greet(&mut world, STORY[0]).unwrap();
        }
        world.on_shelf = cache;
        world.reachable = false;
        greet(&mut world, STORY[1]).unwrap();
        assert_eq!(world.ledger().rolled_back_generation(), None);
        assert_eq!(world.ledger().local.as_ref().unwrap().version.as_str(), "v2");
        // The next checks by the clock have nothing new to say, but for this.
        world.next_tick().unwrap();
        world.reachable = true;
        world.settle().unwrap();
        let told = world.seen.taken.last().unwrap();
        let (version, problem) = (desired(2, "v2").version, says.to_owned());
        assert_eq!(told.reason, Some(RunReason::AutoRollbackFailed { version, within: WITHIN, problem }));
        assert_eq!(told.outcome, Outcome::Validated(Verdict::Passed));
        world.next_tick().unwrap();
        world.settle().unwrap();
        assert_eq!(world.seen.taken.iter().filter(|report| report.reason.is_some()).count(), 1, "once");
    }
}

#[test]
fn one_that_was_confirmed_stays_however_long_the_server_is_away() {
    let mut world = World::new(usize::MAX);
    world.happens(Input::Started).unwrap();
    greet(&mut world, STORY[0]).unwrap();
    greet(&mut world, STORY[1]).unwrap();
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
fn one_that_was_away_for_all_of_the_time_tries_to_report_before_it_goes_back() {
    for reachable in [true, false] {
        let mut world = World::new(usize::MAX);
        world.happens(Input::Started).unwrap();
        greet(&mut world, STORY[0]).unwrap();
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
fn a_pause_comes_first() {
    let (paused, mut world) = (pause(), World::new(usize::MAX));
    world.happens(Input::Started).unwrap();
    greet(&mut world, STORY[0]).unwrap();
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
    assert_eq!(
        world.ledger().applied.as_ref().unwrap().desired.version.as_str(),
        "v2",
        "nothing is changed in a pause"
    );
    world.happens(Input::Pause(None)).unwrap();
    world.settle().unwrap();
    assert_eq!(world.ledger().local.as_ref().unwrap().version.as_str(), "v1");
}

fn pause() -> NodePause {
    let (by, reason, since) = ("ada".into(), "disk swap".into(), Timestamp::UNIX_EPOCH);
    NodePause { scope: PauseScope::Global, pause: PauseRecord { by, reason, since, until: None } }
}
