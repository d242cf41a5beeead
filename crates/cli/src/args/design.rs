//! Parses design directories on the command line, and the names that follow them.

use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Source name of documents that were written through the API.
const RESERVED: &str = "api";

/// A design directory, and the name of its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedDir {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

/// The positional arguments: directories, then names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DirsAndNames {
    pub(crate) dirs: Vec<NamedDir>,
    pub(crate) names: Vec<String>,
}

/// Splits arguments into directories and names. With `--dir` all arguments are names; without it the leading arguments that
/// are existing directories are the design. At most `max_names` names may follow.
pub(crate) fn split(args: &[String], dirs: &[String], max_names: usize) -> Result<DirsAndNames, Failure> {
    let given = if dirs.is_empty() { args } else { dirs };
    let found: Vec<(Option<&str>, &str)> = given.iter().map_while(|arg| parse_dir(arg)).collect();
    let names = if dirs.is_empty() { &args[found.len()..] } else { args };
    if !dirs.is_empty() && found.len() < dirs.len() {
        return Err(not_a_directory(&dirs[found.len()]));
    }
    match names.first() {
        // Too many names: one was meant as a directory, most likely the first.
        Some(arg) if found.is_empty() || names.len() > max_names => {
            let hint = "directories come first, then names; or give directories with --dir DIR";
            return Err(not_a_directory(arg).hint(hint));
        }
        None if found.is_empty() => {
            return Err(Failure::usage("no directory was given").hint("give the directory of the design"));
        }
        Some(_) | None => {}
    }
    Ok(DirsAndNames { dirs: with_names(&found)?, names: names.to_vec() })
}

/// Parses arguments that must all be directories.
pub(crate) fn only_dirs(args: &[String]) -> Result<Vec<NamedDir>, Failure> {
    match args.iter().find(|arg| parse_dir(arg).is_none()) {
        Some(arg) => Err(not_a_directory(arg)),
        None => split(args, &[], 0).map(|split| split.dirs),
    }
}

/// Parses `DIR` or `NAME=DIR`; none if the directory does not exist.
fn parse_dir(arg: &str) -> Option<(Option<&str>, &str)> {
    if Path::new(arg).is_dir() {
        return Some((None, arg));
    }
    let (name, dir) = arg.split_once('=')?;
    (is_name(name) && Path::new(dir).is_dir()).then_some((Some(name), dir))
}

fn not_a_directory(arg: &str) -> Failure {
    let path = match arg.split_once('=') {
        Some((name, dir)) if is_name(name) => dir,
        Some(_) | None => arg,
    };
    match std::fs::metadata(path) {
        Ok(_) => Failure::usage(format!("{path} is not a directory")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Failure::usage(format!("there is no directory {path}"))
        }
        Err(error) => Failure::usage(format!("cannot read {path}: {error}")),
    }
}

/// Adds the default names of sources, and refuses reserved and duplicate names.
fn with_names(found: &[(Option<&str>, &str)]) -> Result<Vec<NamedDir>, Failure> {
    let mut dirs: Vec<NamedDir> = Vec::new();
    for (name, path) in found {
        let path = PathBuf::from(path);
        let name = match name {
            Some(name) => (*name).to_owned(),
            None => default_name(&path)?,
        };
        if name == RESERVED {
            let failure = Failure::usage(format!("the source name {RESERVED} of {} is reserved", path.display()));
            return Err(failure.hint(format!(
                "{RESERVED} is the source of documents written through the API; choose another name: NAME={}",
                path.display()
            )));
        }
        if let Some(other) = dirs.iter().find(|dir| dir.name == name) {
            let (a, b) = (other.path.display(), path.display());
            let failure = Failure::usage(format!("{a} and {b} have the same source name {name}"));
            return Err(failure.hint(format!("choose another name for one of them: NAME={b}")));
        }
        dirs.push(NamedDir { name, path });
    }
    Ok(dirs)
}

/// The last part of the canonical path; this also gives `.` a name.
fn default_name(path: &Path) -> Result<String, Failure> {
    let real = path.canonicalize().map_err(|error| {
        Failure::failed(anyhow::Error::new(error).context(format!("cannot read {}", path.display())))
    })?;
    let name = real.file_name().and_then(|name| name.to_str()).filter(|name| is_name(name));
    name.map(str::to_owned).ok_or_else(|| {
        let failure = Failure::usage(format!("{} has no valid source name", path.display()));
        failure.hint(format!("choose a name of A-Z, a-z, 0-9, '-', '_' and '.': NAME={}", path.display()))
    })
}

fn is_name(name: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    !name.is_empty() && name.len() <= 63 && name.bytes().all(legal) && name.as_bytes()[0].is_ascii_alphanumeric()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(args: &[&str]) -> Vec<String> {
        args.iter().map(|arg| (*arg).to_owned()).collect()
    }

    #[test]
    fn leading_existing_directories_are_the_design() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        for name in ["site", "overrides", "web1"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        let (site, overrides) = (path("site"), path("overrides"));
        let split = |given: &[&str], dirs: &[&str]| {
            let split = split(&owned(given), &owned(dirs), 2).map_err(|failure| failure.error.to_string())?;
            let dirs: Vec<String> = split.dirs.iter().map(|dir| dir.name.clone()).collect();
            Ok::<_, String>((dirs.join(" "), split.names.join(" ")))
        };
        let ok = |dirs: &str, names: &str| Ok((dirs.to_owned(), names.to_owned()));
        assert_eq!(split(&[&site], &[]), ok("site", ""));
        assert_eq!(split(&[&site, "web1", "mtu"], &[]), ok("site", "web1 mtu"));
        assert_eq!(split(&[&site, &overrides, "web1"], &[]), ok("site overrides", "web1"));
        assert_eq!(split(&[&format!("base={site}"), "web1"], &[]), ok("base", "web1"));
        assert_eq!(split(&["web1"], &[&site, &format!("x={overrides}")]), ok("site x", "web1"));

        let nowhere = path("nowhere");
        let missing = format!("there is no directory {nowhere}");
        assert_eq!(split(&[&nowhere, "web1"], &[]), Err(missing.clone()));
        assert_eq!(split(&[&site, &nowhere, "web1", "mtu"], &[]), Err(missing.clone()));
        assert_eq!(split(&["web1"], &[&site, &nowhere]), Err(missing));
        assert_eq!(split(&[], &[]), Err("no directory was given".to_owned()));
        assert_eq!(split(&[&format!("api={site}")], &[]), Err(format!("the source name api of {site} is reserved")));
        let twice = split(&[&format!("site={overrides}"), &site], &[]);
        assert_eq!(twice, Err(format!("{overrides} and {site} have the same source name site")));
    }
}
