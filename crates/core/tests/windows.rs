//! Maintenance windows and clock changes, and agreement of openings with a minute-by-minute search.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use jiff::civil::{Date, Time, date, time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};
use muster_core::rollout::strategy::Window;
use muster_core::rollout::windows::{closes_at, is_open, never_opens, next_opening, skipped_on};
use proptest::prelude::*;

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

fn window(days: &[u8], from: &str, to: &str, tz: &str) -> Window {
    Window { days: days.to_vec(), from: from.parse().unwrap(), to: to.parse().unwrap(), tz: tz.to_owned() }
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Openings and closings of a window between two moments, by the clock of its time zone.
fn times(window: &Window, from: &str, until: &str) -> Vec<(String, String)> {
    let (windows, until, zone) = (std::slice::from_ref(window), at(until), TimeZone::get(&window.tz).unwrap());
    let show = |at: Timestamp| at.to_zoned(zone.clone()).strftime("%m-%d %H:%M%:z").to_string();
    let (mut now, mut found) = (at(from), Vec::new());
    while let Some(opening) = next_opening(windows, now).filter(|opening| *opening < until) {
        let closing = closes_at(windows, opening).unwrap();
        found.push((show(opening), show(closing)));
        now = closing;
    }
    found
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

#[test]
fn no_windows_means_always_open() {
    let now = at("2026-11-15T12:00:00Z");
    assert!(is_open(&[], now));
    assert_eq!((next_opening(&[], now), closes_at(&[], now)), (Some(now), None));
}

#[test]
fn window_may_end_on_the_next_day() {
    // Monday to Thursday, so the last hours are those of a Friday.
    let night = window(&[1, 2, 3, 4], "22:00", "04:00", "UTC");
    let found = times(&night, "2026-11-19T00:00:00Z", "2026-11-24T00:00:00Z");
    let expected = [
        ("11-19 00:00+00:00", "11-19 04:00+00:00"),
        ("11-19 22:00+00:00", "11-20 04:00+00:00"),
        ("11-23 22:00+00:00", "11-24 04:00+00:00"),
    ];
    assert_eq!(found, pairs(&expected));
}

#[test]
fn window_end_is_exclusive_and_adjacent_windows_join() {
    let morning = window(&[1], "06:00", "09:00", "UTC");
    let noon = window(&[1], "09:00", "12:00", "UTC");
    assert!(!is_open(std::slice::from_ref(&morning), at("2026-11-16T09:00:00Z")));
    let both = [noon, morning];
    assert_eq!(closes_at(&both, at("2026-11-16T06:00:00Z")), Some(at("2026-11-16T12:00:00Z")));
    assert_eq!(closes_at(&both, at("2026-11-16T05:59:00Z")), None);
    assert_eq!(next_opening(&both, at("2026-11-16T12:00:00Z")), Some(at("2026-11-23T06:00:00Z")));
}

#[test]
fn full_day_windows_on_all_days_never_close() {
    let saturday = window(&[6], "00:00", "00:00", "Europe/Berlin");
    let found = times(&saturday, "2026-11-16T00:00:00Z", "2026-11-24T00:00:00Z");
    assert_eq!(found, pairs(&[("11-21 00:00+01:00", "11-22 00:00+01:00")]));
    let always = window(&[1, 2, 3, 4, 5, 6, 7], "00:00", "00:00", "Europe/Berlin");
    assert_eq!(closes_at(&[always], at("2026-03-28T00:00:00Z")), None);
}

#[test]
fn night_is_shorter_in_spring_and_longer_in_autumn() {
    let night = window(&[6], "22:00", "04:00", "Europe/Berlin");
    let spring = times(&night, "2026-03-28T12:00:00Z", "2026-03-30T00:00:00Z");
    assert_eq!(spring, pairs(&[("03-28 22:00+01:00", "03-29 04:00+02:00")]));
    let autumn = times(&night, "2026-10-24T12:00:00Z", "2026-10-26T00:00:00Z");
    assert_eq!(autumn, pairs(&[("10-24 22:00+02:00", "10-25 04:00+01:00")]));
}

#[test]
fn skipped_time_is_missing_and_repeated_time_counts_twice() {
    let inside = window(&[7], "02:15", "02:45", "America/New_York");
    // The clocks go from 02:00 to 03:00 on March 8th, and from 02:00 back to 01:00 on November 1st.
    let spring = times(&inside, "2026-03-07T00:00:00Z", "2026-03-16T00:00:00Z");
    assert_eq!(spring, pairs(&[("03-15 02:15-04:00", "03-15 02:45-04:00")]));
    let across = window(&[7], "02:30", "03:30", "America/New_York");
    let spring = times(&across, "2026-03-07T00:00:00Z", "2026-03-09T00:00:00Z");
    assert_eq!(spring, pairs(&[("03-08 03:00-04:00", "03-08 03:30-04:00")]));
    let twice = window(&[7], "01:15", "01:45", "America/New_York");
    let autumn = times(&twice, "2026-10-31T12:00:00Z", "2026-11-02T00:00:00Z");
    let expected = [("11-01 01:15-04:00", "11-01 01:45-04:00"), ("11-01 01:15-05:00", "11-01 01:45-05:00")];
    assert_eq!(autumn, pairs(&expected));
}

#[test]
fn half_hour_clock_change_is_handled() {
    // Lord Howe goes from 02:00 to 02:30 on 2026-10-04, and from 02:00 back to 01:30 on 2026-04-05.
    let early = window(&[7], "02:00", "02:30", "Australia/Lord_Howe");
    assert_eq!(times(&early, "2026-10-03T00:00:00Z", "2026-10-05T00:00:00Z"), []);
    let twice = window(&[7], "01:00", "01:45", "Australia/Lord_Howe");
    let autumn = times(&twice, "2026-04-04T00:00:00Z", "2026-04-05T12:00:00Z");
    let expected = [("04-05 01:00+11:00", "04-05 01:45+11:00"), ("04-05 01:30+10:30", "04-05 01:45+10:30")];
    assert_eq!(autumn, pairs(&expected));
}

#[test]
fn skipped_day_is_handled() {
    // Samoa had no December 30th in 2011, a Friday: Thursday's midnight was Saturday's.
    let friday = window(&[5], "08:00", "12:00", "Pacific/Apia");
    let found = times(&friday, "2011-12-28T00:00:00Z", "2012-01-07T00:00:00Z");
    assert_eq!(found, pairs(&[("01-06 08:00+14:00", "01-06 12:00+14:00")]));
    let night = window(&[4], "22:00", "04:00", "Pacific/Apia");
    let found = times(&night, "2011-12-28T00:00:00Z", "2012-01-05T00:00:00Z");
    assert_eq!(found, pairs(&[("12-29 22:00-10:00", "12-31 00:00+14:00")]));
}

#[test]
fn window_without_days_or_zone_never_opens() {
    assert!(never_opens(&window(&[], "22:00", "04:00", "UTC")));
    let nowhere = window(&[1], "22:00", "04:00", "Europe/Atlantis");
    assert!(never_opens(&nowhere));
    assert!(!is_open(std::slice::from_ref(&nowhere), at("2026-11-16T23:00:00Z")));
    assert_eq!(next_opening(&[nowhere], at("2026-11-16T23:00:00Z")), None);
    // It does not open on the day on which the clocks are changed. On all other Sundays it does.
    assert!(!never_opens(&window(&[7], "02:15", "02:45", "Europe/Berlin")));
}

#[test]
fn skipped_window_day_is_found() {
    let on = |days: &[u8], from, to, tz| skipped_on(&window(days, from, to, tz));
    assert_eq!(on(&[7], "02:15", "02:45", "Europe/Berlin"), Some(date(2026, 3, 29)));
    assert_eq!(on(&[1, 7], "02:00", "03:00", "Europe/Berlin"), Some(date(2026, 3, 29)));
    assert_eq!(on(&[7], "02:00", "03:01", "Europe/Berlin"), None);
    assert_eq!(on(&[7], "01:59", "02:45", "Europe/Berlin"), None);
    assert_eq!(on(&[1, 2, 3, 4, 5, 6], "02:15", "02:45", "Europe/Berlin"), None);
    assert_eq!(on(&[7], "02:00", "02:30", "Australia/Lord_Howe"), Some(date(2026, 10, 4)));
    // There the day begins at 01:00 when summer time does.
    assert_eq!(on(&[7], "00:00", "00:30", "America/Santiago"), Some(date(2026, 9, 6)));
    assert_eq!(on(&[7], "00:00", "00:00", "America/Santiago"), None);
    assert_eq!(on(&[7], "02:15", "02:45", "UTC"), None);
}

#[test]
fn ends_of_time_do_not_panic() {
    let nightly = [window(&[1, 2, 3, 4, 5, 6, 7], "22:00", "04:00", "Pacific/Apia")];
    for now in [Timestamp::MIN, Timestamp::MAX] {
        let next = next_opening(&nightly, now);
        assert!(next.is_none_or(|next| next >= now));
        closes_at(&nightly, now);
    }
}

/// A simple model of the same: every occurrence as an interval of the wall clock.
fn naively(windows: &[Window]) -> impl Fn(Timestamp) -> bool {
    let zoned = |window: &Window| (window.clone(), TimeZone::get(&window.tz).unwrap());
    let windows: Vec<(Window, TimeZone)> = windows.iter().map(zoned).collect();
    move |now| {
        windows.iter().any(|(window, zone)| {
            let clock = zone.to_datetime(now);
            let is_in = |day: Date| {
                let begin = day.to_datetime(window.from);
                let mut end = day.to_datetime(window.to);
                if end <= begin {
                    end += 1.day();
                }
                let weekday = u8::try_from(day.weekday().to_monday_one_offset()).unwrap();
                window.days.contains(&weekday) && begin <= clock && clock < end
            };
            is_in(clock.date()) || is_in(clock.date() - 1.day())
        })
    }
}

fn any_window() -> impl Strategy<Value = Window> {
    let zones = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "America/Santiago"];
    let quarter = |quarters: i8| -> Time { time(quarters / 4, quarters % 4 * 15, 0, 0) };
    (
        proptest::collection::btree_set(1_u8..=7, 1..=7),
        (0_i8..96).prop_map(quarter),
        (0_i8..96).prop_map(quarter),
        prop::sample::select(zones.to_vec()),
    )
        .prop_map(|(days, from, to, tz)| Window { days: days.into_iter().collect(), from, to, tz: tz.to_owned() })
}

/// Moments near the changes of the clocks, by the minute.
fn any_moment() -> impl Strategy<Value = Timestamp> {
    let near = [
        "2026-03-29T01:00:00Z",
        "2026-10-25T01:00:00Z",
        "2026-03-08T07:00:00Z",
        "2026-11-01T06:00:00Z",
        "2026-10-03T15:30:00Z",
        "2026-04-04T15:00:00Z",
        "2011-12-30T10:00:00Z",
        "2026-09-06T04:00:00Z",
        "2026-06-15T00:00:00Z",
    ];
    (prop::sample::select(near.to_vec()), -3000_i64..3000)
        .prop_map(|(near, minutes)| at(near) + SignedDuration::from_mins(minutes))
}

proptest! {
    #[test]
    fn is_open_agrees_with_the_calendar(windows in prop::collection::vec(any_window(), 1..4), now in any_moment()) {
        let naively = naively(&windows);
        for look in 0..60 {
            let now = now + MINUTE * 7 * look;
            prop_assert_eq!(is_open(&windows, now), naively(now), "{}", now);
        }
    }

    #[test]
    fn next_opening_is_the_first_open_minute(windows in prop::collection::vec(any_window(), 1..3), now in any_moment()) {
        let next = next_opening(&windows, now).unwrap();
        prop_assert!(next >= now && is_open(&windows, next));
        let (naively, mut minute) = (naively(&windows), now);
        while minute < next {
            prop_assert!(!naively(minute), "open at {} already", minute);
            minute += MINUTE;
        }
    }

    #[test]
    fn closing_is_the_first_closed_minute(windows in prop::collection::vec(any_window(), 1..4), now in any_moment()) {
        let Some(closing) = closes_at(&windows, now) else {
            prop_assert!(!is_open(&windows, now) || (0..15_000).map(|it| now + MINUTE * it).all(naively(&windows)));
            return Ok(());
        };
        prop_assert!(closing > now && !is_open(&windows, closing));
        let (naively, mut minute) = (naively(&windows), now);
        while minute < closing {
            prop_assert!(naively(minute), "closed at {} already", minute);
            minute += MINUTE;
        }
    }

    #[test]
    fn every_window_with_days_opens(window in any_window()) {
        prop_assert!(!never_opens(&window));
    }
}
