//! This server as one of several on the same store.
//!
//! - [`identity`]: its name and what it says of itself.
//! - [`membership`]: its lease, and `replicas/<id>` in every environment. A server that cannot keep its lease knows by
//!   its own clock that it is cut off, and acts no more.
//! - [`controller_locks`]: who holds a controller. Every write of a controller carries the revision of its holder's
//!   key, so that one who was deposed without knowing it changes nothing.
//! - [`presence`]: which agents are connected here, in the store for the others.
//! - [`shared_blobs`]: whether all replicas see the same directory of reports and logs.
//! - [`balance`]: sends agents to the others when too many of them are here.
//! - [`peers`]: asks the other replicas what only they know.
//!
//! The same code runs on the embedded store, where there is one replica, and it holds everything.

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
