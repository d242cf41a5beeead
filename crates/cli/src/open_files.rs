//! A server holds one connection for each agent, and most machines allow a program 1,024 open files unless it asks.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Asks for as many open files as the machine lets this process have.
///
/// The limit is low by default for programs that number their files with bits in a fixed set, and is inherited: so only
/// who starts no others may raise it.
pub(crate) fn allow_all() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        // It goes on with what it has, which is enough for a small fleet.
        tracing::warn!(%error, "cannot allow more open files");
    }
}
