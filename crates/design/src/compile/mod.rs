//! Compiles files into a checked, effective design.
//!
//! 1. [`load`]: parses each file into documents and checks them against the types of their kinds. Files are independent,
//!    and large files are cut between documents, so this runs on all processors.
//! 2. [`compose`]: groups documents by kind and name into subjects, one layer for each source, looks up references and
//!    parents, and merges the layers of each subject into one value. Inherited values are shared, not copied.
//! 3. [`crate::rules`] check the result; [`nodes`] derives the environment's nodes from it.
//!
//! [`update`] does the same after a change of files, at the cost of the change.

mod assemble;
mod compose;
mod design;
mod load;
mod nodes;
mod query;
mod update;

use std::num::NonZero;
use std::thread;

pub use design::{CheckedDesign, CompileOptions, Design, DocumentRef};
pub use nodes::CompiledNode;
pub use query::{ProvenanceError, SourceDocument};
pub use update::SourceFileChange;

pub(crate) use nodes::surplus;

/// Smaller inputs cost less than starting a thread.
const MIN_ITEMS: usize = 64;

/// Gives each processor a part of the items, and returns the results in the order of the items.
pub(crate) fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&[T]) -> R + Sync) -> Vec<R> {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    if processors == 1 || items.len() < MIN_ITEMS {
        return vec![work(items)];
    }
    let parts: Vec<&[T]> = items.chunks(items.len().div_ceil(processors)).collect();
    spread(&parts, |part| work(part))
}

/// Runs one thread for each item: for few items with much work.
pub(crate) fn spread<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let Some((first, others)) = items.split_first() else { return Vec::new() };
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = others.iter().map(|item| scope.spawn(move || work(item))).collect();
        let first = work(first);
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(made) => made,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        std::iter::once(first).chain(joined).collect()
    })
}
