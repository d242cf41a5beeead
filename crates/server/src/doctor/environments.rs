//! Checks of each environment: controller locks, silent nodes, unreadable keys, missing bundles, restore and destruction.

use jiff::Timestamp;
use muster_core::names::NodeName;
use muster_core::replica::ControllerName;
use muster_wire::doctor::{DoctorCheck, DoctorFinding, DoctorVerdict};

use super::bundles::BundleFault;
use super::facts::EnvironmentFacts;

pub(super) fn check_environment(facts: &EnvironmentFacts) -> Vec<DoctorFinding> {
    let env = facts.env.as_str();
    let mut findings: Vec<DoctorFinding> =
        ControllerName::ALL.into_iter().filter_map(|name| check_controller(facts, name)).collect();
    if let Some(restoring) = &facts.restoring {
        let seen = format!("is being restored since {}, by {}", restoring.since, restoring.by);
        findings.push(DoctorFinding::new(DoctorCheck::Environment, DoctorVerdict::Warning, seen).on(env).advise(
            "if no restore is running, run the same `muster restore FILE` again: until then the environment is paused",
        ));
    }
    if let Some(destroying) = &facts.destroying {
        let seen = format!("is being destroyed since {}, by {}", destroying.since, destroying.by);
        findings.push(DoctorFinding::new(DoctorCheck::Environment, DoctorVerdict::Warning, seen).on(env).advise(
            "its nodes leave first: the process that made their machines (`muster up`) must run to remove them",
        ));
    }
    if let Some((key, why)) = facts.unreadable.first_key_value() {
        let count = facts.unreadable.len();
        let seen = format!("{count} of its keys cannot be read, such as {key}: {why}");
        findings.push(
            DoctorFinding::new(DoctorCheck::Environment, DoctorVerdict::Warning, seen)
                .on(env)
                .advise("a newer Muster or another program wrote them: `muster status` lists them"),
        );
    }
    if !facts.bad_bundles.is_empty() {
        let bad = facts.bad_bundles.iter().map(|(version, fault)| match fault {
            BundleFault::Missing => format!("{version} is missing"),
            BundleFault::Unreadable(error) => format!("{version} cannot be read ({error})"),
            BundleFault::Length { found, recorded } => {
                format!("{version} is damaged ({found} bytes, its record says {recorded})")
            }
            BundleFault::Digest => format!("{version} is damaged (its content does not match its digest)"),
        });
        let bad: Vec<String> = bad.collect();
        let seen = format!("no node can run these versions: the bundle of {}", bad.join(", the bundle of "));
        findings.push(DoctorFinding::new(DoctorCheck::Environment, DoctorVerdict::Failed, seen).on(env).advise(
            "check the disk of the blob directory and its permissions; push the same bundles again with `muster \
                     release push`, or restore a backup",
        ));
    }
    if facts.unverified_bundles > 0 {
        let seen = format!("{} bundles could not be verified in time", facts.unverified_bundles);
        findings.push(
            DoctorFinding::new(DoctorCheck::Environment, DoctorVerdict::CannotTell, seen)
                .on(env)
                .advise("check that the disk of the blob directory is not overloaded, and run it again"),
        );
    }
    for (node, refused) in &facts.refused_agents {
        findings.push(
            DoctorFinding::new(DoctorCheck::Environment, DoctorVerdict::Warning, format!("{node}: {refused}"))
                .on(env)
                .advise("stop one of the two agents, or correct `node` in its configuration; a copied machine needs an empty state directory"),
        );
    }
    if facts.restoring.is_none() && facts.destroying.is_none() && facts.unreadable.is_empty() {
        let nodes = if facts.nodes == 1 { "1 node".to_owned() } else { format!("{} nodes", facts.nodes) };
        findings.push(
            DoctorFinding::new(DoctorCheck::Environment, DoctorVerdict::Ok, format!("{nodes}; all keys can be read"))
                .on(env),
        );
    }
    findings.extend(check_nodes(facts));
    findings.extend(check_agent_versions(facts));
    findings
}

/// Agents of several versions, or of another version than this server. An upgrade in progress looks the same.
fn check_agent_versions(facts: &EnvironmentFacts) -> Option<DoctorFinding> {
    let own = env!("CARGO_PKG_VERSION");
    if facts.agent_versions.keys().all(|version| version == own) {
        return None;
    }
    let agents = |(version, count): (&String, &usize)| format!("{count} of {version}");
    let named: Vec<String> = facts.agent_versions.iter().map(agents).collect();
    let seen = format!("agents of other versions than this server ({own}): {}", named.join(", "));
    let advice = "upgrade them after the servers; `muster node list` shows the version of each agent";
    Some(DoctorFinding::new(DoctorCheck::Version, DoctorVerdict::Warning, seen).on(facts.env.as_str()).advise(advice))
}

