//! Checks the layers of the workspace with `cargo metadata`.
//!
//! A rule covers everything that is linked: all normal dependencies, to any depth. Dependencies of tests and build
//! scripts do not count. A violation is shown with its path, because the edge to remove is rarely the last one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::process::Command;

use serde_json::Value;

/// Dependency rule of a workspace crate.
struct LayerRule {
    name: &'static str,
    /// Workspace crates that it may depend on; `None` means any.
    ours: Option<&'static [&'static str]>,
    /// Crates that it must never depend on.
    never: &'static [&'static str],
    why: &'static str,
}

/// Crates with IO or a runtime.
const RUNTIME: &[&str] = &["tokio", "mio", "socket2", "hyper", "reqwest", "axum", "redb", "rustix"];

const RULES: &[LayerRule] = &[
    LayerRule {
        name: "muster-core",
        ours: Some(&[]),
        never: RUNTIME,
        why: "it is pure functions and data: no runtime, no sockets, no clock",
    },
    LayerRule {
        name: "muster-design",
        ours: Some(&["muster-core"]),
        never: RUNTIME,
        why: "documents in, effective design out: no runtime, no sockets, no clock",
    },
    LayerRule {
        name: "muster-rollout",
        ours: Some(&["muster-core"]),
        never: RUNTIME,
        why: "it decides the next step of a rollout: no runtime, no sockets, no clock",
    },
    LayerRule {
        name: "muster-identity",
        ours: Some(&["muster-core"]),
        never: &["tokio", "hyper", "reqwest", "axum", "redb"],
        why: "it signs and verifies certificates: no runtime, no sockets",
    },
    LayerRule {
        name: "muster-wire",
        ours: Some(&["muster-core"]),
        never: &["redb"],
        why: "it is linked into every client, and no client talks to the store",
    },
    LayerRule {
        name: "muster-store",
        ours: Some(&["muster-core"]),
        // Not hyper and axum: etcd-client uses them.
        never: &["reqwest"],
        why: "it stores bytes under keys and knows nothing of what is above it",
    },
    LayerRule {
        name: "muster-marked",
        ours: Some(&[]),
        never: &["hyper", "reqwest", "axum", "redb"],
        why: "it finds and ends processes and knows nothing of fleets",
    },
    LayerRule {
        name: "muster-removal",
        ours: Some(&[]),
        never: &["tokio", "hyper", "reqwest", "axum", "redb"],
        why: "it removes files and knows nothing of their content",
    },
    LayerRule {
        name: "muster-supervisor",
        ours: Some(&[]),
        never: &["tokio", "hyper", "reqwest", "axum", "redb"],
        why: "it outlives the agent that started it: small, synchronous, and never in need of an upgrade",
    },
    LayerRule {
        name: "muster-provision",
        ours: Some(&["muster-core", "muster-marked", "muster-removal"]),
        never: &["muster-server", "muster-cli", "axum"],
        why: "drivers are called by the server and never call it",
    },
    LayerRule {
        name: "muster-release",
        ours: Some(&["muster-core", "muster-removal"]),
        never: &["tokio", "hyper", "reqwest", "axum", "redb"],
        why: "it builds and verifies files: no runtime, no sockets",
    },
    LayerRule {
        name: "muster-server",
        ours: None,
        never: &["muster-cli", "muster-agent", "muster-etcd-rig", "muster-s3-rig", "muster-sim", "muster-testkit"],
        why: "it is started by the operator's tool and talks to agents only over the wire",
    },
    LayerRule {
        name: "muster-agent",
        ours: Some(&[
            "muster-core",
            "muster-identity",
            "muster-marked",
            "muster-release",
            "muster-removal",
            "muster-supervisor",
            "muster-wire",
        ]),
        never: &["muster-store", "muster-server", "muster-design", "muster-rollout", "redb", "axum"],
        why: "it is small, holds no store credentials and decides nothing about the fleet",
    },
    LayerRule {
        name: "muster-cli",
        ours: None,
        never: &["muster-etcd-rig", "muster-s3-rig", "muster-sim", "muster-testkit"],
        why: "it is the operator's binary: it links what it starts, and no test support",
    },
    LayerRule { name: "muster-bench", ours: None, never: &[], why: "nothing depends on it" },
    LayerRule {
        name: "muster-s3-rig",
        ours: Some(&[]),
        never: &["object_store"],
        why: "it plays S3 for the backend and shares no code with it",
    },
    LayerRule {
        name: "muster-etcd-rig",
        ours: Some(&["muster-core", "muster-marked", "muster-release", "muster-removal", "muster-testkit"]),
        never: &["muster-store"],
        why: "it checks Muster's own backend from outside and shares no code with it",
    },
    LayerRule {
        name: "muster-testkit",
        ours: Some(&["muster-core", "muster-marked", "muster-release", "muster-removal"]),
        never: &["etcd-client", "reqwest", "axum", "redb"],
        why: "it is built for the tests of almost every crate, and has to build fast",
    },
    LayerRule {
        name: "muster-sim",
        ours: Some(&[
            "muster-agent",
            "muster-core",
            "muster-identity",
            "muster-design",
            "muster-marked",
            "muster-release",
            "muster-removal",
            "muster-rollout",
            "muster-store",
            "muster-supervisor",
            "muster-wire",
        ]),
        never: &["muster-server", "muster-cli"],
        why: "it drives the decision code in virtual time, from a seed or a script, and starts no server and no agent process",
    },
    LayerRule { name: "muster-e2e", ours: None, never: &[], why: "nothing depends on it" },
];

