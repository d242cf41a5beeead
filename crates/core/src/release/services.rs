//! `services` in `release.yaml`: what the nodes of a role offer to other nodes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::lookup::services::{SERVICES_LIMIT, Service, Services, size};
use crate::names::{Role, ServiceName};
use crate::release::spec::ReleaseSpec;
use crate::report::Interfaces;
use crate::spelling::nearest;

/// Maximum length of a tag, in characters.
const TAG_LENGTH: usize = 63;
/// Longest text of an address: IPv6 with an embedded IPv4 address.
const ADDRESS_LENGTH: usize = 45;

/// A service. The nodes that its check applies to offer it while their last validation holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceSpec {
    /// Not `u16`, so that the error for another number names the service.
    pub port: i64,
    #[serde(default)]
    pub tags: Vec<String>,
    /// Name of the check that proves that the node offers it.
    pub check: String,
    /// Interface whose address is looked up. Default: the first interface of the node.
    #[serde(default)]
    pub interface: Option<String>,
}

impl ServiceSpec {
    /// Address of the service on a node, or an error message.
    pub fn address(&self, interfaces: &Interfaces) -> Result<String, String> {
        let known = || interfaces.names().collect::<Vec<_>>().join(", ");
        match &self.interface {
            Some(name) => {
                interfaces.get(name).ok_or_else(|| format!("the node has no interface {name}: it has {}", known()))
            }
            None => interfaces.addresses().next().ok_or_else(|| "the node has no interface".to_owned()),
        }
        .map(str::to_owned)
    }
}

impl ReleaseSpec {
    /// Services that the checks of a role prove.
    pub fn services_of(&self, role: &Role) -> impl Iterator<Item = (&ServiceName, &ServiceSpec)> {
        self.services
            .iter()
            .filter(|(_, service)| self.validate.iter().any(|check| check.name == service.check && check.is_for(role)))
    }

    /// Services that a node offers when all of its checks have passed.
    pub fn offered_services(&self, role: &Role, interfaces: &Interfaces) -> Services {
        let offered = |(name, spec): (&ServiceName, &ServiceSpec)| {
            let (address, port) = (spec.address(interfaces).ok()?, u16::try_from(spec.port).ok()?);
            Some((name.clone(), Service { address, port, tags: spec.tags.clone() }))
        };
        self.services_of(role).filter_map(offered).collect()
    }

    /// Semantic errors of `services`.
    pub(super) fn service_problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (name, service) in &self.services {
            if !(1..=65535).contains(&service.port) {
                problems.push(format!("port {} of service \"{name}\" is not in 1 to 65535", service.port));
            }
            if !self.validate.iter().any(|check| check.name == service.check) {
                let meant = nearest(&service.check, self.validate.iter().map(|check| check.name.as_str()));
                let advice = match meant {
                    Some(check) => format!("did you mean {check:?}?"),
                    None => "add it to `validate`".to_owned(),
                };
                problems.push(format!("service \"{name}\" names the unknown check {:?}: {advice}", service.check));
            }
            for (number, tag) in service.tags.iter().enumerate() {
                if !is_tag(tag) {
                    problems.push(format!(
                        "tag {tag:?} of service \"{name}\" is not 1 to {TAG_LENGTH} of A-Z, a-z, 0-9 and '.', '_', '-', '=', ':', '/'"
                    ));
                }
                if service.tags.iter().take(number).any(|other| other == tag) {
                    problems.push(format!("service \"{name}\" has the tag {tag:?} twice"));
                }
            }
        }
        if problems.is_empty() {
            problems.extend(self.size_problem());
        }
        problems
    }

    /// Services of a role that exceed the limit of a node's record, with the longest possible address.
    fn size_problem(&self) -> Option<String> {
        let named = self.validate.iter().flat_map(|check| check.roles.iter().map(Some));
        let sizes: BTreeMap<_, usize> = named
            .chain([None])
            .map(|role| {
                let of_role = |check: &&str| {
                    let mut checks = self.validate.iter().filter(|known| known.name == **check);
                    checks.any(|check| role.map_or(check.roles.is_empty(), |role| check.is_for(role)))
                };
                let services = self.services.iter().filter(|(_, service)| of_role(&service.check.as_str()));
                let largest = services.map(|(name, spec)| {
                    let port = u16::try_from(spec.port).unwrap_or(u16::MAX);
                    (name.clone(), Service { address: "x".repeat(ADDRESS_LENGTH), port, tags: spec.tags.clone() })
                });
                (role, size(&largest.collect()))
            })
            .collect();
        let (role, size) = sizes.into_iter().find(|(_, size)| *size > SERVICES_LIMIT)?;
        let whose = role.map_or_else(|| "of all roles".to_owned(), |role| format!("of role {role}"));
        Some(format!(
            "the services {whose} have {size} bytes of JSON, more than {SERVICES_LIMIT}: remove tags or services"
        ))
    }
}

