//! Stories that are written down: a fleet, a strategy, what goes wrong and when, and what is expected of it.
//!
//! ```text
//! scenarios/NAME.txt ──▶ read: Script ──▶ stage: a world in virtual time ──▶ transcript ──▶ NAME.out
//!                                             witness: what was seen, for `when`, `until` and `expect`
//! ```
//!
//! A script is read line by line, and its lines are carried out one after the other in a quiet world: nothing goes wrong
//! but what it says. The checker of the simulation looks on all the same, so a script fails if one of its expectations does,
//! if something happens that must never happen, or if its transcript is not the one that is checked in beside it.

mod action;
mod assertion;
mod format_events;
mod golden;
mod names;
mod observations;
mod parser;
mod player;
mod syntax;
mod transcript;

pub use self::golden::{GoldenMode, GoldenResult, check_script};
pub use self::parser::{Script, parse};
pub use self::player::{PlayedScript, play};
pub use self::syntax::ScriptFailure;
