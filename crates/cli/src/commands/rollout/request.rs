//! Names for requests: the same one again is the same rollout.

use std::hash::{BuildHasher, RandomState};

/// A name that nobody else makes up. It need not be a secret.
pub(in crate::commands) fn request() -> String {
    let random = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", random(), random())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_requests_have_the_same_name() {
        assert_ne!(request(), request());
        assert_eq!(request().len(), 32);
    }
}
