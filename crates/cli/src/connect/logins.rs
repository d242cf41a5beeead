//! Logins of this user: a token for each server, in a private file of the user's configuration directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use muster_identity::private_file::{self, PrivateFileError};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::variables;

/// The file, in the configuration directory of the user.
const FILE: &str = "muster/logins.json";

#[derive(Debug, Error)]
pub(crate) enum LoginsError {
    #[error("the configuration directory is unknown: set XDG_CONFIG_HOME or HOME")]
    NoDirectory,
    #[error("cannot use the logins in {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: PrivateFileError,
    },
    #[error("the logins in {} are damaged: remove the file, and log in again", path.display())]
    Damaged {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("cannot write the logins to {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// A server that the user has logged in to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Login {
    pub(crate) token: String,
    /// Root certificate of the server, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) root: Option<String>,
}

/// All logins, by the URL of the server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Logins {
    /// The server of commands that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    #[serde(default)]
    pub(crate) servers: BTreeMap<String, Login>,
}

/// URL of a server as the key of its login.
pub(crate) fn server_key(url: &str) -> String {
    url.trim_end_matches('/').to_ascii_lowercase()
}

impl Logins {
    fn path() -> Option<PathBuf> {
        let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let directory = set(variables::CONFIG_HOME).or_else(|| Some(set(variables::HOME)?.join(".config")))?;
        Some(directory.join(FILE))
    }

    /// Reads the logins; none if there is no file.
    pub(crate) fn read() -> Result<Self, LoginsError> {
        Self::path().map_or_else(|| Ok(Self::default()), |path| Self::read_from(&path))
    }

    fn read_from(path: &Path) -> Result<Self, LoginsError> {
        match private_file::read(path) {
            Ok(text) => {
                serde_json::from_str(&text).map_err(|source| LoginsError::Damaged { path: path.to_owned(), source })
            }
            Err(error) if !path.exists() => {
                tracing::debug!(error = &error as &dyn std::error::Error, "no logins");
                Ok(Self::default())
            }
            Err(source) => Err(LoginsError::Read { path: path.to_owned(), source }),
        }
    }

    /// Writes the logins. Returns the path of the file.
    pub(crate) fn write(&self) -> Result<PathBuf, LoginsError> {
        let path = Self::path().ok_or(LoginsError::NoDirectory)?;
        let text =
            serde_json::to_string_pretty(self).map_err(|source| LoginsError::Damaged { path: path.clone(), source })?;
        let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| private_file::write(&path, &text));
        written.map_err(|source| LoginsError::Write { path: path.clone(), source })?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn file_that_others_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logins.json");
        assert!(Logins::read_from(&path).unwrap().servers.is_empty());
        let login = Login { token: "muster_user_x".to_owned(), root: None };
        let key = server_key("https://Muster.example.org:7300/");
        assert_eq!(key, "https://muster.example.org:7300");
        let logins = Logins { current: Some(key.clone()), servers: [(key.clone(), login.clone())].into() };
        private_file::write(&path, &serde_json::to_string(&logins).unwrap()).unwrap();
        assert_eq!(Logins::read_from(&path).unwrap().servers.get(&key), Some(&login));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Logins::read_from(&path), Err(LoginsError::Read { .. })));
        private_file::write(&path, "{").unwrap();
        assert!(matches!(Logins::read_from(&path), Err(LoginsError::Damaged { .. })));
    }
}
