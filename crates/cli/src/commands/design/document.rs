//! Finds a document by its name on the command line, and serializes its effective values.

use muster_core::spelling;
use muster_design::Design;
use muster_design::kinds::Kind;
use muster_design::yaml::YamlNode;
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::failure::Failure;

/// The default kind of a name.
pub(super) const NODE: &str = "Node";
/// Inherited like values, but printed next to the spec.
const LABELS: &str = "labels";

/// Kind and name of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DocumentArg {
    pub(super) kind: String,
    pub(super) name: String,
}

impl DocumentArg {
    /// Parses `NODE`, `KIND/NAME`, or a name of the kind of `--kind`. Kinds and names may contain slashes: a split that
    /// names an existing document is preferred.
    pub(super) fn parse(arg: &str, kind: Option<&str>, design: &Design) -> Self {
        let new = |kind: &str, name: &str| Self { kind: kind.to_owned(), name: name.to_owned() };
        if let Some(kind) = kind {
            return new(kind, arg);
        }
        let mut splits = arg.match_indices('/').map(|(at, _)| (&arg[..at], &arg[at + 1..]));
        if let Some((kind, name)) = splits.find(|(kind, name)| design.effective(kind, name).is_some()) {
            return new(kind, name);
        }
        match (arg.split_once('/'), arg.rsplit_once('/')) {
            (Some((kind, name)), _) if Kind::parse(kind).is_some() => new(kind, name),
            (_, Some((kind, name))) if design.effective(NODE, arg).is_none() => new(kind, name),
            (Some(_) | None, _) => new(NODE, arg),
        }
    }

    /// Finds the effective values of the document.
    pub(super) fn find<'d>(&'d self, design: &'d Design) -> Result<EffectiveDocument<'d>, Failure> {
        let body = design.effective(&self.kind, &self.name).ok_or_else(|| self.unknown(design))?;
        Ok(EffectiveDocument { kind: &self.kind, name: &self.name, body })
    }

    /// The error for a document that does not exist, with a suggestion.
    pub(super) fn unknown(&self, design: &Design) -> Failure {
        let Self { kind, name } = self;
        let mut kinds: Vec<&str> = design.effective_documents().map(|(kind, _, _)| kind.word()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        if !kinds.contains(&kind.as_str()) {
            let failure = Failure::failed(anyhow::anyhow!("the design has no document of kind {kind}"));
            return failure.hint(match spelling::nearest(kind, kinds.iter().copied()) {
                Some(nearest) => format!("did you mean {nearest}/{name}?"),
                None => format!("it has {}", kinds.join(", ")),
            });
        }
        let names = design.effective_documents().filter(|(of, _, _)| of.word() == kind);
        let names: Vec<&str> = names.map(|(_, name, _)| name).collect();
        let title = if kind == NODE { format!("node {name}") } else { format!("{kind} {name}") };
        let failure = Failure::failed(anyhow::anyhow!("the design has no {title}"));
        let elsewhere = design.effective_documents().find(|(_, other, _)| other == name);
        match (elsewhere, spelling::nearest(name, names.iter().copied())) {
            (Some((other, _, _)), _) => failure.hint(format!("did you mean {other}/{name}?")),
            (None, Some(nearest)) => failure.hint(format!("did you mean {nearest}?")),
            (None, None) => failure.hint(format!("it has {}", first_names(&names))),
        }
    }
}

/// The first 10 names.
pub(super) fn first_names(names: &[&str]) -> String {
    const SHOWN: usize = 10;
    let shown = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// A document with all inherited values merged. Its output is a valid document.
#[derive(Clone, Copy, Debug)]
pub(super) struct EffectiveDocument<'d> {
    pub(super) kind: &'d str,
    pub(super) name: &'d str,
    pub(super) body: &'d YamlNode,
}

impl Serialize for EffectiveDocument<'_> {
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

/// The values of a document without its labels.
struct Spec<'d>(&'d YamlNode);

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