/// Silent nodes that are named in a finding.
const NAMED: usize = 10;

/// A silent node takes no version and proves nothing: no rollout that includes it completes.
fn check_nodes(facts: &EnvironmentFacts) -> Option<DoctorFinding> {
    let finding = |verdict, seen| DoctorFinding::new(DoctorCheck::Node, verdict, seen).on(facts.env.as_str());
    if facts.silent.is_empty() {
        return (facts.nodes > 0).then(|| finding(DoctorVerdict::Ok, "all agents are connected".to_owned()));
    }
    let named = |(node, since): &(NodeName, Timestamp)| format!("{node} since {}", since.strftime("%F %T UTC"));
    let mut names: Vec<String> = facts.silent.iter().take(NAMED).map(named).collect();
    if facts.silent.len() > NAMED {
        names.push(format!("and {} more", facts.silent.len() - NAMED));
    }
    let (silent, nodes) = (facts.silent.len(), facts.nodes);
    let verb = if silent == 1 { "is" } else { "are" };
    let seen = format!("{silent} of {nodes} {verb} unreachable: {}", names.join(", "));
    let advice = "check that the machine and its agent run, and that the agent can reach a server: `muster node show NODE` \
                  shows the last report";
    Some(finding(DoctorVerdict::Failed, seen).advise(advice))
}

