//! Finds the agent's program.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Name of the agent's program.
pub const AGENT: &str = "muster-agent";

#[derive(Debug, Error)]
pub enum FindAgentError {
    #[error("{path} is not an executable program: give the path of {AGENT}")]
    NotAProgram {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{AGENT} is neither next to {own} nor in PATH: install it, or give its path with --agent")]
    Nowhere { own: PathBuf },
}

/// Finds the agent: the given path, else next to the running program, else in `PATH`.
pub fn find_agent(named: Option<&Path>) -> Result<PathBuf, FindAgentError> {
    let own = env::current_exe().unwrap_or_default();
    find_in(named, &own, env::var_os("PATH").as_deref())
}

fn find_in(named: Option<&Path>, own: &Path, path: Option<&OsStr>) -> Result<PathBuf, FindAgentError> {
    if let Some(named) = named {
        return program(named).map_err(|source| FindAgentError::NotAProgram { path: named.to_owned(), source });
    }
    let beside = own.parent().map(|folder| folder.join(AGENT));
    let in_path = path.into_iter().flat_map(env::split_paths).map(|folder| folder.join(AGENT));
    let found = beside.into_iter().chain(in_path).find_map(|candidate| program(&candidate).ok());
    found.ok_or_else(|| FindAgentError::Nowhere { own: own.to_owned() })
}

/// The absolute path of an executable: machines run in other working directories.
fn program(path: &Path) -> io::Result<PathBuf> {
    let path = path.canonicalize()?;
    let found = path.metadata()?;
    if !found.is_file() || found.permissions().mode() & 0o111 == 0 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "not an executable file"));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn put(folder: &Path, mode: u32) -> PathBuf {
        fs::create_dir_all(folder).unwrap();
        let path = folder.join(AGENT);
        fs::write(&path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.canonicalize().unwrap()
    }

    #[test]
    fn given_path_comes_first_then_neighbour_then_path() {
        let place = tempfile::tempdir().unwrap();
        let [named, beside, path] = ["named", "beside", "path"].map(|name| place.path().join(name));
        let own = beside.join("muster");
        let search = env::join_paths([place.path().join("nothing"), path.clone()]).unwrap();

        let nowhere = find_in(None, &own, Some(&search)).unwrap_err().to_string();
        assert!(nowhere.contains("install it, or give its path with --agent"), "{nowhere}");

        let in_path = put(&path, 0o755);
        assert_eq!(find_in(None, &own, Some(&search)).unwrap(), in_path);
        let is_beside = put(&beside, 0o755);
        assert_eq!(find_in(None, &own, Some(&search)).unwrap(), is_beside);
        let is_named = put(&named, 0o755);
        assert_eq!(find_in(Some(&is_named), &own, Some(&search)).unwrap(), is_named);
    }

    #[test]
    fn given_path_that_is_not_executable_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let own = place.path().join("muster");
        put(place.path(), 0o755);
        let not_executable = put(&place.path().join("other"), 0o644);
        for bad in [not_executable, place.path().join("missing"), place.path().to_owned()] {
            let error = find_in(Some(&bad), &own, None).unwrap_err();
            assert!(error.to_string().contains("is not an executable program"), "{error}");
        }
    }
}
