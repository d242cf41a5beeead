//! Shares the texts of keys and scalars that repeat within a file.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;

/// The texts that were read last, so that repeated ones are shared: keys, names of kinds, networks and profiles. A text
/// has one slot by its hash and replaces the one there, so texts that occur once do not fill the cache.
#[derive(Default)]
pub(super) struct TextCache {
    slots: Vec<Option<Arc<str>>>,
    hasher: RandomState,
}

impl TextCache {
    /// A node has some 40 texts, of which ten are its own.
    const SLOTS: usize = 512;
    const MAX_LENGTH: usize = 64;

    pub(super) fn share(&mut self, text: &str) -> Arc<str> {
        if text.len() > Self::MAX_LENGTH {
            return text.into();
        }
        self.slots.resize(Self::SLOTS, None);
        let at = self.hasher.hash_one(text) as usize % Self::SLOTS;
        let Some(slot) = self.slots.get_mut(at) else { return text.into() };
        match slot {
            Some(known) if **known == *text => known.clone(),
            _ => slot.insert(text.into()).clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_text_is_shared() {
        let mut cache = TextCache::default();
        let first = cache.share("mgmt");
        assert!(Arc::ptr_eq(&first, &cache.share("mgmt")));
        // More texts than slots: each keeps its own.
        for number in 0..4 * TextCache::SLOTS {
            assert_eq!(*cache.share(&number.to_string()), *number.to_string());
        }
        let long = "x".repeat(TextCache::MAX_LENGTH + 1);
        assert!(!Arc::ptr_eq(&cache.share(&long), &cache.share(&long)));
    }
}
