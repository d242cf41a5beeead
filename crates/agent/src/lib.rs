//! The Muster agent: converges one node to its desired release, validates it, and reports.
//!
//! Six tasks joined by channels, on one thread:
//!
//! ```text
//!            ┌─────────┐ messages ┌──────────────────────┐ orders (1) ┌──────┐
//!  server ──▶│  sync   │─────────▶│  queue               │───────────▶│ run  │──▶ applier, checks
//!            └─────────┘          │  owns ledger,        │◀───────────└──────┘
//!                 ▲ sync state    │  snapshot, outbox(w) │ configured, finished
//!                 └───────────────┤                      │
//!            ┌─────────┐  wake    │                      │  latest  ┌──────────┐
//!  server ◀──│ report  │◀─────────┤                      ├─────────▶│ activity │──▶ server
//!            └─────────┘ outbox(r)└──────────────────────┘          └──────────┘
//! ```
//!
//! - [`queue`] owns the state of the agent. Its [state machine](queue::state_machine) has no disk and no clock; its task
//!   carries out the effects in order, so that every message is on disk ([`state`]) before it takes effect. There is one
//!   slot of work: a run, a preview, hooks, or a periodic validation. A simulator drives the same state machine.
//! - [`sync`] holds the stream to one server and fails over to another. All other tasks talk to the same server.
//! - [`run`] executes the work in the slot. A run is: [`release`], then [`applier`], then [`validation`].
//! - [`report`] sends the outbox in order, and the agent's activity. [`live_log`] streams the output of a run. Activity and
//!   live log are best effort.
//! - [`process`] starts programs with a mark in their environment, ends all processes that carry it, and reaps orphans.
//!   [`run`] also does this for a run that was interrupted with its agent.
//! - [`commands`] are the subcommands besides `run`.
//!
//! The agent must never: run two appliers at once, change a paused node, execute content whose digest is not in its
//! desired state, treat an unknown exit code as success, lose or reorder a report, or run because the server is
//! unreachable.

pub mod agent;
pub mod applier;
pub mod backoff;
pub mod clock;
pub mod commands;
pub mod config;
pub mod identity;
pub mod interfaces;
pub mod live_log;
pub mod process;
pub mod queue;
pub mod redact;
pub mod release;
pub mod report;
pub mod run;
pub mod service_manager;
pub mod state;
pub mod sync;
#[cfg(test)]
mod testing;
pub mod validation;