fn check_controller(facts: &EnvironmentFacts, name: ControllerName) -> Option<DoctorFinding> {
    let finding =
        |verdict, seen| DoctorFinding::new(DoctorCheck::Controller, verdict, seen).on(format!("{} {name}", facts.env));
    if let Some(holder) = facts.controllers.get(&name) {
        let since = holder.since.strftime("%F %T UTC");
        return Some(finding(DoctorVerdict::Ok, format!("held by {} since {since}", holder.replica)));
    }
    let advice = match name {
        ControllerName::Design if !facts.needs_design_controller => return None,
        ControllerName::Design | ControllerName::Leaders | ControllerName::Liveness | ControllerName::Rollout => {
            "a server acquires it within one or two seconds, or when the lease of the last holder has expired, which takes 10 s: \
             check again then"
        }
        // Needed only for machines that Muster has made.
        ControllerName::Provision if !facts.has_machines => return None,
        ControllerName::Provision => {
            "its machines were made by `muster up`: start it again, so that they are provisioned and repaired"
        }
    };
    Some(finding(DoctorVerdict::Warning, "no replica holds it".to_owned()).advise(advice))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use muster_core::fleet::{DestroyRecord, RestoreRecord};
    use muster_core::names::{EnvName, ReplicaId, Version};
    use muster_core::replica::{ControllerRecord, RefusedAgent};

    use super::super::facts::tests::lines;
    use super::*;

    fn facts() -> EnvironmentFacts {
        let holder = ControllerRecord { replica: ReplicaId::new("a-1").unwrap(), since: Timestamp::UNIX_EPOCH };
        EnvironmentFacts {
            env: EnvName::new("prod").unwrap(),
            nodes: 3,
            has_machines: false,
            needs_design_controller: false,
            destroying: None,
            controllers: [ControllerName::Leaders, ControllerName::Liveness, ControllerName::Rollout]
                .map(|name| (name, holder.clone()))
                .into(),
            restoring: None,
            unreadable: BTreeMap::new(),
            bad_bundles: Vec::new(),
            unverified_bundles: 0,
            silent: Vec::new(),
            agent_versions: BTreeMap::new(),
            refused_agents: Vec::new(),
        }
    }

    #[test]
    fn silent_nodes_are_a_failed_check() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let silent = vec![(NodeName::new("web1").unwrap(), at(0)), (NodeName::new("db1").unwrap(), at(60))];
        let seen = lines(check_environment(&EnvironmentFacts { silent, ..facts() }));
        let expected = "node prod failed: 2 of 3 are unreachable: web1 since 1970-01-01 00:00:00 UTC, db1 since 1970-01-01 00:01:00 UTC";
        assert!(seen.iter().any(|line| line.starts_with(expected)), "{seen:#?}");
    }

    #[test]
    fn agents_of_other_versions_are_a_warning() {
        let own = env!("CARGO_PKG_VERSION").to_owned();
        let seen = |versions: &[(&str, usize)]| {
            let agent_versions = versions.iter().map(|(version, count)| ((*version).to_owned(), *count)).collect();
            lines(check_environment(&EnvironmentFacts { agent_versions, ..facts() }))
        };
        let is_warned = |seen: &[String]| seen.iter().any(|line| line.contains("agents of other versions"));
        assert!(!is_warned(&seen(&[])) && !is_warned(&seen(&[(&own, 3)])));
        let mixed = seen(&[("0.0.9", 2), (&own, 1)]);
        let expected =
            format!("version prod warning: agents of other versions than this server ({own}): 2 of 0.0.9, 1 of {own}");
        assert!(mixed.iter().any(|line| line.starts_with(&expected)), "{mixed:?}");
    }

    #[test]
    fn second_agent_of_a_node_is_a_warning() {
        let refused = RefusedAgent { since: Timestamp::UNIX_EPOCH, last: Timestamp::UNIX_EPOCH, is_copy: false };
        let web1 = NodeName::new("web1").unwrap();
        let seen = lines(check_environment(&EnvironmentFacts { refused_agents: vec![(web1, refused)], ..facts() }));
        let expected = "environment prod warning: web1: another agent with the name of this node is refused since \
                        1970-01-01 00:00:00 UTC → stop one of the two agents";
        assert!(seen.iter().any(|line| line.starts_with(expected)), "{seen:?}");
    }

    #[test]
    fn holder_of_each_controller_is_named() {
        assert_eq!(
            lines(check_environment(&facts())),
            [
                "controller prod leaders ok: held by a-1 since 1970-01-01 00:00:00 UTC",
                "controller prod liveness ok: held by a-1 since 1970-01-01 00:00:00 UTC",
                "controller prod rollout ok: held by a-1 since 1970-01-01 00:00:00 UTC",
                "environment prod ok: 3 nodes; all keys can be read",
                "node prod ok: all agents are connected",
            ]
        );
        let free = EnvironmentFacts { has_machines: true, controllers: BTreeMap::new(), ..facts() };
        let seen = lines(check_environment(&free));
        assert!(seen[0].starts_with("controller prod leaders warning: no replica holds it → a server"), "{seen:?}");
        assert!(seen[1].starts_with("controller prod liveness warning: no replica holds it → a server"), "{seen:?}");
        assert!(
            seen[2].starts_with("controller prod provision warning: no replica holds it → its machines"),
            "{seen:?}"
        );
        assert!(seen[3].starts_with("controller prod rollout warning: no replica holds it → a server"), "{seen:?}");
    }

    #[test]
    fn destruction_is_a_warning() {
        let destroying = DestroyRecord { since: Timestamp::UNIX_EPOCH, by: "ann".into() };
        let facts = EnvironmentFacts { destroying: Some(destroying), needs_design_controller: true, ..facts() };
        let seen = lines(check_environment(&facts));
        assert!(seen[0].starts_with("controller prod design warning: no replica holds it → a server"), "{seen:?}");
        assert!(seen[4].starts_with("environment prod warning: is being destroyed since 1970-01-01"), "{seen:?}");
        assert_eq!(seen.len(), 6);
    }

    #[test]
    fn restore_and_unreadable_keys_are_warnings() {
        let restoring = RestoreRecord { digest: "x".into(), since: Timestamp::UNIX_EPOCH, by: "ann".into() };
        let unreadable = BTreeMap::from([("/muster/prod/nodes/web1".to_owned(), "expected value".to_owned())]);
        let seen = lines(check_environment(&EnvironmentFacts { restoring: Some(restoring), unreadable, ..facts() }));
        assert!(seen[3].starts_with("environment prod warning: is being restored since 1970-01-01T00:00:00Z, by ann"));
        assert!(
            seen[4].starts_with("environment prod warning: 1 of its keys cannot be read, such as /muster/prod/nodes")
        );
    }

    #[test]
    fn missing_and_damaged_bundles_fail() {
        let version = |text| Version::new(text).unwrap();
        let bad_bundles = vec![
            (version("v2"), BundleFault::Missing),
            (version("v3"), BundleFault::Length { found: 10, recorded: 700 }),
            (version("v4"), BundleFault::Digest),
            (version("v5"), BundleFault::Unreadable("Permission denied".into())),
        ];
        let seen = lines(check_environment(&EnvironmentFacts { bad_bundles, unverified_bundles: 5, ..facts() }));
        let failed = "environment prod failed: no node can run these versions: the bundle of v2 is missing, the bundle of v3 is \
                      damaged (10 bytes, its record says 700), the bundle of v4 is damaged (its content";
        assert!(seen[3].starts_with(failed), "{seen:?}");
        assert!(seen[3].contains("the bundle of v5 cannot be read (Permission denied)"), "{seen:?}");
        assert!(seen[4].starts_with("environment prod cannot tell: 5 bundles could not be verified"), "{seen:?}");
    }
}
