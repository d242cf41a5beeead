//! One row per arrow.

use super::*;

use jiff::Timestamp;

use muster_core::release::manifest::SignedManifest;
use muster_core::report::Verdict;

const WITHIN: SignedDuration = SignedDuration::from_secs(60);

fn desired(number: u64, version: &str, confirm_within: Option<SignedDuration>) -> DesiredState {
    DesiredState {
        generation: Generation { epoch: 1, number },
        version: Version::new(version).unwrap(),
        digest: format!("sha256:{version}"),
        serial: number,
        allow_older: false,
        confirm_within,
        manifest: SignedManifest { payload: String::new(), signatures: Vec::new() },
    }
}

fn run(name: &str) -> RunId {
    RunId::new(name).unwrap()
}

/// A machine that has been up for so long.
fn here(boot: &str, up: u64, clock: i64) -> Here {
    let clock = Timestamp::from_second(1_800_000_000 + clock).unwrap();
    Here { boot: Some(boot.into()), up: Duration::from_secs(up), clock }
}

fn trial(stage: Stage) -> Trial {
    let tried = desired(2, "v2", Some(WITHIN));
    Trial { stage, ..Trial::of(&tried, None, Some(&desired(1, "v1", None))).unwrap() }
}

fn unconfirmed(name: &str, whole: bool, at: u64) -> Stage {
    Stage::Unconfirmed { run: run(name), whole, since: Reading::of(&here("a", at, at.cast_signed())) }
}

fn stays() -> Stage {
    Stage::Stays { problem: "it is gone".into(), told: false }
}

#[test]
fn only_who_is_asked_to_is_on_trial_and_goes_back_to_what_stood_before() {
    let (v1, v3) = (desired(1, "v1", None), desired(3, "v3", Some(WITHIN)));
    for (case, tried, known, applied, before) in [
        ("not asked for", desired(3, "v3", None), None, Some("v1"), None),
        ("not asked for, after a trial", desired(3, "v3", None), Some(unconfirmed("r", true, 1)), Some("v2"), None),
        ("a first one", v3.clone(), None, Some("v1"), Some(Some("v1"))),
        ("on a new node", v3.clone(), None, None, Some(None)),
        ("the same release again", desired(3, "v1", Some(WITHIN)), None, Some("v1"), None),
        ("after a confirmed one", v3.clone(), Some(Stage::Confirmed), Some("v2"), Some(Some("v2"))),
        ("after one that was not", v3.clone(), Some(unconfirmed("r", true, 1)), Some("v2"), Some(Some("v1"))),
        ("after one that was given up", v3.clone(), Some(Stage::GivenUp), Some("v2"), Some(Some("v1"))),
        ("after one that failed half way", v3.clone(), Some(Stage::Begun), None, Some(Some("v1"))),
        ("after one that had to stay", v3, Some(stays()), Some("v2"), Some(Some("v2"))),
    ] {
        let known = known.map(trial);
        let applied = applied.map(|version| desired(0, version, None));
        let of = Trial::of(&tried, known.as_ref(), applied.as_ref());
        let found = of.map(|trial| trial.before.map(|before| before.version.to_string()));
        assert_eq!(found, before.map(|before| before.map(str::to_owned)), "{case}");
    }
    let given_up = trial(Stage::GivenUp);
    let again = Trial::of(&given_up.instead().unwrap(), Some(&given_up), Some(&v1));
    assert_eq!(again, Some(given_up), "the run that goes back begins no other");
}

#[test]
fn the_time_begins_when_the_applier_ends() {
    for (case, before, whole, after) in [
        ("first", Stage::Begun, true, unconfirmed("new", true, 100)),
        ("first, and failed", Stage::Begun, false, unconfirmed("new", false, 100)),
        ("well after it failed", unconfirmed("old", false, 50), true, unconfirmed("new", true, 100)),
        ("failed again", unconfirmed("old", false, 50), false, unconfirmed("old", false, 50)),
        ("once more", unconfirmed("old", true, 50), true, unconfirmed("old", true, 50)),
        ("failed after all", unconfirmed("old", true, 50), false, unconfirmed("old", true, 50)),
        ("confirmed before", Stage::Confirmed, true, Stage::Confirmed),
        ("given up", Stage::GivenUp, true, Stage::GivenUp),
        ("stays", stays(), true, stays()),
    ] {
        let mut trial = trial(before);
        trial.applied(&run("new"), whole, &here("a", 100, 100));
        assert_eq!(trial.stage, after, "{case}");
    }
}

#[test]
fn what_a_report_that_is_taken_means() {
    let configured = Outcome::Configured(RunResult::Changed);
    let failed = Outcome::Configured(RunResult::Failed);
    for (case, before, of, outcome, after) in [
        ("configured", unconfirmed("r", true, 1), "r", configured, Some(Stage::Confirmed)),
        (
            "nothing to do",
            unconfirmed("r", true, 1),
            "r",
            Outcome::Configured(RunResult::Unchanged),
            Some(Stage::Confirmed),
        ),
        ("validated", unconfirmed("r", true, 1), "r", Outcome::Validated(Verdict::Passed), Some(Stage::Confirmed)),
        ("checks failed", unconfirmed("r", true, 1), "r", Outcome::Validated(Verdict::Failed), Some(Stage::Confirmed)),
        ("a later run", unconfirmed("r", true, 1), "s", configured, Some(Stage::Confirmed)),
        ("the applier failed", unconfirmed("r", false, 1), "r", failed, Some(Stage::Begun)),
        ("another's failed before", unconfirmed("r", true, 1), "q", failed, None),
        ("a preview", unconfirmed("r", true, 1), "q", Outcome::Previewed(RunResult::Changed), None),
        ("nobody waits", Stage::Begun, "r", configured, None),
        ("too late", Stage::GivenUp, "r", configured, None),
        ("stays", stays(), "r", configured, None),
    ] {
        let mut trial = trial(before.clone());
        assert_eq!(trial.taken(&run(of), outcome), after.is_some(), "{case}");
        assert_eq!(trial.stage, after.unwrap_or(before), "{case}");
    }
}

#[test]
fn time_passes_by_a_clock_that_nobody_can_set() {
    let trial = trial(unconfirmed("r", true, 100));
    for (case, now, left) in [
        ("at once", here("a", 100, 100), 60),
        ("later", here("a", 130, 130), 30),
        ("much later", here("a", 900, 900), 0),
        ("the clock was set forward", here("a", 130, 9000), 30),
        ("the machine was restarted", here("b", 5, 120), 40),
        ("and its clock set back", here("b", 5, -5000), 60),
    ] {
        assert_eq!(trial.left(&now), Some(Duration::from_secs(left)), "{case}");
    }
    for stage in [Stage::Begun, Stage::Confirmed, Stage::GivenUp, stays()] {
        assert_eq!(Trial { stage, ..trial.clone() }.left(&here("a", 900, 900)), None);
    }
}

#[test]
fn who_gives_up_answers_the_generation_with_the_release_before() {
    let instead = trial(Stage::GivenUp).instead().unwrap();
    assert_eq!((instead.generation.number, instead.version.as_str()), (2, "v1"));
    assert_eq!((instead.allow_older, instead.confirm_within), (true, None));
    assert_eq!(trial(Stage::Begun).instead(), None);
}
