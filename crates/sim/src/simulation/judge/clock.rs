//! Whether a window is open, as its documentation says it: the judge does not ask the code that it judges.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use muster_core::rollout::strategy::Window;

/// By the clock on the wall of its place. No windows: always.
pub(super) fn is_open(windows: &[Window], at: Timestamp) -> bool {
    windows.is_empty() || windows.iter().any(|window| is_in(window, at))
}

fn is_in(window: &Window, at: Timestamp) -> bool {
    let Ok(zone) = TimeZone::get(&window.tz) else { return false };
    let wall: DateTime = zone.to_datetime(at);
    let ends_next_day = window.to <= window.from;
    let today = window.opens_on(wall.date().weekday())
        && wall.time() >= window.from
        && (ends_next_day || wall.time() < window.to);
    let yesterday = wall.date().yesterday().is_ok_and(|day| window.opens_on(day.weekday()));
    today || (ends_next_day && yesterday && wall.time() < window.to)
}

#[cfg(test)]
mod tests {
    use jiff::civil::time;

    use super::*;

    #[test]
    fn a_window_may_end_on_the_next_day() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let night = Window { days: vec![1], from: time(22, 0, 0, 0), to: time(4, 0, 0, 0), tz: "UTC".into() };
        let open = |text| is_open(std::slice::from_ref(&night), at(text));
        assert!(open("2026-11-16T22:00:00Z") && open("2026-11-17T03:59:59Z"));
        assert!(!open("2026-11-16T21:59:59Z") && !open("2026-11-17T04:00:00Z") && !open("2026-11-17T22:00:00Z"));
        assert!(is_open(&[], at("2026-11-17T22:00:00Z")));
    }
}
