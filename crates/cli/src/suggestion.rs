//! Suggests the commands of Muster for names that other tools use.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Names of other tools, after the word before them if there is one, and the commands of Muster.
const OTHER_NAMES: &[(Option<&str>, &str, &str)] = &[
    (Some("rollout"), "undo", "rollout rollback"),
    (Some("node"), "log", "node logs"),
    (Some("node"), "status", "node show"),
    (Some("release"), "upload", "release push"),
    (Some("env"), "delete", "env destroy"),
    (None, "undo", "rollout rollback"),
    (None, "rollback", "rollout rollback"),
    (None, "log", "node logs"),
    (None, "logs", "node logs"),
    (None, "nodes", "node list"),
    (None, "ps", "node list"),
    (None, "run", "node run"),
    (None, "releases", "release list"),
    (None, "build", "release build"),
    (None, "push", "release push"),
    (None, "history", "rollout history"),
    (None, "deploy", "trigger-update"),
    (None, "upgrade", "trigger-update"),
    (None, "plan", "rollout plan"),
    (None, "apply", "env apply"),
    (None, "validate", "check"),
    (None, "lint", "check"),
    (None, "new", "init"),
    (None, "start", "up"),
    (None, "stop", "down"),
];

/// Replaces the suggestion of the parser, which compares letters only.
pub(crate) fn with_suggestion(mut error: clap::Error, arguments: &[String]) -> clap::Error {
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand)
        && let Some(command) = command_for(name, arguments)
    {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![command.to_owned()]));
    }
    error
}

fn command_for(name: &str, arguments: &[String]) -> Option<&'static str> {
    let at = arguments.iter().position(|argument| argument == name)?;
    let before = at.checked_sub(1).and_then(|before| arguments.get(before)).map(String::as_str);
    let matches = |(parent, other, _): &&(Option<&str>, &str, &str)| {
        *other == name && parent.is_none_or(|parent| before == Some(parent))
    };
    OTHER_NAMES.iter().find(matches).map(|(_, _, command)| *command)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::args::Cli;

    #[test]
    fn suggested_commands_exist_and_other_names_do_not() {
        for (parent, other, command) in OTHER_NAMES {
            let words: Vec<&str> = command.split(' ').collect();
            let found = words.iter().try_fold(Cli::command(), |within, word| within.find_subcommand(word).cloned());
            assert!(found.is_some(), "{command}");
            let arguments: Vec<String> =
                ["muster"].into_iter().chain(*parent).chain([*other]).map(str::to_owned).collect();
            let error = with_suggestion(Cli::try_parse_from(&arguments).unwrap_err(), &arguments);
            assert!(error.to_string().contains(&format!("'{command}'")), "{error}");
        }
    }
}
