//! One table or story for each rule of the engine.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod failures;
mod ride;
mod way;

use ride::Ride;
