//! The operator's tool, `muster`: it asks the server, shows the answer, and says by its exit code what the answer was.
//!
//! ```text
//!  args ──▶ commands::dispatch ──▶ one file per verb ──▶ session (server and environment) ──▶ muster-wire client
//!                                        │
//!                                        ▼
//!                    terminal::Out (standard output: data)   terminal::Notes (standard error: everything else)
//! ```
//!
//! - [`args`]: what can be typed. [`variables`]: the environment variables that are read, all of them.
//! - [`commands`]: the verbs. A verb asks, hands what it got to [`terminal::Out`], and returns an [`exit::Exit`].
//! - [`discovery`]: how a server says where it is, and how the other verbs find it. `serve` and `up` write, the rest reads.
//! - [`store_args`]: which store, and how to get into it, for the verbs that open one themselves.
//! - [`failure`]: whatever keeps a verb from its answer, whose turn it is, and the exit code that follows. Errors are
//!   printed in one place, with their whole chain and with hints.
//!
//! The verbs that ask run on one thread and start nothing that they do not need: a command is over in milliseconds, so
//! that scripts can ask often.
//!
//! It must never: answer "no" when it does not know (that is what exit code 2 is for), print anything but data to
//! standard output, guess which of several servers or environments was meant, or decide what the server decides.

pub mod args;
mod author;
pub mod commands;
mod design_args;
pub mod discovery;
pub mod exit;
pub mod failure;
mod logging;
mod open_files;
mod patience;
mod project;
mod session;
mod signals;
mod signing_key;
mod state_dir;
pub mod store_args;
pub mod terminal;
pub mod variables;

use std::process::ExitCode;

use clap::Parser;

use crate::args::Cli;
use crate::exit::Exit;
use crate::terminal::Terminal;

/// Runs the command that was typed.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Whoever closed the pipe does not want to read it.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage } else { Exit::Yes }.into();
        }
    };
    let mut terminal = Terminal::open(&cli.globals);
    let done = commands::dispatch(cli, &mut terminal);
    // What was found out is worth nothing if it cannot be read.
    let done = done.and_then(|exit| terminal.out.finish().map(|()| exit));
    done.unwrap_or_else(|failure| terminal.notes.failure(&failure)).into()
}
