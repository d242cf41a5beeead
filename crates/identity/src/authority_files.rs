//! The authorities in the directory of a server.
//!
//! ```text
//! ca/ca.crt, ca.key              the first one
//! ca/<any name>/ca.crt, ca.key   those of rotations; Muster names a directory with the begin of its pin
//! ca/current                     the pin of the one in use; the store decides, and this is for a store without a record
//! ```
//!
//! Files are never moved or replaced: a rotation changes which authority is used. A server that was killed at any point finds
//! either all files of a new authority or none.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;

use crate::authority::{self, Authority, AuthorityError, CERTIFICATE_FILE};
use crate::certificate;
use crate::private_file;
use crate::token::Pin;

/// File with the pin of the authority in use.
const CURRENT_FILE: &str = "current";
/// Digits of the pin in the name of a directory.
const NAME_DIGITS: usize = 16;
/// Directory of a new authority whose pin is not known yet.
const NEW: &str = ".new";

/// Authorities of a directory, by their pin.
#[derive(Debug)]
pub struct AuthorityFiles {
    directory: PathBuf,
    known: Mutex<BTreeMap<String, Arc<Authority>>>,
    initial: Arc<Authority>,
}

impl AuthorityFiles {
    /// Opens the authorities of a directory. Creates the first one if the directory does not exist.
    pub fn open_or_create(directory: &Path, now: Timestamp) -> Result<Self, AuthorityError> {
        let failed = |source| AuthorityError::Create { path: directory.to_owned(), source };
        if !directory.try_exists().map_err(failed)? {
            authority::create(directory, now)?;
        }
        Self::open(directory, now)
    }

