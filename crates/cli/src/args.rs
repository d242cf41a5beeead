//! What can be typed.

use std::path::PathBuf;

use clap::{Args, Parser, ValueEnum};
use muster_core::names::EnvName;

use crate::commands::Command;
use crate::variables;

/// Takes a fleet of machines from a written design to verified service, and from one version to the next
#[derive(Clone, Debug, Parser)]
#[command(name = "muster", version, arg_required_else_help = true, subcommand_required = true, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(flatten)]
    pub globals: Globals,
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0   yes, or done
  1   no, or failed
  2   cannot tell: the server is not there, or is not up to date
  64  the command was not understood

`muster COMMAND --help` says what a command adds to these, and shows examples.";

/// What every command takes.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Global options")]
pub struct Globals {
    /// The environment [default: the one of the server that was found, or the only one]
    #[arg(long, global = true, env = variables::ENV, hide_env_values = true, value_name = "NAME")]
    pub env: Option<EnvName>,
    /// The server's address, such as http://127.0.0.1:7300 [default: found by itself on this machine]
    #[arg(long, global = true, env = variables::SERVER, hide_env_values = true, value_name = "URL")]
    pub server: Option<String>,
    /// The server's state directory [default: `.muster` here or in a directory above]
    #[arg(long, global = true, env = variables::STATE, hide_env_values = true, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Answer only from what is at least as new as this revision, which every change prints
    #[arg(long, global = true, env = variables::MIN_REVISION, hide_env_values = true, value_name = "N")]
    pub min_revision: Option<u64>,
    /// How to print the answer
    #[arg(short, long, global = true, value_name = "FORMAT", default_value = "table")]
    pub output: Format,
    /// Whether to use colours; NO_COLOR is respected
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: Color,
    /// Print the answer and errors only: no notes, no progress
    #[arg(short, long, global = true)]
    pub quiet: bool,
}

/// How an answer is printed. A table is for people, and its layout is no promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Json,
    Yaml,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    Auto,
    Always,
    Never,
}
