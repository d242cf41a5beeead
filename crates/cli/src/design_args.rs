//! Directories of documents on the command line, and the names that follow them.

use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// What was written through the API has this name on every server.
const RESERVED: &str = "api";

/// A directory, and what the source is called that it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedDir {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

/// What was typed: directories, and the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    pub(crate) dirs: Vec<NamedDir>,
    pub(crate) rest: Vec<String>,
}

/// Tells directories from names: with `--dir`, all words are names; without, those are directories that stand in front
/// and are there. At most `most` names may follow.
pub(crate) fn split(words: &[String], dirs: &[String], most: usize) -> Result<Words, Failure> {
    let given = if dirs.is_empty() { words } else { dirs };
    let found: Vec<(Option<&str>, &str)> = given.iter().map_while(|word| directory(word)).collect();
    let rest = if dirs.is_empty() { &words[found.len()..] } else { words };
    if !dirs.is_empty() && found.len() < dirs.len() {
        return Err(no_directory(&dirs[found.len()]));
    }
    match rest.first() {
        // With too many words one of them was meant as a directory; which one, is the first that is none.
        Some(word) if found.is_empty() || rest.len() > most => {
            let hint = "directories come first, then names; --dir DIR says what is a directory";
            return Err(no_directory(word).hint(hint));
        }
        None if found.is_empty() => {
            return Err(Failure::usage("no directory was given").hint("name the directory that holds the design"));
        }
        Some(_) | None => {}
    }
    Ok(Words { dirs: named(&found)?, rest: rest.to_vec() })
}

/// Directories alone.
pub(crate) fn only_dirs(words: &[String]) -> Result<Vec<NamedDir>, Failure> {
    match words.iter().find(|word| directory(word).is_none()) {
        Some(word) => Err(no_directory(word)),
        None => split(words, &[], 0).map(|words| words.dirs),
    }
}

/// `DIR`, or `NAME=DIR`, if the directory is there.
fn directory(word: &str) -> Option<(Option<&str>, &str)> {
    if Path::new(word).is_dir() {
        return Some((None, word));
    }
    let (name, dir) = word.split_once('=')?;
    (is_name(name) && Path::new(dir).is_dir()).then_some((Some(name), dir))
}

fn no_directory(word: &str) -> Failure {
    let path = match word.split_once('=') {
        Some((name, dir)) if is_name(name) => dir,
        Some(_) | None => word,
    };
    match std::fs::metadata(path) {
        Ok(_) => Failure::usage(format!("{path} is not a directory")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Failure::usage(format!("there is no directory {path}"))
        }
        Err(error) => Failure::usage(format!("cannot look at {path}: {error}")),
    }
}

/// A source is called after its directory, unless the user says how.
fn named(found: &[(Option<&str>, &str)]) -> Result<Vec<NamedDir>, Failure> {
    let mut dirs: Vec<NamedDir> = Vec::new();
    for (name, path) in found {
        let path = PathBuf::from(path);
        let name = match name {
            Some(name) => (*name).to_owned(),
            None => called(&path)?,
        };
        if name == RESERVED {
            let failure = Failure::usage(format!("{} cannot be called {RESERVED}", path.display()));
            return Err(failure.hint(format!(
                "{RESERVED} is what was written through the API; name it otherwise: NAME={}",
                path.display()
            )));
        }
        if let Some(other) = dirs.iter().find(|dir| dir.name == name) {
            let (a, b) = (other.path.display(), path.display());
            let failure = Failure::usage(format!("{a} and {b} are both called {name}"));
            return Err(failure.hint(format!("give one of them another name: NAME={b}")));
        }
        dirs.push(NamedDir { name, path });
    }
    Ok(dirs)
}

/// The last part of a directory's real path: `.` has a name too.
fn called(path: &Path) -> Result<String, Failure> {
    let real = path.canonicalize().map_err(|error| {
        Failure::failed(anyhow::Error::new(error).context(format!("cannot look at {}", path.display())))
    })?;
    let name = real.file_name().and_then(|name| name.to_str()).filter(|name| is_name(name));
    name.map(str::to_owned).ok_or_else(|| {
        let failure = Failure::usage(format!("the source in {} needs a name", path.display()));
        failure.hint(format!("give it one of a-z, 0-9, '-', '_' and '.': NAME={}", path.display()))
    })
}

fn is_name(name: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    !name.is_empty() && name.len() <= 63 && name.bytes().all(legal) && name.as_bytes()[0].is_ascii_alphanumeric()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &[&str]) -> Vec<String> {
        text.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn directories_stand_in_front_and_are_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        for name in ["site", "overrides", "web1"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        let (site, overrides) = (path("site"), path("overrides"));
        let split = |given: &[&str], dirs: &[&str]| {
            let words = split(&words(given), &words(dirs), 2).map_err(|failure| failure.error.to_string())?;
            let dirs: Vec<String> = words.dirs.iter().map(|dir| dir.name.clone()).collect();
            Ok::<_, String>((dirs.join(" "), words.rest.join(" ")))
        };
        let ok = |dirs: &str, rest: &str| Ok((dirs.to_owned(), rest.to_owned()));
        assert_eq!(split(&[&site], &[]), ok("site", ""));
        assert_eq!(split(&[&site, "web1", "mtu"], &[]), ok("site", "web1 mtu"));
        assert_eq!(split(&[&site, &overrides, "web1"], &[]), ok("site overrides", "web1"));
        assert_eq!(split(&[&format!("base={site}"), "web1"], &[]), ok("base", "web1"));
        assert_eq!(split(&["web1"], &[&site, &format!("x={overrides}")]), ok("site x", "web1"));

        let nowhere = path("nowhere");
        let there_is_none = format!("there is no directory {nowhere}");
        assert_eq!(split(&[&nowhere, "web1"], &[]), Err(there_is_none.clone()));
        assert_eq!(split(&[&site, &nowhere, "web1", "mtu"], &[]), Err(there_is_none.clone()));
        assert_eq!(split(&["web1"], &[&site, &nowhere]), Err(there_is_none));
        assert_eq!(split(&[], &[]), Err("no directory was given".to_owned()));
        assert_eq!(split(&[&format!("api={site}")], &[]), Err(format!("{site} cannot be called api")));
        let twice = split(&[&format!("site={overrides}"), &site], &[]);
        assert_eq!(twice, Err(format!("{overrides} and {site} are both called site")));
    }
}
