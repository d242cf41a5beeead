//! Work on all processors.

use std::num::NonZero;
use std::thread;

/// Below this there is less to do than it costs to start a thread.
const WORTH_IT: usize = 64;

/// Gives each processor a part of the items, in order, and returns what they made, in the same order.
pub(crate) fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&[T]) -> R + Sync) -> Vec<R> {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    if processors == 1 || items.len() < WORTH_IT {
        return vec![work(items)];
    }
    let parts: Vec<&[T]> = items.chunks(items.len().div_ceil(processors)).collect();
    spread(&parts, |part| work(part))
}

/// One thread an item: for few items that are much work.
pub(crate) fn spread<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let Some((first, others)) = items.split_first() else { return Vec::new() };
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = others.iter().map(|item| scope.spawn(move || work(item))).collect();
        let first = work(first);
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(made) => made,
            // There is no panic on input; if there is one all the same, it is the caller's as much as ours.
            Err(panic) => std::panic::resume_unwind(panic),
        });
        std::iter::once(first).chain(joined).collect()
    })
}
