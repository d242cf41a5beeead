//! The key that a fleet on this machine is signed with: made at the first start, and kept with the state.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use muster_release::key::{KeyError, SigningKey, read_public, write_public};
use thiserror::Error;

use crate::failure::Failure;

/// For people who find the key somewhere.
const COMMENT: &str = "made by muster up";

#[derive(Debug, Error)]
enum SigningKeyError {
    #[error("cannot make {}", path.display())]
    Directory {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the key that signs the releases of this fleet cannot be used")]
    Key(#[source] KeyError),
}

/// The key that was chosen; or that of the fleet whose state is in a directory.
pub(crate) fn signing_key(chosen: Option<&Path>, state: &Path) -> Result<SigningKey, Failure> {
    let key = match chosen {
        Some(path) => SigningKey::read(path).map_err(SigningKeyError::Key),
        None => find_or_make(&state.join("keys").join("release.key")),
    };
    key.map_err(Failure::failed)
}

fn find_or_make(path: &Path) -> Result<SigningKey, SigningKeyError> {
    let key = if path.exists() { SigningKey::read(path).map_err(SigningKeyError::Key)? } else { make(path)? };
    // For those who set up agents by hand. Whoever was killed between the two files has left only one.
    let public = path.with_extension("pub");
    if !read_public(&public).is_ok_and(|found| found == *key.public()) {
        let _ = std::fs::remove_file(&public);
        write_public(key.public(), &public).map_err(SigningKeyError::Key)?;
    }
    Ok(key)
}

fn make(path: &Path) -> Result<SigningKey, SigningKeyError> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|source| SigningKeyError::Directory { path: directory.to_owned(), source })?;
    let key = SigningKey::generate(COMMENT).map_err(SigningKeyError::Key)?;
    key.write_new(path).map_err(SigningKeyError::Key)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_is_its_owners_alone() {
        let state = tempfile::tempdir().unwrap();
        let made = signing_key(None, state.path()).unwrap();
        let path = state.path().join("keys/release.key");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let again = [signing_key(None, state.path()), signing_key(Some(&path), Path::new("/nowhere"))];
        for again in again {
            assert_eq!(again.unwrap().public().id(), made.public().id());
        }
        let public = std::fs::read_to_string(path.with_extension("pub")).unwrap();
        assert_eq!(public.trim(), made.public().to_string());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(signing_key(None, state.path()).is_err());
    }
}
