//! The effective design, as rules see it.

use std::collections::BTreeSet;

use muster_core::names::EnvName;

use super::view::Topology;
use crate::compile;
use crate::document::Document;
use crate::environment::Environment;
use crate::inherit::lineage::{Index, Subject};
use crate::kinds::{AnyKind, Kind};
use crate::span::Span;
use crate::yaml::Node;

/// Everything that there is, after inheritance.
#[derive(Debug)]
pub(crate) struct Site<'d> {
    pub(crate) documents: &'d [Option<Document>],
    pub(crate) subjects: &'d [Subject],
    /// The effective value of each subject; none if there is no such thing any more.
    pub(crate) trees: &'d [Option<Node>],
    pub(crate) index: &'d Index,
    /// The environments that there are files of. Only the nodes of one of them are here.
    pub(crate) environments: &'d BTreeSet<EnvName>,
    /// The file of the environment that the design is made for.
    pub(crate) environment: Option<&'d Environment>,
    /// There is an environment file that could not be understood: what it would say is not there.
    pub(crate) lacks_environment: bool,
    /// Made by [`Site::surveyed`].
    pub(crate) topology: Topology<'d>,
}

/// One thing of a site.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thing<'d> {
    pub name: &'d str,
    /// Where its name stands, in the uppermost of its documents.
    pub at: Span,
    /// Its effective fields: a mapping.
    pub tree: &'d Node,
}

impl<'d> Site<'d> {
    /// Reads the networks, links and racks, which rules then find in [`Site::topology`].
    pub(crate) fn surveyed(mut self) -> Self {
        self.topology = Topology::of(&self);
        self
    }

    /// The networks, links and racks.
    pub(crate) fn topology(&self) -> &Topology<'d> {
        &self.topology
    }

    pub(crate) fn get(&self, kind: Kind, name: &str) -> Option<Thing<'d>> {
        self.thing(self.index.find(&AnyKind::Known(kind), name)?)
    }

    pub(crate) fn has(&self, kind: Kind, name: &str) -> bool {
        self.index.find(&AnyKind::Known(kind), name).is_some()
    }

    /// All things of a kind, by name.
    pub(crate) fn all(&self, kind: Kind) -> Vec<Thing<'d>> {
        let kind = AnyKind::Known(kind);
        let mut things: Vec<Thing<'d>> = self.index.of_kind(&kind).filter_map(|subject| self.thing(subject)).collect();
        things.sort_unstable_by_key(|thing| thing.name);
        things
    }

    /// The nodes of the environment that the design is made for, by name.
    pub(crate) fn nodes(&self) -> Vec<Thing<'d>> {
        let mut nodes = self.all(Kind::Node);
        nodes.retain(|node| compile::spare(self, node).is_none());
        nodes
    }

    pub(crate) fn thing(&self, subject: usize) -> Option<Thing<'d>> {
        let tree = self.trees.get(subject)?.as_ref()?;
        let subject = self.subjects.get(subject)?;
        let upper = self.documents.get(*subject.stack.last()?)?.as_ref()?;
        Some(Thing { name: &subject.name, at: upper.name_at, tree })
    }
}

impl<'d> Thing<'d> {
    pub(crate) fn get(&self, field: &str) -> Option<&'d Node> {
        self.tree.get(field)
    }

    pub(crate) fn text(&self, field: &str) -> Option<&'d str> {
        self.get(field)?.text()
    }
}
