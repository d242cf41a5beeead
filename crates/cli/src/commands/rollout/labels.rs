//! Short texts about durations, nodes, waves and strategies, for several views of rollouts.

use jiff::SignedDuration;
use muster_core::names::{NodeName, Version};
use muster_core::rollout::RolloutId;
use muster_core::rollout::progress::{Hold, NodeCounts};
use muster_core::rollout::strategy::{GateCheck, GateCheckKind, OnFailure, OnInconclusive, Strategy, Window};
use muster_wire::rollout::WaveRow;

use crate::output::text;

/// Names that are listed; further ones are counted.
const NAMES_SHOWN: usize = 10;

/// A duration in whole units: "1m 30s", "5m", "1h 30m".
pub(super) fn duration(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    let (hours, minutes, rest) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let parts = [(hours, "h"), (minutes, "m"), (rest, "s")];
    let parts: Vec<String> =
        parts.iter().filter(|(number, _)| *number > 0).map(|(number, unit)| format!("{number}{unit}")).collect();
    if parts.is_empty() { "0s".to_owned() } else { parts.join(" ") }
}

/// The first 10 names, and the number of further ones.
pub(super) fn names<'n>(nodes: impl ExactSizeIterator<Item = &'n NodeName>, all: bool) -> String {
    let most = if all { usize::MAX } else { NAMES_SHOWN };
    let more = nodes.len().saturating_sub(most);
    let mut shown: Vec<String> = nodes.take(most).map(NodeName::to_string).collect();
    if more > 0 {
        shown.push(format!("… {more} more"));
    }
    shown.join(", ")
}

/// The number of a wave in the plan, starting at 1. Waves of the strategy without new nodes are not counted.
fn number_of(stage: u32, wave: u32, waves: &[WaveRow]) -> Option<usize> {
    waves.iter().position(|row| row.stage == stage && row.wave == wave).map(|index| index + 1)
}

/// The reason for waiting, with the wave numbers of the plan.
pub(super) fn hold(hold: &Hold, waves: &[WaveRow]) -> String {
    let text = match hold {
        Hold::Turn { stage, wave } => {
            number_of(*stage, *wave, waves).map(|number| format!("wave {number} has not passed"))
        }
        Hold::Promotion { stage, wave } => number_of(*stage, *wave, waves)
            .map(|number| format!("wave {number} is healthy and waits for `muster rollout promote`")),
        Hold::Halted { .. }
        | Hold::Window { .. }
        | Hold::Soak { .. }
        | Hold::Gate { .. }
        | Hold::RoleBudget { .. }
        | Hold::DomainBudget { .. }
        | Hold::Ramp { .. }
        | Hold::Brake { .. }
        | Hold::Node { .. }
        | Hold::Paused { .. }
        | Hold::Cordoned { .. }
        | Hold::Silent { .. }
        | Hold::NotDue { .. }
        | Hold::Machine { .. } => None,
    };
    text::one_line(&text.unwrap_or_else(|| hold.to_string()))
}

/// "v2 → v3", "back to v2 (rolls back rollout 7)"
pub(super) fn versions(from: Option<&Version>, to: &Version, rolls_back: Option<RolloutId>) -> String {
    match (from, rolls_back) {
        (_, Some(id)) => format!("back to {to} (rolls back rollout {id})"),
        (Some(from), None) => format!("{from} → {to}"),
        (None, None) => to.to_string(),
    }
}

/// Number of nodes that were granted the version.
pub(super) fn granted(counts: &NodeCounts) -> u32 {
    counts.nodes.saturating_sub(counts.waiting + counts.skipped + counts.removed)
}

/// "front door (http://127.0.0.1/)"
pub(super) fn check(check: &GateCheck) -> String {
    match &check.kind {
        GateCheckKind::Http(http) => {
            let status = http.status.map(|status| format!(" answers {status}")).unwrap_or_default();
            format!("{} ({}{status})", check.name, http.url)
        }
        GateCheckKind::Command(command) => format!("{} (`{}`)", check.name, command.join(" ")),
    }
}

/// The conditions for the next wave.
pub(super) fn gate(strategy: &Strategy) -> String {
    let state = if strategy.gate.validated { "validated" } else { "configured" };
    let mut text = format!("each node {state} and healthy for {}", duration(strategy.soak));
    let checks: Vec<String> = strategy.gate.checks.iter().map(check).collect();
    if !checks.is_empty() {
        text.push_str(&format!("; then {}", checks.join(", ")));
        if strategy.gate.inconclusive == OnInconclusive::Pause {
            text.push_str("; an inconclusive check pauses the rollout");
        }
    }
    text
}

/// The tolerated failures, and the reaction to more.
pub(super) fn failures(strategy: &Strategy, nodes: usize) -> String {
    let failures = &strategy.failures;
    let total = match failures.total.count_of(nodes) {
        number if number.to_string() == failures.total.to_string() => number.to_string(),
        number => format!("{} ({number})", failures.total),
    };
    let then = match strategy.on_failure {
        OnFailure::Pause => "the rollout pauses",
        OnFailure::Rollback => "it is rolled back",
    };
    let (canary, wave) = (failures.canary, failures.wave);
    format!(
        "{canary} tolerated in the first wave of a stage, {wave} in each later wave, {total} in total; with more, {then}"
    )
}

/// "mon, tue 22:00 to 04:00 of the next day, UTC"
pub(super) fn window(window: &Window) -> String {
    let next = if window.to <= window.from { " of the next day" } else { "" };
    let (from, to) = (window.from.strftime("%H:%M"), window.to.strftime("%H:%M"));
    format!("{} {from} to {to}{next}, {}", days(&window.days), window.tz)
}

/// Days of the week, with ranges: "mon to thu, sun".
fn days(days: &[u8]) -> String {
    const NAMES: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    let name = |day: u8| NAMES.get(usize::from(day).wrapping_sub(1)).copied().unwrap_or("?");
    if days.len() == NAMES.len() {
        return "every day".to_owned();
    }
    let mut runs: Vec<(u8, u8)> = Vec::new();
    for day in days {
        match runs.last_mut() {
            Some((_, last)) if last.saturating_add(1) == *day => *last = *day,
            Some(_) | None => runs.push((*day, *day)),
        }
    }
    let ranges = runs.into_iter().map(|(first, last)| match last - first {
        0 => name(first).to_owned(),
        1 => format!("{}, {}", name(first), name(last)),
        _ => format!("{} to {}", name(first), name(last)),
    });
    ranges.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_whole_units() {
        let all = [0, 10, 90, 300, 3_600, 5_400].map(|seconds| duration(SignedDuration::from_secs(seconds)));
        assert_eq!(all, ["0s", "10s", "1m 30s", "5m", "1h", "1h 30m"]);
    }

    #[test]
    fn consecutive_days_are_a_range() {
        assert_eq!(days(&[1, 2, 3, 4]), "mon to thu");
        assert_eq!(days(&[1, 2, 7]), "mon, tue, sun");
        assert_eq!(days(&[1, 2, 3, 4, 5, 6, 7]), "every day");
        assert_eq!(days(&[6]), "sat");
    }
}
