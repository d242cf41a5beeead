//! The command line tool `muster`: sends requests to the server and prints the answers.
//!
//! ```text
//!  args ──▶ commands::dispatch ──▶ one file per verb ──▶ connect (server, environment) ──▶ muster-wire client
//!                                        │
//!                                        ▼
//!                    output::Out (standard output: data)   output::Notes (standard error: everything else)
//! ```
//!
//! - [`args`]: global and shared options. [`variables`]: all environment variables that are read.
//! - [`commands`]: one file per verb, one folder per noun. A verb sends a request, passes the answer to [`output::Out`], and
//!   returns an [`failure::Exit`].
//! - [`connect`]: finds the server of this machine. `serve` and `up` announce a server, all other verbs search for it.
//! - [`output`]: tables, JSON and YAML on standard output; notes, progress and errors on standard error.
//! - [`failure`]: errors with hints and exit codes. Errors are printed in one place, with all of their causes.
//!
//! Client commands run on one thread and finish in milliseconds: scripts can call them often.
//!
//! Rules: never answer "no" if the answer is unknown (exit code 2), print only data to standard output, never guess which
//! of several servers or environments is meant, and leave all decisions to the server.

pub mod args;
pub mod commands;
pub mod connect;
pub mod failure;
pub mod output;
mod process;
mod project;
mod suggestion;
mod validation;
pub mod variables;

use std::process::ExitCode;

use crate::args::Cli;
use crate::failure::Exit;
use crate::output::Terminal;

/// Parses the arguments, runs the command, and prints its error.
pub fn main() -> ExitCode {
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(error) => {
            let error = suggestion::with_suggestion(error, &std::env::args().collect::<Vec<_>>());
            // A closed pipe is not an error.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage } else { Exit::Yes }.into();
        }
    };
    let mut terminal = Terminal::open(&cli.globals);
    let result = commands::dispatch(cli, &mut terminal);
    // An answer that cannot be written is an error.
    let result = result.and_then(|exit| terminal.out.finish().map(|()| exit));
    result.unwrap_or_else(|failure| terminal.notes.failure(&failure)).into()
}
