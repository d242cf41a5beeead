//! Maintenance windows: times of the week in which nodes may be granted.
//!
//! A window is open while the wall clock of its time zone shows a time inside it. Daylight saving follows from that. A
//! time that the clock skips does not exist: a window inside the skipped hour does not open on that day, and one that
//! begins in it opens after the hour. A time that the clock shows twice exists twice. A night from 22:00 to 04:00 has
//! five hours once a year and seven hours once a year.
//!
//! Time zones come from the built-in database, so a window means the same on every machine.

use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp, ToSpan};

use crate::rollout::strategy::Window;

/// Time to look ahead. Windows repeat every week. A clock change, or a day that a country skips, can remove one
/// occurrence, hardly two in a row.
const HORIZON: SignedDuration = SignedDuration::from_hours(6 * 7 * 24);

/// Years in which windows are tested for never opening or being skipped. The rules of daylight saving repeat, so the
/// choice hardly matters. They are fixed so that a file means the same whenever it is read.
const YEARS: std::ops::Range<i16> = 2026..2036;

/// Time zone by its IANA name, ignoring case. None if unknown.
pub fn time_zone(name: &str) -> Option<TimeZone> {
    TimeZone::get(name).ok().filter(|zone| !zone.is_unknown())
}

/// Returns whether nodes may be granted now. Always without windows. A window in an unknown time zone is never open.
pub fn is_open(windows: &[Window], now: Timestamp) -> bool {
    windows.is_empty() || zoned(windows).iter().any(|window| window.is_open(now))
}

/// First time from now on at which nodes may be granted. None if no window opens within the horizon.
pub fn next_opening(windows: &[Window], now: Timestamp) -> Option<Timestamp> {
    if windows.is_empty() {
        return Some(now);
    }
    let windows = zoned(windows);
    first(&windows, now, |at| windows.iter().any(|window| window.is_open(at)))
}

/// First time at which nodes may no longer be granted. None if no window is open now, or if it never closes.
pub fn closes_at(windows: &[Window], now: Timestamp) -> Option<Timestamp> {
    let windows = zoned(windows);
    let is_open = |at| windows.iter().any(|window| window.is_open(at));
    if !is_open(now) { None } else { first(&windows, now, |at| !is_open(at)) }
}

/// Returns whether a window is never open: it has no days, its time zone is unknown, or the clocks always skip it.
pub fn never_opens(window: &Window) -> bool {
    let Some(zone) = time_zone(&window.tz) else { return true };
    !days(window).any(|day| opens_for(window, &zone, day))
}

/// First day on which the clocks skip the whole window.
pub fn skipped_on(window: &Window) -> Option<Date> {
    let zone = time_zone(&window.tz)?;
    days(window).find(|day| !opens_for(window, &zone, *day))
}

/// First time from now on at which a condition holds that changes only when a window opens or closes.
fn first(windows: &[Zoned<'_>], now: Timestamp, holds: impl Fn(Timestamp) -> bool) -> Option<Timestamp> {
    let mut moments: Vec<Timestamp> = windows.iter().flat_map(|window| window.changes(now)).collect();
    moments.push(now);
    moments.sort_unstable();
    moments.into_iter().find(|at| *at >= now && holds(*at))
}

/// A window with its resolved time zone.
struct Zoned<'w> {
    window: &'w Window,
    zone: TimeZone,
}

fn zoned(windows: &[Window]) -> Vec<Zoned<'_>> {
    let known = |window| Some(Zoned { window, zone: time_zone(&window.tz)? });
    windows.iter().filter_map(known).collect()
}

impl Zoned<'_> {
    fn is_open(&self, at: Timestamp) -> bool {
        let clock = self.zone.to_datetime(at);
        let begun_on = |day: Result<Date, jiff::Error>| {
            day.is_ok_and(|day| self.window.opens_on(day.weekday()) && contains(self.window, day, clock))
        };
        begun_on(Ok(clock.date())) || begun_on(clock.date().yesterday())
    }

    /// Times within the horizon at which the window can open or close, unsorted: its ends, and changes of the clock.
    fn changes(&self, now: Timestamp) -> Vec<Timestamp> {
        let end = now.checked_add(HORIZON).unwrap_or(Timestamp::MAX);
        let clock_changes = self.zone.following(now).map(|change| change.timestamp()).take_while(|at| *at <= end);
        let mut moments: Vec<Timestamp> = clock_changes.collect();
        let today = self.zone.to_datetime(now).date();
        let last = self.zone.to_datetime(end).date();
        // A window that is open now may have begun yesterday and end today.
        for day in today.series(1.day()).take_while(|day| *day <= last) {
            for time in [self.window.from, self.window.to] {
                moments.extend(shown(&self.zone, day.to_datetime(time)));
            }
        }
        moments
    }
}

/// Returns whether a wall clock time is in the window that opens on a day.
fn contains(window: &Window, day: Date, clock: DateTime) -> bool {
    let Some(end) = end(window, day) else { return false };
    day.to_datetime(window.from) <= clock && clock < end
}

/// Wall clock time at which the window of a day ends.
fn end(window: &Window, day: Date) -> Option<DateTime> {
    let last = if window.to > window.from { day } else { day.tomorrow().ok()? };
    Some(last.to_datetime(window.to))
}

/// Times at which the clock shows a time: one, or two where it is set back. Where it is set forward, the times just
/// before and after the gap.
fn shown(zone: &TimeZone, clock: DateTime) -> impl Iterator<Item = Timestamp> + use<> {
    let (first, second) = match zone.to_ambiguous_timestamp(clock).offset() {
        AmbiguousOffset::Unambiguous { offset } => (offset, None),
        AmbiguousOffset::Gap { before, after } | AmbiguousOffset::Fold { before, after } => (before, Some(after)),
    };
    [Some(first), second].into_iter().flatten().filter_map(move |offset| offset.to_timestamp(clock).ok())
}

/// Days of ten years on which a window should open.
fn days(window: &Window) -> impl Iterator<Item = Date> {
    let days = Date::new(YEARS.start, 1, 1).into_iter().flat_map(|first| first.series(1.day()));
    days.take_while(|day| day.year() < YEARS.end).filter(|day| window.opens_on(day.weekday()))
}

/// Returns whether the clock shows any time of the window of a day: its begin, or the end of a gap inside it.
fn opens_for(window: &Window, zone: &TimeZone, day: Date) -> bool {
    let begin = day.to_datetime(window.from);
    let AmbiguousOffset::Gap { after, .. } = zone.to_ambiguous_timestamp(begin).offset() else { return true };
    // With the offset after the gap, a skipped time is shortly before the gap.
    let Ok(before) = after.to_timestamp(begin) else { return false };
    let leap = zone.following(before).next().map(|change| after.to_datetime(change.timestamp()));
    leap.is_some_and(|clock| contains(window, day, clock))
}
