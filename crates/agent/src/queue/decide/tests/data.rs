//! Configuration data: what people set one after the other is one cause of one run.

use super::*;

use muster_core::lookup::config_data::{Datum, Layer};
use muster_core::names::DataKey;

const KEYS: [&str; 2] = ["active_roles::db", "data::ntp_servers"];

/// The fleet with a datum.
fn with_datum(mut snapshot: Snapshot, number: u32) -> Snapshot {
    let datum = Datum { value: number.into(), secret: false, layer: Layer::Global };
    snapshot.data.insert(DataKey::new("ntp_servers").unwrap(), datum);
    snapshot
}

/// A node whose last run has looked up a role and the datum.
fn idle() -> Story {
    let seen = with_datum(dbs(&[]), 0);
    let lookups = KEYS.map(|key| (key.to_owned(), seen.tag(key))).into();
    Story::idle(Some(LastRun { lookups, ..ended(RunEnd::Validated, &seen) }))
}

fn changed(keys: &[&str]) -> Cause {
    let change = |key: &&str| LookupChange { key: (*key).to_owned(), what: String::new() };
    Cause::LookedUp { changes: keys.iter().map(change).collect() }
}

#[test]
fn ten_changes_within_a_second_make_one_run_and_the_first_of_them_waits_no_longer_for_that() {
    let mut story = idle();
    let begin = story.now;
    for number in 1..=10 {
        story.snapshot(with_datum(dbs(&[]), number));
        assert_eq!(story.after(DATA_PATIENCE / 11), Action::Wait, "change {number}");
    }
    let left = DATA_PATIENCE - (story.now - begin);
    assert_eq!(story.after(left), Action::Start { causes: vec![changed(&KEYS[1..])], failures: 0 });
    assert!(story.sleeps());
}

#[test]
fn another_node_is_not_kept_waiting_by_a_datum() {
    let mut story = idle();
    story.snapshot(with_datum(dbs(&[]), 1));
    assert_eq!(story.after(DEBOUNCE), Action::Wait);
    story.snapshot(with_datum(dbs(&["db1"]), 1));
    assert_eq!(story.started(), [changed(&KEYS)]);
}

#[test]
fn neither_is_a_person() {
    let mut story = idle();
    story.snapshot(with_datum(dbs(&[]), 1));
    story.happens(asked());
    assert_eq!(story.started(), [changed(&KEYS[1..]), operator()]);
}
