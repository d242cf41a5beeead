//! Runs work on all processors.

use std::num::NonZero;
use std::thread;

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
