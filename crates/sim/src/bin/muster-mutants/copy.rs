//! Makes and builds a copy of the source with a switch for each guard: `if disabled { mutant } else { guard }`.
//!
//! One build serves all mutants. The copy is kept under the target directory: the checkout does not change, and the next
//! build is incremental.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::list::{Guard, LIST};

/// The name of the simulator in the copy, which must not replace the real one.
const PROGRAM: &str = "muster-sim-without";
/// The version of the crates in the copy. Cargo identifies workspace crates by name, version and path within the
/// workspace: with the same version, the copy would overwrite the build of the source.
const VERSION: (&str, &str) = ("\nversion = \"0.1.0\"\n", "\nversion = \"0.1.0-without\"\n");
/// The file with the switch.
const CORE: &str = "crates/core/src/lib.rs";
/// An empty example. Building an example or a test enables the dev features of dependencies, and the dependencies are
/// then those of `make build`, which exist already.
const EXAMPLE: (&str, &str) = ("crates/core/examples/nothing.rs", "fn main() {}\n");
/// Crates without optimisation: most of the time is spent building, and a run is short. A search for seeds is
/// optimised.
const UNOPTIMISED: [&str; 3] = ["core", "rollout", "sim"];

/// Makes the copy. Returns its path.
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
        // Symbolic links are skipped: none of them is built, and one of the examples points to an endless file. A
        // tracked file may also have been deleted.
        if !path.symlink_metadata().is_ok_and(|found| found.is_file()) {
            continue;
        }
        let content = std::fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        let content = match of_file.get(file.as_str()) {
            Some(guards) => {
                let within = if file.starts_with("crates/core/") { "crate" } else { "muster_core" };
                let text = String::from_utf8(content).with_context(|| format!("{file} is not UTF-8"))?;
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

/// The files of the source: tracked, or untracked and not ignored.
fn files(root: &Path) -> Result<BTreeSet<String>> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("git cannot be started")?;
    ensure!(listed.status.success(), "git cannot list the files: {}", listed.status);
    let listed = String::from_utf8(listed.stdout).context("git lists a file name that is not UTF-8")?;
    Ok(listed.split('\0').filter(|file| !file.is_empty()).map(ToOwned::to_owned).collect())
}

/// Other changes in the copy.
fn adapted(file: &str, content: Vec<u8>) -> Result<Vec<u8>> {
    let replaced = |from: &str, to: &str| -> Result<Vec<u8>> {
        let text = String::from_utf8(content.clone()).with_context(|| format!("{file} is not UTF-8"))?;
        ensure!(text.contains(from), "{file} no longer contains {from:?}, which the copy replaces");
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

/// The lock file with the version of the copy's crates.
fn locked(text: &str) -> String {
    let packages = text.split("[[package]]\n").map(|package| match package.starts_with("name = \"muster-") {
        true => package.replacen(VERSION.0, VERSION.1, 1),
        false => package.to_owned(),
    });
    packages.collect::<Vec<_>>().join("[[package]]\n")
}

/// Writes a file only if it differs, since the build goes by modification times.
fn write(path: &Path, content: &[u8]) -> Result<()> {
    if std::fs::read(path).is_ok_and(|before| before == content) {
        return Ok(());
    }
    let written = path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(path, content));
    written.with_context(|| format!("{} cannot be written", path.display()))
}

/// Removes files that are no longer in the source.
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

/// Builds the simulator of the copy, in the same target directory and with the features of the workspace, and
/// only the copy is compiled. Returns its path.
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
        let output = String::from_utf8_lossy(&built.stderr);
        // The switches cause warnings.
        let error = output.find("\nerror").map_or(output.as_ref(), |at| &output[at..]);
        bail!("the source with a switch for each guard does not build:{error}");
    }
    Ok(target.join("debug").join(PROGRAM))
}

/// Names the disabled guards, separated by commas.
pub(crate) const VARIABLE: &str = "MUSTER_WITHOUT";

/// Added to the copy of `muster-core`, which all crates depend on.
pub(crate) const SWITCH: &str = r#"
/// True if a guard is disabled.
pub fn is_without(guard: &str) -> bool {
    static WITHOUT: std::sync::LazyLock<String> =
        std::sync::LazyLock::new(|| std::env::var("MUSTER_WITHOUT").unwrap_or_default());
    !WITHOUT.is_empty() && WITHOUT.split(',').any(|off| off == guard)
}
"#;

/// The text of a file with a switch for each guard. `within`: the path of the crate with the switch.
pub(crate) fn switched(text: &str, guards: &[&Guard], within: &str) -> Result<String> {
    let mut places = Vec::new();
    for guard in guards {
        let mut found = text.match_indices(guard.find.as_str()).map(|(at, _)| at);
        match (found.next(), found.next()) {
            (Some(at), None) => places.push((at, *guard)),
            (Some(_), Some(_)) => {
                bail!("{}: {} contains this more than once:\n  {}", guard.name, guard.file, guard.find)
            }
            (None, _) => bail!(
                "{}: {} no longer contains this:\n  {}\nfind the guard in the source, and correct {LIST}",
                guard.name,
                guard.file,
                guard.find
            ),
        }
    }
    places.sort_by_key(|(at, _)| *at);
    let mut switched = String::with_capacity(text.len());
    let mut end = 0;
    for (at, Guard { name, file, find, becomes, .. }) in places {
        if at < end {
            bail!("{name}: it overlaps another guard of {file}");
        }
        switched.push_str(&text[end..at]);
        switched.push_str(&format!("(if {within}::is_without(\"{name}\") {{ {becomes} }} else {{ {find} }})"));
        end = at + find.len();
    }
    switched.push_str(&text[end..]);
    Ok(switched)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_has_its_own_version() {
        let lock = "version = 4\n\n[[package]]\nname = \"anyhow\"\nversion = \"0.1.0\"\nsource = \"x\"\n\n[[package]]\nname = \
                    \"muster-core\"\nversion = \"0.1.0\"\n";
        let copied = locked(lock);
        assert!(copied.contains("name = \"anyhow\"\nversion = \"0.1.0\"\n"), "{copied}");
        assert!(copied.ends_with("name = \"muster-core\"\nversion = \"0.1.0-without\"\n"), "{copied}");
    }

    fn guard(name: &str, find: &str, becomes: &str) -> Guard {
        let text = format!(
            "[[guard]]\nname = '{name}'\nkeeps = 'x'\nfile = 'f.rs'\nfind = '{find}'\nbecomes = '{becomes}'\nscript = 's'"
        );
        crate::list::read(&text, &[]).unwrap().remove(0)
    }

    #[test]
    fn each_guard_has_its_own_switch() {
        let (soak, full) = (guard("soak", "later(at, soak)", "at"), guard("full", "used >= max", "false"));
        let text = "if used >= max { return later(at, soak); }";
        assert_eq!(
            switched(text, &[&soak, &full], "crate").unwrap(),
            "if (if crate::is_without(\"full\") { false } else { used >= max }) { \
             return (if crate::is_without(\"soak\") { at } else { later(at, soak) }); }"
        );
    }

    #[test]
    fn moved_guard_is_reported() {
        let full = guard("full", "used >= max", "false");
        let output = |text: &str, guards: &[&Guard]| switched(text, guards, "crate").unwrap_err().to_string();
        assert!(output("used > max", &[&full]).contains("no longer contains this"));
        assert!(output("used >= max || used >= max", &[&full]).contains("more than once"));
        assert!(output("used >= max", &[&full, &guard("part", ">= max", ">= 1")]).contains("overlaps"));
    }
}
