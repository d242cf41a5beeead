//! A length of time: `90s`, `5m`, `1h 30m`, written as in a release.

use jiff::SignedDuration;
use muster_core::rollout::strategy_check::MAX_DURATION;

use crate::finding::{Code, Report, one_line};
use crate::yaml::{Kind, Node};

/// What is the least that makes sense somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Least {
    Zero,
    Something,
}

pub(super) fn read(node: &Node, what: &str, least: Least, report: &mut Report<'_>) -> Option<SignedDuration> {
    let written = node.scalar().map(|scalar| scalar.text()).unwrap_or_default();
    let Some(duration) = node.text().and_then(|text| text.parse::<SignedDuration>().ok()) else {
        let finding = Code::NotADuration.finding(format!("{what} is not a duration"));
        let finding = finding.expected("expected, for instance, 90s, 5m or 1h");
        report.add(node.span, finding.help_if(meant(node, written)));
        return None;
    };
    let (is_legal, expected) = match least {
        Least::Zero => (!duration.is_negative(), "expected 0s to 720h"),
        Least::Something => (duration.is_positive(), "expected more than 0s, at most 720h"),
    };
    if is_legal && duration <= MAX_DURATION {
        return Some(duration);
    }
    let message = format!("{what} cannot be {}", one_line(written));
    report.add(node.span, Code::DurationRange.finding(message).expected(expected));
    None
}

/// A number without its unit, or in days, which are not always as long.
fn meant(node: &Node, written: &str) -> Option<String> {
    if let Some(Kind::Int(number)) = node.kind() {
        return Some(format!("write its unit: {number}s, {number}m or {number}h"));
    }
    let days: i64 = written.strip_suffix('d')?.trim().parse().ok()?;
    Some(format!("write it in hours: {}h", days.checked_mul(24)?))
}
