//! `muster key show`: shows a public key and its id.

use std::path::PathBuf;

use muster_release::key::read_public;

use crate::failure::{Exit, Failure};
use crate::output::Terminal;

use super::KeyInfo;

/// Show the public key and the id of a key file; never the private key
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Signatures and messages name a key by its id: the first 16 hex digits of the SHA-256 of the public key.

Exit codes:
  0  success
  1  the file is not a key, or cannot be read

Examples:
  muster key show release.key
  muster key show release.key.pub -o json | jq -r .id")]
pub struct Args {
    /// File of a private or public key
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(in crate::commands) fn run(args: &Args, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let key = KeyInfo::new(&read_public(&args.file).map_err(Failure::failed)?);
    terminal.out.answer(&key, |out| {
        out.line(format_args!("key id      {}", key.id));
        out.line(format_args!("public key  {}", key.public));
    });
    Ok(Exit::Yes)
}
