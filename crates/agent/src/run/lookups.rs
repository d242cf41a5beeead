//! Reads the keys that a run has looked up.

use std::path::Path;

use muster_core::lookup::Lookups;
use muster_core::lookup::snapshot::Snapshot;
use muster_core::report::reason::{Need, RunReason};

use crate::run::bounded_file;

/// Limits on the number of keys and their length. No release comes near them.
const MAX_KEYS: usize = 10_000;
const MAX_KEY: usize = 256;
const MAX_FILE: u64 = (MAX_KEYS * MAX_KEY) as u64;

/// Reads the keys, found or not, with their tags in the snapshot. Keys that the run waits for are always included:
/// otherwise the server would not wake the node when they appear.
pub(super) fn read(path: &Path, snapshot: &Snapshot, reason: Option<&RunReason>) -> Lookups {
    let text = bounded_file::read_text(path, MAX_FILE);
    let needs = match reason {
        Some(RunReason::Waiting { needs } | RunReason::PendingIgnored { needs }) => needs.as_slice(),
        _ => &[],
    };
    let waited = needs.iter().filter_map(|need| match need {
        Need::Role { role, .. } => Some(format!("active_roles::{role}")),
        Need::Leader { role } => Some(format!("leader::{role}")),
        Need::Published { key, .. } => Some(format!("published::{key}")),
        Need::Other { .. } => None,
    });
    let recorded = text.lines().map(str::trim).filter(|key| !key.is_empty() && key.len() <= MAX_KEY).take(MAX_KEYS);
    let keys = recorded.map(str::to_owned).chain(waited);
    keys.map(|key| {
        let tag = snapshot.tag(&key);
        (key, tag)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_core::names::Role;

    #[test]
    fn lookups_include_the_roles_that_the_run_waits_for() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "active_roles::web::eth0\nactive_roles::web::eth0\n\nleader::db\n").unwrap();
        let needs = vec![Need::Role { role: Role::new("db").unwrap(), want: 1, have: 0 }];
        let snapshot = Snapshot::default();
        let lookups = read(file.path(), &snapshot, Some(&RunReason::Waiting { needs }));
        let keys: Vec<_> = lookups.keys().map(String::as_str).collect();
        assert_eq!(keys, ["active_roles::db", "active_roles::web::eth0", "leader::db"]);
        assert!(lookups.iter().all(|(key, tag)| *tag == snapshot.tag(key)));
    }
}
