//! Effective documents of a design, and typed views of them, for rules and resolution.
//!
//! Reading is lenient: a value of the wrong type, or a malformed one, counts as absent. It was reported where it is
//! written.

mod networks;
pub(crate) mod storage;
mod topology;

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_core::names::EnvName;

use crate::compile;
use crate::documents::Document;
use crate::environment::Environment;
use crate::file_text::Span;
use crate::inherit::lineage::{Subject, SubjectIndex};
use crate::kinds::{AnyKind, Kind};
use crate::types::{Cidr, address, cidr};
use crate::yaml::{ScalarKind, YamlEntry, YamlNode};

pub(crate) use networks::{
    BondMode, InterfaceView, LinkView, NetworkView, NodeAddress, RangeKind, RangeView, addresses, attached,
    interface_networks, interfaces, is_attached, node_addresses,
};
pub(crate) use topology::{NetworkCidr, RangeOverlap, Topology, overlapping, overlaps};

/// A value and its span.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spanned<T> {
    pub value: T,
    pub span: Span,
}

impl<T> Spanned<T> {
    fn read<'n>(from: &'n YamlNode, key: &str, read: impl FnOnce(&'n YamlNode) -> Option<T>) -> Option<Self> {
        let node = from.get(key)?;
        Some(Spanned { value: read(node)?, span: node.span })
    }
}

impl<'n> Spanned<&'n str> {
    pub(crate) fn text(from: &'n YamlNode, key: &str) -> Option<Self> {
        Spanned::read(from, key, YamlNode::text)
    }

    /// The texts of a list.
    pub(crate) fn texts(from: &'n YamlNode, key: &str) -> Vec<Self> {
        let items = from.get(key).and_then(YamlNode::items).unwrap_or_default();
        items.iter().filter_map(|item| Some(Spanned { value: item.text()?, span: item.span })).collect()
    }
}

impl Spanned<i64> {
    pub(super) fn integer(from: &YamlNode, key: &str) -> Option<Self> {
        Spanned::read(from, key, |node| match node.kind()? {
            ScalarKind::Int(number) => Some(number),
            ScalarKind::Null | ScalarKind::Bool(_) | ScalarKind::Float | ScalarKind::Text => None,
        })
    }
}

impl Spanned<std::net::IpAddr> {
    pub(super) fn address(from: &YamlNode, key: &str) -> Option<Self> {
        Spanned::read(from, key, |node| address(node.text()?))
    }
}

impl Spanned<Cidr> {
    pub(super) fn cidr(from: &YamlNode, key: &str) -> Option<Self> {
        Spanned::read(from, key, |node| cidr(node.text()?))
    }
}

/// The entries of a mapping at a key.
pub(crate) fn entries<'n>(node: &'n YamlNode, key: &str) -> &'n [YamlEntry] {
    node.get(key).and_then(YamlNode::map).map(|map| map.entries()).unwrap_or_default()
}

/// The members of a list at a key.
pub(crate) fn items<'n>(node: &'n YamlNode, key: &str) -> &'n [YamlNode] {
    node.get(key).and_then(YamlNode::items).unwrap_or_default()
}

/// All documents of a design after inheritance.
#[derive(Debug)]
pub(crate) struct SiteView<'d> {
    pub(crate) documents: &'d [Option<Arc<Document>>],
    pub(crate) subjects: &'d [Subject],
    /// Effective value of each subject; none if the subject was removed.
    pub(crate) trees: &'d [Option<YamlNode>],
    pub(crate) index: &'d SubjectIndex,
    /// Environments that have a file. Only the nodes of one of them are in the site.
    pub(crate) environments: &'d BTreeSet<EnvName>,
    /// The selected environment.
    pub(crate) environment: Option<&'d Environment>,
    /// An environment file could not be parsed: its content is missing.
    pub(crate) has_broken_environment_file: bool,
    /// Built by [`SiteView::with_topology`].
    pub(crate) topology: Topology<'d>,
}

/// The effective value of one document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DocumentView<'d> {
    pub name: &'d str,
    /// Span of the name in the topmost layer.
    pub at: Span,
    /// Effective fields: a mapping.
    pub tree: &'d YamlNode,
}

impl<'d> SiteView<'d> {
    /// Indexes the networks, links and racks.
    pub(crate) fn with_topology(mut self) -> Self {
        self.topology = Topology::new(&self);
        self
    }

    pub(crate) fn topology(&self) -> &Topology<'d> {
        &self.topology
    }

    pub(crate) fn get(&self, kind: Kind, name: &str) -> Option<DocumentView<'d>> {
        self.view(self.index.find(&AnyKind::Known(kind), name)?)
    }

    pub(crate) fn has(&self, kind: Kind, name: &str) -> bool {
        self.index.find(&AnyKind::Known(kind), name).is_some()
    }

    /// All documents of a kind, by name.
    pub(crate) fn all(&self, kind: Kind) -> Vec<DocumentView<'d>> {
        let kind = AnyKind::Known(kind);
        let mut views: Vec<DocumentView<'d>> =
            self.index.of_kind(&kind).filter_map(|subject| self.view(subject)).collect();
        views.sort_unstable_by_key(|view| view.name);
        views
    }

    /// Nodes of the selected environment, by name.
    pub(crate) fn nodes(&self) -> Vec<DocumentView<'d>> {
        let mut nodes = self.all(Kind::Node);
        nodes.retain(|node| compile::surplus(self, node).is_none());
        nodes
    }

    pub(crate) fn view(&self, subject: usize) -> Option<DocumentView<'d>> {
        let tree = self.trees.get(subject)?.as_ref()?;
        let subject = self.subjects.get(subject)?;
        let upper = self.documents.get(*subject.stack.last()?)?.as_ref()?;
        Some(DocumentView { name: &subject.name, at: upper.name_at, tree })
    }
}

impl<'d> DocumentView<'d> {
    pub(crate) fn get(&self, field: &str) -> Option<&'d YamlNode> {
        self.tree.get(field)
    }

    pub(crate) fn text(&self, field: &str) -> Option<&'d str> {
        self.get(field)?.text()
    }
}
