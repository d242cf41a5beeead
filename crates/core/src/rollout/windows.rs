//! When nodes may be granted: windows of the week as times of a wall clock.
//!
//! A window is open while the wall clock of its time zone shows a time inside it, and that is all there is to say about
//! daylight saving: what the clock skips is not there (a window that lies in the skipped hour does not open on that day;
//! one that begins in it opens when the hour has been skipped), and what the clock shows twice is there twice. So a
//! night from 22:00 to 04:00 has five hours once a year, and seven once a year, and begins and ends when people expect.
//!
//! Time zones are looked up in the database that is built in: a window means the same on every machine.

use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp, ToSpan};

use crate::rollout::strategy::Window;

/// How far ahead is looked. Windows come back every week. A change of the clocks, or a day that a country leaves out, can
/// take one occurrence away, and hardly two in a row.
const HORIZON: SignedDuration = SignedDuration::from_hours(6 * 7 * 24);

/// The years in which it is looked whether a window opens at all, and whether the clocks skip it. Which they are hardly
/// matters: the rules of summer time repeat. They are fixed so that a file means the same whenever it is read.
const YEARS: std::ops::Range<i16> = 2026..2036;

/// A time zone by its name in the IANA database, in any case of letters. None if there is none of that name.
pub fn time_zone(name: &str) -> Option<TimeZone> {
    TimeZone::get(name).ok().filter(|zone| !zone.is_unknown())
}

/// Whether nodes may be granted now. Without windows, always. A window in an unknown time zone is never open.
pub fn is_open(windows: &[Window], now: Timestamp) -> bool {
    windows.is_empty() || zoned(windows).iter().any(|window| window.is_open(now))
}

/// The first moment, from now on, at which nodes may be granted: now, if they may. None if no window opens within weeks,
/// so never.
pub fn next_opening(windows: &[Window], now: Timestamp) -> Option<Timestamp> {
    if windows.is_empty() {
        return Some(now);
    }
    let windows = zoned(windows);
    first(&windows, now, |at| windows.iter().any(|window| window.is_open(at)))
}

/// The first moment at which nodes may no longer be granted. None if they may not now, or if that never ends.
pub fn closes_at(windows: &[Window], now: Timestamp) -> Option<Timestamp> {
    let windows = zoned(windows);
    let is_open = |at| windows.iter().any(|window| window.is_open(at));
    if !is_open(now) { None } else { first(&windows, now, |at| !is_open(at)) }
}

/// Whether a window is never open: it has no days, or its time zone is not known, or its clocks skip it each time.
pub fn never_opens(window: &Window) -> bool {
    let Some(zone) = time_zone(&window.tz) else { return true };
    !days(window).any(|day| opens_for(window, &zone, day))
}

/// The first day on which a window does not open because the clocks skip all of it, though it does on others.
pub fn skipped_on(window: &Window) -> Option<Date> {
    let zone = time_zone(&window.tz)?;
    days(window).find(|day| !opens_for(window, &zone, *day))
}

/// The first moment, from now on, of which something holds that can only change when a window opens or closes.
fn first(windows: &[Zoned<'_>], now: Timestamp, holds: impl Fn(Timestamp) -> bool) -> Option<Timestamp> {
    let mut moments: Vec<Timestamp> = windows.iter().flat_map(|window| window.changes(now)).collect();
    moments.push(now);
    moments.sort_unstable();
    moments.into_iter().find(|at| *at >= now && holds(*at))
}

/// A window whose time zone has been looked up.
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

    /// The moments within the horizon at which the window can open or close, in no order, and some more: when the clock
    /// shows its ends, and when the clock is changed.
    fn changes(&self, now: Timestamp) -> Vec<Timestamp> {
        let end = now.checked_add(HORIZON).unwrap_or(Timestamp::MAX);
        let clock_changes = self.zone.following(now).map(|change| change.timestamp()).take_while(|at| *at <= end);
        let mut moments: Vec<Timestamp> = clock_changes.collect();
        let today = self.zone.to_datetime(now).date();
        let last = self.zone.to_datetime(end).date();
        // One that is open now may have begun yesterday, and ends today.
        for day in today.series(1.day()).take_while(|day| *day <= last) {
            for time in [self.window.from, self.window.to] {
                moments.extend(shown(&self.zone, day.to_datetime(time)));
            }
        }
        moments
    }
}

/// Whether a time of the wall clock lies in the window that opens on a day.
fn contains(window: &Window, day: Date, clock: DateTime) -> bool {
    let Some(end) = end(window, day) else { return false };
    day.to_datetime(window.from) <= clock && clock < end
}

/// When, by the wall clock, the window of a day ends.
fn end(window: &Window, day: Date) -> Option<DateTime> {
    let last = if window.to > window.from { day } else { day.tomorrow().ok()? };
    Some(last.to_datetime(window.to))
}

/// When the clock shows a time: once, twice where it is put back, and where it is put forward never, but then the moments
/// that are given are no others than just before and after.
fn shown(zone: &TimeZone, clock: DateTime) -> impl Iterator<Item = Timestamp> + use<> {
    let (first, second) = match zone.to_ambiguous_timestamp(clock).offset() {
        AmbiguousOffset::Unambiguous { offset } => (offset, None),
        AmbiguousOffset::Gap { before, after } | AmbiguousOffset::Fold { before, after } => (before, Some(after)),
    };
    [Some(first), second].into_iter().flatten().filter_map(move |offset| offset.to_timestamp(clock).ok())
}

/// The days of ten years on which a window is meant to open.
fn days(window: &Window) -> impl Iterator<Item = Date> {
    let days = Date::new(YEARS.start, 1, 1).into_iter().flat_map(|first| first.series(1.day()));
    days.take_while(|day| day.year() < YEARS.end).filter(|day| window.opens_on(day.weekday()))
}

/// Whether the clock ever shows a time of the window of this day: its beginning, or the end of a leap into it.
fn opens_for(window: &Window, zone: &TimeZone, day: Date) -> bool {
    let begin = day.to_datetime(window.from);
    let AmbiguousOffset::Gap { after, .. } = zone.to_ambiguous_timestamp(begin).offset() else { return true };
    // Read with the offset that holds after the leap, a time that is skipped is a moment shortly before it.
    let Ok(before) = after.to_timestamp(begin) else { return false };
    let leap = zone.following(before).next().map(|change| after.to_datetime(change.timestamp()));
    leap.is_some_and(|clock| contains(window, day, clock))
}
