//! `muster man`: writes the manual pages, for the build of packages.

use std::path::PathBuf;

use anyhow::Context;
use clap::CommandFactory;

use crate::args::Cli;
use crate::failure::{Exit, Failure};

/// Write the manual pages of all commands
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  muster man target/man")]
pub struct Args {
    /// Directory, which is created
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let directory = &args.directory;
    let written = std::fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(Cli::command(), directory));
    let written = written.with_context(|| format!("cannot write manual pages to {}", directory.display()));
    written.map(|()| Exit::Yes).map_err(Failure::failed)
}
