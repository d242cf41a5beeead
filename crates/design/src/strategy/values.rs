//! Parses the scalar values of a rollout strategy: amounts, durations, words, URLs and days.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use muster_core::rollout::strategy::Amount;
use muster_core::rollout::strategy_check::MAX_DURATION;

use crate::environment::{MAX_NODES, expect};
use crate::finding::{Code, FindingCollector, one_line, quote};
use crate::types::wrong_type;
use crate::yaml::{ScalarKind, Value, YamlNode};
use muster_core::spelling;

/// Reads an amount. `0` and `0%` are valid.
pub(super) fn read_amount(node: &YamlNode, what: &str, report: &mut FindingCollector<'_>) -> Option<Amount> {
    match node.kind() {
        Some(ScalarKind::Int(number)) => Some(Amount::Nodes(nodes(number, 0, node, what, report)?)),
        Some(ScalarKind::Text) if node.text().is_some_and(|text| text.ends_with('%')) => {
            Some(Amount::Percent(percent(node, 0, what, report)?))
        }
        _ => not_an_amount(node, what, report),
    }
}

/// A number of nodes, at least `least`.
pub(super) fn nodes(
    number: i64,
    least: u32,
    node: &YamlNode,
    what: &str,
    report: &mut FindingCollector<'_>,
) -> Option<u32> {
    let legal =
        u32::try_from(number).ok().filter(|number| (u64::from(least)..=MAX_NODES).contains(&u64::from(*number)));
    if legal.is_none() {
        let finding = Code::OutOfRange.finding(format!("{what} cannot be {number}"));
        report.add(node.span, finding.expected(format!("expected {least} to {MAX_NODES}")));
    }
    legal
}

/// A percentage, at least `least`, with or without its sign.
pub(super) fn percent(node: &YamlNode, least: u8, what: &str, report: &mut FindingCollector<'_>) -> Option<u8> {
    let written = node.scalar().map(|scalar| scalar.text()).unwrap_or_default();
    let digits = written.strip_suffix('%').unwrap_or(written);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number {
        return not_an_amount(node, what, report);
    }
    let legal = digits.parse::<u8>().ok().filter(|percent| (least..=100).contains(percent));
    if legal.is_none() {
        let finding = Code::PercentRange.finding(format!("{what} cannot be {}%", one_line(digits)));
        report.add(node.span, finding.expected(format!("expected {least}% to 100%")));
    }
    legal
}

fn not_an_amount<T>(node: &YamlNode, what: &str, report: &mut FindingCollector<'_>) -> Option<T> {
    let finding = Code::NotAnAmount.finding(format!("{what} is neither a number of nodes nor a percentage"));
    // Often the text has only a space or a sign too many.
    let written = node.scalar().map(|scalar| scalar.text()).unwrap_or_default();
    let digits: String = written.chars().filter(char::is_ascii_digit).collect();
    let is_percentage = (1..=3).contains(&digits.len()) && written.ends_with('%') && !written.contains(['-', '.']);
    let finding = finding.expected("expected, for instance, 2 or 20%");
    report.add(node.span, finding.help_if(is_percentage.then(|| format!("did you mean {digits}%?"))));
    None
}

/// Shortest duration that a field accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MinDuration {
    Zero,
    Positive,
}

pub(super) fn read_duration(
    node: &YamlNode,
    what: &str,
    min: MinDuration,
    report: &mut FindingCollector<'_>,
) -> Option<SignedDuration> {
    let written = node.scalar().map(|scalar| scalar.text()).unwrap_or_default();
    let Some(duration) = node.text().and_then(|text| text.parse::<SignedDuration>().ok()) else {
        let finding = Code::NotADuration.finding(format!("{what} is not a duration"));
        let finding = finding.expected("expected, for instance, 90s, 5m or 1h");
        report.add(node.span, finding.help_if(duration_hint(node, written)));
        return None;
    };
    let (is_legal, expected) = match min {
        MinDuration::Zero => (!duration.is_negative(), "expected 0s to 720h"),
        MinDuration::Positive => (duration.is_positive(), "expected more than 0s, at most 720h"),
    };
    if is_legal && duration <= MAX_DURATION {
        return Some(duration);
    }
    let message = format!("{what} cannot be {}", one_line(written));
    report.add(node.span, Code::DurationRange.finding(message).expected(expected));
    None
}

/// Suggestion for a number without a unit, or in days. Days are not accepted, because their length varies.
fn duration_hint(node: &YamlNode, written: &str) -> Option<String> {
    if let Some(ScalarKind::Int(number)) = node.kind() {
        return Some(format!("write its unit: {number}s, {number}m or {number}h"));
    }
    let days: i64 = written.strip_suffix('d')?.trim().parse().ok()?;
    Some(format!("write it in hours: {}h", days.checked_mul(24)?))
}

/// Reads one of a fixed set of words.
pub(super) fn read_word<T: Copy>(
    node: &YamlNode,
    what: &str,
    words: &[(&str, T)],
    report: &mut FindingCollector<'_>,
) -> Option<T> {
    let text = expect::filled_text(node, what, report)?;
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
        return Some(*value);
    }
    let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    let finding = Code::NotOneOf.finding(format!("{what} cannot be {}", quote(text)));
    let near = spelling::nearest(text, known.iter().copied());
    let finding = finding.expected(format!("expected {}", known.join(" or ")));
    report.add(node.span, finding.help_if(near.map(|near| format!("did you mean \"{near}\"?"))));
    None
}

