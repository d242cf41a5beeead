//! Git repositories as parts of a release: `repos.yaml` lists them, and `repos.lock` pins each to a commit.
//!
//! ```text
//!  repos.yaml ──┐
//!               ├─▶ fetch (some at a time) ─▶ export ─▶ one tree each ─▶ one tree with the directory
//!  repos.lock ──┘        git, cache
//! ```
//!
//! - [`repos_files`]: parses `repos.yaml`, reads and writes `repos.lock`. Pins move only with `--update`.
//! - [`git`]: runs `git` with a deadline, and kills it with all of its processes on a timeout or cancellation.
//! - [`fetch`]: fetches a commit into the cache. [`export`]: writes the files of a commit, byte for byte.
//! - [`forge`]: fetches modules of the Puppet Forge. [`import`]: writes the modules of a `Puppetfile` to `repos.yaml`.
//! - [`assemble`](mod@assemble): runs all steps. Reports all failures together and removes partial results.

pub mod assemble;
pub mod export;
pub mod fetch;
pub mod forge;
pub mod git;
pub mod import;
mod puppetfile_check;
pub mod repos_files;
