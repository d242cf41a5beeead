//! The revisioned key-value store under everything: a contract ([`Store`]) and its backends.
//!
//! Whoever decides something in Muster returns a [`Txn`], plain data: what must hold, and what then becomes true. A
//! store carries it out whole or not at all, gives it the next [`Revision`], and tells every [`Watch`] of it. That is
//! all the coordination there is: no locks, no queues between parts, no other memory that must not be lost.
//!
//! Which backend is behind the contract is nobody's business but the operator's ([`open`]). What all of them promise
//! is written in [`Store`] and in [`Event`], and checked on each by one suite (the module `contract`, with the
//! feature `contract-tests`); what they all refuse is in [`limits`].
//!
//! # The embedded backend
//!
//! ```text
//! callers ──requests (bounded)──▶ writer thread ──▶ one redb commit, one fsync ──▶ recent ─┬─▶ watches (pull)
//!    ▲                             owns the order                                position ─┘        │
//!    └──────────── answers ──────────────┘                       redb snapshots ◀── get, range ─────┘ if behind
//! lease keeper (task): deadlines, in memory ──Revoke──▶ writer
//! ```
//!
//! - The **writer** is the only one that changes the file. It takes everything that waits, carries it out in order
//!   against the state that earlier requests left, commits once, and answers. Many writers share one fsync; one writer
//!   alone waits for nobody.
//! - A **watch** has no task and no queue. It pulls from the last transactions in memory, or from the history in the
//!   file when it has fallen behind, or starts again with a snapshot when that is compacted. A slow reader costs
//!   nobody anything.
//! - **Leases** are in the file, their deadlines only in memory: a keep-alive writes nothing.
//! - After a full disk the writer opens the file anew by itself; watches stay, and notice nothing.
//!
//! # The etcd backend
//!
//! ```text
//! callers ──▶ ask ──▶ pool: one member until it fails ──▶ etcd (linearizable reads, transactions, leases)
//!              ▲ again elsewhere, if that is safe                  │
//! watches (pull) ◀── assemble ◀── one stream each ◀────────────────┘
//! compaction (task): once a minute, from what passing answers said
//! ```
//!
//! - A **change** is sent once. What certainly did not happen is tried again elsewhere; what may have is
//!   [`StoreError::Unknown`]. The difference is made in one place, from etcd's own words.
//! - A **watch** has no task here either: what nobody reads waits in etcd. When its stream breaks it goes on at another
//!   member; when the store is another one, or was compacted, it says so and starts again.
//! - **Quiet** costs nothing: whether a watch has missed something is asked only when somebody heard of a newer revision.
//!
//! # What a backend must never do
//!
//! Answer before it is durable, or show a reader or a watch what may still be undone. Show half a transaction. Say "not
//! done" of what may have been done. Let a reader hold up a writer, or a slow watch use more memory. Understand a value.

mod access;
pub mod clock;
#[cfg(feature = "contract-tests")]
pub mod contract;
pub mod embedded;
mod error;
pub mod etcd;
mod health;
pub mod limits;
mod open;
mod store;
mod watch;

pub use self::access::Access;
pub use self::clock::{Clock, ManualClock, SystemClock};
pub use self::embedded::Embedded;
pub use self::error::{Cause, StoreError};
pub use self::etcd::Etcd;
pub use self::health::{Alarm, AlarmKind, Health, Member, MemberState, Sharing};
pub use self::limits::Invalid;
pub use self::open::{OpenError, open};
pub use self::store::{KeyValue, Lease, Outcome, Range, Stats, Store};
pub use self::watch::{Change, Event, GapCause, Watch, WatchFrom};
pub use muster_core::txn::{Guard, LeaseId, Op, Revision, Txn};
