//! Releases in an environment: registering one, and the list of keys whose signatures count.
//!
//! - [`plan`]: whether a release can be registered, as a pure function of what is there.
//! - [`bundle`]: whether a bundle is what its manifest says, and holds a release that nodes can run.
//! - [`push`]: does both, and commits. [`trust`]: replaces the list of trusted keys.
//! - [`project`]: releases in directories, built and signed by whoever starts a fleet on this machine.
//!
//! The bundle is there, whole and for good, before the key that names it. A release never changes: the same again is
//! fine, anything else under a version that is known is refused.
//!
//! The server believes nothing that is not signed by a trusted key, once the environment has a list of those. Agents
//! do not believe the server in turn: they verify for themselves, with keys that they were given.

mod bundle;
mod plan;
pub mod project;
mod push;
mod trust;

pub use bundle::BundleError;
pub use plan::RefusedRelease;
pub(crate) use push::trusted_keys;
pub use push::{PushError, PushedRelease, push};
pub use trust::{ReplaceTrustError, ReplacedTrust, replace};
