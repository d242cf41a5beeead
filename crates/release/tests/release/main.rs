//! Tests of releases: packing, signing, damaged bundles, and repositories.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bad_bundles;
mod deltas;
mod puppetfile;
mod release_files;
mod repositories;
mod reproducible;
mod signing;
mod support;
mod validation;
