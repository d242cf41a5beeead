//! Which crate may reach which: the layers of the workspace, enforced over `cargo metadata`.
//!
//! A rule is about everything that gets linked, so it looks through all normal dependencies, to any depth. What tests
//! and build scripts use is not linked and does not count. When a rule is broken, the message names the whole path of
//! edges, because the edge to remove is rarely the last one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::process::Command;

use serde_json::Value;

/// What a crate of the workspace may reach.
struct Rule {
    name: &'static str,
    /// The crates of this workspace that it may reach; `None`: any.
    ours: Option<&'static [&'static str]>,
    /// Crates, ours or not, that it must never reach.
    never: &'static [&'static str],
    why: &'static str,
}

/// Anything that waits or talks: a pure crate that reached one of these could do either.
const RUNTIME: &[&str] = &["tokio", "mio", "socket2", "hyper", "reqwest", "axum", "redb", "rustix"];

const RULES: &[Rule] = &[
    Rule {
        name: "muster-core",
        ours: Some(&[]),
        never: RUNTIME,
        why: "it is pure functions and data: no runtime, no sockets, no clock",
    },
    Rule {
        name: "muster-design",
        ours: Some(&["muster-core"]),
        never: RUNTIME,
        why: "documents in, effective design out: no runtime, no sockets, no clock",
    },
    Rule {
        name: "muster-rollout",
        ours: Some(&["muster-core"]),
        never: RUNTIME,
        why: "it decides what a rollout does next: no runtime, no sockets, no clock",
    },
    Rule {
        name: "muster-wire",
        ours: Some(&["muster-core"]),
        never: &["redb"],
        why: "it is linked into every client, and no client talks to the store",
    },
    Rule {
        name: "muster-store",
        ours: Some(&["muster-core"]),
        // Not hyper and axum: etcd's client is made of them.
        never: &["reqwest"],
        why: "it stores bytes under keys and knows nothing of what is above it",
    },
    Rule {
        name: "muster-marked",
        ours: Some(&[]),
        never: &["hyper", "reqwest", "axum", "redb"],
        why: "it finds and ends processes for whoever started them and knows nothing of fleets",
    },
    Rule {
        name: "muster-provision",
        ours: Some(&["muster-core", "muster-marked"]),
        never: &["muster-server", "muster-cli", "axum"],
        why: "drivers are called by the server and never call it",
    },
    Rule {
        name: "muster-release",
        ours: Some(&["muster-core"]),
        never: &["tokio", "hyper", "reqwest", "axum", "redb"],
        why: "it makes and proves files for whoever has them: no runtime, no sockets",
    },
    Rule {
        name: "muster-server",
        ours: None,
        never: &["muster-cli", "muster-agent", "muster-etcd-rig", "muster-sim", "muster-testkit"],
        why: "it is started by the operator's tool and speaks to agents over the wire alone",
    },
    Rule {
        name: "muster-agent",
        ours: Some(&["muster-core", "muster-marked", "muster-release", "muster-wire"]),
        never: &["muster-store", "muster-server", "muster-design", "muster-rollout", "redb", "axum"],
        why: "it is small, holds no store credentials and decides nothing about the fleet",
    },
    Rule {
        name: "muster-cli",
        ours: None,
        never: &["muster-etcd-rig", "muster-sim", "muster-testkit"],
        why: "it is the operator's binary and links what it starts, and nothing that is for tests",
    },
    Rule { name: "muster-bench", ours: None, never: &[], why: "nothing depends on it" },
    Rule {
        name: "muster-etcd-rig",
        ours: Some(&["muster-core", "muster-marked", "muster-release", "muster-testkit"]),
        never: &["muster-store"],
        why: "it judges Muster's own backend from outside and shares no code with it",
    },
    Rule {
        name: "muster-testkit",
        ours: Some(&["muster-core", "muster-marked", "muster-release"]),
        never: &["etcd-client", "reqwest", "axum", "redb"],
        why: "it is built for the tests of almost every crate, and has to build fast",
    },
    Rule {
        name: "muster-sim",
        ours: Some(&[
            "muster-agent",
            "muster-core",
            "muster-design",
            "muster-marked",
            "muster-release",
            "muster-rollout",
            "muster-store",
            "muster-wire",
        ]),
        never: &["muster-server", "muster-cli"],
        why: "it is for tests: it drives what decides, in virtual time, from a seed or a script, and starts nothing that waits or listens",
    },
    Rule { name: "muster-e2e", ours: None, never: &[], why: "nothing depends on it" },
];

#[test]
fn every_crate_reaches_only_what_its_rule_allows() {
    let workspace = Graph::of_this_workspace();

    let broken: Vec<String> = RULES.iter().flat_map(|rule| workspace.violations(rule)).collect();

    assert!(broken.is_empty(), "the layers of the workspace are broken:\n\n{}\n", broken.join("\n"));
}

