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
mod service_manager;
mod suggestion;
mod validation;
pub mod variables;

use std::process::ExitCode;

use crate::args::{Cli, OutputFormat};
use crate::failure::{Exit, Failure};
use crate::output::{Notes, Terminal};

/// Parses the arguments, runs the command, and prints its error.
pub fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    if words.next().as_deref() == Some(commands::complete::VERB) {
        return commands::complete::run(&words.collect::<Vec<_>>());
    }
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(error) => {
            let arguments: Vec<String> = std::env::args_os().map(|text| text.to_string_lossy().into_owned()).collect();
            let error = suggestion::with_suggestion(error, &arguments);
            if error.use_stderr() && requests_json(&arguments) {
                let mut notes = Notes::stderr(anstream::ColorChoice::Never, true, OutputFormat::Json);
                return notes.failure(&Failure::from(error)).into();
            }
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

/// True if the arguments, which could not be parsed, have `-o json` in one of its spellings.
fn requests_json(arguments: &[String]) -> bool {
    let options: Vec<&str> = arguments.iter().map(String::as_str).take_while(|argument| *argument != "--").collect();
    let joined = ["-ojson", "-o=json", "--output=json"];
    options.iter().any(|option| joined.contains(option))
        || options.windows(2).any(|pair| ["-o", "--output"].contains(&pair[0]) && pair[1] == "json")
}
