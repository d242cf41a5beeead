//! The verbs: one file each. The dispatcher is a table of contents, and does nothing else.

mod rows;
mod serve;
mod status;

use std::future::Future;

use clap::Subcommand;

use crate::args::Cli;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::logging;
use crate::terminal::Terminal;

#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    Status(status::Args),
    Serve(serve::Args),
}

/// Carries out what was typed.
pub fn dispatch(cli: Cli, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let Cli { globals, command } = cli;
    match command {
        Command::Status(args) => online(status::run(&args, &globals, terminal)),
        Command::Serve(args) => serving(serve::run(&args, &globals, terminal)),
    }
}

/// Runs a command that is a server: it uses every processor that there is.
fn serving(command: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    logging::begin();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| Failure::failed(anyhow::Error::new(error).context("cannot start")))?.block_on(command)
}

/// Runs a command that asks the server. One thread is enough to wait for an answer, and is there at once.
fn online(command: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::cannot_tell(anyhow::Error::new(error).context("cannot start")))?.block_on(command)
}