#[test]
fn every_crate_of_the_workspace_has_a_rule_and_every_rule_a_crate() {
    let members = Graph::of_this_workspace().members;
    let ruled: BTreeSet<String> = RULES.iter().map(|rule| rule.name.to_owned()).collect();

    let without_rule: Vec<_> = members.difference(&ruled).collect();
    let without_crate: Vec<_> = ruled.difference(&members).collect();

    assert!(without_rule.is_empty(), "add a rule to RULES in {}: {without_rule:?}", file!());
    assert!(without_crate.is_empty(), "remove the rule from RULES in {}: {without_crate:?}", file!());
}

#[test]
fn a_broken_rule_names_the_path_of_edges() {
    let graph = Graph::new(
        ["muster-core", "muster-wire"],
        &[("muster-core", "serde"), ("muster-core", "handy"), ("handy", "net-kit"), ("net-kit", "tokio")],
    );
    let rule = Rule { name: "muster-core", ours: Some(&[]), never: &["tokio"], why: "it is pure" };

    assert_eq!(
        graph.violations(&rule),
        ["muster-core must not reach tokio: it is pure\n    muster-core → handy → net-kit → tokio"]
    );
}

#[test]
fn a_crate_of_ours_that_is_not_allowed_is_a_broken_rule() {
    let graph = Graph::new(
        ["muster-store", "muster-core", "muster-wire"],
        &[("muster-store", "muster-core"), ("muster-store", "muster-wire")],
    );
    let rule = Rule { name: "muster-store", ours: Some(&["muster-core"]), never: &[], why: "it is the lowest" };

    assert_eq!(
        graph.violations(&rule),
        ["muster-store must not reach muster-wire: it is the lowest\n    muster-store → muster-wire"]
    );
}

/// Names of crates and the normal dependencies between them. Two versions of one crate are one: a rule speaks of names.
struct Graph {
    members: BTreeSet<String>,
    edges: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    fn new<'a>(members: impl IntoIterator<Item = &'a str>, edges: &[(&str, &str)]) -> Self {
        let mut graph =
            Self { members: members.into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), edges: BTreeMap::new() };
        for (from, to) in edges {
            graph.edges.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        graph
    }

    fn of_this_workspace() -> Self {
        // Offline: everything that is linked into this test has been fetched. For one platform, since what only others
        // need has not been fetched, and is not what we ship.
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--format-version=1", "--offline", "--locked"])
            .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
            .current_dir(super::root())
            .output()
            .expect("cargo starts");
        assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
        Self::from_metadata(&serde_json::from_slice(&output.stdout).expect("cargo metadata writes JSON"))
    }

    fn from_metadata(metadata: &Value) -> Self {
        let list = |value: &Value| value.as_array().expect("a list in cargo metadata").clone();
        let text = |value: &Value| value.as_str().expect("a string in cargo metadata").to_owned();

        let names: BTreeMap<String, String> =
            list(&metadata["packages"]).iter().map(|package| (text(&package["id"]), text(&package["name"]))).collect();
        let is_normal = |dep: &Value| list(&dep["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());

        let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for node in list(&metadata["resolve"]["nodes"]) {
            let from = edges.entry(names[&text(&node["id"])].clone()).or_default();
            from.extend(
                list(&node["deps"]).iter().filter(|dep| is_normal(dep)).map(|dep| names[&text(&dep["pkg"])].clone()),
            );
        }
        let members = list(&metadata["workspace_members"]).iter().map(|id| names[&text(id)].clone()).collect();
        Self { members, edges }
    }

    fn violations(&self, rule: &Rule) -> Vec<String> {
        let reached = self.shortest_paths_from(rule.name);
        let forbidden = |name: &str| {
            let ours_and_not_allowed =
                self.members.contains(name) && rule.ours.is_some_and(|ours| !ours.contains(&name));
            rule.never.contains(&name) || ours_and_not_allowed
        };
        reached
            .iter()
            .filter(|(name, _)| name.as_str() != rule.name && forbidden(name))
            .map(|(name, path)| format!("{} must not reach {name}: {}\n    {}", rule.name, rule.why, path.join(" → ")))
            .collect()
    }

    fn shortest_paths_from(&self, start: &str) -> BTreeMap<String, Vec<String>> {
        let mut paths = BTreeMap::from([(start.to_owned(), vec![start.to_owned()])]);
        let mut queue = VecDeque::from([start.to_owned()]);
        while let Some(from) = queue.pop_front() {
            for to in self.edges.get(&from).into_iter().flatten() {
                if !paths.contains_key(to) {
                    let mut path = paths[&from].clone();
                    path.push(to.clone());
                    paths.insert(to.clone(), path);
                    queue.push_back(to.clone());
                }
            }
        }
        paths
    }
}
