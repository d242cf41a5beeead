//! Finds and ends the processes that carry a mark in their environment.
//!
//! A mark is one environment variable with one value, given to a process when it is started. Children inherit it, and
//! keep it whatever they do to their process group, session or parent: that is what a process group cannot do, and why
//! everything that a run or a machine has started can be found, also by another process and after a crash.
//!
//! - [`find`] reads `/proc`. [`Process`] holds a pidfd, so a signal never hits a stranger that got the pid since.
//! - [`end_all`] asks with SIGTERM, insists with SIGKILL after a grace, and looks again until nobody is left: a process
//!   that forks while it is being ended does not get away.
//!
//! What is not found:
//!
//! - a process that was started with a cleared environment (`env -i`), or that has overwritten the memory of its
//!   initial environment, as some do to set a long process title (Ruby's `$0 = …`); its children are found again;
//! - a process of another user, or one that has gained privileges: its environment cannot be read. Root reads all;
//! - a zombie: it has ended. Reaping is its parent's business.
//!
//! The process that searches is never among those found, so one that carries a mark itself may end all others that do.
//! Nothing here decides whom to end, and nothing is kept between two calls.

mod ending;
mod process;
mod search;

pub use ending::{Ended, Ending, end_all};
pub use process::Process;
pub use rustix::process::Signal;
pub use search::find;
