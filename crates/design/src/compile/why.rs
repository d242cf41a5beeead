//! Who said so, asked of a design.

use thiserror::Error;

use super::design::Design;
use super::flatten::untouched;
use crate::inherit::merge::{as_it_is, lay};
use crate::inherit::why::{Event, Step, Trail, find};
use crate::inherit::{Path, Why};
use crate::kinds::AnyKind;
use crate::yaml::Node;

/// Why there is no answer to "who said so?".
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WhyError {
    #[error("there is no {kind} {name:?}{}", meant(.near))]
    NoDocument { kind: String, name: String, near: Option<String> },
    /// Nothing ever was there; these are the keys at the last level that is.
    #[error("{kind} {name:?} has no \"{path}\"{}", there(.upto, .keys))]
    NoValue { kind: String, name: String, path: String, upto: String, keys: Vec<String> },
}

fn meant(near: &Option<String>) -> String {
    near.as_ref().map(|near| format!(": did you mean {near:?}?")).unwrap_or_default()
}

fn there(upto: &str, keys: &[String]) -> String {
    let at = if upto.is_empty() { "there is".to_owned() } else { format!("at \"{upto}\" there is") };
    if keys.is_empty() { format!(": {at} nothing below") } else { format!(": {at} {}", keys.join(", ")) }
}

impl Design {
    /// A value of a document, and every layer that had to do with it.
    pub fn why(&self, kind: &str, name: &str, path: &Path) -> Result<Why, WhyError> {
        let inner = &*self.inner;
        let kind = AnyKind::new(kind);
        let Some(at) = inner.index.find(&kind, name) else {
            let near = inner.index.nearest(&kind, name).map(str::to_owned);
            return Err(WhyError::NoDocument { kind: kind.to_string(), name: name.to_owned(), near });
        };
        let ty = kind.body();
        let mut trail = Trail::new(path, ty);
        let lineage = inner.subjects[at].lineage.iter().copied().chain([at]);
        let layers: Vec<usize> = lineage.flat_map(|subject| inner.subjects[subject].stack.iter().copied()).collect();
        let mut value: Option<Node> = None;
        for &layer in &layers {
            let Some(document) = &inner.documents[layer] else { continue };
            trail.begin(layer, value.as_ref());
            value = match untouched(&inner.subjects[at], &inner.documents) {
                Some(_) => Some(as_it_is(&document.body, &mut trail)),
                None => lay(value.as_ref(), &document.body, &ty, &mut trail),
            };
        }
        let found = value.as_ref().and_then(|value| find(value, ty, &path.0));
        if found.is_none() && trail.events.is_empty() {
            return Err(self.no_value(&kind, name, path, value.as_ref()));
        }
        let steps = trail.events.into_iter().filter_map(|event| self.step(event)).collect();
        Ok(Why { value: found, steps })
    }

    fn step(&self, event: Event) -> Option<Step> {
        let document = self.inner.documents[event.layer].as_ref()?;
        Some(Step {
            source: self.inner.sources[document.source].clone(),
            kind: document.kind.to_string(),
            name: document.name.to_string(),
            location: self.inner.files.place(event.span),
            path: event.path,
            action: event.action,
        })
    }

    fn no_value(&self, kind: &AnyKind, name: &str, path: &Path, value: Option<&Node>) -> WhyError {
        let there = |upto: usize| value.and_then(|value| find(value, kind.body(), &path.0[..upto]));
        let (upto, last) = (0..path.0.len()).rev().find_map(|upto| Some((upto, there(upto)?))).unzip();
        let upto = Path(path.0[..upto.unwrap_or(0)].to_vec());
        let ty = upto.0.iter().fold(kind.body(), |ty, step| ty.below(step).unwrap_or(crate::types::Type::Any));
        let keys = last.map(|last| crate::inherit::why::steps_below(&last, ty)).unwrap_or_default();
        WhyError::NoValue {
            kind: kind.to_string(),
            name: name.to_owned(),
            path: path.to_string(),
            upto: upto.to_string(),
            keys,
        }
    }
}