    /// Opens the authorities of a directory. That in use, or the first one, must be usable.
    pub fn open(directory: &Path, now: Timestamp) -> Result<Self, AuthorityError> {
        let (mut known, _) = read(directory, now);
        let initial = match current(directory).and_then(|pin| known.get(&pin).cloned()) {
            Some(marked) => marked,
            None => {
                // Without the first one, the reason that counts is that of the one in use.
                let in_use = |error| current(directory).and_then(|pin| problem(directory, &pin, now)).unwrap_or(error);
                let first = Arc::new(Authority::open(directory, now).map_err(in_use)?);
                known.insert(first.pin().to_string(), first.clone());
                first
            }
        };
        Ok(Self { directory: directory.to_owned(), known: Mutex::new(known), initial })
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The authority of a store without a record.
    pub fn initial(&self) -> &Arc<Authority> {
        &self.initial
    }

    pub fn get(&self, pin: &str) -> Option<Arc<Authority>> {
        self.lock().get(pin).cloned()
    }

    pub fn pins(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    /// Reads the directory again: an operator, or another server, may have added an authority. Returns the problems of those that
    /// cannot be used.
    pub fn read_again(&self, now: Timestamp) -> Vec<AuthorityError> {
        let (found, problems) = read(&self.directory, now);
        let mut known = self.lock();
        for (pin, authority) in found {
            known.entry(pin).or_insert(authority);
        }
        problems
    }

    /// The reason why the authority with a pin cannot be used, though the directory has its certificate.
    pub fn problem(&self, pin: &str, now: Timestamp) -> Option<AuthorityError> {
        problem(&self.directory, pin, now)
    }

    /// Makes the files of a new authority.
    pub fn create(&self, now: Timestamp) -> Result<Arc<Authority>, AuthorityError> {
        let failed = |source| AuthorityError::Create { path: self.directory.clone(), source };
        let new = self.directory.join(NEW);
        // Left by a server that was killed, and named by no record.
        if !new.try_exists().map_err(failed)? {
            authority::create(&new, now)?;
        }
        let pin = Authority::open(&new, now)?.pin().to_string();
        let directory = self.directory.join(&pin[..NAME_DIGITS]);
        fs::rename(&new, &directory).and_then(|()| fs::File::open(&self.directory)?.sync_all()).map_err(failed)?;
        let authority = Arc::new(Authority::open(&directory, now)?);
        self.lock().insert(pin, authority.clone());
        Ok(authority)
    }

    /// Remembers which authority is in use.
    pub fn set_current(&self, pin: &str) -> std::io::Result<()> {
        if current(&self.directory).as_deref() == Some(pin) {
            return Ok(());
        }
        private_file::write(&self.directory.join(CURRENT_FILE), pin)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Authority>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn current(directory: &Path) -> Option<String> {
    fs::read_to_string(directory.join(CURRENT_FILE)).ok().map(|text| text.trim().to_owned())
}

/// Directories in the directory of a server that may have an authority.
fn subdirectories(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<_> =
        entries.filter(|path| path.join(CERTIFICATE_FILE).exists() && !path.ends_with(NEW)).collect();
    found.sort();
    found
}

/// The authorities of a directory that can be used, and the problems of the others.
fn read(directory: &Path, now: Timestamp) -> (BTreeMap<String, Arc<Authority>>, Vec<AuthorityError>) {
    let (mut known, mut problems) = (BTreeMap::new(), Vec::new());
    let own = directory.join(CERTIFICATE_FILE).exists().then(|| directory.to_owned());
    for path in own.into_iter().chain(subdirectories(directory)) {
        match Authority::open(&path, now) {
            Ok(authority) => drop(known.insert(authority.pin().to_string(), Arc::new(authority))),
            Err(error) => problems.push(error),
        }
    }
    (known, problems)
}

fn problem(directory: &Path, pin: &str, now: Timestamp) -> Option<AuthorityError> {
    let has_pin = |path: &PathBuf| {
        let text = fs::read_to_string(path.join(CERTIFICATE_FILE)).ok();
        let root = text.and_then(|text| certificate::from_pem(&text).ok()?.pop());
        root.is_some_and(|root| Pin::of(&root).is_ok_and(|found| found.to_string() == pin))
    };
    let all = std::iter::once(directory.to_owned()).chain(subdirectories(directory));
    all.filter(has_pin).find_map(|path| Authority::open(&path, now).err())
}

/// Root certificates of the authorities in a directory, for clients on the machine of a server.
pub fn known_roots(directory: &Path) -> Vec<CertificateDer<'static>> {
    let files = std::iter::once(directory.to_owned()).chain(subdirectories(directory));
    let texts = files.filter_map(|path| fs::read_to_string(path.join(CERTIFICATE_FILE)).ok());
    texts.filter_map(|text| certificate::from_pem(&text).ok()?.pop()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn now() -> Timestamp {
        "2026-11-18T10:00:00Z".parse().unwrap()
    }

    #[test]
    fn authorities_are_added_and_the_marked_one_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let ca = dir.path().join("ca");
        let files = AuthorityFiles::open_or_create(&ca, now()).unwrap();
        let first = files.initial().pin().to_string();
        let second = files.create(now()).unwrap().pin().to_string();
        let mut pins = vec![first.clone(), second.clone()];
        pins.sort();
        assert_eq!(files.pins(), pins);
        assert_eq!(known_roots(&ca).len(), 2);
        let key = ca.join(&second[..NAME_DIGITS]).join("ca.key");
        assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);

        let initial = || AuthorityFiles::open(&ca, now()).unwrap().initial().pin().to_string();
        assert_eq!(initial(), first);
        files.set_current(&second).unwrap();
        assert_eq!(initial(), second);
        // The replaced authority may be deleted.
        fs::remove_file(ca.join("ca.key")).unwrap();
        assert_eq!(initial(), second);
    }

    #[test]
    fn unusable_key_of_the_authority_in_use_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let ca = dir.path().join("ca");
        let files = AuthorityFiles::open_or_create(&ca, now()).unwrap();
        let first = files.initial().pin().to_string();
        let second = files.create(now()).unwrap().pin().to_string();
        files.set_current(&second).unwrap();
        let key = ca.join(&second[..NAME_DIGITS]).join("ca.key");
        let chain = |error: AuthorityError| format!("{error}: {}", std::error::Error::source(&error).unwrap());
        let reason = |pin: &str| AuthorityFiles::open(&ca, now()).unwrap().problem(pin, now()).map(chain);
        assert_eq!(reason(&second), None);
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
        // The first one is complete, and is not taken for the one in use.
        let found = reason(&second).unwrap();
        assert!(found.contains(&format!("`chmod 600 {}`", key.display())), "{found}");
        assert_eq!(reason(&first), None);
        fs::remove_file(&key).unwrap();
        let found = reason(&second).unwrap();
        assert!(found.contains("restore the file from a backup") && found.contains(&*key.to_string_lossy()), "{found}");
        // Without the first one too, the reason is not that of the first one.
        fs::remove_file(ca.join("ca.key")).unwrap();
        let found = chain(AuthorityFiles::open(&ca, now()).unwrap_err());
        assert!(found.contains(&*key.to_string_lossy()), "{found}");
    }

    #[test]
    fn authority_of_a_killed_server_is_used_again() {
        let dir = tempfile::tempdir().unwrap();
        let files = AuthorityFiles::open_or_create(&dir.path().join("ca"), now()).unwrap();
        authority::create(&files.directory().join(NEW), now()).unwrap();
        let left = Authority::open(&files.directory().join(NEW), now()).unwrap().pin();
        assert_eq!(files.pins().len(), 1, "it has no name yet");
        assert_eq!(files.create(now()).unwrap().pin(), left);
        assert!(files.read_again(now()).is_empty() && files.pins().len() == 2);
    }
}
