//! The agent of a node: it brings the node to what it should run, proves it, and reports.
//!
//! Six tasks joined by channels, on one thread:
//!
//! ```text
//!            ┌─────────┐ messages ┌──────────────────────┐ orders (1) ┌──────┐
//!  server ──▶│  sync   │─────────▶│  queue               │───────────▶│ run  │──▶ applier, checks
//!            └─────────┘          │  owns ledger,        │◀───────────└──────┘
//!                 ▲ opening       │  snapshot, outbox(w) │ configured, finished
//!                 └───────────────┤                      │
//!            ┌─────────┐  wake    │                      │  latest  ┌──────────┐
//!  server ◀──│ report  │◀─────────┤                      ├─────────▶│ activity │──▶ server
//!            └─────────┘ outbox(r)└──────────────────────┘          └──────────┘
//! ```
//!
//! - [`queue`] owns all that the agent knows. It is a mind without a disk or a clock ([`queue::mind`]), whose effects its task
//!   carries out in order: nothing said by the server or a run has an effect before it is on disk ([`ledger`], [`outbox`],
//!   [`durable`]). There is one slot: for a run, a preview, hooks that react to a change, or a validation by the clock.
//!   A simulator drives the same mind; [`queue`] says how.
//! - [`sync`] holds the stream, and by that decides which server all others talk to ([`servers`], [`route`]); [`run`]
//!   executes what has the slot, a run for one: [`release`] → [`applier`] → [`validation`];
//!   [`report`] empties the outbox in order, by the decisions of [`report::dispatch`]; [`activity`] tells what goes on, and [`live_log`]
//!   what a run says while it says it, both at best effort.
//! - [`process`] starts programs with a mark, ends all that carry it, and reaps what they leave. [`recovery`] does so
//!   for a run that a former agent left.
//!
//! It must never: run two appliers at once, change a node that is paused, execute content whose digest it was not told,
//! take a code that it does not understand for success, lose or reorder a report, or run because the server is away.

pub mod activity;
pub mod agent;
pub mod applier;
pub mod backoff;
mod bounded;
mod clock;
pub mod config;
pub mod durable;
pub mod ledger;
pub mod live_log;
pub mod module;
pub mod node;
pub mod opening;
pub mod outbox;
pub mod process;
pub mod queue;
pub mod recovery;
pub mod redact;
pub mod release;
pub mod renewal;
pub mod report;
pub mod route;
pub mod run;
pub mod run_id;
pub mod servers;
pub mod state_dir;
pub mod sync;
#[cfg(test)]
mod testing;
pub mod trial;
pub mod validation;
pub mod verbs;
