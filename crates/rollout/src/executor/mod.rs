//! Carries rollouts out, without hands: what is needed next, in which order, and what follows from what it was brought.
//!
//! [`Executor`] looks after the rollouts of one environment, for whoever holds the controller. An [`Errand`] is what a person
//! asks for: it is begun, a rollout is rolled back, a word is said. Each says what it needs ([`Need`]), one thing after the
//! other, and goes on when it is brought ([`Got`]). Who brings it (a server, or the simulator) decides nothing, and may stop at
//! any point: what was begun is forgotten, and the next look decides on what is there then. So is one that has died.
//!
//! Between a need and what is brought anything may have happened. Whatever was decided before is looked at again.

mod begin;
mod decided;
mod ended;
mod errand;
mod freshness;
mod gate;
mod look;
mod need;
mod roll_back;
mod say;
mod way;
mod way_back;

pub use begin::{AlreadyThere, Begin, BeginRefused, Begun, Outset, resolve_request};
pub use ended::unkept;
pub use errand::{Decided, Errand, Wish};
pub use gate::Question;
pub use look::{Executor, Looked};
pub use need::{Got, Need, Next, Write, Written, Wrote};
pub use roll_back::RollBack;
pub use say::{Said, Say, SayRefused};
pub use way::{Way, own_commands};
pub use way_back::NoWayBack;

use std::time::Duration;

/// What happens together is looked at together: nodes of a wave report in bursts.
pub const PACE: Duration = Duration::from_millis(25);
/// After something could not be had, or the store did not take something, the next look comes this soon.
pub const AGAIN: Duration = Duration::from_secs(1);

/// An error and all that lies behind it, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let behind = std::iter::successors(error.source(), |cause| cause.source());
    behind.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests;
