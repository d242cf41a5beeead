//! What a run has looked up, with what it saw there.

use std::path::Path;

use muster_core::lookup::Lookups;
use muster_core::lookup::snapshot::Snapshot;
use muster_core::report::reason::{Need, RunReason};

use crate::bounded;

/// A run that looks up more keys than this, or longer ones, writes something else into the file.
const KEYS: usize = 10_000;
const KEY: usize = 256;
const FILE: u64 = (KEYS * KEY) as u64;

/// Reads the keys, found or not. A role that the run waits for counts as looked up, whether or not the content said so:
/// else nobody would wake the node when it is there.
pub(super) fn read(path: &Path, snapshot: &Snapshot, reason: Option<&RunReason>) -> Lookups {
    let text = bounded::text(path, FILE);
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
    let recorded = text.lines().map(str::trim).filter(|key| !key.is_empty() && key.len() <= KEY).take(KEYS);
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
    fn keys_are_read_once_each_and_a_role_that_is_waited_for_is_among_them() {
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
