//! How much a file may ask for, and all files of a design together.

use std::sync::atomic::{AtomicUsize, Ordering};

/// What a file may hold. Whatever is in it, reading it costs no more time and memory than these allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes that are read from a file.
    pub file_bytes: u64,
    /// How deep values may be nested, aliases unfolded. Trees are walked by recursion, so this bounds the stack. Real
    /// documents are nested 10 deep.
    pub depth: usize,
    /// Memory for the trees of a file. A member of `[a,a,…]` takes two bytes of the file and a hundred of memory, so the
    /// file's size alone is a poor bound.
    pub tree_bytes: usize,
    /// The part of it that aliases may take: nine anchors, each of nine aliases to the one before, would unfold to
    /// 400 million values ("billion laughs").
    pub alias_bytes: usize,
}

impl Limits {
    /// What one of several parts of a file may ask for.
    pub(crate) fn share(self, parts: usize) -> Limits {
        let parts = parts.max(1);
        Limits { tree_bytes: self.tree_bytes / parts, alias_bytes: self.alias_bytes / parts, ..self }
    }

    /// For design documents. A site of 50,000 nodes has 23 MB of YAML; the trees of such files take some ten times
    /// their size at worst.
    pub const DOCUMENTS: Limits =
        Limits { file_bytes: 32 << 20, depth: 64, tree_bytes: 512 << 20, alias_bytes: 32 << 20 };

    /// For files that a person writes by hand, such as an environment's.
    pub const HANDWRITTEN: Limits =
        Limits { file_bytes: 1 << 20, depth: 32, tree_bytes: 32 << 20, alias_bytes: 4 << 20 };
}

/// Memory for the trees of all files of a design. Without it, many files of a shape that no design has could each ask for
/// as much as a single one may.
#[derive(Debug)]
pub(crate) struct Budget {
    left: AtomicUsize,
}

impl Budget {
    /// A hundred megabytes of documents as people write them: a site of 200,000 nodes.
    pub(crate) const OF_A_DESIGN: usize = 1 << 30;
    /// It is taken in parts of this size, so that readers on several processors seldom meet; small ones, since a design
    /// may have as many files as nodes.
    pub(super) const PART: usize = 8 << 10;

    pub(crate) fn new(bytes: usize) -> Self {
        Budget { left: AtomicUsize::new(bytes) }
    }

    /// Takes a part, if one is left.
    pub(super) fn take_part(&self) -> Option<usize> {
        let took = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(Self::PART));
        took.ok().map(|_| Self::PART)
    }

    /// Gives back what was taken and not used.
    pub(super) fn give_back(&self, bytes: usize) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_text::FileText;
    use crate::finding::{Code, Report};
    use crate::yaml::parse_lines;

    #[test]
    fn files_share_a_budget_and_give_back_what_they_do_not_need() {
        let budget = Budget::new(2 * Budget::PART);
        let read = |text: &str| {
            let file = FileText::new("a.yaml", text);
            let mut report = Report::new(&file);
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
