//! Builds, signs, verifies and unpacks the bundles of releases.
//!
//! A release starts as a directory with a `release.yaml`, and optionally a `repos.yaml` that lists git repositories. It is
//! packed into one file, the bundle, with one signed manifest that has the bundle's digest. The operator's tool creates
//! both, the server stores them, and an agent accepts only releases that are signed by a key that it trusts.
//!
//! - [`tree`]: the files of a release. [`check`](mod@check): parses `release.yaml` and checks the files that it names.
//! - [`repos`]: fetches and pins the git repositories of a release.
//! - [`pack`](mod@pack): tree → `tar.zst`. The same content gives the same bytes on every machine.
//! - [`key`], [`manifest`], [`trust`]: signing keys, signed manifests and signed lists of trusted keys. Time is an argument.
//! - [`unpack`](mod@unpack): bundle → directory; refuses paths that leave the directory and removes partial results.
//! - [`contents`]: lists the files of a release and compares two releases.
//! - [`release_files`]: finds bundle and manifest on disk. [`hashing`]: hashes uploads and downloads while they pass.
//!
//! This crate uses neither sockets nor an async runtime; callers download and store. It must never trust a digest that it
//! has not computed, write outside of the given directory, or let the input decide how much memory it uses ([`limits`]).

pub mod check;
pub mod contents;
pub mod entries;
pub mod hashing;
pub mod key;
pub mod limits;
pub mod manifest;
pub mod pack;
pub mod release_files;
pub mod repos;
mod temp_path;
pub mod tree;
pub mod trust;
pub mod unpack;
pub mod yaml;

pub use check::{check, check_directory};
pub use pack::pack;
pub use unpack::unpack;
