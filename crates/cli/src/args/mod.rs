//! The arguments of `muster`: the global options, and the options that several commands share.

pub mod design;
mod server_config;
pub mod store;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, ValueEnum};
use jiff::SignedDuration;
use muster_core::names::{EnvName, HostName, NodeName, Role};

use crate::commands::Command;
use crate::variables;

/// Provisions, configures and upgrades a fleet of machines from a design in YAML
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
  0   success, or the answer is yes
  1   failure, or the answer is no
  2   unknown: the server cannot be reached, or is not up to date
  64  usage error

`muster COMMAND --help` describes the exit codes of a command, and has examples.";

/// Options of every command.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Global options")]
pub struct Globals {
    /// Environment [default: the one that the server was started for, or the only one]
    #[arg(long, global = true, env = variables::ENV, hide_env_values = true, value_name = "NAME")]
    pub env: Option<EnvName>,
    /// Address of the server, such as https://muster.example.org:7300 or unix:/PATH [default: discovered on this machine]
    #[arg(long, global = true, env = variables::SERVER, hide_env_values = true, value_name = "URL")]
    pub server: Option<String>,
    /// State directory of the server [default: `.muster` in this or a parent directory]
    #[arg(long, global = true, env = variables::STATE, hide_env_values = true, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Token of the server's TCP port, for the server and its clients [default: `token` in the state directory]
    #[arg(long, global = true, env = variables::TOKEN_FILE, hide_env_values = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Root certificate of the server, for https:// [default: `ca/ca.crt` in the state directory]
    #[arg(long, global = true, env = variables::CA_FILE, hide_env_values = true, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Require data of at least this revision; every change prints its revision
    #[arg(long, global = true, env = variables::MIN_REVISION, hide_env_values = true, value_name = "N")]
    pub min_revision: Option<u64>,
    /// Output format
    #[arg(short, long, global = true, value_name = "FORMAT", default_value = "table")]
    pub output: OutputFormat,
    /// Use of colors; `auto` respects NO_COLOR
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: Color,
    /// Print the answer and errors only: no notes, no progress
    #[arg(short, long, global = true)]
    pub quiet: bool,
}

impl Cli {
    /// Parses the arguments of this process.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        let mut command = command(None);
        let arguments: Vec<OsString> = std::env::args_os().collect();
        let mut matches = command.try_get_matches_from_mut(&arguments)?;
        if let Some(file) = server_config::requested(&matches) {
            matches = server_config::parse(&mut command, &file, &arguments)?;
        }
        Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }
}

/// The commands with their help. The global options are described once, at the end of `muster --help`; the help of a command
/// ends with their names. `width` is that of the help, if it is not that of the terminal.
pub fn command(width: Option<usize>) -> clap::Command {
    let width = width.or_else(terminal_width);
    let mut list = Globals::augment_args(clap::Command::new("globals").disable_help_flag(true));
    let mut command = Cli::command();
    if let Some(width) = width {
        list = list.term_width(width);
        command = command.term_width(width);
    }
    let names: Vec<String> = list.get_arguments().map(option_names).collect();
    let descriptions = list.help_template("{all-args}").render_help().to_string();
    let names = format!("Global options, as `muster --help` describes them:\n  {}", names.join("  "));
    let hide = |arg: clap::Arg| if arg.is_global_set() { arg.hide(true) } else { arg };
    let command = command.mut_args(hide).mut_subcommands(|sub| with_footer(sub, &names, width));
    append_help(command, descriptions.trim_end(), width)
}

fn with_footer(command: clap::Command, footer: &str, width: Option<usize>) -> clap::Command {
    append_help(command.mut_subcommands(|sub| with_footer(sub, footer, width)), footer, width)
}

fn append_help(command: clap::Command, text: &str, width: Option<usize>) -> clap::Command {
    let help = match command.get_after_help() {
        Some(help) => format!("{help}\n\n{text}"),
        None => text.to_owned(),
    };
    let lines: Vec<String> =
        help.lines().map(|line| width.map_or(line.to_owned(), |width| hang(line, width))).collect();
    command.after_help(lines.join("\n"))
}

/// Widest help, as that of the parser.
const HELP_WIDTH: usize = 100;

/// Width of the help on a terminal; none elsewhere.
fn terminal_width() -> Option<usize> {
    let stdout = std::io::stdout();
    let size = rustix::termios::tcgetwinsize(&stdout).ok().filter(|size| size.ws_col > 0)?;
    Some(usize::from(size.ws_col).min(HELP_WIDTH))
}

