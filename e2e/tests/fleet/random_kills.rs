//! Random kills of servers and agents: every node converges, and the history has each run once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use muster_e2e::agent::SandboxNode;
use muster_e2e::process::ChildProcess;
use muster_e2e::sandbox::{Sandbox, TestProject, describe};
use muster_e2e::server::{Api, SandboxServer};
use muster_testkit::release::ScriptRelease;
use muster_testkit::wait::{TIMEOUT, eventually};

const NODES: [&str; 4] = ["db1", "web1", "web2", "web3"];
const VERSIONS: [&str; 3] = ["v1", "v2", "v3"];
const ROUNDS: u32 = 60;
/// Seed of the kills.
const SEED: &str = "MUSTER_E2E_SEED";

/// Pseudo-random numbers (xorshift).
struct KillRng(u64);

impl KillRng {
    fn below(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(sides).unwrap()).unwrap()
    }
}

/// Each run appends its start and end to the journal. The work runs in its own session, as Puppet's does.
fn release(journal: &str) -> ScriptRelease {
    let script = r#"
echo "begin $MUSTER_NODE $MUSTER_RUN_ID" >> JOURNAL
if [ "$MUSTER_ROLE" = web ]; then
    echo active_roles::db >> "$MUSTER_LOOKUPS_FILE"
    if ! grep -q '"db":{"db1"' "$MUSTER_SNAPSHOT"; then echo a database; exit 75; fi
fi
setsid sh -c 'sleep 0.05; echo "$MUSTER_VERSION" > "$MUSTER_ROOT/version"'
[ "$(cat "$MUSTER_ROOT/version")" = "$MUSTER_VERSION" ] || exit 1
echo "end $MUSTER_NODE $MUSTER_RUN_ID" >> JOURNAL
exit 2"#;
    ScriptRelease::new(&script.replace("JOURNAL", journal))
        .program("right", r#"[ "$(cat "$MUSTER_ROOT/version")" = "$MUSTER_VERSION" ]"#)
        .check("{name: right, exec: right, deadline: 10s}")
}

#[test]
fn fleet_converges_after_random_kills() {
    let seed = std::env::var(SEED).ok().map_or(20_261_115, |text| text.parse().expect("a number"));
    println!("{SEED}={seed} repeats this run");
    let mut rng = KillRng(seed);
    let sandbox = Sandbox::new();
    let journal = sandbox.path("journal");
    let mut project = TestProject::new(&sandbox, &[("db", 1), ("web", 3)]);
    for version in VERSIONS {
        project = project.release(version, &release(journal.to_str().unwrap()));
    }
    let nodes: Vec<SandboxNode<'_>> =
        NODES.iter().zip(1..).map(|(name, number)| SandboxNode::new(&sandbox, name, number)).collect();
    let mut server = SandboxServer::start(&sandbox, &project);
    let mut agents: Vec<ChildProcess> = nodes.iter().map(SandboxNode::start).collect();

    let mut wanted = VERSIONS[0];
    for _ in 0..ROUNDS {
        match rng.below(6) {
            0 => {
                server.kill();
                server = SandboxServer::start(&sandbox, &project);
            }
            1 | 2 => {
                let victim = rng.below(NODES.len());
                agents[victim].kill(TIMEOUT);
                agents[victim] = nodes[victim].start();
            }
            3 => {
                wanted = VERSIONS[rng.below(VERSIONS.len())];
                assert_eq!(server.api.trigger_update(wanted).status, 200);
            }
            // Lets time pass.
            _ => assert_eq!(sandbox.run_muster(&["status"]).code(), 0),
        }
    }
    sandbox.wait_validated(wanted, &NODES);

    let generation = server.api.get("status")["generation"].clone();
    for (node, has) in NODES.iter().zip(&nodes) {
        // An agent that was restarted last makes one more run; earlier validations do not count.
        let seen = server.api.wait_node(node, "has arrived", |seen| {
            seen["state"] == "validated" && seen["last"]["generation"] == generation
        });
        assert_eq!(seen["states"].as_array().unwrap().len(), 1, "one state at a time: {seen:#}");
        assert_eq!((&seen["version"], &seen["active"]), (&wanted.into(), &true.into()), "{seen:#}");
        eventually(&format!("{node} has the files of its validated version"), TIMEOUT, || {
            let version = fs::read_to_string(has.root().join("version")).unwrap_or_default();
            if version.trim() == wanted { Ok(()) } else { Err(version) }
        });
    }
    eventually("there are the server, the agents, and nothing that a run has left", TIMEOUT, || {
        let programs: Vec<_> = sandbox.processes().iter().map(describe).collect();
        if programs.len() == 1 + NODES.len() { Ok(()) } else { Err(format!("{programs:#?}")) }
    });
    for node in NODES {
        server.api.wait_node_state(node, "validated");
        check_history(node, &server.api, &fs::read_to_string(&journal).unwrap());
    }
}

/// Compares the history of a node with the journal of its appliers.
fn check_history(node: &str, api: &Api, journal: &str) {
    let reports = api.reports(node);
    let places: Vec<_> = reports
        .iter()
        .map(|report| (report["incarnation"].as_u64().unwrap(), report["seq"].as_u64().unwrap()))
        .collect();
    assert!(places.is_sorted_by(|a, b| a < b), "{node}: in order, and each once: {places:?}");

    let of = |word: &str| -> Vec<String> {
        let lines = journal.lines().filter_map(|line| line.strip_prefix(&format!("{word} {node} ")));
        lines.map(str::to_owned).collect()
    };
    let (begun, ended) = (of("begin"), of("end"));
    let once: BTreeSet<&String> = begun.iter().collect();
    assert_eq!(once.len(), begun.len(), "{node}: no run was made twice");

    let runs = api.runs(node);
    let reported: BTreeMap<&str, &str> =
        runs.iter().map(|run| (run["run"].as_str().unwrap(), run["result"].as_str().unwrap())).collect();
    for (run, result) in &reported {
        if *result == "passed" {
            assert!(ended.iter().any(|ended| ended == run), "{node}: {run} passed without having run");
        }
    }
    // The history has the last twenty runs; none of those is missing.
    let oldest = reported.keys().next().unwrap();
    for run in begun.iter().filter(|run| run.as_str() >= *oldest) {
        assert!(reported.contains_key(run.as_str()), "{node}: run {run} was not reported: {reported:#?}");
    }
}
