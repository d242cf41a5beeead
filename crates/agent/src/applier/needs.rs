//! The file in which content says what it waits for: one JSON object a line.

use std::path::Path;

use muster_core::report::reason::Need;
use muster_core::report::summary::clip;

use crate::bounded;
use crate::redact::Redactor;

/// More needs than a person reads are a mistake of the content.
const LIMIT: usize = 50;
const LINE: usize = 300;
const FILE: u64 = 1024 * 1024;

/// The needs in a file, each once. A line that is not understood is still a need: whoever wrote it waits for something.
pub(super) fn read(path: &Path, secrets: &Redactor) -> Vec<Need> {
    let text = bounded::text(path, FILE);
    let text = secrets.text(&text);
    let mut needs = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let need = serde_json::from_str(line).unwrap_or_else(|_| Need::Other { reason: clip(line.trim(), LINE) });
        if !needs.contains(&need) && needs.len() < LIMIT {
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
    fn every_line_is_a_need_and_none_is_told_twice() {
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
