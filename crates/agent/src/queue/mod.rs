//! The queue: decides what the agent does next. One kind of work runs at a time.
//!
//! [`state_machine`] holds the state and makes all decisions. It takes an [`io::Input`] with the time of the event and
//! returns [`io::Effect`]s. It has no disk, no clock and no task. [`task`] has them: it receives messages of the sync task,
//! the run task and the report sender, and carries out the effects, each completed before the next.
//!
//! Inside the state machine, [`decide`] chooses an action, [`schedule`] holds the due times of waiting work,
//! [`timed_runs`] those of the runs that find drift, `actions` starts work, `results` stores what has ended, [`auto_rollback`] rolls back unconfirmed releases, and
//! the state machine itself publishes the status.
//!
//! # State is on disk before it takes effect
//!
//! The order of the effects ensures this. A run that starts is in a ledger that was saved before, and a run that continues
//! has its first report in the outbox. An agent that is killed between two effects finds on disk what a correct start
//! needs; `tests/agent/queue.rs` kills it between any two.
//!
//! # How a simulator drives the queue
//!
//! 1. Make a [`AgentNode`](crate::config::AgentNode) (its paths are never opened) and a [`RunQueue`](state_machine::RunQueue) from a
//!    disk in memory: a [`Ledger`](crate::state::ledger::Ledger) and a snapshot; at first a new ledger and no snapshot.
//! 2. Send [`Input::Started`](io::Input), and then every event, with an [`EventTime`](crate::clock::EventTime) made of a
//!    base instant plus the virtual time, the clocks, and a random number from the seed. Carry out the effects in order.
//!    To kill the agent between two effects, drop everything except the disk.
//! 3. Send [`Input::Tick`](io::Input) at [`RunQueue::wake_at`](state_machine::RunQueue::wake_at), which any input may change.
//! 4. At [`Effect::StartWork`](io::Effect) a run begins. Admission may refuse it first
//!    ([`admit_manifest`](crate::release::admit::admit_manifest), with a [`ReleaseHistory`](crate::release::release_history::ReleaseHistory)
//!    on the same disk). [`crate::run::report_builder`] makes its reports: `configured`, and after a success
//!    [`Input::Configured`](io::Input), whose [`Effect::Acknowledge`](io::Effect) starts the checks; then `validated` and
//!    `finished`. A run outlives its agent. The next agent adopts it at [`Effect::AdoptWork`](io::Effect): it waits for the
//!    applier, or makes the checks again. A run that was lost with its machine ends with a report that says so
//!    ([`lost`](crate::run::report_builder::lost)).
//! 5. [`Dispatch`](crate::report::dispatch::Dispatch) sends the reports in the outbox: it selects the next one, and decides
//!    by the answer what happens to it. The incarnation is that of [`RunQueue::published`](state_machine::RunQueue::published).
//!    An accepted report of the generation `awaited` there is removed only after the queue has acknowledged an
//!    [`Input::ReportAccepted`](io::Input) for it.
//! 6. Answer [`Effect::CheckRelease`](io::Effect) with [`Input::ReleaseChecked`](io::Input).
//! 7. Open streams with the [`SyncState`](crate::sync::handshake::SyncState) of
//!    [`RunQueue::published`](state_machine::RunQueue::published); the server sends the inputs from `Hello` to `RunRequested`.

mod actions;
pub mod auto_rollback;
pub mod decide;
pub mod hooks;
pub mod io;
mod results;
pub mod schedule;
pub mod state_machine;
pub mod task;
pub mod timed_runs;
