//! Limits for parsing one file, and for all files of a design.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Limits of one file. They bound the time and memory of parsing for any content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// Depth of values after expansion of aliases. Trees are walked recursively, so this bounds the stack. Real documents
    /// have a depth of 10.
    pub depth: usize,
    /// Memory for the trees of the file in bytes. A member of `[a,a,…]` takes two bytes of the file and 100 bytes of memory,
    /// so the size of the file is not enough.
    pub tree_bytes: usize,
    /// Share of the memory for aliases: nine anchors, each of nine aliases to the previous one, would expand to 400 million
    /// values ("billion laughs").
    pub alias_bytes: usize,
}

impl Limits {
    /// Limits of one of several parts of a file.
    pub(crate) fn share(self, parts: usize) -> Limits {
        let parts = parts.max(1);
        Limits { tree_bytes: self.tree_bytes / parts, alias_bytes: self.alias_bytes / parts, ..self }
    }

    /// For design documents. A site of 50,000 nodes has 23 MB of YAML; the trees of such files take some ten times
    /// their size at worst.
    pub const DOCUMENTS: Limits =
        Limits { file_bytes: 32 << 20, depth: 64, tree_bytes: 512 << 20, alias_bytes: 32 << 20 };

    /// For small files, such as environment files.
    pub const HANDWRITTEN: Limits =
        Limits { file_bytes: 1 << 20, depth: 32, tree_bytes: 32 << 20, alias_bytes: 4 << 20 };
}

/// Memory for the trees of all files of a design, because the limits of single files add up.
#[derive(Debug)]
pub(crate) struct TreeBudget {
    left: AtomicUsize,
}

impl TreeBudget {
    /// Enough for 100 MB of typical documents: a site of 200,000 nodes.
    pub(crate) const OF_A_DESIGN: usize = 1 << 30;
    /// Unit of allocation. Large enough to avoid contention between threads, small enough for one file per node.
    pub(super) const PART: usize = 8 << 10;

    pub(crate) fn new(bytes: usize) -> Self {
        TreeBudget { left: AtomicUsize::new(bytes) }
    }

    /// Allocates a unit, if one is left.
    pub(super) fn take_part(&self) -> Option<usize> {
        let took = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(Self::PART));
        took.ok().map(|_| Self::PART)
    }

    /// Returns unused memory.
    pub(super) fn give_back(&self, bytes: usize) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_text::FileText;
    use crate::finding::{Code, FindingCollector};
    use crate::yaml::parse_lines;

    #[test]
    fn files_share_a_budget_and_return_unused_memory() {
        let budget = TreeBudget::new(2 * TreeBudget::PART);
        let read = |text: &str| {
            let file = FileText::new("a.yaml", text);
            let mut report = FindingCollector::new(&file);
            let trees = parse_lines(&file, file.all_lines(), &mut report, &Limits::DOCUMENTS, &budget);
            (
                trees.len(),
                report.finish().iter().map(|finding| Code::parse(finding.code.as_str()).unwrap()).collect::<Vec<_>>(),
            )
        };
        for _ in 0..20 {
            assert_eq!(read("a: b\n"), (1, vec![]));
        }
        let large = format!("a: b\n---\n[{}]\n---\nc: d\n", "x, ".repeat(1_000));
        assert_eq!(read(&large), (1, vec![Code::TooLarge]));
        assert_eq!(read("a: b\n"), (0, vec![Code::TooLarge]));
    }
}
