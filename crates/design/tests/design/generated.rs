//! Generated files that are checked in.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::finding_example::ROOT;

/// Compares files, by paths from the root of the repository, with their expected content. Writes them if the variable
/// is set. The given directories must not contain any other files.
#[expect(clippy::disallowed_methods, reason = "whoever runs the test says whether it shall write")]
pub(crate) fn compare(variable: &str, files: &BTreeMap<String, String>, directories: &[&str]) {
    let writes = std::env::var_os(variable).is_some();
    let mut stale = Vec::new();
    for (path, real) in files {
        let at = Path::new(ROOT).join(path);
        let is_same = fs::read_to_string(&at).is_ok_and(|there| there == *real);
        if !is_same && writes {
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::write(&at, real).unwrap();
        } else if !is_same {
            stale.push(path.clone());
        }
    }
    for directory in directories {
        for entry in fs::read_dir(Path::new(ROOT).join(directory)).into_iter().flatten() {
            let entry = entry.unwrap();
            let path = format!("{directory}/{}", entry.file_name().to_str().unwrap());
            if files.contains_key(&path) {
            } else if writes {
                fs::remove_file(entry.path()).unwrap();
            } else {
                stale.push(format!("{path}, which should not be there"));
            }
        }
    }
    assert!(
        stale.is_empty(),
        "these are not what the code says: run `make reference`, and read the difference: {stale:#?}"
    );
}
