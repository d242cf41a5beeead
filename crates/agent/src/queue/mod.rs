//! The queue: one thing goes on, the others wait.
//!
//! [`mind`] is all of it that knows and decides: what happens goes in as an [`input`], with the [`moment`] at which it does,
//! and what is to be done comes out as [`effect`]s, in order. It has no disk, no clock and no task. [`task`] is what has
//! them: it hears what sync and run say over one channel, and carries the effects out, each finished before the next.
//!
//! Inside the mind, [`decide`] says what to do, by what [`waiting`] for the slot may have it, and `starting` has it done;
//! `results` says what is written down when something has come to a result, `pause` keeps to pauses, `going_back` goes back
//! from what nobody confirmed, and `telling` says what goes on.
//!
//! # What was told is on disk before it has an effect
//!
//! That is a matter of the order of effects, and of nothing else: a run that is ordered is in a ledger that was saved before,
//! and a run that is let go on has its report in the outbox. Whoever is killed between two effects finds on the disk what a
//! correct start needs; `tests/agent/mind.rs` kills it between any two.
//!
//! # How a simulator drives this
//!
//! 1. Make a [`Node`](crate::node::Node) (its paths are never opened) and a [`Mind`](mind::Mind) from what a disk in memory
//!    holds: a [`Ledger`](crate::ledger::Ledger) and a snapshot; at first a new ledger, and none.
//! 2. Give it [`Input::Started`](input::Input), and then whatever happens, with a [`Moment`](moment::Moment) that is made up: the
//!    instant of a base plus the virtual time, the clocks, a chance from the seed. Carry out what it gives, in order. To kill the
//!    agent between two effects, drop all but the disk.
//! 3. Give it [`Input::Tick`](input::Input) at [`Mind::wake_at`](mind::Mind::wake_at), which any input may change.
//! 4. At [`Effect::Give`](effect::Effect) a run begins. It may be refused first ([`judge`](crate::release::admit::judge), with a
//!    [`Memory`](crate::release::memory::Memory) on the same disk). What it says is made by [`crate::run::account`]:
//!    `configured`, and if that went well [`Input::Configured`](input::Input), after whose
//!    [`Effect::Acknowledge`](effect::Effect) the checks are made; then `validated`, and `finished`. Processes outlive an agent
//!    that is killed, until the next one asks for their end with [`Effect::EndProcesses`](effect::Effect).
//! 5. Reports in the outbox are sent by [`Dispatch`](crate::report::dispatch::Dispatch): it says which is next and what becomes
//!    of it by the answer, and the incarnation is that of [`Mind::told`](mind::Mind::told). One that is taken, and whose
//!    generation is `awaited` there, is forgotten only after the mind has acknowledged an
//!    [`Input::Taken`](input::Input) of it.
//! 6. [`Effect::LookOnShelf`](effect::Effect) asks whether a release is still on the node, and is answered by
//!    [`Input::LookedOnShelf`](input::Input).
//! 7. A stream is opened with the [`Opening`](crate::opening::Opening) of [`Mind::told`](mind::Mind::told); what the server says on
//!    it are the inputs from `Hello` to `RunAsked`.

pub mod causes;
pub mod decide;
pub mod effect;
mod going_back;
pub mod hooks;
pub mod input;
pub mod mind;
pub mod moment;
mod pause;
mod results;
pub mod server_time;
mod starting;
pub mod task;
mod telling;
pub mod waiting;
