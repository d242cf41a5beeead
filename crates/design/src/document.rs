//! A document: one layer of one thing, as one source says it.

use std::sync::Arc;

use crate::kinds::AnyKind;
use crate::span::Span;
use crate::yaml::Node;

/// What a consumer has made of a tree.
#[derive(Clone, Debug)]
pub struct Document {
    pub kind: AnyKind,
    pub name: Arc<str>,
    /// Where the name stands; for a generated document, what it was generated from.
    pub name_at: Span,
    /// The documents whose values it begins with; none if it does not say.
    pub extends: Option<Vec<Parent>>,
    /// Where it says that it is meant to be laid over another source's document.
    pub overlay: Option<Span>,
    /// The spec, with the labels among its keys: everything that is inherited.
    pub body: Node,
    /// The whole document.
    pub span: Span,
    /// One of the design's sources, by number: the later one wins.
    pub source: usize,
    pub maker: Maker,
}

/// A document that another one extends.
#[derive(Clone, Debug)]
pub struct Parent {
    pub name: Arc<str>,
    pub span: Span,
}

/// Who made a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Maker {
    /// A consumer whose way of writing has defaults: what holds where nobody says anything.
    Default,
    /// An environment file: it is below what is written about the same node, and nothing to wonder about.
    Environment,
    Native,
    Drydock,
}

impl Maker {
    /// Whether somebody wrote the document. One that was made of something else is below what is written about the same
    /// thing, and nothing to wonder about.
    pub fn is_author(self) -> bool {
        self.level() == Level::Written
    }

    /// What is laid over what, before the order of sources counts.
    pub(crate) fn level(self) -> Level {
        match self {
            Maker::Default => Level::Default,
            Maker::Environment => Level::Generated,
            Maker::Native | Maker::Drydock => Level::Written,
        }
    }
}

/// Documents of a higher level are laid over those of a lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Default,
    Generated,
    Written,
}

/// How a document is spoken of: `HostProfile "compute"`.
pub fn title(kind: &AnyKind, name: &str) -> String {
    format!("{kind} {}", crate::finding::quote(name))
}
