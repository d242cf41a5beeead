//! File check: passes if a file exists and contains the expected text, or if it is absent as required.

use std::fs::{self, File};
use std::io::{self, Read};

use muster_core::report::summary::clip;

use crate::redact::Redactor;

/// Number of bytes that are searched. Configuration files are smaller; a log may have any size.
const READ: u64 = 1024 * 1024;
/// Number of characters shown if the text is missing.
const SHOWN: usize = 200;

pub(super) fn check(path: &str, contains: Option<&str>, absent: bool, secrets: &Redactor) -> Result<String, String> {
    let found = match fs::metadata(path) {
        Ok(found) => found,
        // A dangling link exists.
        Err(error) if error.kind() == io::ErrorKind::NotFound && absent => {
            return match fs::symlink_metadata(path) {
                Ok(_) => Err(format!("{path} is a dangling link, but must be absent")),
                Err(_) => Ok(format!("{path} is absent")),
            };
        }
        Err(error) => return Err(format!("{path}: {error}")),
    };
    if absent {
        return Err(format!("{path} exists, but must be absent"));
    }
    let Some(text) = contains else { return Ok(format!("{path} exists")) };
    // Opening anything else, such as a pipe, may block for ever.
    if !found.is_file() {
        return Err(format!("{path} is not a regular file, so it cannot contain {text:?}"));
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(READ).read_to_end(&mut bytes))
        .map_err(|error| format!("{path}: {error}"))?;
    let held = String::from_utf8_lossy(&bytes);
    if held.contains(text) {
        return Ok(format!("{path} contains {text:?}"));
    }
    let searched = if found.len() > READ { format!(" in its first {READ} bytes") } else { String::new() };
    Err(format!(
        "{path} does not contain {text:?}{searched}; it begins with: {}",
        clip(&secrets.text(held.trim()), SHOWN)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::secrets;
    use std::os::unix::fs::symlink;

    #[test]
    fn file_check_tests_existence_absence_and_content() {
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
        assert!(said.ends_with("conf does not contain \"listen 443\"; it begins with: liste[secret];"), "{said}");
    }

    #[test]
    fn huge_file_is_not_read_completely() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 40).unwrap();
        let said = check(&file.path().display().to_string(), Some("x"), false, &Redactor::default()).unwrap_err();
        assert!(said.contains("in its first 1048576 bytes"), "{said}");
    }
}