#[test]
fn dependencies_follow_the_rules() {
    let workspace = Graph::of_this_workspace();

    let broken: Vec<String> = RULES.iter().flat_map(|rule| workspace.violations(rule)).collect();

    assert!(broken.is_empty(), "the layers of the workspace are broken:\n\n{}\n", broken.join("\n"));
}

#[test]
fn every_crate_has_a_rule() {
    let members = Graph::of_this_workspace().members;
    let ruled: BTreeSet<String> = RULES.iter().map(|rule| rule.name.to_owned()).collect();

    let without_rule: Vec<_> = members.difference(&ruled).collect();
    let without_crate: Vec<_> = ruled.difference(&members).collect();

    assert!(without_rule.is_empty(), "add a rule to RULES in {}: {without_rule:?}", file!());
    assert!(without_crate.is_empty(), "remove the rule from RULES in {}: {without_crate:?}", file!());
}

#[test]
fn violation_shows_the_path() {
    let graph = Graph::new(
        ["muster-core", "muster-wire"],
        &[("muster-core", "serde"), ("muster-core", "handy"), ("handy", "net-kit"), ("net-kit", "tokio")],
    );
    let rule = LayerRule { name: "muster-core", ours: Some(&[]), never: &["tokio"], why: "it is pure" };

    assert_eq!(
        graph.violations(&rule),
        ["muster-core must not depend on tokio: it is pure\n    muster-core → handy → net-kit → tokio"]
    );
}

#[test]
fn disallowed_workspace_crate_is_a_violation() {
    let graph = Graph::new(
        ["muster-store", "muster-core", "muster-wire"],
        &[("muster-store", "muster-core"), ("muster-store", "muster-wire")],
    );
    let rule = LayerRule { name: "muster-store", ours: Some(&["muster-core"]), never: &[], why: "it is the lowest" };

    assert_eq!(
        graph.violations(&rule),
        ["muster-store must not depend on muster-wire: it is the lowest\n    muster-store → muster-wire"]
    );
}

/// Crates and their normal dependencies, by name. Versions of one crate are merged.
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
        // Offline: all dependencies of this test are downloaded. One platform, because dependencies of others are not.
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

    fn violations(&self, rule: &LayerRule) -> Vec<String> {
        let reached = self.shortest_paths_from(rule.name);
        let forbidden = |name: &str| {
            let ours_and_not_allowed =
                self.members.contains(name) && rule.ours.is_some_and(|ours| !ours.contains(&name));
            rule.never.contains(&name) || ours_and_not_allowed
        };
        reached
            .iter()
            .filter(|(name, _)| name.as_str() != rule.name && forbidden(name))
            .map(|(name, path)| {
                format!("{} must not depend on {name}: {}\n    {}", rule.name, rule.why, path.join(" → "))
            })
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
