//! The scheduled events in the order of their times. Events at the same time keep their insertion order, which makes a
//! seed repeatable.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Virtual time since the start of the simulation.
pub type SimTime = Duration;

#[derive(Clone, Debug)]
pub(crate) struct EventQueue<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    /// The number of events ever scheduled.
    count: u64,
}

#[derive(Clone, Debug)]
struct Entry<E> {
    at: SimTime,
    number: u64,
    /// Boxed, since the heap moves its entries and events are large.
    event: Box<E>,
}

impl<E> EventQueue<E> {
    pub(crate) fn new() -> Self {
        Self { heap: BinaryHeap::new(), count: 0 }
    }

    pub(crate) fn schedule(&mut self, at: SimTime, event: E) {
        self.count += 1;
        self.heap.push(Reverse(Entry { at, number: self.count, event: Box::new(event) }));
    }

    pub(crate) fn next_at(&self) -> Option<SimTime> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    pub(crate) fn pop(&mut self) -> Option<(SimTime, E)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at, *entry.event))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earliest_event_first_and_ties_in_insertion_order() {
        let mut queue = EventQueue::new();
        let second = Duration::from_secs;
        for (at, what) in [(2, "c"), (1, "a"), (1, "b")] {
            queue.schedule(second(at), what);
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop().map(|(_, what)| what)).collect();
        assert_eq!(order, ["a", "b", "c"]);
    }
}
