//! Names for requests: what comes again under the same name is the same request, and is carried out once.

use std::hash::{BuildHasher, RandomState};

/// A name that nobody else makes up. It need not be a secret.
pub fn new_request_id() -> String {
    let random = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", random(), random())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_requests_have_the_same_name() {
        assert_ne!(new_request_id(), new_request_id());
        assert_eq!(new_request_id().len(), 32);
    }
}
