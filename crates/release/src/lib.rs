//! Bundles: built reproducibly, signed, verified, unpacked safely.
//!
//! A release begins as a directory with a `release.yaml`, and perhaps a `repos.yaml` that names git repositories. It
//! becomes one file, the bundle, and one signed manifest that says what the bundle is. The operator's tool makes both,
//! the server keeps them, and an agent takes nothing that is not signed by a key it was given.
//!
//! - [`tree`]: the files, from a directory and from what repositories add. [`check`](mod@check): whether `release.yaml` is understood, and
//!   all that it names is there.
//! - [`repos`]: the git repositories that belong to a release, fetched and pinned.
//! - [`pack`](mod@pack): tree → `tar.zst`. The same content gives the same bytes, wherever and whenever it is packed.
//! - [`key`], [`manifest`], [`trust`]: who may sign, what is signed, and the proof. Time is an argument.
//! - [`unpack`](mod@unpack): bundle → directory, with nothing on the way that leads out of it, and nothing left of what fails.
//! - [`contents`], [`diff`](mod@diff): what is in a release, and what is not the same in another.
//! - [`built`]: both as files that a person names. [`hashing`]: a digest of what goes by, for uploads and downloads.
//!
//! It knows neither sockets nor a runtime: who downloads, and who is asked, is the business of its callers. It must
//! never: believe a digest that it has not computed, write outside of the directory that it was given, or let the size of
//! what comes in decide how much memory it takes ([`limits`]).

pub mod built;
pub mod check;
pub mod contents;
pub mod diff;
pub mod entries;
pub mod hashing;
pub mod key;
pub mod limits;
pub mod manifest;
pub mod pack;
pub mod repos;
pub mod signatures;
pub mod tree;
pub mod trust;
mod unfinished;
pub mod unpack;
pub mod yaml;

pub use check::{check, check_directory};
pub use pack::pack;
pub use unpack::unpack;
