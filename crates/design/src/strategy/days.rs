//! Days of the week: `mon`, `mon-thu`, `daily`, or a list of such.

use std::collections::BTreeSet;

use crate::environment::expect;
use crate::finding::{Code, Report, quote};
use crate::spelling;
use crate::types::wrong_type;
use crate::yaml::{Node, Value};

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const NAMES: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
const DAILY: &str = "daily";

/// All of them, from Monday as 1.
pub(super) fn all() -> Vec<u8> {
    (1..=7).collect()
}

/// The days, sorted; none is there twice, and there is at least one.
pub(super) fn read(node: &Node, what: &str, report: &mut Report<'_>) -> Option<Vec<u8>> {
    let days: BTreeSet<u8> = match &node.value {
        Value::Scalar(_) => member(node, what, report)?,
        Value::Seq(items) => {
            let members: Vec<Option<BTreeSet<u8>>> = items.iter().map(|item| member(item, what, report)).collect();
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

fn member(node: &Node, what: &str, report: &mut Report<'_>) -> Option<BTreeSet<u8>> {
    let text = expect::filled_text(node, what, report)?;
    let word = text.to_ascii_lowercase();
    let days = match word.split_once('-') {
        _ if word == DAILY => Some(all().into_iter().collect()),
        Some((first, last)) => day(first).zip(day(last)).map(|(first, last)| range(first, last)),
        None => day(&word).map(|day| BTreeSet::from([day])),
    };
    if days.is_none() {
        let finding = Code::NotADay.finding(format!("{what} cannot be {}", quote(text)));
        let finding = finding.expected("expected, for instance, mon, mon-thu or daily");
        report.add(node.span, finding.help_if(meant(&word)));
    }
    days
}

fn day(word: &str) -> Option<u8> {
    let word = word.trim();
    let index = DAYS.iter().position(|day| *day == word).or_else(|| NAMES.iter().position(|name| *name == word));
    index.and_then(|index| u8::try_from(index + 1).ok())
}

/// From one day to another, over the end of the week if need be: `fri-mon` has four days.
fn range(first: u8, last: u8) -> BTreeSet<u8> {
    let last = if last < first { last + 7 } else { last };
    (first..=last).map(|day| (day - 1) % 7 + 1).collect()
}

fn meant(word: &str) -> Option<String> {
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
    fn a_range_may_go_over_the_end_of_the_week() {
        assert_eq!(range(1, 4), BTreeSet::from([1, 2, 3, 4]));
        assert_eq!(range(5, 1), BTreeSet::from([5, 6, 7, 1]));
        assert_eq!(range(3, 3), BTreeSet::from([3]));
    }
}
