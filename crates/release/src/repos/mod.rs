//! The git repositories that are part of a release: `repos.yaml` names them, `repos.lock` says which commit of each.
//!
//! ```text
//!  repos.yaml ──▶ file ──┐
//!                        ├─▶ fetch (a few at a time) ─▶ export ─▶ a tree for each ─▶ one tree with the directory
//!  repos.lock ──▶ lock ──┘        git, cache
//! ```
//!
//! - [`file`](mod@file): what is wanted. [`lock`]: what it was the last time; it stays so until somebody asks for more.
//! - [`git`]: runs `git`, with a deadline, and ends it with all of its processes. [`cancel`]: how a person ends all of it.
//! - [`fetch`]: gets a commit into the cache. [`export`]: a commit's files, byte for byte as they were committed.
//! - [`assemble`](mod@assemble): all of it together. Every failure is told, not the first one alone, and none leaves anything half.

pub mod assemble;
pub mod cancel;
pub mod export;
pub mod fetch;
pub mod file;
pub mod git;
pub mod lock;
