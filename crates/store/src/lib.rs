//! Revisioned key-value store: the contract ([`Store`]) and its backends.
//!
//! Code that decides something returns a [`Txn`]: guards that must hold, and operations to carry out. A store commits
//! all of it or nothing, gives it the next [`Revision`] and delivers it to every [`Watch`]. There is no other
//! coordination between processes: no locks, no queues, and no other state that must survive a crash.
//!
//! The operator chooses the backend ([`open`]). The promises of all backends are in [`Store`] and [`WatchEvent`]. One test
//! suite checks them on each backend (module `contract`, feature `contract-tests`). The limits of requests are in
//! [`limits`].
//!
//! # The embedded backend
//!
//! ```text
//! callers ──requests (bounded)──▶ writer thread ──▶ one redb commit, one fsync ──▶ recent ─┬─▶ watches (pull)
//!    ▲                             owns the order                                position ─┘        │
//!    └──────────── replies ──────────────┘                       redb snapshots ◀── get, range ─────┘ if behind
//! lease expiry (task): deadlines, in memory ──Revoke──▶ writer
//! ```
//!
//! - The **writer** is the only thread that changes the file. It takes all waiting requests, applies them in order,
//!   commits once, and replies. Many requests share one fsync. A single request does not wait for others.
//! - A **watch** has no task and no queue. It reads the recent transactions from memory. When it has fallen behind it
//!   reads the history from the file. When that was compacted it starts again with a snapshot. A slow reader costs
//!   nothing.
//! - **Leases** are in the file. Their deadlines are in memory, so a keep-alive writes nothing.
//! - After a full disk the writer reopens the file by itself. Watches continue.
//!
//! # The etcd backend
//!
//! ```text
//! callers ──▶ request ──▶ pool: one member until it fails ──▶ etcd (linearizable reads, transactions, leases)
//!               ▲ retry at another member, if that is safe          │
//! watches (pull) ◀── event assembly ◀── one stream each ◀───────────┘
//! compaction (task): once a minute, from revisions seen in responses
//! ```
//!
//! - A **change** is sent once. If it was certainly not applied, it is retried at another member. If it may have been
//!   applied, the result is [`StoreError::Unknown`]. One module classifies etcd's errors.
//! - A **watch** has no task. Events that are not read yet wait in etcd. A broken stream is resumed at another member.
//!   After a compaction, or when the store was replaced, the watch reports a gap and starts again.
//! - A **quiet** watch costs nothing: it checks for missed events only when a newer revision is known.
//!
//! # A backend must never
//!
//! Reply before a change is durable, or show a reader or a watch a change that may still be rolled back. Show part of a
//! transaction. Report "not applied" for a change that may have been applied. Let a reader delay a writer, or use more
//! memory for a slow watch. Interpret a value.

pub mod clock;
#[cfg(feature = "contract-tests")]
pub mod contract;
pub mod embedded;
pub mod etcd;
pub mod limits;
mod open;
mod store;
mod watch;

pub use self::clock::{LeaseClock, ManualClock, SystemClock};
pub use self::embedded::EmbeddedStore;
pub use self::etcd::EtcdStore;
pub use self::limits::InvalidRequest;
pub use self::open::{OpenError, StoreAccess, open, open_for_restore};
pub use self::store::{CommitOutcome, Integrity, KeyRange, KeyValue, Lease, Store, StoreStats, Verification};
pub use self::watch::{GapCause, Watch, WatchChange, WatchEvent, WatchFrom};
pub use crate::store::{
    Alarm, AlarmKind, ErrorCause, MemberState, Sharing, StoreError, StoreFault, StoreHealth, StoreMember,
};
pub use muster_core::txn::{Guard, LeaseId, Op, Revision, Txn};