fn is_tag(tag: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || "._-=:/".contains(c);
    (1..=TAG_LENGTH).contains(&tag.len()) && tag.chars().all(legal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(services: serde_json::Value) -> ReleaseSpec {
        serde_json::from_value(json!({"applier": "puppet", "services": services, "validate": [
            {"name": "web-answers", "tcp": "{eth0}:8080", "roles": ["web"]}, {"name": "ssh", "tcp": "{eth0}:22"}]}))
        .unwrap()
    }

    #[test]
    fn services_follow_the_roles_of_their_checks() {
        let spec = spec(json!({"http": {"port": 8080, "tags": ["blue"], "check": "web-answers"},
            "ssh": {"port": 22, "check": "ssh", "interface": "eth1"}}));
        assert_eq!(spec.problems(), Vec::<String>::new());
        let interfaces =
            [("eth0".to_owned(), "10.0.0.1".to_owned()), ("eth1".to_owned(), "10.1.0.1".to_owned())].into();
        let offered = |role: &str| {
            let offered = spec.offered_services(&Role::new(role).unwrap(), &interfaces);
            serde_json::to_value(offered).unwrap()
        };
        let ssh = json!({"address": "10.1.0.1", "port": 22});
        let http = json!({"address": "10.0.0.1", "port": 8080, "tags": ["blue"]});
        assert_eq!(offered("web"), json!({"http": http, "ssh": ssh}));
        assert_eq!(offered("db"), json!({"ssh": ssh}));
        let without = Interfaces::from([("lan".to_owned(), "10.0.0.1".to_owned())]);
        let ssh = spec.services.get("ssh").unwrap();
        assert_eq!(ssh.address(&without).unwrap_err(), "the node has no interface eth1: it has lan");
    }

    #[test]
    fn invalid_services_are_refused() {
        for (service, problem) in [
            (json!({"port": 0, "check": "ssh"}), "port 0 of service \"http\" is not in 1 to 65535"),
            (json!({"port": 65536, "check": "ssh"}), "port 65536 of service \"http\" is not in 1 to 65535"),
            (
                json!({"port": 80, "check": "web-answer"}),
                "service \"http\" names the unknown check \"web-answer\": did you mean \"web-answers\"?",
            ),
            (
                json!({"port": 80, "check": "something else"}),
                "service \"http\" names the unknown check \"something else\": add it to `validate`",
            ),
            (
                json!({"port": 80, "check": "ssh", "tags": ["a b"]}),
                "tag \"a b\" of service \"http\" is not 1 to 63 of A-Z, a-z, 0-9 and '.', '_', '-', '=', ':', '/'",
            ),
            (json!({"port": 80, "check": "ssh", "tags": ["a", "b", "a"]}), "service \"http\" has the tag \"a\" twice"),
        ] {
            assert_eq!(spec(json!({"http": service})).problems(), [problem]);
        }
        let many: serde_json::Map<_, _> =
            (0..14).map(|number| (format!("s{number}"), json!({"port": 80, "check": "web-answers"}))).collect();
        assert_eq!(
            spec(many.into()).problems(),
            ["the services of role web have 1055 bytes of JSON, more than 1024: remove tags or services"]
        );
    }
}
