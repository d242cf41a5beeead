//! What a way back does, in numbers and names: counted from its own plan.

use muster_core::rollout::record::RolloutRecord;
use muster_wire::rollout::{RolloutStatus, UnmovedNode};

use crate::commands::rows::count;

/// Who goes where, who stays, and why it is not the version that the rollout came from. `back` is how the way back from `old`
/// stands, just after it began.
pub(super) fn way_back(old: &RolloutRecord, back: &RolloutStatus) -> Vec<String> {
    let (to, moves) = (&back.record.to, back.counts.nodes - back.counts.removed);
    let there = back.already.saturating_sub(back.left_alone_count);
    let all = count(usize::try_from(moves.saturating_add(back.already)).unwrap_or(usize::MAX), "node");
    let are_there = match there {
        0 => String::new(),
        1 => format!("; 1 is at {to} already"),
        _ => format!("; {there} are at {to} already"),
    };
    let goes = match moves {
        0 => format!("nobody of {all} has to go back{are_there}"),
        1 => format!("1 of {all} goes back to {to}{are_there}"),
        _ => format!("{moves} of {all} go back to {to}{are_there}"),
    };
    let stays = |UnmovedNode { node, version, told_by }: &UnmovedNode| match told_by {
        Some(by) => format!("{node} stays at {version} (rollout {by} sent it there)"),
        None => format!("{node} stays at {version} (set aside)"),
    };
    let named = u32::try_from(back.left_alone.len()).unwrap_or(u32::MAX);
    let more = back.left_alone_count.saturating_sub(named);
    let why = old.from.as_ref().filter(|from| *from != to && **from != old.to);
    let why = why.map(|from| {
        format!(
            "not to {from}, where rollout {} came from: the last version that a whole rollout has validated is {to}",
            old.id
        )
    });
    let more = (more > 0).then(|| format!("… and {more} more stay where they are"));
    std::iter::once(goes).chain(back.left_alone.iter().map(stays)).chain(more).chain(why).collect()
}

#[cfg(test)]
mod tests {
    use muster_core::rollout::RolloutId;
    use muster_core::rollout::progress::NodeCounts;

    use super::super::sample::{self, node, version};
    use super::*;

    /// Rollout 8 takes rollout 7 back: it moves so many of four nodes.
    fn back(moves: u32) -> RolloutStatus {
        let mut back = sample::status();
        (back.record.id, back.record.to, back.record.rolls_back) = (RolloutId(8), version("v2"), Some(RolloutId(7)));
        back.counts = NodeCounts { nodes: moves, waiting: moves, ..NodeCounts::default() };
        back.already = 4 - moves;
        back
    }

    #[test]
    fn what_goes_back_is_counted_from_the_plan_of_the_way_back() {
        let old = sample::status().record;
        assert_eq!(way_back(&old, &back(1)), ["1 of 4 nodes goes back to v2; 3 are at v2 already"]);
        assert_eq!(way_back(&old, &back(4)), ["4 of 4 nodes go back to v2"]);
        assert_eq!(way_back(&old, &back(0)), ["nobody of 4 nodes has to go back; 4 are at v2 already"]);
    }

    #[test]
    fn who_stays_is_named() {
        let old = sample::status().record;
        let mut back = back(1);
        let left = |name: &str, told_by| UnmovedNode { node: node(name), version: version("v3"), told_by };
        (back.left_alone, back.left_alone_count) = (vec![left("web1", None), left("web2", Some(RolloutId(5)))], 3);
        let expected = [
            "1 of 4 nodes goes back to v2",
            "web1 stays at v3 (set aside)",
            "web2 stays at v3 (rollout 5 sent it there)",
            "… and 1 more stay where they are",
        ];
        assert_eq!(way_back(&old, &back), expected);
    }

    #[test]
    fn another_version_than_the_one_before_is_explained() {
        let old = sample::status().record;
        let mut back = back(4);
        back.record.to = version("v1");
        let expected = [
            "4 of 4 nodes go back to v1",
            "not to v2, where rollout 7 came from: the last version that a whole rollout has validated is v1",
        ];
        assert_eq!(way_back(&old, &back), expected);
    }
}
