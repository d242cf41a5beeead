//! Commands that gates may run: programs in one directory, which the server's operator names with `--gate-commands`.
//!
//! Designs and strategies come from clients, and the server runs the commands with its own permissions. The directory is
//! therefore part of the server's own configuration. A command is checked when its design is planned and applied, and again
//! before each run.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use muster_core::rollout::strategy::{GateCheck, GateCheckKind, Strategy};
use thiserror::Error;

/// Write permission of the group and of all users.
const WRITABLE: u32 = 0o022;
const EXECUTABLE: u32 = 0o111;

/// The directory of `--gate-commands`. Without one no command is run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GateCommands(Option<PathBuf>);

/// Reason why a directory is not used.
#[derive(Debug, Error)]
pub enum GateDirectoryError {
    #[error(transparent)]
    Read(#[from] io::Error),
    #[error("it is not a directory")]
    NotADirectory,
    #[error(transparent)]
    Changeable(#[from] ChangeableByOthers),
}

/// Other users can change a program of gates, and with it run commands as the server.
#[derive(Debug, Error)]
pub enum ChangeableByOthers {
    #[error(
        "{} belongs to user {owner}, who can change it: only root and the user of the server may own it; run `chown` on it",
        path.display()
    )]
    Owner { path: PathBuf, owner: u32 },
    #[error("other users can write to {}; run `chmod go-w` on it", path.display())]
    Writable { path: PathBuf },
}

/// Reason why a command of a gate is not run.
#[derive(Debug, Error)]
pub enum GateCommandError {
    #[error(
        "this server runs no commands of gates; start it with --gate-commands DIR, where DIR has the programs that they may run"
    )]
    NoDirectory,
    #[error("the directory {} of --gate-commands cannot be used", directory.display())]
    Directory {
        directory: PathBuf,
        #[source]
        source: GateDirectoryError,
    },
    #[error("{program:?} is neither an absolute path without \"..\" nor the name of a file in {}", directory.display())]
    Path { program: String, directory: PathBuf },
    #[error("{program} cannot be run")]
    Unreadable {
        program: String,
        #[source]
        source: io::Error,
    },
    #[error("{program} is not in {}, the directory of --gate-commands", directory.display())]
    Outside { program: String, directory: PathBuf },
    #[error("{program} is not an executable file")]
    NotExecutable { program: String },
    #[error(transparent)]
    Changeable(#[from] ChangeableByOthers),
}

/// A gate check whose command is not run.
#[derive(Debug, Error)]
#[error("gate check {check:?} cannot run its command")]
pub struct RefusedGateCommand {
    pub check: String,
    #[source]
    pub source: GateCommandError,
}

impl GateCommands {
    /// Allows the programs in a directory, if one is given and can be used.
    pub fn new(directory: Option<PathBuf>) -> Result<Self, GateDirectoryError> {
        if let Some(directory) = &directory {
            canonical_directory(directory)?;
        }
        Ok(Self(directory))
    }

    /// Checks all commands of a strategy.
    pub fn check(&self, strategy: &Strategy) -> Result<(), RefusedGateCommand> {
        strategy.gate.checks.iter().try_for_each(|GateCheck { name, kind, .. }| match kind {
            GateCheckKind::Http(_) => Ok(()),
            GateCheckKind::Command(words) => {
                let resolved = self.resolve(words.first().map_or("", String::as_str));
                resolved.map(drop).map_err(|source| RefusedGateCommand { check: name.clone(), source })
            }
        })
    }

    /// Returns the file of a program: an absolute path, or a name in the directory. It must be in the directory after all
    /// symbolic links are followed. Neither the file nor a directory on its path from there may be changeable by other users.
    pub fn resolve(&self, program: &str) -> Result<PathBuf, GateCommandError> {
        let directory = self.0.as_ref().ok_or(GateCommandError::NoDirectory)?;
        let unusable = |source| GateCommandError::Directory { directory: directory.clone(), source };
        let allowed = canonical_directory(directory).map_err(unusable)?;
        let path = Path::new(program);
        let is_name = matches!(path.components().collect::<Vec<_>>()[..], [Component::Normal(_)]);
        let climbs = path.components().any(|component| component == Component::ParentDir);
        if climbs || !(is_name || path.is_absolute()) {
            return Err(GateCommandError::Path { program: program.to_owned(), directory: directory.clone() });
        }
        let program = || program.to_owned();
        let unreadable = |source| GateCommandError::Unreadable { program: program(), source };
        let file = fs::canonicalize(allowed.join(path)).map_err(unreadable)?;
        if !file.starts_with(&allowed) {
            return Err(GateCommandError::Outside { program: program(), directory: directory.clone() });
        }
        let metadata = fs::metadata(&file).map_err(unreadable)?;
        if !metadata.is_file() || mode(&metadata) & EXECUTABLE == 0 {
            return Err(GateCommandError::NotExecutable { program: program() });
        }
        check_unchangeable(&file, &metadata)?;
        let directories = file.ancestors().skip(1).take_while(|above| *above != allowed);
        for above in directories {
            check_unchangeable(above, &fs::metadata(above).map_err(unreadable)?)?;
        }
        Ok(file)
    }
}

/// The directory without symbolic links.
fn canonical_directory(directory: &Path) -> Result<PathBuf, GateDirectoryError> {
    let directory = fs::canonicalize(directory)?;
    let metadata = fs::metadata(&directory)?;
    if !metadata.is_dir() {
        return Err(GateDirectoryError::NotADirectory);
    }
    check_unchangeable(&directory, &metadata)?;
    Ok(directory)
}

