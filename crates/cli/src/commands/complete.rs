//! `muster __complete WORD…`: the values of the last word of a command line, from the server, for the scripts of `muster
//! completions`.
//!
//! The line is incomplete and cannot be parsed, so this command is not part of the parser. It reads the definition of the
//! commands to find out which argument the last word belongs to, and requests the names of that kind. It answers within
//! [`TIMEOUT`] or prints nothing, asks no question, and prints no error: the user is typing.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, Args, CommandFactory, FromArgMatches};
use tokio::time::timeout;

use crate::args::{Cli, Globals};
use crate::connect::{ServerConnection, Session};

/// First word of the command line.
pub(crate) const VERB: &str = "__complete";
/// A shell that answers later feels stuck.
const TIMEOUT: Duration = Duration::from_millis(200);
/// Names to print at most. A shell asks before it shows so many.
const MAX_NAMES: usize = 1000;

/// Names that the server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameKind {
    Node,
    Version,
    Role,
    Environment,
    Rollout,
    User,
}

/// The last word of a command line.
#[derive(Debug, PartialEq, Eq)]
struct LastWord<'a> {
    kind: NameKind,
    /// `--option=` before the value.
    option: &'a str,
    /// What was typed of the value.
    typed: &'a str,
}

/// Prints the values of the last word, one a line.
pub(crate) fn run(words: &[String]) -> ExitCode {
    let names = values(words).unwrap_or_default();
    // A closed pipe is no error.
    let _ = std::io::stdout().write_all(names.as_bytes());
    ExitCode::SUCCESS
}

fn values(words: &[String]) -> Option<String> {
    let command = built_command();
    let last = last_word(&command, words)?;
    let globals = globals(&command, words)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let names = runtime.block_on(async { timeout(TIMEOUT, request(last.kind, &globals)).await.ok().flatten() });
    // A look-up of a host name may still be in progress.
    runtime.shutdown_background();
    let matching = names?.into_iter().filter(|name| name.starts_with(last.typed)).take(MAX_NAMES);
    Some(matching.map(|name| format!("{}{name}\n", last.option)).collect())
}

fn built_command() -> clap::Command {
    let mut command = Cli::command();
    command.build();
    command
}

/// The argument that the last word is a value of. None if it is no name that the server knows.
fn last_word<'a>(root: &clap::Command, words: &'a [String]) -> Option<LastWord<'a>> {
    let (current, before) = words.split_last()?;
    let (mut command, mut path, mut positional) = (root, Vec::new(), 0);
    let (mut pending, mut only_values): (Option<&Arg>, bool) = (None, false);
    for word in before {
        if word == "=" {
            // Bash makes three words of `--option=value`.
        } else if pending.take().is_some() {
            // It was the value of an option.
        } else if only_values {
            positional += 1;
        } else if word == "--" {
            only_values = true;
        } else if word.starts_with('-') {
            pending = option(command, word).filter(|_| !word.contains('='));
        } else if let Some(sub) = command.find_subcommand(word).filter(|_| positional == 0) {
            command = sub;
            path.push(sub.get_name());
        } else {
            positional += 1;
        }
    }
    let current = if current == "=" { "" } else { current.as_str() };
    let (arg, option_text) = match (pending, current.split_once('=')) {
        (Some(arg), _) => (arg, ""),
        (None, Some((name, _))) if name.starts_with("--") && !only_values => {
            (option(command, name)?, &current[..=name.len()])
        }
        (None, _) if current.starts_with('-') && !only_values => return None,
        (None, _) => (positional_arg(command, positional)?, ""),
    };
    Some(LastWord { kind: kind(&path, arg)?, option: option_text, typed: &current[option_text.len()..] })
}

/// The option of this word, if it takes a value.
fn option<'a>(command: &'a clap::Command, word: &str) -> Option<&'a Arg> {
    let name = word.split('=').next().unwrap_or(word);
    let is_it = |arg: &&Arg| match (name.strip_prefix("--"), name.strip_prefix('-')) {
        (Some(long), _) => arg.get_long() == Some(long),
        (None, Some(short)) => arg.get_short().is_some_and(|known| short.chars().eq([known])),
        (None, None) => false,
    };
    command.get_arguments().find(is_it).filter(|arg| arg.get_action().takes_values())
}

/// The positional argument with this number; the last one may have many values.
fn positional_arg(command: &clap::Command, number: usize) -> Option<&Arg> {
    let has_many = |arg: &&Arg| arg.get_num_args().is_some_and(|range| range.max_values() > 1);
    command.get_positionals().nth(number).or_else(|| command.get_positionals().last().filter(has_many))
}

fn kind(path: &[&str], arg: &Arg) -> Option<NameKind> {
    if !arg.get_possible_values().is_empty() {
        return None;
    }
    let value = arg.get_value_names()?.first()?.as_str();
    match (path, value) {
        // The version of a release that is built is new, and so is the name of a user that is created.
        (["release", "build"], "VERSION") | (["user", "create"], "NAME") => None,
        (_, "NODE" | "HOST" | "NODE|FILTER" | "NODE|SERIAL") => Some(NameKind::Node),
        (_, "VERSION") | (["release", "diff"], "A" | "B") => Some(NameKind::Version),
        (["user", ..], "ROLE") => None,
        (_, "ROLE") => Some(NameKind::Role),
        (_, "ENV") => Some(NameKind::Environment),
        (_, "NAME") if arg.get_long() == Some("env") => Some(NameKind::Environment),
        (["rollout", ..], "ID") => Some(NameKind::Rollout),
        (["user", ..], "NAME") => Some(NameKind::User),
        _ => None,
    }
}

