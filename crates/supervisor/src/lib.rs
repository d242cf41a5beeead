//! The supervisor of one program that must outlive the agent: an applier or a hook.
//!
//! The agent starts the supervisor from its own binary, in a session of its own. From then on the program depends on the
//! supervisor only: the agent may be stopped, upgraded or killed. The agent that runs when the program has ended reads the
//! result. The supervisor is small and synchronous, and an upgrade of the agent's file does not touch a running one.
//!
//! The contract is a directory with three [files]:
//!
//! - `program.json`: the program, its environment and its limits. Written durably by the agent before the start.
//! - `lock`: locked (flock) from before the start until the supervisor has ended. It contains the supervisor's pid, written
//!   durably before the program starts. The lock shows that the supervisor is alive; a pid alone would be a guess.
//! - `ended.json`: how the program has ended. Written durably, once. Its space is reserved before the start, so that a full
//!   disk cannot lose the result.
//!
//! A free lock with a pid and without `ended.json` means that the run was lost: the host was rebooted, or the supervisor was
//! killed.
//!
//! Processes that the program leaves behind keep running. At its deadline the program is first asked to end (SIGINT, then
//! SIGTERM). While one of its processes is a package manager that holds its lock, nothing else is signalled, up to a second
//! limit. Then all processes of the program are ended.

pub mod files;
pub mod output;
pub mod packages;
pub mod pid_lock;
mod processes;
mod supervise;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// The argument with which the agent's binary becomes a supervisor, before the directory.
pub const ARGUMENT: &str = "supervise";

/// Runs the supervisor if the arguments of the process request it. `None`: they do not.
pub fn run_if_requested(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let (_program, argument) = (arguments.next(), arguments.next()?);
    let (directory, None) = (arguments.next()?, arguments.next()) else { return None };
    (argument == ARGUMENT).then(|| run(Path::new(&directory)))
}

/// Supervises the program of a directory until it has ended.
#[expect(clippy::print_stderr, reason = "standard error is the log of the supervisor")]
pub fn run(directory: &Path) -> ExitCode {
    match supervise::run(directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cannot supervise {}: {error}", directory.display());
            ExitCode::FAILURE
        }
    }
}
