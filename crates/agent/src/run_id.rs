//! Names of runs.

use std::path::Path;

use jiff::Timestamp;
use sha2::{Digest, Sha256};

use muster_core::names::RunId;
use muster_core::release::dir::hex;

use crate::node::Node;
use crate::state_dir::Layout;

/// Begins with the time and, for those of one second, the number, so that names sort as runs follow each other; and ends with a hash of everything that tells agents apart: several
/// agents may live on one machine, and each finds its processes by the name of the run.
pub fn make(node: &Node, seq: u64, started: Timestamp) -> RunId {
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
        // Digits, `t`, `-` and hexadecimal are legal, and there are fewer than 64 of them.
        Err(error) => unreachable!("{error}"),
    }
}

/// The number in the name of a run's directory; none if it is no such name.
pub fn number_of(directory: &Path) -> Option<u64> {
    directory.file_name()?.to_str()?.split('-').nth(1)?.parse().ok()
}

/// A number after those of all runs that the node remembers: what the next may be if the ledger was lost. A run takes two.
pub fn after_last(layout: &Layout) -> u64 {
    let directories = [layout.runs(), layout.validations()];
    let names = directories.into_iter().filter_map(|directory| std::fs::read_dir(directory).ok()).flatten().flatten();
    names.filter_map(|entry| number_of(&entry.path())).max().map_or(1, |last| last.saturating_add(2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::node;

    #[test]
    fn names_sort_by_time_and_tell_nodes_apart() {
        let (dir_a, a) = node("web1");
        let (_dir_b, b) = node("web1");
        let at = Timestamp::from_second(1_800_000_000).unwrap();
        assert!(make(&a, 7, at).as_str().starts_with("20270115t080000-000007-"), "{}", make(&a, 7, at));
        assert!(make(&a, 9, at).as_str() < make(&a, 11, at).as_str(), "in one second, by their numbers");
        assert!(make(&a, u64::MAX, at).as_str().len() <= 64);
        assert_ne!(make(&a, 7, at), make(&b, 7, at));
        drop(dir_a);
    }

    #[test]
    fn numbers_go_on_after_those_that_the_node_remembers() {
        let (_dir, node) = node("web1");
        let runs = node.layout.runs();
        assert_eq!(after_last(&node.layout), 1);
        for name in ["odd", "20270115t090000-000007-abcdef01", "20270115t080000-000009-abcdef01"] {
            std::fs::create_dir_all(runs.join(name)).unwrap();
        }
        assert_eq!(after_last(&node.layout), 11);
    }
}
