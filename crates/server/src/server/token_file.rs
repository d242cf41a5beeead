//! The file with the token of the server.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use muster_core::release::dir::hex;
use muster_wire::token::{ReadTokenError, Token};
use thiserror::Error;

/// Name of the token file in a state directory.
pub const TOKEN_FILE: &str = "token";

#[derive(Debug, Error)]
pub enum TokenFileError {
    #[error(transparent)]
    Read(#[from] ReadTokenError),
    #[error("cannot create the token file {}", path.display())]
    Create {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("other users can read the token file {}: replace the token, and give the file mode 0600", path.display())]
    NotPrivate { path: PathBuf },
}

/// Reads the token that an operator has chosen. Other users must not be able to read the file.
pub fn read_token(path: &Path) -> Result<Token, TokenFileError> {
    let token = Token::read(path)?;
    let mode = std::fs::metadata(path).map_err(|source| ReadTokenError::Io { path: path.to_owned(), source })?.mode();
    if mode & 0o077 == 0 { Ok(token) } else { Err(TokenFileError::NotPrivate { path: path.to_owned() }) }
}

/// Reads the token of a state directory. The first server there creates it.
pub fn state_token(path: &Path) -> Result<Token, TokenFileError> {
    let failed = |source| TokenFileError::Create { path: path.to_owned(), source };
    if !path.try_exists().map_err(failed)? {
        create_token(path).map_err(failed)?;
    }
    read_token(path)
}

/// Creates the file with a random token and mode 0600. A file that another server has created meanwhile is kept.
fn create_token(path: &Path) -> io::Result<()> {
    let mut random = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    writeln!(file, "{}", hex(&random))?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(path) {
        Err(error) if error.error.kind() != io::ErrorKind::AlreadyExists => Err(error.error),
        // Agents keep a copy of the token: it has to survive a power failure.
        Ok(_) | Err(_) => File::open(directory)?.sync_all(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn token_is_created_once_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(TOKEN_FILE);
        assert!(matches!(read_token(&path), Err(TokenFileError::Read(_))), "an explicit file must exist");
        let token = state_token(&path).unwrap();
        assert_eq!(token.as_str().len(), 64);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(state_token(&path).unwrap().matches(token.as_str().as_bytes()), "a restart keeps the token");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = state_token(&path).unwrap_err().to_string();
        assert!(error.contains("mode 0600"), "{error}");
    }
}
