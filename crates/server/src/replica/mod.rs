//! This server as one of several replicas on the same store.
//!
//! - [`identity`]: its id and its record in the store.
//! - [`membership`]: its lease, and `replicas/<id>` in every environment. A server that cannot renew its lease knows by
//!   its own clock that it is cut off, and stops to act.
//! - [`controller_locks`]: the holder of each controller. Every write of a controller compares the revision of the lock, so
//!   that a replica that has lost the lock without knowing it writes nothing.
//! - [`presence`]: the agents that are connected here, published in the store.
//! - [`shared_blobs`]: the check that all replicas use the same blob directory.
//! - [`balance`]: asks agents to move to other replicas when this one has too many.
//! - [`peers`]: requests to other replicas for what only they know.
//!
//! The same code runs on the embedded store, with one replica that holds every lock.

pub mod balance;
pub mod controller_locks;
pub(crate) mod identity;
pub mod membership;
mod peers;
pub mod presence;
pub mod shared_blobs;

pub use controller_locks::{ControllerLocks, FencedOutcome};
pub use identity::{Identity, IdentityError};
pub use membership::{LeasePace, Membership, MembershipState};
pub use muster_core::replica::controller_lock::{ControllerLock, ReplicaLease};
pub use peers::Peers;
