//! Tests of each rule of the engine.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod failures;
mod gates;
mod grants;
mod harness;
mod laws;
mod lifecycle;
mod members;
mod progress;
mod retries;

use harness::RolloutHarness;