/// Reads a URL. Checks the scheme, the host and the port; the rest is not checked.
pub(super) fn read_url(node: &YamlNode, what: &str, report: &mut FindingCollector<'_>) -> Option<String> {
    let text = expect::filled_text(node, what, report)?;
    let authority = authority(text);
    if authority.is_some_and(|authority| authority.contains('@')) {
        let finding = Code::SecretAsText.finding(format!("{what} has a name or a password"));
        report.add(
            node.span,
            finding.help("every operator can read a plan: use a command that reads the secret instead").hiding_line(),
        );
        return None;
    }
    if authority.and_then(host).is_none() || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        let finding = Code::NotAUrl.finding(format!("{what} is not a URL: {}", quote(text)));
        report.add(node.span, finding.expected("expected http://HOST…"));
        return None;
    }
    if text.starts_with("https://") {
        let finding =
            Code::NotAUrl.finding(format!("{what} uses https, which the server does not support for gate checks"));
        let help = format!("use a command instead: a script that runs curl --fail --silent {}", quote(text));
        report.add(node.span, finding.expected("expected http://HOST…").help(help));
        return None;
    }
    Some(text.to_owned())
}

/// The part between the scheme and the path.
fn authority(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"))?;
    rest.split(['/', '?', '#']).next()
}

fn host(authority: &str) -> Option<&str> {
    // An IPv6 address contains colons, and is in brackets.
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (address, behind) = rest.split_once(']')?;
            address.parse::<std::net::Ipv6Addr>().ok()?;
            (address, if behind.is_empty() { None } else { Some(behind.strip_prefix(':')?) })
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    (!host.is_empty() && port.is_none_or(is_port)).then_some(host)
}

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const NAMES: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
const DAILY: &str = "daily";

/// All days of the week; Monday is 1.
pub(super) fn all_days() -> Vec<u8> {
    (1..=7).collect()
}

/// Reads days: sorted, without duplicates, at least one.
pub(super) fn read_days(node: &YamlNode, what: &str, report: &mut FindingCollector<'_>) -> Option<Vec<u8>> {
    let days: BTreeSet<u8> = match &node.value {
        Value::Scalar(_) => day_or_range(node, what, report)?,
        Value::Seq(items) => {
            let members: Vec<Option<BTreeSet<u8>>> =
                items.iter().map(|item| day_or_range(item, what, report)).collect();
            members.into_iter().collect::<Option<Vec<_>>>()?.into_iter().flatten().collect()
        }
        Value::Map(_) => return wrong_type(node, what, "a day, a range or a list of such", report),
    };
    if days.is_empty() {
        let finding = Code::WindowNeverOpens.finding(format!("{what} is empty, so the window never opens"));
        report.add(node.span, finding.expected("expected a day").help("for every day, write: days: daily"));
        return None;
    }
    Some(days.into_iter().collect())
}

fn day_or_range(node: &YamlNode, what: &str, report: &mut FindingCollector<'_>) -> Option<BTreeSet<u8>> {
    let text = expect::filled_text(node, what, report)?;
    let word = text.to_ascii_lowercase();
    let days = match word.split_once('-') {
        _ if word == DAILY => Some(all_days().into_iter().collect()),
        Some((first, last)) => day(first).zip(day(last)).map(|(first, last)| range(first, last)),
        None => day(&word).map(|day| BTreeSet::from([day])),
    };
    if days.is_none() {
        let finding = Code::NotADay.finding(format!("{what} cannot be {}", quote(text)));
        let finding = finding.expected("expected, for instance, mon, mon-thu or daily");
        report.add(node.span, finding.help_if(suggestion(&word)));
    }
    days
}

fn day(word: &str) -> Option<u8> {
    let word = word.trim();
    let index = DAYS.iter().position(|day| *day == word).or_else(|| NAMES.iter().position(|name| *name == word));
    index.and_then(|index| u8::try_from(index + 1).ok())
}

/// Days from one to another, across the end of the week if necessary: `fri-mon` has four days.
fn range(first: u8, last: u8) -> BTreeSet<u8> {
    let last = if last < first { last + 7 } else { last };
    (first..=last).map(|day| (day - 1) % 7 + 1).collect()
}

fn suggestion(word: &str) -> Option<String> {
    if word.contains(',') {
        return Some(format!("write it as a list: [{}]", crate::finding::one_line(word)));
    }
    let near = |word: &str| spelling::nearest(word.trim(), DAYS.into_iter().chain(NAMES).chain([DAILY]));
    match word.split_once('-') {
        Some((first, last)) => Some(format!("did you mean \"{}-{}\"?", near(first)?, near(last)?)),
        None => near(word).map(|near| format!("did you mean \"{near}\"?")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_hosts_and_ports_are_refused() {
        let is_fine = |text: &str| authority(text).and_then(host).is_some();
        for text in ["http://a", "https://a.b/c?d#e", "http://127.0.0.1:80/", "http://[::1]:8080/x", "http://[::1]"] {
            assert!(is_fine(text), "{text}");
        }
        let bad = ["", "a", "ftp://a", "http:/a", "http://", "http:///x", "http://:80", "http://a:", "http://a:0"];
        for text in bad.into_iter().chain(["http://a:70000", "http://[::1", "http://[x]", "http://[::1]80", "HTTP://a"])
        {
            assert!(!is_fine(text), "{text}");
        }
    }

    #[test]
    fn range_of_days_may_wrap_the_week() {
        assert_eq!(range(1, 4), BTreeSet::from([1, 2, 3, 4]));
        assert_eq!(range(5, 1), BTreeSet::from([5, 6, 7, 1]));
        assert_eq!(range(3, 3), BTreeSet::from([3]));
    }
}
