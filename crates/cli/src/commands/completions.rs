//! `muster completions`: prints completion scripts for shells.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::failure::{Exit, Failure};
use crate::output::Terminal;

/// Print the completion script for a shell
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  muster completions bash > ~/.local/share/bash-completion/completions/muster
  muster completions zsh > ~/.zfunc/_muster
  muster completions fish > ~/.config/fish/completions/muster.fish")]
pub struct Args {
    /// Shell
    shell: Shell,
}

pub(super) fn run(args: &Args, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "muster", &mut text);
    terminal.out.line(String::from_utf8_lossy(&text).trim_end());
    Ok(Exit::Yes)
}