/// The global options of the line, with the defaults of the environment.
fn globals(root: &clap::Command, words: &[String]) -> Option<Globals> {
    let (_, before) = words.split_last()?;
    let is_global = |arg: &&Arg| arg.is_global_set() && arg.get_action().takes_values();
    let mut given = vec!["muster".to_owned()];
    let mut words = before.iter().filter(|word| *word != "=");
    while let Some(word) = words.next() {
        let Some(arg) = option(root, word).filter(is_global).and_then(Arg::get_long) else { continue };
        let value = match word.split_once('=') {
            Some((_, value)) => value.to_owned(),
            // The last word is its value.
            None => words.next().cloned().unwrap_or_default(),
        };
        if value.is_empty() {
            continue;
        }
        given.push(format!("--{arg}={value}"));
    }
    let parser = Globals::augment_args(clap::Command::new("muster").disable_help_flag(true));
    Globals::from_arg_matches(&parser.try_get_matches_from(given).ok()?).ok()
}

async fn request(kind: NameKind, globals: &Globals) -> Option<Vec<String>> {
    match kind {
        NameKind::Environment => {
            let server = ServerConnection::find(globals).ok()?;
            Some(server.client.environments().await.ok()?.items.iter().map(|row| row.env.to_string()).collect())
        }
        NameKind::User => {
            let server = ServerConnection::find(globals).ok()?;
            Some(server.client.users().await.ok()?.items.iter().map(|row| row.name.to_string()).collect())
        }
        NameKind::Node | NameKind::Version | NameKind::Role | NameKind::Rollout => {
            let session = Session::open(globals).await.ok()?;
            let (client, env) = (session.client(), &session.env);
            Some(match kind {
                NameKind::Node => client.nodes(env).await.ok()?.items.iter().map(|row| row.node.to_string()).collect(),
                NameKind::Version => {
                    client.releases(env).await.ok()?.items.iter().map(|row| row.version.to_string()).collect()
                }
                NameKind::Role => {
                    client.environment(env).await.ok()?.roles.iter().map(|row| row.role.to_string()).collect()
                }
                NameKind::Rollout => {
                    client.rollouts(env).await.ok()?.items.iter().map(|row| row.id.0.to_string()).collect()
                }
                NameKind::Environment | NameKind::User => return None,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_word_has_the_kind_of_its_argument() {
        let command = built_command();
        let found = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let last = last_word(&command, &words);
            last.map(|last| (last.kind, last.option.to_owned(), last.typed.to_owned()))
        };
        let is = |kind, option: &str, typed: &str| Some((kind, option.to_owned(), typed.to_owned()));
        for (line, expected) in [
            ("node show w", is(NameKind::Node, "", "w")),
            ("node show ", is(NameKind::Node, "", "")),
            ("node cordon web1 web2 d --reason x", None),
            ("node cordon --reason x web1 d", is(NameKind::Node, "", "d")),
            ("node show web1 ", None),
            ("rollout start v", is(NameKind::Version, "", "v")),
            ("trigger-update v", is(NameKind::Version, "", "v")),
            ("rollout status 1", is(NameKind::Rollout, "", "1")),
            ("pause --role d", is(NameKind::Role, "", "d")),
            ("pause --role=d", is(NameKind::Role, "--role=", "d")),
            ("pause --role = d", is(NameKind::Role, "", "d")),
            ("pause --role =", is(NameKind::Role, "", "")),
            ("--env p", is(NameKind::Environment, "", "p")),
            ("node list --env p", is(NameKind::Environment, "", "p")),
            ("env show q", is(NameKind::Environment, "", "q")),
            ("user disable a", is(NameKind::User, "", "a")),
            ("user create a", None),
            ("release build --version v", None),
            ("node sh", None),
            ("node show --", None),
            ("status -o j", None),
            ("", None),
        ] {
            assert_eq!(found(line), expected, "{line:?}");
        }
    }

    #[test]
    fn global_options_of_the_line_are_used() {
        let command = built_command();
        let words =
            ["--server", "http://127.0.0.1:1", "node", "show", "--env=prod", "-o", "json", "--state", "=", "/s", "w"];
        let words: Vec<String> = words.map(str::to_owned).into();
        let globals = globals(&command, &words).unwrap();
        assert_eq!(globals.server.as_deref(), Some("http://127.0.0.1:1"));
        assert_eq!(globals.env.as_ref().map(|env| env.as_str()), Some("prod"));
        assert_eq!(globals.state.as_deref(), Some(std::path::Path::new("/s")));
    }

    #[test]
    fn unfinished_option_gives_nothing() {
        assert_eq!(values(&["--server".to_owned(), String::new()]), None);
        assert_eq!(values(&[]), None);
    }
}
