//! Documents as they are named on the command line, and as they are printed.

use muster_core::spelling;
use muster_design::Design;
use muster_design::kinds::Kind;
use muster_design::yaml::Node;
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::failure::Failure;

/// The kind of what has a name and nothing else.
pub(super) const NODE: &str = "Node";
/// Inherited like all else, and written beside the spec.
const LABELS: &str = "labels";

/// Which document is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) kind: String,
    pub(super) name: String,
}

impl Subject {
    /// Reads `NODE`, `KIND/NAME`, or a name of the kind that `--kind` says. Kinds and names may hold slashes themselves:
    /// what is in the design is meant.
    pub(super) fn read(word: &str, kind: Option<&str>, design: &Design) -> Self {
        let new = |kind: &str, name: &str| Self { kind: kind.to_owned(), name: name.to_owned() };
        if let Some(kind) = kind {
            return new(kind, word);
        }
        let mut ways = word.match_indices('/').map(|(at, _)| (&word[..at], &word[at + 1..]));
        if let Some((kind, name)) = ways.find(|(kind, name)| design.effective(kind, name).is_some()) {
            return new(kind, name);
        }
        match (word.split_once('/'), word.rsplit_once('/')) {
            (Some((kind, name)), _) if Kind::parse(kind).is_some() => new(kind, name),
            (_, Some((kind, name))) if design.effective(NODE, word).is_none() => new(kind, name),
            (Some(_) | None, _) => new(NODE, word),
        }
    }

    /// The effective values of the document that is meant.
    pub(super) fn find<'d>(&'d self, design: &'d Design) -> Result<Effective<'d>, Failure> {
        let body = design.effective(&self.kind, &self.name).ok_or_else(|| self.unknown(design))?;
        Ok(Effective { kind: &self.kind, name: &self.name, body })
    }

    /// There is no such document: perhaps another one was meant.
    pub(super) fn unknown(&self, design: &Design) -> Failure {
        let Self { kind, name } = self;
        let mut kinds: Vec<&str> = design.effective_documents().map(|(kind, _, _)| kind.word()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        if !kinds.contains(&kind.as_str()) {
            let failure = Failure::failed(anyhow::anyhow!("the design has no document of kind {kind}"));
            return failure.hint(match spelling::nearest(kind, kinds.iter().copied()) {
                Some(meant) => format!("did you mean {meant}/{name}?"),
                None => format!("there is {}", kinds.join(", ")),
            });
        }
        let names = design.effective_documents().filter(|(of, _, _)| of.word() == kind);
        let names: Vec<&str> = names.map(|(_, name, _)| name).collect();
        let what = if kind == NODE { format!("node {name}") } else { format!("{kind} {name}") };
        let failure = Failure::failed(anyhow::anyhow!("the design has no {what}"));
        let elsewhere = design.effective_documents().find(|(_, other, _)| other == name);
        match (elsewhere, spelling::nearest(name, names.iter().copied())) {
            (Some((other, _, _)), _) => failure.hint(format!("there is {other}/{name}")),
            (None, Some(meant)) => failure.hint(format!("did you mean {meant}?")),
            (None, None) => failure.hint(format!("there is {}", some_of(&names))),
        }
    }
}

/// The first few of many names.
pub(super) fn some_of(names: &[&str]) -> String {
    const SHOWN: usize = 10;
    let shown = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// A document with nothing left to inherit. It can be read again as a document.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effective<'d> {
    pub(super) kind: &'d str,
    pub(super) name: &'d str,
    pub(super) body: &'d Node,
}

impl Serialize for Effective<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut document = serializer.serialize_map(None)?;
        document.serialize_entry("kind", self.kind)?;
        document.serialize_entry("name", self.name)?;
        if let Some(labels) = self.body.get(LABELS) {
            document.serialize_entry(LABELS, labels)?;
        }
        document.serialize_entry("spec", &Spec(self.body))?;
        document.end()
    }
}

/// The values of a document, without its labels.
struct Spec<'d>(&'d Node);

impl Serialize for Spec<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.map() {
            Some(map) => serializer
                .collect_map(map.entries().iter().filter(|e| &*e.key.text != LABELS).map(|e| (&*e.key.text, &e.value))),
            None if self.0.is_null() => serializer.serialize_map(Some(0))?.end(),
            None => self.0.serialize(serializer),
        }
    }
}
