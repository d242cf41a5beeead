//! Reads the needs of a pending run: one JSON object per line, written by the release content.

use std::path::Path;

use muster_core::report::reason::Need;
use muster_core::report::summary::clip;

use crate::redact::Redactor;
use crate::run::bounded_file;

/// More needs than this are a mistake in the content.
const MAX_NEEDS: usize = 50;
const MAX_LINE: usize = 300;
const MAX_FILE: u64 = 1024 * 1024;

/// The needs in a file, without duplicates. A line that is not JSON is a need with that text.
pub(super) fn read(path: &Path, secrets: &Redactor) -> Vec<Need> {
    let text = bounded_file::read_text(path, MAX_FILE);
    let text = secrets.text(&text);
    let mut needs = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let need = serde_json::from_str(line).unwrap_or_else(|_| Need::Other { reason: clip(line.trim(), MAX_LINE) });
        if !needs.contains(&need) && needs.len() < MAX_NEEDS {
            needs.push(need);
        }
    }
    needs
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_core::names::Role;

    #[test]
    fn each_line_is_a_need_without_duplicates() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "{\"kind\":\"role\",\"role\":\"db\",\"want\":1,\"have\":0}\n\n\
                    {\"kind\":\"other\",\"reason\":\"r\"}\n{\"kind\":\"other\",\"reason\":\"r\"}\nthe disk\n";
        std::fs::write(file.path(), text).unwrap();
        let expected = [
            Need::Role { role: Role::new("db").unwrap(), want: 1, have: 0 },
            Need::Other { reason: "r".into() },
            Need::Other { reason: "the disk".into() },
        ];
        assert_eq!(read(file.path(), &Redactor::default()), expected);
        assert_eq!(read(Path::new("/nonexistent"), &Redactor::default()), []);
    }
}
