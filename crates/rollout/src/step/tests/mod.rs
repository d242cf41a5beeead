//! Tests of each rule of the engine.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod at_once;
mod beginnings;
mod clocks;
mod failures;
mod gates;
mod laws;
mod members;
mod progress;
mod retries;
mod ride;
mod slots;
mod way;

use ride::Ride;
