//! Checks the keys of secrets: the same on all replicas, and enough to open all secrets.

use muster_core::names::SecretKeyId;
use muster_wire::doctor::{DoctorCheck, DoctorFinding, DoctorVerdict};
use muster_wire::secrets::SecretsStatus;

use super::facts::ReplicaFacts;

/// Secrets that a finding names.
const MAX_NAMED: usize = 5;

/// Findings about problems only: most installations have one server, and many have no secrets.
pub(super) fn check_secrets(replicas: &[ReplicaFacts], status: &SecretsStatus) -> Vec<DoctorFinding> {
    let failed = |detail: String| DoctorFinding::new(DoctorCheck::Secrets, DoctorVerdict::Failed, detail);
    let mut findings = Vec::new();
    let newest = replicas.iter().find(|replica| !replica.record.secret_keys.is_empty());
    for replica in replicas.iter().filter(|_| newest.is_some()) {
        let keys = &replica.record.secret_keys;
        let of_others = replicas.iter().filter(|other| other.id != replica.id);
        let mut lacks: Vec<&str> = of_others
            .flat_map(|other| &other.record.secret_keys)
            .filter(|key| !keys.contains(key))
            .map(SecretKeyId::as_str)
            .collect();
        lacks.sort_unstable();
        lacks.dedup();
        if !lacks.is_empty() {
            let finding = failed(format!("lacks the keys {} of other servers", lacks.join(", ")));
            findings.push(finding.on(replica.id.as_str()).advise(
                "copy the file of --secrets-key of a server that has them to this one, with mode 0600; if both files have keys \
                 of their own, write the lines of both into one file. The servers read it within seconds",
            ));
        }
    }
    if findings.is_empty()
        && let Some(problem) = &status.problem
    {
        findings.push(failed(problem.clone()));
    }
    if !status.unopened.is_empty() {
        let count = status.unopened.len();
        let named: Vec<String> = status
            .unopened
            .iter()
            .take(MAX_NAMED)
            .map(|row| format!("{} ({}, {})", row.key, row.env, row.layer))
            .collect();
        let more = if count > MAX_NAMED { format!(" and {} more", count - MAX_NAMED) } else { String::new() };
        let detail = format!("this server cannot open {}{more}: nodes that look them up are pending", named.join(", "));
        findings.push(failed(detail).advise(format!(
            "`muster secrets status` has the reasons; add the missing keys to {}, or set the secrets again",
            status.file
        )));
    }
    findings
}

#[cfg(test)]
mod tests {
    use muster_core::lookup::config_data::Layer;
    use muster_core::names::{DataKey, EnvName};
    use muster_wire::secrets::UnopenedRow;

    use super::*;
    use crate::doctor::facts::tests::{lines, replica};

    #[test]
    fn missing_keys_and_unopened_secrets_are_named() {
        let key = |digit: &str| SecretKeyId::new(digit.repeat(16)).unwrap();
        let with = |name: &str, keys: Vec<SecretKeyId>| {
            let mut facts = replica(name, &[]);
            facts.record.secret_keys = keys;
            facts
        };
        let none = SecretsStatus::default();
        assert!(check_secrets(&[with("a-1", vec![key("1")]), with("b-2", vec![key("1")])], &none).is_empty());
        assert!(check_secrets(&[replica("a-1", &[])], &none).is_empty(), "an older server");
        let seen = lines(check_secrets(&[with("a-1", vec![key("2"), key("1")]), with("b-2", vec![key("1")])], &none));
        assert!(seen[0].starts_with("secrets b-2 failed: lacks the keys 2222222222222222 of other servers → copy"));
        assert_eq!(seen.len(), 1);
        let (env, datum) = (EnvName::new("prod").unwrap(), DataKey::new("db::password").unwrap());
        let row = UnopenedRow { env, key: datum, layer: Layer::Global, reason: "no key".into() };
        let status = SecretsStatus { unopened: vec![row; 7], file: "/x/secrets.key".into(), ..none };
        let seen = lines(check_secrets(&[with("a-1", vec![key("1")])], &status));
        assert!(
            seen[0].contains("cannot open db::password (prod, global), ") && seen[0].contains(" and 2 more: nodes")
        );
    }
}
