//! Names in a script: the fleet, its roles, racks, nodes and servers.

use std::collections::BTreeMap;

use muster_core::names::{NodeName, Role, Version};
use muster_core::spelling::nearest;

use super::syntax::ScriptError;
use crate::simulation::World;
use crate::simulation::fleet::Design;

/// A group of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Group {
    Fleet,
    Role(Role),
    Rack(String),
    Node(NodeName),
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Server {
    /// The server that holds the rollout controller at that time.
    Acting,
    Number(usize),
}

/// The names that a script may use.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub(super) roles: BTreeMap<Role, u32>,
    pub(super) racks: u32,
    pub(super) servers: usize,
}

pub(super) const RELEASES: u64 = crate::simulation::RELEASES;

impl Names {
    pub(super) fn from_design(design: &Design, servers: usize) -> Self {
        Self { roles: design.roles.iter().cloned().collect(), racks: design.domains, servers }
    }

    /// All names, for guesses.
    pub(super) fn all(&self) -> Vec<String> {
        let nodes =
            self.roles.iter().flat_map(|(role, count)| (1..=*count).map(move |number| format!("{role}{number}")));
        let racks = (1..=self.racks).map(|number| format!("rack{number}"));
        let servers = (1..=self.servers).map(|number| format!("ctl{number}"));
        let versions = (1..=RELEASES).map(|number| format!("v{number}"));
        let roles = self.roles.keys().map(ToString::to_string);
        roles.chain(nodes).chain(racks).chain(servers).chain(versions).collect()
    }

    fn unknown(&self, word: &str, what: &str) -> ScriptError {
        let all = self.all();
        let error = ScriptError::new(format!("there is no {what} {word:?} in this scenario"));
        match nearest(word, all.iter().map(String::as_str)) {
            Some(meant) => error.help(format!("did you mean {meant}?")),
            None => error.help(format!("known names: {}", all.join(" "))),
        }
    }

    pub(super) fn group(&self, word: &str) -> Result<Group, ScriptError> {
        if let Some(role) = self.roles.keys().find(|role| role.as_str() == word) {
            return Ok(Group::Role(role.clone()));
        }
        if (1..=self.racks).any(|number| word == format!("rack{number}")) {
            return Ok(Group::Rack(word.to_owned()));
        }
        self.node(word).map(Group::Node)
    }

    /// `web1`, `web1 and web2`, `web1 web2`, `web`, `rack1`, `the fleet`, `all nodes`.
    pub(super) fn groups(&self, words: &[&str]) -> Result<Vec<Group>, ScriptError> {
        if matches!(words, ["the", "fleet"] | ["all", "nodes"]) {
            return Ok(vec![Group::Fleet]);
        }
        let groups: Result<Vec<Group>, ScriptError> =
            words.iter().filter(|word| **word != "and").map(|word| self.group(word)).collect();
        match groups {
            Ok(groups) if groups.is_empty() => {
                Err(ScriptError::new("no node is named here").help("name nodes, a role, a rack, or the fleet"))
            }
            groups => groups,
        }
    }

    pub(super) fn node(&self, word: &str) -> Result<NodeName, ScriptError> {
        let known = self.roles.iter().any(|(role, count)| {
            let number = word.strip_prefix(role.as_str()).and_then(|number| number.parse::<u32>().ok());
            number.is_some_and(|number| (1..=*count).contains(&number))
        });
        NodeName::new(word).ok().filter(|_| known).ok_or_else(|| self.unknown(word, "node, role or rack"))
    }

    pub(super) fn role(&self, word: &str) -> Result<Role, ScriptError> {
        let found = self.roles.keys().find(|role| role.as_str() == word);
        found.cloned().ok_or_else(|| self.unknown(word, "role"))
    }

    pub(super) fn version(&self, word: &str) -> Result<Version, ScriptError> {
        let known = (1..=RELEASES).any(|number| word == format!("v{number}"));
        Version::new(word).ok().filter(|_| known).ok_or_else(|| {
            ScriptError::new(format!("there is no release {word:?}"))
                .help(format!("every scenario has v1 to v{RELEASES}"))
        })
    }

    /// `ctl1`, or `the acting server`.
    pub(super) fn server(&self, words: &[&str]) -> Result<Server, ScriptError> {
        if let ["the", "acting", "server"] = words {
            return Ok(Server::Acting);
        }
        let [word] = words else { return Err(self.unknown(&words.join(" "), "server")) };
        let found = (0..self.servers).find(|number| *word == format!("ctl{}", number + 1));
        found.map(Server::Number).ok_or_else(|| self.unknown(word, "server"))
    }
}

impl Group {
    /// The current nodes of the group.
    pub(super) fn nodes(&self, world: &World) -> Vec<NodeName> {
        let fleet = world.checker.fleet();
        match self {
            Group::Node(node) => vec![node.clone()],
            Group::Fleet => fleet.designed().map(|(name, _, _)| name.clone()).collect(),
            Group::Role(role) => fleet
                .designed()
                .filter(|(_, _, record)| record.role == *role)
                .map(|(name, _, _)| name.clone())
                .collect(),
            Group::Rack(rack) => {
                let there = fleet.designed().filter(|(_, _, record)| record.failure_domain == *rack);
                there.map(|(name, _, _)| name.clone()).collect()
            }
        }
    }
}

/// The current nodes of all groups.
pub(super) fn nodes_of(groups: &[Group], world: &World) -> Vec<NodeName> {
    groups.iter().flat_map(|group| group.nodes(world)).collect()
}