/// Checks that only root and the user of this process can change a file or directory.
fn check_unchangeable(path: &Path, found: &Metadata) -> Result<(), ChangeableByOthers> {
    let owner = found.uid();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(ChangeableByOthers::Owner { path: path.to_owned(), owner });
    }
    if mode(found) & WRITABLE != 0 {
        return Err(ChangeableByOthers::Writable { path: path.to_owned() });
    }
    Ok(())
}

fn mode(metadata: &Metadata) -> u32 {
    metadata.permissions().mode()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use muster_core::rollout::strategy::Strategy;

    use super::*;
    use crate::api::chain;

    fn file(path: &Path, mode: u32) -> String {
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn strategy(program: &str) -> Strategy {
        let mut strategy = Strategy::default();
        strategy.gate.checks.push(GateCheck {
            name: "orders".into(),
            kind: GateCheckKind::Command(vec![program.into()]),
            timeout: GateCheck::TIMEOUT,
            retries: 0,
            every: GateCheck::EVERY,
        });
        strategy
    }

    #[test]
    fn only_programs_in_the_directory_are_run() {
        let dir = tempfile::tempdir().unwrap();
        let gates = dir.path().join("gates");
        fs::create_dir_all(gates.join("sub")).unwrap();
        let inside = file(&gates.join("smoke"), 0o755);
        let below = file(&gates.join("sub/smoke"), 0o755);
        let outside = file(&dir.path().join("outside"), 0o755);
        symlink("smoke", gates.join("link")).unwrap();
        symlink(&outside, gates.join("way-out")).unwrap();
        symlink(dir.path(), gates.join("sub/up")).unwrap();
        let commands = GateCommands::new(Some(gates.clone())).unwrap();
        let smoke = fs::canonicalize(&inside).unwrap();
        for allowed in [inside.as_str(), "smoke", "link"] {
            assert_eq!(commands.resolve(allowed).unwrap(), smoke, "{allowed}");
        }
        assert_eq!(commands.resolve(&below).unwrap(), fs::canonicalize(&below).unwrap());

        let refused = |program: &str| commands.resolve(program).unwrap_err();
        let (way_out, up) = (format!("{}/way-out", gates.display()), format!("{}/sub/up/outside", gates.display()));
        for program in [outside.as_str(), "/bin/sh", "way-out", &way_out, &up] {
            assert!(matches!(refused(program), GateCommandError::Outside { .. }), "{program}");
        }
        let climbing = format!("{}/sub/../smoke", gates.display());
        for program in ["../outside", climbing.as_str(), "sub/smoke", "./smoke", "..", ".", ""] {
            assert!(matches!(refused(program), GateCommandError::Path { .. }), "{program:?}");
        }
        assert!(matches!(refused("none"), GateCommandError::Unreadable { .. }));
        assert!(matches!(refused("sub"), GateCommandError::NotExecutable { .. }));
        file(&gates.join("text"), 0o644);
        assert!(matches!(refused("text"), GateCommandError::NotExecutable { .. }));

        fs::remove_file(&inside).unwrap();
        symlink(&outside, &inside).unwrap();
        assert!(matches!(refused("smoke"), GateCommandError::Outside { .. }), "it was replaced after the first check");
        let text = PathBuf::from(&outside);
        assert!(matches!(GateCommands::new(Some(text)), Err(GateDirectoryError::NotADirectory)));
    }

    #[test]
    fn programs_that_others_can_change_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let gates = fs::canonicalize(dir.path()).unwrap().join("gates");
        fs::create_dir_all(gates.join("sub")).unwrap();
        let smoke = file(&gates.join("sub/smoke"), 0o755);
        let commands = GateCommands::new(Some(gates.clone())).unwrap();
        let chmod = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        for changeable in [gates.clone(), gates.join("sub"), gates.join("sub/smoke")] {
            for mode in [0o775, 0o757] {
                chmod(&changeable, mode);
                let refused = chain(&commands.resolve(&smoke).unwrap_err());
                assert!(
                    refused.ends_with(&format!("write to {}; run `chmod go-w` on it", changeable.display())),
                    "{refused}"
                );
            }
            chmod(&changeable, 0o755);
            commands.resolve(&smoke).unwrap();
        }
        chmod(&gates, 0o775);
        let refused = GateCommands::new(Some(gates)).unwrap_err();
        assert!(matches!(refused, GateDirectoryError::Changeable(ChangeableByOthers::Writable { .. })), "{refused}");
    }

    #[test]
    fn program_of_another_user_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        file(&dir.path().join("smoke"), 0o755);
        // Only root can give a file to another user.
        if std::os::unix::fs::chown(dir.path().join("smoke"), Some(12_345), None).is_err() {
            return;
        }
        let commands = GateCommands::new(Some(dir.path().to_owned())).unwrap();
        let refused = commands.resolve("smoke").unwrap_err();
        assert!(
            matches!(refused, GateCommandError::Changeable(ChangeableByOthers::Owner { owner: 12_345, .. })),
            "{refused}"
        );
    }

    #[test]
    fn without_a_directory_no_command_is_run() {
        let none = GateCommands::default();
        none.check(&Strategy::default()).unwrap();
        assert_eq!(
            chain(&none.check(&strategy("/bin/true")).unwrap_err()),
            "gate check \"orders\" cannot run its command: this server runs no commands of gates; start it with \
             --gate-commands DIR, where DIR has the programs that they may run"
        );
        let dir = tempfile::tempdir().unwrap();
        let commands = GateCommands::new(Some(dir.path().to_owned())).unwrap();
        assert_eq!(
            chain(&commands.check(&strategy("/bin/true")).unwrap_err()),
            format!(
                "gate check \"orders\" cannot run its command: /bin/true is not in {}, the directory of --gate-commands",
                dir.path().display()
            )
        );
    }
}
