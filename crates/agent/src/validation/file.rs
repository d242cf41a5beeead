//! Passes when a file is there, and holds the expected text; or when nothing is there that should be gone.

use std::fs::{self, File};
use std::io::{self, Read};

use muster_core::report::summary::clip;

use crate::redact::Redactor;

/// So much of a file is searched: configuration is smaller, and a log may have any size.
const READ: u64 = 1024 * 1024;
/// So much of it is shown when it is not what was expected.
const SHOWN: usize = 200;

pub(super) fn check(path: &str, contains: Option<&str>, absent: bool, secrets: &Redactor) -> Result<String, String> {
    let found = match fs::metadata(path) {
        Ok(found) => found,
        // A link that leads nowhere is still something that lies there.
        Err(error) if error.kind() == io::ErrorKind::NotFound && absent => {
            return match fs::symlink_metadata(path) {
                Ok(_) => Err(format!("{path} is there, a link to nothing; it should be gone")),
                Err(_) => Ok(format!("{path} is not there")),
            };
        }
        Err(error) => return Err(format!("{path}: {error}")),
    };
    if absent {
        return Err(format!("{path} is there, and should be gone"));
    }
    let Some(text) = contains else { return Ok(format!("{path} is there")) };
    // To open anything else, a pipe for example, may take for ever.
    if !found.is_file() {
        return Err(format!("{path} is no file that could hold {text:?}"));
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(READ).read_to_end(&mut bytes))
        .map_err(|error| format!("{path}: {error}"))?;
    let held = String::from_utf8_lossy(&bytes);
    if held.contains(text) {
        return Ok(format!("{path} holds {text:?}"));
    }
    let searched = if found.len() > READ { format!(" in its first {READ} bytes") } else { String::new() };
    Err(format!("{path} does not hold {text:?}{searched}; it begins with: {}", clip(&secrets.text(held.trim()), SHOWN)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::secrets;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_is_there_or_gone_and_holds_what_it_should() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        fs::write(at("conf"), "listen 80;\n").unwrap();
        symlink("nowhere", at("link")).unwrap();
        for (path, contains, absent, passes) in [
            ("conf", None, false, true),
            ("conf", Some("listen 80"), false, true),
            ("conf", Some("listen 443"), false, false),
            ("conf", None, true, false),
            ("gone", None, false, false),
            ("gone", Some("x"), false, false),
            ("gone", None, true, true),
            ("link", None, true, false),
            (".", None, false, true),
            (".", Some("x"), false, false),
        ] {
            let said = check(&at(path), contains, absent, &Redactor::default());
            assert_eq!(said.is_ok(), passes, "{path} {contains:?} {absent}: {said:?}");
        }
        let said = check(&at("conf"), Some("listen 443"), false, &secrets(&["n 80"])).unwrap_err();
        assert!(said.ends_with("conf does not hold \"listen 443\"; it begins with: liste[secret];"), "{said}");
    }

    #[test]
    fn a_huge_file_is_not_read_whole() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 40).unwrap();
        let said = check(&file.path().display().to_string(), Some("x"), false, &Redactor::default()).unwrap_err();
        assert!(said.contains("in its first 1048576 bytes"), "{said}");
    }
}
