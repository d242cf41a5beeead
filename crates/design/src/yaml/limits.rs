//! How much a file may ask for.

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
