//! Builds, signs, verifies and unpacks the bundles of releases.
//!
//! A release starts as a directory with a `release.yaml`, and optionally a `repos.yaml` that lists git repositories. It is
//! packed into one file, the bundle, with one signed manifest that has the bundle's digest. The operator's tool creates
//! both, the server stores them, and an agent accepts only releases that are signed by a key that it trusts.
//!
//! - [`tree`]: the files of a release. [`exclude`]: the files that it leaves out. [`check`](mod@check): parses
//!   `release.yaml` and checks the files that it names.
//! - [`validate`](mod@validate): parses manifests, templates and YAML files with the Puppet of this machine.
//! - [`repos`]: fetches and pins the git repositories of a release.
//! - [`bundle`]: packs a tree into a `tar.zst`, with the same bytes on every machine, and unpacks it into a directory. Refuses
//!   paths that leave the directory, and removes partial results.
//! - [`delta`]: packs the files that differ between two releases, and builds a release from a delta and its base.
//! - [`key`], [`manifest`]: signing keys, signed manifests and signed lists of trusted keys. Time is an argument.
//! - [`contents`]: lists the files of a release and compares two releases.
//! - [`release_files`]: finds bundle and manifest on disk.
//!
//! This crate uses neither sockets nor an async runtime; callers download and store. It must never trust a digest that it
//! has not computed, write outside of the given directory, or let the input decide how much memory it uses (limits in [`tree`]).

pub mod bundle;
pub mod check;
pub mod contents;
pub mod delta;
pub mod entries;
pub mod exclude;
pub mod key;
pub mod manifest;
pub mod puppetfile;
pub mod release_files;
pub mod repos;
mod temp_path;
pub mod tree;
pub mod validate;

pub use bundle::{pack, unpack};
pub use check::{check, check_bundle, check_directory};
