//! Keys and ranges of keys.

use etcd_client::proto::PbKeyValue;
use muster_core::txn::{LeaseId, Revision};

use super::shared::revision;
use crate::store::KeyValue;

/// The keys that start with a prefix, as etcd writes it: from here to there, the end not included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: Vec<u8>,
    pub(super) to: Vec<u8>,
}

impl Span {
    pub(super) fn of(prefix: &str) -> Self {
        // A single zero as the end means "no end", and as the beginning it comes before every key there can be.
        let from = if prefix.is_empty() { vec![0] } else { prefix.as_bytes().to_vec() };
        // The prefix with its last byte one higher. The bytes of UTF-8 are all below 0xff, so that is never an overflow.
        let mut to = prefix.as_bytes().to_vec();
        match to.last_mut() {
            Some(last) => *last += 1,
            None => to.push(0),
        }
        Self { from, to }
    }

    /// What comes after a key.
    pub(super) fn after(&self, key: &[u8]) -> Self {
        let mut from = key.to_vec();
        from.push(0);
        Self { from, to: self.to.clone() }
    }
}

/// A key with its value in our words. None for a key that is no text: Muster's all are, so somebody else has put it
/// there, and nobody could name it through the contract.
pub(super) fn key_value(kv: PbKeyValue) -> Option<KeyValue> {
    Some(KeyValue {
        key: key(kv.key)?,
        value: kv.value.into(),
        revision: Revision(revision(kv.mod_revision)),
        lease: (kv.lease != 0).then_some(LeaseId(kv.lease)),
    })
}

pub(super) fn key(bytes: Vec<u8>) -> Option<String> {
    let key = String::from_utf8(bytes);
    if let Err(error) = &key {
        tracing::debug!(key = ?String::from_utf8_lossy(error.as_bytes()), "passing over a key that is no text");
    }
    key.ok()
}

#[cfg(test)]
mod tests {
    use super::Span;

    #[test]
    fn a_prefix_ends_right_after_its_last_key() {
        let span = |prefix| {
            let Span { from, to } = Span::of(prefix);
            (from, to)
        };
        assert_eq!(span("a/"), (b"a/".to_vec(), b"a0".to_vec()));
        assert_eq!(span(""), (vec![0], vec![0]));
        assert_eq!(span("\u{10ffff}"), (vec![0xf4, 0x8f, 0xbf, 0xbf], vec![0xf4, 0x8f, 0xbf, 0xc0]));
    }
}
