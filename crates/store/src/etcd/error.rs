//! Why the store of a cluster could not be opened.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::address::AddressError;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Address(#[from] AddressError),

    #[error("{given} is given without {missing}: etcd needs both")]
    Half { given: &'static str, missing: &'static str },

    #[error(
        "the user {user} is given without a password: write it into a file and name that with --store-password-file, \
         or set MUSTER_STORE_PASSWORD"
    )]
    NoPassword { user: String },

    #[error("cannot read {} ({option})", .path.display())]
    File {
        option: &'static str,
        path: PathBuf,
        #[source]
        cause: std::io::Error,
    },

    #[error("{} ({option}) holds no {label} in PEM format: it should have a line -----BEGIN …{label}-----", .path.display())]
    NotPem { option: &'static str, label: &'static str, path: PathBuf },

    #[error("the certificates in --store-ca, --store-cert and --store-key cannot be used: {why}")]
    Certificates { why: String },

    /// Some member answered, and its answer will be the same tomorrow.
    #[error("{store} does not let us in: {why}")]
    Refused { store: String, why: String },

    #[error("{store} cannot be reached: {}", list(.reasons))]
    Unreachable { store: String, reasons: Vec<Unreached> },
}

/// A member that was tried, and why that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreached {
    pub endpoint: String,
    pub why: String,
}

/// All of them in a row: most often there is one, or they all say the same.
fn list(reasons: &[Unreached]) -> String {
    let mut text = String::new();
    for (n, Unreached { endpoint, why }) in reasons.iter().enumerate() {
        let between = if n == 0 { "" } else { "; " };
        // Writing to a string cannot fail.
        let _ = write!(text, "{between}{endpoint}: {why}");
    }
    text
}
