//! The copy of the source that has the switches: under the target directory, so that nothing in the checkout changes, and
//! kept, so that the next build compiles only what is different.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::list::Guard;
use crate::schemata::{SWITCH, switched};

/// What the simulator with the switches is called, so that it does not lie where the real one does.
const PROGRAM: &str = "muster-sim-without";
/// The crates of the copy have another version. Cargo tells crates of one workspace apart by name, version and place within
/// it: with the same version, the copy would be taken for the source itself, and compiled over it.
const VERSION: (&str, &str) = ("\nversion = \"0.1.0\"\n", "\nversion = \"0.1.0-without\"\n");
/// Where the switch is.
const CORE: &str = "crates/core/src/lib.rs";
/// An example that does nothing. Whoever builds an example, or a test, gets the features of dependencies that tests ask for;
/// and then the dependencies are those of `make build`, which are there already.
const EXAMPLE: (&str, &str) = ("crates/core/examples/nothing.rs", "fn main() {}\n");
/// Most of the time goes into building, and a story is short. Whoever looks for other seeds tells many of them.
const UNOPTIMISED: [&str; 3] = ["core", "rollout", "sim"];

/// Makes the copy, and says where it is.
pub(crate) fn make(root: &Path, target: &Path, guards: &[Guard]) -> Result<PathBuf> {
    let copy = target.join("mutants");
    let mut files = files(root)?;
    let mut of_file: BTreeMap<&str, Vec<&Guard>> = BTreeMap::new();
    for guard in guards {
        ensure!(files.contains(&guard.file), "{}: there is no file {}", guard.name, guard.file);
        of_file.entry(&guard.file).or_default().push(guard);
    }
    for file in &files {
        let path = root.join(file);
        // Links are left out: nothing that is built is one, and one of the examples leads to a file without an end. And
        // somebody may have removed a file that git has not forgotten yet.
        if !path.symlink_metadata().is_ok_and(|found| found.is_file()) {
            continue;
        }
        let content = std::fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        let content = match of_file.get(file.as_str()) {
            Some(guards) => {
                let within = if file.starts_with("crates/core/") { "crate" } else { "muster_core" };
                let text = String::from_utf8(content).with_context(|| format!("{file} is no text"))?;
                switched(&text, guards, within)?.into_bytes()
            }
            None => content,
        };
        write(&copy.join(file), &adapted(file, content)?)?;
    }
    write(&copy.join(EXAMPLE.0), EXAMPLE.1.as_bytes())?;
    files.insert(EXAMPLE.0.to_owned());
    remove_others(&copy, &files)?;
    Ok(copy)
}

/// What belongs to the source: tracked, or new and not to be ignored.
fn files(root: &Path) -> Result<BTreeSet<String>> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("git cannot be started")?;
    ensure!(listed.status.success(), "git does not say which files there are: {}", listed.status);
    let listed = String::from_utf8(listed.stdout).context("git names a file that is no text")?;
    Ok(listed.split('\0').filter(|file| !file.is_empty()).map(ToOwned::to_owned).collect())
}

/// What is different in the copy beside the guards.
fn adapted(file: &str, content: Vec<u8>) -> Result<Vec<u8>> {
    let replaced = |from: &str, to: &str| -> Result<Vec<u8>> {
        let text = String::from_utf8(content.clone()).with_context(|| format!("{file} is no text"))?;
        ensure!(text.contains(from), "{file} does not hold {from:?} any more, which is another in the copy");
        Ok(text.replace(from, to).into_bytes())
    };
    match file {
        "Cargo.toml" => replaced(VERSION.0, VERSION.1),
        "Cargo.lock" => Ok(locked(&String::from_utf8_lossy(&content)).into_bytes()),
        "crates/sim/Cargo.toml" => {
            replaced("[[bin]]\nname = \"muster-sim\"", &format!("[[bin]]\nname = \"{PROGRAM}\""))
        }
        CORE => Ok([content, SWITCH.as_bytes().to_vec()].concat()),
        _ => Ok(content),
    }
}

/// The lock file, with the version that the crates have in the copy.
fn locked(text: &str) -> String {
    let packages = text.split("[[package]]\n").map(|package| match package.starts_with("name = \"muster-") {
        true => package.replacen(VERSION.0, VERSION.1, 1),
        false => package.to_owned(),
    });
    packages.collect::<Vec<_>>().join("[[package]]\n")
}

/// Only what is different is written: the build goes by the time at which a file was changed.
fn write(path: &Path, content: &[u8]) -> Result<()> {
    if std::fs::read(path).is_ok_and(|before| before == content) {
        return Ok(());
    }
    let written = path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(path, content));
    written.with_context(|| format!("{} cannot be written", path.display()))
}

/// What does not belong to the source any more must not be compiled either.
fn remove_others(copy: &Path, files: &BTreeSet<String>) -> Result<()> {
    let mut folders = vec![copy.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| format!("{} cannot be read", folder.display()))? {
            let path = entry?.path();
            let name = path.strip_prefix(copy).ok().and_then(Path::to_str);
            if path.is_dir() {
                folders.push(path);
            } else if name.is_none_or(|name| !files.contains(name)) {
                std::fs::remove_file(&path).with_context(|| format!("{} cannot be removed", path.display()))?;
            }
        }
    }
    Ok(())
}

/// Builds the simulator of the copy, and says where it is: in the same target directory, with the features of the whole
/// workspace, so that only what is in the copy is compiled.
pub(crate) fn build(copy: &Path, target: &Path, optimised: bool) -> Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--locked", "--workspace", "--bin", PROGRAM, "--example", "nothing"]);
    cargo.args(["--config", "profile.dev.debug=0"]);
    for name in UNOPTIMISED.into_iter().filter(|_| !optimised) {
        cargo.args(["--config", &format!("profile.dev.package.muster-{name}.opt-level=0")]);
    }
    cargo.env("CARGO_TARGET_DIR", target).current_dir(copy).stdin(Stdio::null());
    let built = cargo.output().context("cargo cannot be started")?;
    if !built.status.success() {
        let said = String::from_utf8_lossy(&built.stderr);
        // A switch is not written as a person would write it, and the compiler warns of that.
        let error = said.find("\nerror").map_or(said.as_ref(), |at| &said[at..]);
        bail!("the source with a switch for each guard does not build:{error}");
    }
    Ok(target.join("debug").join(PROGRAM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crates_of_the_copy_have_a_version_of_their_own() {
        let lock = "version = 4\n\n[[package]]\nname = \"anyhow\"\nversion = \"0.1.0\"\nsource = \"x\"\n\n[[package]]\nname = \
                    \"muster-core\"\nversion = \"0.1.0\"\n";
        let copied = locked(lock);
        assert!(copied.contains("name = \"anyhow\"\nversion = \"0.1.0\"\n"), "{copied}");
        assert!(copied.ends_with("name = \"muster-core\"\nversion = \"0.1.0-without\"\n"), "{copied}");
    }
}
