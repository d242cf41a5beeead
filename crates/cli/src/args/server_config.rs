//! The configuration file of `muster serve`: its keys are the options of the command. The values are parsed as those of the
//! command line, in a second pass over the arguments.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Command};
use muster_core::spelling;
use toml::de::{DeTable, DeValue};

/// The command that has a configuration file.
const SERVE: &str = "serve";
/// Options of all commands that the file may have. The others are for clients.
const GLOBAL_KEYS: [&str; 2] = ["state", "token-file"];
/// Options that make no sense in a file.
const NO_KEYS: [&str; 3] = ["config", "help", "version"];

/// The configuration file that the arguments name.
pub(super) fn requested(matches: &ArgMatches) -> Option<PathBuf> {
    let (SERVE, serve) = matches.subcommand()? else { return None };
    serve.get_one::<PathBuf>("config").cloned()
}

/// Parses the arguments again, with the options of the file that the command line and the environment do not have.
pub(super) fn parse(command: &mut Command, path: &Path, arguments: &[OsString]) -> Result<ArgMatches, clap::Error> {
    let given = command.try_get_matches_from_mut(arguments)?;
    let invalid = |problem: String| {
        let message = format!("the configuration {} cannot be used: {problem}\n", path.display());
        clap::Error::raw(ErrorKind::ValueValidation, message)
    };
    let text = fs::read_to_string(path).map_err(|error| {
        clap::Error::raw(ErrorKind::Io, format!("cannot read the configuration {}: {error}\n", path.display()))
    })?;
    let table = DeTable::parse(&text).map_err(|error| invalid(error.to_string()))?;
    let (Some(serve), Some((_, given))) = (command.find_subcommand(SERVE), given.subcommand()) else {
        return Err(invalid("there is no command that it is for".to_owned()));
    };
    let options: Vec<&clap::Arg> = serve.get_arguments().filter(|arg| is_key(arg)).collect();
    let mut all = arguments.to_vec();
    for (key, value) in table.get_ref() {
        let name = key.get_ref().replace('_', "-");
        let line = text[..key.span().start].matches('\n').count() + 1;
        let Some(option) = options.iter().find(|arg| arg.get_long() == Some(&name) && !key.get_ref().contains('-'))
        else {
            let known: Vec<String> =
                options.iter().filter_map(|arg| arg.get_long()).map(|long| long.replace('-', "_")).collect();
            let nearest = spelling::nearest(key.get_ref(), known.iter().map(String::as_str));
            let hint = nearest.map(|nearest| format!("; did you mean `{nearest}`?")).unwrap_or_default();
            return Err(invalid(format!("line {line}: unknown key `{}`{hint}", key.get_ref())));
        };
        let source = given.value_source(option.get_id().as_str());
        if matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable)) {
            continue;
        }
        let values = values(value.get_ref(), option)
            .map_err(|expected| invalid(format!("line {line}: `{}` must be {expected}", key.get_ref())))?;
        all.extend(
            values
                .into_iter()
                .map(|value| value.map_or(format!("--{name}"), |value| format!("--{name}={value}")).into()),
        );
    }
    command.try_get_matches_from_mut(all).map_err(|error| invalid(first_paragraph(&error)))
}

fn is_key(arg: &clap::Arg) -> bool {
    let Some(long) = arg.get_long() else { return false };
    if arg.is_global_set() { GLOBAL_KEYS.contains(&long) } else { !NO_KEYS.contains(&long) }
}

/// The values of an option, or what is expected. A flag that is set has no value.
fn values(value: &DeValue<'_>, option: &clap::Arg) -> Result<Vec<Option<String>>, &'static str> {
    match (option.get_action(), value) {
        (ArgAction::SetTrue, DeValue::Boolean(set)) => Ok(if *set { vec![None] } else { Vec::new() }),
        (ArgAction::SetTrue, _) => Err("true or false"),
        (ArgAction::Append, DeValue::Array(list)) => {
            list.iter().map(|item| scalar(item.get_ref()).map(Some).ok_or("a list of texts")).collect()
        }
        (ArgAction::Append, value) => scalar(value).map(|text| vec![Some(text)]).ok_or("a text or a list of texts"),
        (_, value) => scalar(value).map(|text| vec![Some(text)]).ok_or("a text"),
    }
}

fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.clone().into_owned()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

/// The message of the parser, without its usage.
fn first_paragraph(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    text.split("\n\n").next().unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses `muster serve --config FILE ARGUMENTS…` with this file.
    fn serve(text: &str, arguments: &[&str]) -> Result<ArgMatches, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        let path = file.path().as_os_str().to_owned();
        let mut all: Vec<OsString> = ["muster", SERVE, "--config"].map(OsString::from).into();
        all.push(path.clone());
        all.extend(arguments.iter().map(OsString::from));
        let mut command = crate::args::command(Some(100));
        let first = command.try_get_matches_from_mut(&all).unwrap();
        assert_eq!(requested(&first), Some(PathBuf::from(path)));
        let matches = parse(&mut command, file.path(), &all).map_err(|error| error.to_string())?;
        Ok(matches.subcommand().unwrap().1.clone())
    }

    fn strings(matches: &ArgMatches, id: &str) -> Vec<String> {
        let raw = matches.get_raw(id).unwrap_or_default();
        raw.map(|value| value.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn options_come_from_the_file_and_arguments_precede() {
        let file = "listen = \"0.0.0.0:7300\"\nname = [\"a.example\", \"b.example\"]\nstate = \"/var/lib/muster\"\n\
                    store = \"etcd://e:1\"\nstore_ca = \"ca.pem\"\nrenewal_grace = \"1d\"\n";
        let matches = serve(file, &["--renewal-grace", "2d"]).unwrap();
        assert_eq!(strings(&matches, "listen"), ["0.0.0.0:7300"]);
        assert_eq!(strings(&matches, "name"), ["a.example", "b.example"]);
        assert_eq!(strings(&matches, "state"), ["/var/lib/muster"]);
        assert_eq!(strings(&matches, "renewal_grace"), ["2d"]);
        let matches =
            serve("name = \"a.example\"\nproject = \"p\"\nno_validate = true", &["--name", "c.example"]).unwrap();
        assert_eq!(strings(&matches, "name"), ["c.example"], "a list is replaced, not extended");
        assert!(matches.get_flag("no_validate"));
        assert!(!serve("no_validate = false", &[]).unwrap().get_flag("no_validate"));
    }

    #[test]
    fn invalid_file_is_refused_with_line_and_suggestion() {
        for (file, problem) in [
            ("\nlisten = \"127.0.0.1:1\"\nlisen = \"x\"", "line 3: unknown key `lisen`; did you mean `listen`?"),
            ("store-ca = \"x\"", "line 1: unknown key `store-ca`; did you mean `store_ca`?"),
            ("config = \"x\"", "unknown key `config`"),
            ("server = \"x\"", "unknown key `server`"),
            ("listen = \"x\"", "invalid value 'x' for '--listen <ADDRESS>'"),
            ("listen = 1.5", "line 1: `listen` must be a text"),
            ("name = [true]", "`name` must be a list of texts"),
            ("no_validate = \"yes\"", "`no_validate` must be true or false"),
            ("store_ca = \"ca.pem\"", "--store <STORE>"),
            ("listen = ", "TOML parse error at line 1"),
            ("[store]\nca = \"x\"", "`store` must be a text"),
        ] {
            let error = serve(file, &[]).unwrap_err();
            assert!(error.contains(problem), "{file}: {error}");
        }
    }
}