/// Breaks a line of a list, such as "  64  the filter is invalid", below its text. The parser would continue it at the margin.
fn hang(line: &str, width: usize) -> String {
    let margin = line.len() - line.trim_start().len();
    // The text of an entry begins after the last run of spaces.
    let text = line.rfind("  ").map(|at| at + 2).filter(|at| *at > margin && at + HELP_WIDTH / 5 <= width);
    let indent = text.unwrap_or(margin);
    let (mut broken, mut rest, mut room) = (String::new(), line, width);
    while rest.chars().count() > room {
        let fits = rest.char_indices().nth(room).map_or(rest.len(), |(at, _)| at);
        // Not within the margin, which would never end.
        let start = if broken.is_empty() { indent } else { 0 };
        let within = if rest[fits..].starts_with(' ') { Some(fits) } else { rest[..fits].rfind(' ') };
        let within = within.filter(|at| *at > start);
        let Some(at) = within.or_else(|| rest[fits..].find(' ').map(|at| fits + at)) else { break };
        broken.push_str(rest[..at].trim_end());
        broken.push('\n');
        broken.push_str(&" ".repeat(indent));
        rest = rest[at..].trim_start();
        room = width.saturating_sub(indent).max(1);
    }
    broken + rest
}

/// "-o/--output", "--env"
fn option_names(arg: &clap::Arg) -> String {
    let long = arg.get_long().unwrap_or_default();
    arg.get_short().map_or_else(|| format!("--{long}"), |short| format!("-{short}/--{long}"))
}

/// Output format. Tables are for people; their layout may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
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

/// Parses a timeout such as `90s` or `1h30m`.
pub(crate) fn timeout_arg(text: &str) -> Result<SignedDuration, String> {
    let duration: SignedDuration = text.parse().map_err(|error: jiff::Error| error.to_string())?;
    if duration.is_negative() { Err("a timeout cannot be negative".to_owned()) } else { Ok(duration) }
}

/// A filter of nodes.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct NodeFilter {
    /// Only nodes that match all terms, such as role=web,db state!=validated name=web* label.rack !reason
    #[arg(value_name = "FILTER")]
    terms: Vec<String>,
}

impl NodeFilter {
    pub(crate) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The filter in the syntax of the server.
    pub(crate) fn text(&self) -> String {
        self.terms.join(" ")
    }
}

/// Help on filters, for every command that takes one.
macro_rules! node_filter_help {
    () => {
        "\
Terms of a FILTER are separated by spaces; a node must match all of them:
  key=a,b    has one of these values; * matches any text, as in name=web*
  key!=a,b   has none of these values, or is not set
  key, !key  is set; is not set
Keys: name, role, state, reason, version, desired, liveness (connected or unreachable), active (true or false), \
policy (in_service, cordoned or retired), phase, failure_domain, profile, and label.NAME. Quote a value with a space or a comma: 'label.owner=\"web team\"'."
    };
}

pub(crate) use node_filter_help;

pub(crate) fn role_arg(text: &str) -> Result<Role, String> {
    Role::new(text).map_err(|_| Role::RULE.to_owned())
}

/// Parses `90s`, `30m`, `2h`, `3d`, or a combination. A day has 24 hours.
pub(crate) fn duration_arg(text: &str) -> Result<SignedDuration, String> {
    let invalid = || "expected a time such as 90s, 30m, 2h or 3d".to_owned();
    let span: jiff::Span = text.parse().map_err(|_| invalid())?;
    let long = span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).map_err(|_| invalid())?;
    if long >= SignedDuration::from_secs(1) { Ok(long) } else { Err(invalid()) }
}

/// Parses the name of a node or its host name. The server looks the node up.
pub(crate) fn node_or_host_arg(text: &str) -> Result<String, String> {
    let is_legal = NodeName::new(text).is_ok() || HostName::new(text).is_ok();
    if is_legal { Ok(text.to_owned()) } else { Err(format!("{}; or a host name", NodeName::RULE)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_in_help_are_broken_below_their_text() {
        let code = "  1   the fleet could not start, or its nodes cannot become validated";
        let expected = "  1   the fleet could not start, or its\n      nodes cannot become validated";
        assert_eq!(hang(code, 40), expected);
        assert_eq!(hang(code, 100), code);
        let example = "  muster up examples/quickstart --once      start the fleet";
        assert_eq!(
            hang(example, 45),
            "  muster up examples/quickstart --once\n  start the fleet",
            "no room for the indent"
        );
        assert_eq!(hang("A host counts if its agent is connected.", 20), "A host counts if its\nagent is connected.");
        for width in [40, 60, 80] {
            for mut command in [command(Some(width)), command(Some(width)).find_subcommand("up").unwrap().clone()] {
                let help = command.render_help().to_string();
                let codes = help.split("Exit codes:\n").nth(1).unwrap();
                let mut codes = codes.lines().take_while(|line| !line.is_empty());
                assert!(codes.all(|line| line.starts_with("  ") && line.chars().count() <= width), "{width}: {help}");
            }
        }
    }
}
