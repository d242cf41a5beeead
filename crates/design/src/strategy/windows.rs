//! Parses the maintenance windows of a rollout strategy: weekly times in which nodes may be granted.

use jiff::civil::Time;
use jiff::tz;
use muster_core::rollout::strategy::Window;
use muster_core::rollout::windows;

use super::values;
use crate::environment::expect::{self, MapFields};
use crate::finding::{Code, FindingCollector, quote};
use crate::yaml::YamlNode;
use muster_core::spelling;

const KEYS: &[&str] = &["days", "from", "to", "tz"];

const MIDNIGHT: &str = "24:00";

pub(super) fn read(node: &YamlNode, report: &mut FindingCollector<'_>) -> Option<Vec<Window>> {
    let items = expect::list(node, "\"windows\"", "a list of windows", report)?;
    let window = |(index, item)| window(item, &format!("window {}", index + 1), report);
    Some(items.iter().enumerate().filter_map(window).collect())
}

fn window(node: &YamlNode, of: &str, report: &mut FindingCollector<'_>) -> Option<Window> {
    let map = expect::mapping(node, of, "a mapping such as {days: mon-thu, from: \"22:00\", to: \"04:00\"}", report)?;
    let fields = MapFields::check(map, of, node.span, KEYS, report);
    let days = match fields.optional("days") {
        Some(node) => values::read_days(node, &format!("\"days\" of {of}"), report),
        None => Some(values::all_days()),
    };
    let from = fields.required("from", "\"22:00\"", report);
    let begin = from.and_then(|node| time(node, &format!("\"from\" of {of}"), false, report));
    let to = fields.required("to", "\"04:00\"", report);
    let end = to.and_then(|node| time(node, &format!("\"to\" of {of}"), true, report));
    let zone = match fields.optional("tz") {
        Some(node) => time_zone(node, &format!("\"tz\" of {of}"), report),
        None => Some("UTC".to_owned()),
    };
    let (from, to) = (from?, to?);
    let window = Window { days: days?, from: begin?, to: end?, tz: zone? };
    if window.from == window.to && to.text() != Some(MIDNIGHT) {
        let finding = Code::WindowNeverOpens.finding(format!("{of} ends at the time at which it begins"));
        let help = format!("for the whole day, write: from: \"00:00\", to: \"{MIDNIGHT}\"");
        report.add_with_note(to.span, finding.help(help), "it begins here", from.span);
        return None;
    }
    check_clocks(&window, node, of, report);
    Some(window)
}

/// Reports windows that daylight saving time affects.
fn check_clocks(window: &Window, node: &YamlNode, of: &str, report: &mut FindingCollector<'_>) {
    if windows::never_opens(window) {
        let message = format!("{of} never opens: the clocks of {} skip it each time", window.tz);
        report.add(node.span, Code::WindowNeverOpens.finding(message).help("begin earlier, or end later"));
    } else if let Some(day) = windows::skipped_on(window) {
        let message = format!("{of} does not open when the clocks of {} skip it, as on {day}", window.tz);
        let finding = Code::WindowSkipped.finding(message);
        report.add(node.span, finding.help("begin earlier, or end later; or leave it, if that day does not matter"));
    }
}

/// Reads a time of day in minutes. Only an end may be `24:00`.
fn time(node: &YamlNode, what: &str, is_end: bool, report: &mut FindingCollector<'_>) -> Option<Time> {
    let text = node.text();
    let time = match text {
        Some(MIDNIGHT) if is_end => Some(Time::midnight()),
        Some(text) => clock(text),
        None => None,
    };
    if time.is_none() {
        let finding = Code::NotATime.finding(format!("{what} is not a time of the day"));
        let finding = finding.expected("expected, for instance, \"22:00\"");
        let help = match text {
            Some(MIDNIGHT) => Some("the day begins at \"00:00\"".to_owned()),
            _ => None,
        };
        report.add(node.span, finding.help_if(help));
    }
    time
}

/// Parses hours and minutes: `22:00`, `6:30`.
fn clock(text: &str) -> Option<Time> {
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
    let (hour, minute) = text.split_once(':')?;
    let is_legal = (1..=2).contains(&hour.len()) && minute.len() == 2;
    Time::new(number(hour).filter(|_| is_legal)?, number(minute)?, 0, 0).ok()
}

/// Reads the name of a time zone, as spelt in the time zone database.
fn time_zone(node: &YamlNode, what: &str, report: &mut FindingCollector<'_>) -> Option<String> {
    let text = expect::filled_text(node, what, report)?;
    let zone = windows::time_zone(text);
    if zone.is_none() {
        let finding = Code::UnknownTimeZone.finding(format!("{what} is no time zone: {}", quote(text)));
        let help = match nearest(text) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => "write its name in the IANA database, such as UTC or Europe/Berlin".to_owned(),
        };
        report.add(node.span, finding.help(help));
    }
    zone?.iana_name().map(str::to_owned)
}

/// A time zone whose city matches (`Berlin`), or whose name is similar.
fn nearest(written: &str) -> Option<String> {
    let names: Vec<String> = tz::db().available().map(|name| name.as_str().to_owned()).collect();
    let is_its_city = |name: &&String| name.rsplit('/').next().is_some_and(|city| city.eq_ignore_ascii_case(written));
    let city = names.iter().find(is_its_city).map(String::as_str);
    // The database has about 600 names. Only those with the same first letter are compared, because the first letter is
    // rarely wrong.
    let first = |text: &str| text.chars().next().map(|first| first.to_ascii_lowercase());
    let alike = names.iter().map(String::as_str).filter(|name| first(name) == first(written));
    city.or_else(|| spelling::nearest(written, alike)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_has_hours_and_minutes() {
        assert_eq!(clock("22:00"), Some(jiff::civil::time(22, 0, 0, 0)));
        assert_eq!(clock("6:05"), Some(jiff::civil::time(6, 5, 0, 0)));
        for text in ["", ":", "22", "22:0", "22:60", "24:00", "-1:00", "+1:00", "22:00:00", "022:00", "٢٢:00", "1:5m"]
        {
            assert_eq!(clock(text), None, "{text}");
        }
    }

    #[test]
    fn city_suggests_its_time_zone() {
        assert_eq!(nearest("berlin").as_deref(), Some("Europe/Berlin"));
        assert_eq!(nearest("Europe/Belrin").as_deref(), Some("Europe/Berlin"));
        assert_eq!(nearest("the moon"), None);
    }
}
