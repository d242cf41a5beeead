//! Whatever dies, and whenever: in the end every node runs what it should, and the history tells what happened, once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use muster_e2e::agent::Node;
use muster_e2e::process::Started;
use muster_e2e::project::Project;
use muster_e2e::server::{Api, Server};
use muster_e2e::stage::{Stage, describe};
use muster_testkit::release::ScriptRelease;
use muster_testkit::wait::{TIMEOUT, eventually};

const NODES: [&str; 4] = ["db1", "web1", "web2", "web3"];
const VERSIONS: [&str; 3] = ["v1", "v2", "v3"];
const ROUNDS: u32 = 60;
/// Chooses what dies; another seed is another story.
const SEED: &str = "MUSTER_E2E_SEED";

/// A generator of numbers that are the same for the same seed (xorshift).
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(sides).unwrap()).unwrap()
    }
}

/// Each run writes down that it has begun and that it has ended. The work in between is done in a session of its own, as
/// Puppet's is.
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
fn the_fleet_arrives_whatever_dies_on_the_way() {
    let seed = std::env::var(SEED).ok().map_or(20_261_115, |text| text.parse().expect("a number"));
    println!("{SEED}={seed} tells this story again");
    let mut dice = Dice(seed);
    let stage = Stage::new();
    let journal = stage.path("journal");
    let mut project = Project::new(&stage, &[("db", 1), ("web", 3)]);
    for version in VERSIONS {
        project = project.release(version, &release(journal.to_str().unwrap()));
    }
    let nodes: Vec<Node<'_>> = NODES.iter().zip(1..).map(|(name, number)| Node::new(&stage, name, number)).collect();
    let mut server = Server::start(&stage, &project);
    let mut agents: Vec<Started> = nodes.iter().map(Node::start).collect();

    let mut wanted = VERSIONS[0];
    for _ in 0..ROUNDS {
        match dice.throw(6) {
            0 => {
                server.kill();
                server = Server::start(&stage, &project);
            }
            1 | 2 => {
                let victim = dice.throw(NODES.len());
                agents[victim].kill(TIMEOUT);
                agents[victim] = nodes[victim].start();
            }
            3 => {
                wanted = VERSIONS[dice.throw(VERSIONS.len())];
                assert_eq!(server.api.trigger_update(wanted).status, 200);
            }
            // Time passes: the fleet does something else meanwhile.
            _ => assert_eq!(stage.ask(&["status"]).code(), 0),
        }
    }
    stage.wait_for(wanted, &NODES);

    let generation = server.api.get("status")["generation"].clone();
    for (node, has) in NODES.iter().zip(&nodes) {
        // An agent that was started again at the end makes one more run; what was proved before it says nothing.
        let seen = server.api.until_node(node, "has arrived", |seen| {
            seen["standing"] == "validated" && seen["last"]["generation"] == generation
        });
        assert_eq!(seen["states"].as_array().unwrap().len(), 1, "one state at a time: {seen:#}");
        assert_eq!((&seen["running"], &seen["active"]), (&wanted.into(), &true.into()), "{seen:#}");
        eventually(&format!("{node} has what it has proved to run"), TIMEOUT, || {
            let version = fs::read_to_string(has.root().join("version")).unwrap_or_default();
            if version.trim() == wanted { Ok(()) } else { Err(version) }
        });
    }
    eventually("there are the server, the agents, and nothing that a run has left", TIMEOUT, || {
        let programs: Vec<_> = stage.processes().iter().map(describe).collect();
        if programs.len() == 1 + NODES.len() { Ok(()) } else { Err(format!("{programs:#?}")) }
    });
    for node in NODES {
        server.api.until_node_is(node, "validated");
        told_once(node, &server.api, &fs::read_to_string(&journal).unwrap());
    }
}

/// The history of a node against what its appliers themselves have written down.
fn told_once(node: &str, api: &Api, journal: &str) {
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
    let told: BTreeMap<&str, &str> =
        runs.iter().map(|run| (run["run"].as_str().unwrap(), run["result"].as_str().unwrap())).collect();
    for (run, result) in &told {
        if *result == "passed" {
            assert!(ended.iter().any(|ended| ended == run), "{node}: {run} passed without having run");
        }
    }
    // The history holds the last twenty; of those that are in it none is missing.
    let oldest = told.keys().next().unwrap();
    for run in begun.iter().filter(|run| run.as_str() >= *oldest) {
        assert!(told.contains_key(run.as_str()), "{node}: nobody told of {run}; told: {told:#?}");
    }
}
