//! Installs the agent's Puppet module, which is embedded in the binary.

use std::fs;
use std::path::Path;

use crate::state::durable::{self, WriteError};

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../../../puppet/muster/", $path)))),*]
    };
}

/// Paths and contents of the module. A test compares them with the directory.
const FILES: &[(&str, &str)] = files![
    "metadata.json",
    "lib/puppet/functions/muster/is_leader.rb",
    "lib/puppet/functions/muster/leader.rb",
    "lib/puppet/functions/muster/lookup_key.rb",
    "lib/puppet/functions/muster/pending.rb",
    "lib/puppet/functions/muster/publish.rb",
    "lib/puppet/functions/muster/require_active.rb",
    "lib/puppet/functions/muster/require_published.rb",
    "lib/puppet/functions/muster/self.rb",
    "lib/puppet/reports/muster.rb",
    "lib/puppet_x/muster/lookups.rb",
    "lib/puppet_x/muster/natural_order.rb",
    "lib/puppet_x/muster/pending.rb",
    "lib/puppet_x/muster/plain_data.rb",
    "lib/puppet_x/muster/published.rb",
    "lib/puppet_x/muster/run_file.rb",
    "lib/puppet_x/muster/snapshot.rb",
];

/// Installs the module in a module directory. Files with the same content are not written.
pub(super) fn install(modules: &Path) -> Result<(), WriteError> {
    for (path, content) in FILES {
        let path = modules.join("muster").join(path);
        if fs::read(&path).is_ok_and(|found| found == content.as_bytes()) {
            continue;
        }
        let directory = path.parent().unwrap_or(modules);
        fs::create_dir_all(directory).map_err(|source| WriteError::Io { path: directory.to_owned(), source })?;
        durable::write(&path, content.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn binary_contains_every_file_of_the_module() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../puppet/muster");
        let mut found = BTreeSet::new();
        let mut left = vec![root.clone()];
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    left.push(path);
                } else {
                    found.insert(path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        // Documentation, not part of the installed module.
        found.remove("README.md");
        assert_eq!(FILES.iter().map(|(path, _)| (*path).to_owned()).collect::<BTreeSet<_>>(), found);
    }

    #[test]
    fn changed_file_is_replaced() {
        let modules = tempfile::tempdir().unwrap();
        install(modules.path()).unwrap();
        let file = modules.path().join("muster/metadata.json");
        fs::write(&file, "{}").unwrap();
        install(modules.path()).unwrap();
        assert_eq!(fs::read_to_string(file).unwrap(), FILES[0].1);
    }
}
