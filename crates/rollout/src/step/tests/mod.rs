//! Tests of each rule of the engine.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod at_once;
mod beginnings;
mod failures;
mod gates;
mod laws;
mod members;
mod retries;
mod ride;
mod slots;

use ride::Ride;
