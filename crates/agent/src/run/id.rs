//! Ids of runs.

use std::path::Path;

use jiff::Timestamp;
use sha2::{Digest, Sha256};

use muster_core::names::RunId;
use muster_core::release::dir::hex;

use crate::node::Node;
use crate::state::directory::Layout;

/// Makes the id of a run: its start time, the sequence number of its first report, and a hash. Ids sort by time, and by
/// number within one second. The hash covers environment, node and state directory, because several agents may run on one
/// machine and each finds its processes by the id of the run.
pub fn new_run_id(node: &Node, seq: u64, started: Timestamp) -> RunId {
    let mut hasher = Sha256::new();
    for part in [node.env.as_str(), node.name.as_str(), &node.layout.runs().display().to_string()] {
        hasher.update(part.as_bytes());
        hasher.update([0]);
    }
    hasher.update(started.as_nanosecond().to_le_bytes());
    let hash = hex(&hasher.finalize());
    let text = format!("{}-{seq:06}-{}", started.strftime("%Y%m%dt%H%M%S"), &hash[..8]);
    match RunId::new(text) {
        Ok(run) => run,
        // Digits, `t`, `-` and hexadecimal digits are legal, and there are fewer than 64.
        Err(error) => unreachable!("{error}"),
    }
}

/// Sequence number in the name of a run's directory; `None` for any other name.
pub fn seq_of(directory: &Path) -> Option<u64> {
    directory.file_name()?.to_str()?.split('-').nth(1)?.parse().ok()
}

/// A sequence number after those of all stored runs, for an agent that has lost its ledger. A run uses two numbers.
pub fn next_seq(layout: &Layout) -> u64 {
    let directories = [layout.runs(), layout.validations()];
    let names = directories.into_iter().filter_map(|directory| std::fs::read_dir(directory).ok()).flatten().flatten();
    names.filter_map(|entry| seq_of(&entry.path())).max().map_or(1, |last| last.saturating_add(2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::node;

    #[test]
    fn ids_sort_by_time_and_differ_between_agents() {
        let (dir_a, a) = node("web1");
        let (_dir_b, b) = node("web1");
        let at = Timestamp::from_second(1_800_000_000).unwrap();
        assert!(new_run_id(&a, 7, at).as_str().starts_with("20270115t080000-000007-"), "{}", new_run_id(&a, 7, at));
        assert!(new_run_id(&a, 9, at).as_str() < new_run_id(&a, 11, at).as_str(), "within one second by number");
        assert!(new_run_id(&a, u64::MAX, at).as_str().len() <= 64);
        assert_ne!(new_run_id(&a, 7, at), new_run_id(&b, 7, at));
        drop(dir_a);
    }

    #[test]
    fn next_seq_follows_the_stored_runs() {
        let (_dir, node) = node("web1");
        let runs = node.layout.runs();
        assert_eq!(next_seq(&node.layout), 1);
        for name in ["odd", "20270115t090000-000007-abcdef01", "20270115t080000-000009-abcdef01"] {
            std::fs::create_dir_all(runs.join(name)).unwrap();
        }
        assert_eq!(next_seq(&node.layout), 11);
    }
}
