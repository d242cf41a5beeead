//! One table or story for each rule of the engine.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod at_once;
mod beginnings;
mod clocks;
mod failures;
mod gates;
mod laws;
mod members;
mod retries;
mod ride;
mod slots;
mod told;
mod way;

use ride::Ride;
