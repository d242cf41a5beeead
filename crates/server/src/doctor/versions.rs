//! Checks of the versions of the store's members.

use std::collections::BTreeMap;

use muster_store::StoreHealth;
use muster_wire::doctor::{DoctorCheck, DoctorFinding, DoctorVerdict};

pub(super) fn judge(health: &StoreHealth) -> Vec<DoctorFinding> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for member in &health.members {
        if let Ok(state) = &member.state {
            versions.entry(&state.version).or_default().push(&member.name);
        }
    }
    let mut findings = Vec::new();
    for (version, members) in &versions {
        if let Some((why, least)) = too_old(version) {
            let finding = DoctorFinding::new(DoctorCheck::Version, DoctorVerdict::Warning, format!("{version}: {why}"));
            findings.push(
                finding.of(members.join(", ")).advise(format!("upgrade to {least} or newer, one member at a time")),
            );
        }
    }
    if versions.len() > 1 {
        let each = versions.iter().map(|(version, members)| format!("{version} on {}", members.join(", ")));
        let each: Vec<String> = each.collect();
        let finding = DoctorFinding::new(
            DoctorCheck::Version,
            DoctorVerdict::Warning,
            format!("members differ: {}", each.join("; ")),
        );
        findings.push(finding.advise("finish the upgrade"));
    }
    if findings.is_empty()
        && let Some((version, _)) = versions.first_key_value()
    {
        let everywhere = if health.members.len() > 1 { " everywhere" } else { "" };
        findings.push(DoctorFinding::new(
            DoctorCheck::Version,
            DoctorVerdict::Ok,
            format!("the store runs {version}{everywhere}"),
        ));
    }
    findings
}

/// The fault of a version of etcd, and the version that fixes it. None for other kinds of stores.
fn too_old(version: &str) -> Option<(&'static str, &'static str)> {
    const WATCHES: &str = "its watches can deliver old changes as new ones";
    const DIFFER: &str = "its members can diverge after one was killed under load";
    let mut numbers = version.strip_prefix("etcd ")?.split(['.', '-', '+']).map_while(|part| part.parse::<u32>().ok());
    let (major, minor, patch) = (numbers.next()?, numbers.next()?, numbers.next().unwrap_or(0));
    match (major, minor, patch) {
        (0..=2, ..) | (3, 0..=3, _) => Some(("it is no longer maintained", "3.5.15")),
        (3, 4, 0..=24) => Some((WATCHES, "3.4.34")),
        (3, 5, 0..=2) => Some((DIFFER, "3.5.15")),
        (3, 5, 3..=7) => Some((WATCHES, "3.5.15")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::tests::{but, dead, health, lines};
    use super::*;

    #[test]
    fn versions_with_known_faults_are_reported() {
        let table = [
            ("etcd 3.3.25", true),
            ("etcd 3.4.23", true),
            ("etcd 3.4.25", false),
            ("etcd 3.4.30", false),
            ("etcd 3.5.0", true),
            ("etcd 3.5.2", true),
            ("etcd 3.5.7", true),
            ("etcd 3.5.8", false),
            ("etcd 3.6.0-rc.1", false),
            ("etcd 4.0.0", false),
            ("redb, Muster 0.1.0", false),
            ("", false),
        ];
        for (version, old) in table {
            assert_eq!(too_old(version).is_some(), old, "{version}");
        }
    }

    #[test]
    fn different_member_versions_are_reported() {
        let at = |name: &str, version: &str| but(name, |state| state.version = version.into());
        let same = vec![at("etcd1", "etcd 3.5.9"), at("etcd2", "etcd 3.5.9"), dead("etcd3")];
        assert_eq!(lines(judge(&health(same))), ["version ok: the store runs etcd 3.5.9 everywhere"]);
        let differ = vec![at("etcd1", "etcd 3.4.23"), at("etcd2", "etcd 3.5.9"), at("etcd3", "etcd 3.4.23")];
        assert_eq!(
            lines(judge(&health(differ))),
            [
                "version etcd1, etcd3 warning: etcd 3.4.23: its watches can deliver old changes as new ones → \
                 upgrade to 3.4.34 or newer, one member at a time",
                "version warning: members differ: etcd 3.4.23 on etcd1, etcd3; etcd 3.5.9 on etcd2 → finish the upgrade",
            ]
        );
        assert_eq!(judge(&health(vec![dead("etcd1")])), []);
    }
}
