//! Idempotency keys of requests. A repeated request with the same key is executed once.

use std::hash::{BuildHasher, RandomState};

/// A random key. It is unique, not secret.
pub fn new_request_id() -> String {
    let random = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", random(), random())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_ids_are_unique() {
        assert_ne!(new_request_id(), new_request_id());
        assert_eq!(new_request_id().len(), 32);
    }
}
