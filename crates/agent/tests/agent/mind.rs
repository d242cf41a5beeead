//! The agent's mind, driven as a simulator drives it: whole runs in no time, and a kill between any two things that it does.

mod world;

use jiff::Timestamp;

use muster_agent::ledger::{RunEnd, Work};
use muster_agent::queue::input::Input;
use muster_core::generation::Generation;
use muster_core::names::{Role, Version};
use muster_core::release_manifest::SignedManifest;
use muster_core::report::{Outcome, RunResult};
use muster_core::snapshot::Snapshot;
use muster_wire::sync::DesiredState;

use world::{Killed, World};

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

fn desired(number: u64, version: &str) -> DesiredState {
    DesiredState {
        generation: Generation { epoch: 1, number },
        version: Version::new(version).unwrap(),
        digest: format!("sha256:{version}"),
        serial: number,
        allow_older: false,
        confirm_within: None,
        manifest: SignedManifest { payload: String::new(), signatures: Vec::new() },
    }
}

/// Greets an agent, and says what it does not know.
fn greet(world: &mut World, says: Says) -> Result<(), Killed> {
    let (role, now) = (Role::new("web").unwrap(), Timestamp::UNIX_EPOCH);
    world.happens(Input::Hello { incarnation: 1, role, now, renewed: false })?;
    world.happens(Input::Desired(desired(says.number, says.version)))?;
    world.happens(Input::Snapshot(Box::<Snapshot>::default()))?;
    if let Some((id, noop)) = says.asked.filter(|(id, _)| world.ledger().asked.as_deref() != Some(*id)) {
        world.happens(Input::RunAsked { id: id.into(), by: "ada".into(), noop })?;
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
