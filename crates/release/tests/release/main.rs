//! Bundles from outside: packed, signed, hurt, and unpacked.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bad_bundles;
mod built_files;
mod differences;
mod flipped_bits;
mod repositories;
mod reproducible;
mod signing;
mod support;
