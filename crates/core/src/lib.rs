//! The heart of Muster: names, keys, the life of a node, and what a report changes. Pure functions and data.
//!
//! Nothing here waits, reads a clock, opens a socket or knows a store. Time is an argument; a decision is a value. That
//! is what lets the same code run in the server, in tests over millions of histories, and in a simulator.
//!
//! - [`names`] and [`keys`]: what may be written where. A role is data, never recovered from a name.
//! - [`report`], [`reason`]: what an agent says of a run. [`service_state`]: the one state that it leaves a node in.
//! - [`status_move`]: (observed, report) → one transaction. The only place that moves a node's status.
//! - [`fleet`]: an environment in memory, fed by key changes; every question is answered from it.
//! - [`lookups`], [`snapshot`]: what nodes learn of each other, and how either side knows that it has changed.
//! - [`lookup`]: what one node sees at one key, and where it comes from.
//! - [`config_data`], [`published`]: what operators and other nodes say to content. [`snapshot_diff`]: what has changed
//!   of it, in words. [`pause`]: who is not to run.
//! - [`standing`]: how a node stands, and why it does not move. [`liveness`]: who is lost, and who only seems to be.
//!   [`leaders`]: who leads each role.
//! - [`departure`]: nodes that leave, and who has yet to run without them.
//! - [`rollout`]: how an environment is moved from one version to the next, as data.
//! - [`replicas`]: the servers themselves, who holds which controller, and which agent is connected to whom. [`tenure`]: who
//!   takes a controller, and lets go of it. [`presence`]: what a server has to write down of its agents. [`links`]: who is
//!   connected, wherever that is.
//! - [`filter`]: how lists are cut down, everywhere. [`spelling`]: what was probably meant.
//! - [`finding`]: errors and warnings about a design.
//! - [`design_state`]: the revisions of the design and which one the nodes follow. [`design_plan`]: what applying one does.
//! - [`release`], [`release_dir`]: what a release says of itself, and the digest of its content. [`release_manifest`]: what
//!   is signed of it, and by which keys.
//!
//! It must never: decide on the clock of the machine it runs on, hold a lock, or return a reason as free text.

pub mod design;
pub mod filter;
pub mod finding;
pub mod fleet;
pub mod keys;
pub mod lookup;
pub mod names;
pub mod node;
pub mod release;
pub mod replica;
pub mod report;
pub mod rollout;
pub mod spelling;
pub mod txn;
