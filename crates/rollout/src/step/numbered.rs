//! Names that get a number each, so that whatever is counted for them is found without comparing them again.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Roles and domains: few names, which many nodes share.
#[derive(Debug)]
pub(crate) struct Numbered<'a, T> {
    numbers: HashMap<&'a str, usize, BuildHasherDefault<Fnv>>,
    pub all: Vec<(&'a str, T)>,
    /// Nodes are looked at by name, and most have the role of the one before.
    last: usize,
}

impl<'a, T: Default> Numbered<'a, T> {
    pub(crate) fn new() -> Self {
        Self { numbers: HashMap::default(), all: Vec::new(), last: 0 }
    }

    pub(crate) fn number(&mut self, name: &'a str) -> usize {
        if self.all.get(self.last).is_some_and(|(known, _)| *known == name) {
            return self.last;
        }
        let next = self.all.len();
        self.last = *self.numbers.entry(name).or_insert(next);
        if self.last == next {
            self.all.push((name, T::default()));
        }
        self.last
    }

    pub(crate) fn at(&mut self, number: usize) -> Option<&mut T> {
        self.all.get_mut(number).map(|(_, tally)| tally)
    }
}

/// FNV-1a. Every step asks for two names of every node, and they are short: the hash of the standard library, which keeps
/// off those who choose names in order to collide, would take half of a step. Names are chosen by whoever writes the design.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_name_has_the_same_number() {
        let mut racks: Numbered<'_, usize> = Numbered::new();
        let numbers = ["a", "b", "a", "", "b", "b"].map(|name| racks.number(name));
        assert_eq!(numbers, [0, 1, 0, 2, 1, 1]);
        for number in numbers {
            *racks.at(number).unwrap() += 1;
        }
        assert_eq!(racks.all, [("a", 2), ("b", 3), ("", 1)]);
    }
}
