//! Releases of an environment: registration and trusted keys.
//!
//! - [`plan`]: decides whether a release can be registered. Pure.
//! - [`push`]: verifies a bundle, checks its content, and registers its release. [`trust`]: replaces the list of trusted keys.
//! - [`deltas`]: differences between releases, for agents that have one of them.
//! - [`project`]: builds and signs the releases of a project's directories.
//!
//! A bundle is stored durably before the key that names it. A release never changes: a duplicate is a no-op, other content
//! under a known version is refused.
//!
//! Once an environment has trusted keys, the server accepts only what one of them signed. Agents do not rely on the server:
//! they verify with the keys that they were given.

pub(crate) mod deltas;
mod plan;
pub mod project;
mod push;
mod trust;

pub use plan::RefusedRelease;
pub(crate) use push::trusted_keys;
pub use push::{BundleError, PushError, PushedRelease, push};
pub(crate) use push::{check_roles, unchecked_roles};
pub use trust::{ReplaceTrustError, ReplacedTrust, replace};
