//! Tests of the transitions of [`AutoRollback`].

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

/// A machine `up` seconds after boot.
fn clocks(boot: &str, up: u64, clock: i64) -> Clocks {
    let clock = Timestamp::from_second(1_800_000_000 + clock).unwrap();
    Clocks { boot: Some(boot.into()), up: Duration::from_secs(up), clock }
}

fn rollback(stage: RollbackStage) -> AutoRollback {
    let tried = desired(2, "v2", Some(WITHIN));
    AutoRollback { stage, ..AutoRollback::for_run(&tried, None, Some(&desired(1, "v1", None))).unwrap() }
}

fn unconfirmed(name: &str, complete: bool, at: u64) -> RollbackStage {
    RollbackStage::Unconfirmed { run: run(name), complete, since: (&clocks("a", at, at.cast_signed())).into() }
}

fn cannot_roll_back() -> RollbackStage {
    RollbackStage::CannotRollBack { problem: "the release is gone".into(), reported: false }
}

#[test]
fn rollback_target_is_the_last_confirmed_release() {
    let (v1, v3) = (desired(1, "v1", None), desired(3, "v3", Some(WITHIN)));
    for (case, tried, known, applied, before) in [
        ("not required", desired(3, "v3", None), None, Some("v1"), None),
        (
            "not required, after an unconfirmed one",
            desired(3, "v3", None),
            Some(unconfirmed("r", true, 1)),
            Some("v2"),
            None,
        ),
        ("a first one", v3.clone(), None, Some("v1"), Some(Some("v1"))),
        ("on a new node", v3.clone(), None, None, Some(None)),
        ("the same release again", desired(3, "v1", Some(WITHIN)), None, Some("v1"), None),
        ("after a confirmed one", v3.clone(), Some(RollbackStage::Confirmed), Some("v2"), Some(Some("v2"))),
        ("after an unconfirmed one", v3.clone(), Some(unconfirmed("r", true, 1)), Some("v2"), Some(Some("v1"))),
        ("after a rollback", v3.clone(), Some(RollbackStage::RolledBack), Some("v2"), Some(Some("v1"))),
        ("after one that failed half way", v3.clone(), Some(RollbackStage::Started), None, Some(Some("v1"))),
        ("after a rollback that was not possible", v3, Some(cannot_roll_back()), Some("v2"), Some(Some("v2"))),
    ] {
        let known = known.map(rollback);
        let applied = applied.map(|version| desired(0, version, None));
        let of = AutoRollback::for_run(&tried, known.as_ref(), applied.as_ref());
        let found = of.map(|rollback| rollback.previous.map(|previous| previous.version.to_string()));
        assert_eq!(found, before.map(|before| before.map(str::to_owned)), "{case}");
    }
    let rolled_back = rollback(RollbackStage::RolledBack);
    let repeated = AutoRollback::for_run(&rolled_back.replacement().unwrap(), Some(&rolled_back), Some(&v1));
    assert_eq!(repeated, Some(rolled_back), "the rollback run needs no confirmation");
}

#[test]
fn confirmation_time_starts_when_the_applier_ends() {
    for (case, before, complete, after) in [
        ("first", RollbackStage::Started, true, unconfirmed("new", true, 100)),
        ("first, and failed", RollbackStage::Started, false, unconfirmed("new", false, 100)),
        ("success after a failure", unconfirmed("old", false, 50), true, unconfirmed("new", true, 100)),
        ("failed again", unconfirmed("old", false, 50), false, unconfirmed("old", false, 50)),
        ("once more", unconfirmed("old", true, 50), true, unconfirmed("old", true, 50)),
        ("failed after all", unconfirmed("old", true, 50), false, unconfirmed("old", true, 50)),
        ("confirmed before", RollbackStage::Confirmed, true, RollbackStage::Confirmed),
        ("rolled back", RollbackStage::RolledBack, true, RollbackStage::RolledBack),
        ("cannot roll back", cannot_roll_back(), true, cannot_roll_back()),
    ] {
        let mut rollback = rollback(before);
        rollback.applied(&run("new"), complete, &clocks("a", 100, 100));
        assert_eq!(rollback.stage, after, "{case}");
    }
}

#[test]
fn accepted_report_confirms_the_release() {
    let configured = Outcome::Configured(RunResult::Changed);
    let failed = Outcome::Configured(RunResult::Failed);
    for (case, before, of, outcome, after) in [
        ("configured", unconfirmed("r", true, 1), "r", configured, Some(RollbackStage::Confirmed)),
        (
            "nothing to do",
            unconfirmed("r", true, 1),
            "r",
            Outcome::Configured(RunResult::Unchanged),
            Some(RollbackStage::Confirmed),
        ),
        (
            "validated",
            unconfirmed("r", true, 1),
            "r",
            Outcome::Validated(Verdict::Passed),
            Some(RollbackStage::Confirmed),
        ),
        (
            "checks failed",
            unconfirmed("r", true, 1),
            "r",
            Outcome::Validated(Verdict::Failed),
            Some(RollbackStage::Confirmed),
        ),
        ("a later run", unconfirmed("r", true, 1), "s", configured, Some(RollbackStage::Confirmed)),
        ("the applier failed", unconfirmed("r", false, 1), "r", failed, Some(RollbackStage::Started)),
        ("an earlier run failed", unconfirmed("r", true, 1), "q", failed, None),
        ("a preview", unconfirmed("r", true, 1), "q", Outcome::Previewed(RunResult::Changed), None),
        ("nothing to confirm", RollbackStage::Started, "r", configured, None),
        ("too late", RollbackStage::RolledBack, "r", configured, None),
        ("cannot roll back", cannot_roll_back(), "r", configured, None),
    ] {
        let mut rollback = rollback(before.clone());
        assert_eq!(rollback.report_accepted(&run(of), outcome), after.is_some(), "{case}");
        assert_eq!(rollback.stage, after.unwrap_or(before), "{case}");
    }
}

#[test]
fn setting_the_clock_does_not_change_the_time_left() {
    let rollback = rollback(unconfirmed("r", true, 100));
    for (case, now, left) in [
        ("at once", clocks("a", 100, 100), 60),
        ("later", clocks("a", 130, 130), 30),
        ("much later", clocks("a", 900, 900), 0),
        ("the clock was set forward", clocks("a", 130, 9000), 30),
        ("the machine was restarted", clocks("b", 5, 120), 40),
        ("and its clock set back", clocks("b", 5, -5000), 60),
    ] {
        assert_eq!(rollback.time_left(&now), Some(Duration::from_secs(left)), "{case}");
    }
    for stage in [RollbackStage::Started, RollbackStage::Confirmed, RollbackStage::RolledBack, cannot_roll_back()] {
        assert_eq!(AutoRollback { stage, ..rollback.clone() }.time_left(&clocks("a", 900, 900)), None);
    }
}

#[test]
fn replacement_keeps_the_generation_of_the_rolled_back_release() {
    let instead = rollback(RollbackStage::RolledBack).replacement().unwrap();
    assert_eq!((instead.generation.number, instead.version.as_str()), (2, "v1"));
    assert_eq!((instead.allow_older, instead.confirm_within), (true, None));
    assert_eq!(rollback(RollbackStage::Started).replacement(), None);
}
