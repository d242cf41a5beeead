//! A design with some files changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::design::{Checked, Design, assemble};
use super::load::{Assigned, Loaded, load};
use crate::file_text::FileText;

/// A change of one file of a source.
#[derive(Debug)]
pub enum Change {
    /// The file is now this, whether it was there or not.
    Put(FileText),
    /// The file is gone.
    Remove { file: String },
}

impl Design {
    /// The same design with some files of one source changed. A source that was not there yet comes last.
    pub fn with(&self, source: &str, changes: Vec<Change>) -> Checked {
        let inner = &*self.inner;
        let mut sources = inner.sources.clone();
        let number = sources.iter().position(|name| name == source).unwrap_or_else(|| {
            sources.push(source.to_owned());
            sources.len() - 1
        });
        let mut files = inner.files.clone();
        let kept = inner.slots.iter().filter_map(|((source, name), slot)| {
            let text = inner.files.get(slot.file)?.clone();
            Some(((*source, name.clone()), (Assigned { text, source: *source }, slot.loaded.clone())))
        });
        let mut loads: BTreeMap<(usize, String), (Assigned, Arc<Loaded>)> = kept.collect();
        for change in changes {
            let (name, put) = match change {
                Change::Put(text) => (text.name().to_owned(), Some(text)),
                Change::Remove { file } => (file, None),
            };
            if let Some((assigned, _)) = loads.remove(&(number, name.clone())) {
                files.forget(assigned.text.id());
            }
            if let Some(text) = put {
                let assigned = Assigned { text: files.add(text), source: number };
                let loaded = load(std::slice::from_ref(&assigned)).into_iter().next().unwrap_or_default();
                loads.insert((number, name), (assigned, Arc::new(loaded)));
            }
        }
        assemble(files, sources, loads.into_values().collect(), inner.options.clone())
    }
}
