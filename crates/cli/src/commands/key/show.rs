//! `muster key show`: the public half of a key, and its id.

use std::path::PathBuf;

use muster_release::key::read_public;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

use super::Shown;

/// Show the public half of a key and its id; never the private half
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
The id is how signatures and messages name a key: the first 16 digits of the SHA-256 of the public key.

Exit codes:
  0  shown
  1  the file is no key, or cannot be read

Examples:
  muster key show release.key
  muster key show release.key.pub -o json | jq -r .id")]
pub struct Args {
    /// A private key, or a public one
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(in crate::commands) fn run(args: &Args, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let shown = Shown::of(&read_public(&args.file).map_err(Failure::failed)?);
    terminal.out.answer(&shown, |out| {
        out.line(format_args!("key id      {}", shown.id));
        out.line(format_args!("public key  {}", shown.public));
    });
    Ok(Exit::Yes)
}
