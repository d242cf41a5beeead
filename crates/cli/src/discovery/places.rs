//! Where announcements are, and whom they belong to.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use crate::variables;

/// The file in a state directory.
pub const SERVER_FILE: &str = "server.json";
/// The state directory of a server for which nobody chose one, in the directory where it was started.
pub const STATE_DIR: &str = ".muster";

/// The places to look in, taken from the process once so that everything else can be told.
#[derive(Clone, Debug)]
pub struct Places {
    pub current_dir: PathBuf,
    /// Where the user's servers announce themselves.
    pub user_dir: PathBuf,
}

impl Places {
    /// The places of this process.
    pub fn of_process() -> io::Result<Self> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let user_dir = user_dir(variable(variables::RUNTIME_DIR), variable(variables::TEMPORARY_DIR));
        Ok(Self { current_dir: std::env::current_dir()?, user_dir })
    }

    /// The state directories that may be meant, the nearest first.
    pub(super) fn near(&self) -> impl Iterator<Item = PathBuf> {
        self.current_dir.ancestors().map(|dir| dir.join(STATE_DIR))
    }
}

fn user_dir(runtime: Option<OsString>, temporary: Option<OsString>) -> PathBuf {
    match runtime {
        Some(dir) => Path::new(&dir).join("muster"),
        // Others can write to this directory too, so the name says whose it is, and the owner is checked.
        None => {
            let temporary = temporary.unwrap_or_else(|| "/tmp".into());
            Path::new(&temporary).join(format!("muster-{}", geteuid().as_raw()))
        }
    }
}

/// Makes the user's directory, if it is not there.
pub(super) fn make_private_dir(dir: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => check_private_dir(dir),
    }
}

/// Refuses a directory in which somebody else could put a file.
pub(super) fn check_private_dir(dir: &Path) -> io::Result<()> {
    // Of the link, not of where it leads: a link that somebody else placed is no directory of ours.
    let found = fs::symlink_metadata(dir)?;
    if found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0 {
        Ok(())
    } else {
        let problem = "it is not a directory that belongs to you and that only you can write to";
        Err(io::Error::new(io::ErrorKind::PermissionDenied, problem))
    }
}

/// Whether a file is the user's own.
pub(super) fn is_own(path: &Path) -> io::Result<bool> {
    Ok(fs::metadata(path)?.uid() == geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_directory_is_in_the_session_or_names_the_user() {
        assert_eq!(user_dir(Some("/run/user/7".into()), None), Path::new("/run/user/7/muster"));
        let uid = geteuid().as_raw();
        assert_eq!(user_dir(None, Some("/var/tmp".into())), PathBuf::from(format!("/var/tmp/muster-{uid}")));
        assert_eq!(user_dir(None, None), PathBuf::from(format!("/tmp/muster-{uid}")));
    }

    #[test]
    fn a_directory_that_others_can_write_to_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let private = dir.path().join("muster");
        make_private_dir(&private).unwrap();
        make_private_dir(&private).unwrap();
        fs::set_permissions(&private, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert_eq!(make_private_dir(&private).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        assert!(check_private_dir(&link).is_err());
    }
}
