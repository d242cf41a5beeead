//! Scenarios: scripts with a fleet, a strategy, faults at given times, and assertions.
//!
//! ```text
//! scenarios/NAME.txt ──▶ parser: Script ──▶ player: a world in virtual time ──▶ transcript ──▶ NAME.out
//!                                             observations, for `when`, `until` and `expect`
//! ```
//!
//! The lines of a script run one after the other, without faults other than its own. The checker of the simulation is active
//! too. A script fails if an assertion fails, if a rule is violated, or if its transcript differs from the checked-in one.

mod action;
mod assertion;
mod format_events;
mod names;
mod parser;
mod player;
mod syntax;
mod transcript;

pub use self::parser::{Script, parse};
pub use self::player::{PlayedScript, play};
pub use self::syntax::ScriptFailure;
pub use transcript::{GoldenMode, GoldenResult, check_script};
