//! The only server, with an embedded store, is killed in each phase of a rollout and restarted. The rollout continues
//! without a command and completes.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use jiff::SignedDuration;
use muster_testkit::release::ScriptRelease;
use serde_json::Value;

use super::{shown, text, time, wait_rollout};
use muster_e2e::agent::SandboxNode;
use muster_e2e::process::{ChildProcess, Process};
use muster_e2e::sandbox::{Barrier, Sandbox, TestProject};
use muster_e2e::server::SandboxServer;
use muster_testkit::wait::{TIMEOUT, eventually};

const NODES: [&str; 4] = ["web1", "web2", "web3", "web4"];
const ROLES: &str = "
roles:
  web: {cardinality: 4, flavor: local}
";

/// A fleet that has validated v1; no node has v2 yet.
struct StartedFleet<'a> {
    sandbox: &'a Sandbox,
    project: TestProject,
    server: SandboxServer,
    _agents: Vec<ChildProcess>,
}

impl<'a> StartedFleet<'a> {
    /// `first` and `second` are the appliers of v1 and v2, run after the journal entry.
    fn new(sandbox: &'a Sandbox, rollout: &str, first: &str, second: &str) -> Self {
        let release = |more: &str| {
            let journal = journal(sandbox);
            ScriptRelease::new(&format!("echo $MUSTER_NODE $MUSTER_VERSION >> {}\n{more}\nexit 2", journal.display()))
        };
        let project = TestProject::with_environment(sandbox, &format!("{ROLES}{rollout}"))
            .release("v1", &release(first))
            .release("v2", &release(second));
        let server = SandboxServer::start(sandbox, &project);
        let agents =
            NODES.iter().zip(1..).map(|(name, number)| SandboxNode::new(sandbox, name, number).start()).collect();
        sandbox.wait_validated("v1", &NODES);
        Self { sandbox, project, server, _agents: agents }
    }

    fn start_rollout(&self) {
        let started = self.sandbox.run_muster(&["rollout", "start", "v2"]);
        assert_eq!(started.code(), 0, "{started:?}");
    }

    /// `kill -9`, an action, and a restart.
    fn killed(self, meanwhile: impl FnOnce()) -> Self {
        let Self { sandbox, project, server, _agents } = self;
        server.kill();
        meanwhile();
        let server = SandboxServer::start(sandbox, &project);
        Self { sandbox, project, server, _agents }
    }

    /// Watches it, and the rollout that follows it, to the end.
    fn ends(&self, code: i32) -> Value {
        let watched = self.sandbox.run_muster(&["rollout", "status", "--watch"]);
        assert_eq!(watched.code(), code, "{watched:?}");
        shown(self.sandbox, None)
    }

    /// Number of runs of each node with a version.
    fn applied(&self, version: &str) -> BTreeMap<String, usize> {
        let mut applied = BTreeMap::new();
        for line in lines(&journal(self.sandbox)) {
            let (node, of) = line.split_once(' ').unwrap();
            if of == version {
                *applied.entry(node.to_owned()).or_default() += 1;
            }
        }
        applied
    }
}

fn journal(sandbox: &Sandbox) -> PathBuf {
    sandbox.path("journal")
}

fn lines(path: &PathBuf) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Waits until the file has this many lines with the suffix.
fn wait_for_lines(path: &PathBuf, suffix: &str, count: usize) -> Vec<String> {
    eventually(&format!("{count} lines end with {suffix:?}"), TIMEOUT, || {
        let lines: Vec<String> = lines(path).into_iter().filter(|line| line.ends_with(suffix)).collect();
        if lines.len() >= count { Ok(lines) } else { Err(format!("{lines:?}")) }
    })
}

fn once_each() -> BTreeMap<String, usize> {
    NODES.into_iter().map(|node| (node.to_owned(), 1)).collect()
}

#[test]
fn kill_within_a_wave() {
    let sandbox = Sandbox::new();
    let gate = Barrier::new(sandbox.path("gate"));
    let rollout = "rollout: {waves: [{percent: 100}], max_unavailable: 2, soak: 0s, ramp: false}\n";
    let fleet = StartedFleet::new(&sandbox, rollout, "", &format!("read line < {}", gate.path().display()));

    fleet.start_rollout();
    // Two appliers run, and the budget allows no more. One of them ends while there is no server.
    wait_for_lines(&journal(&sandbox), "v2", 2);
    let fleet = fleet.killed(|| gate.release(1));
    wait_rollout(&sandbox, "grants to a third", |shown| shown["record"]["grants"].as_u64() >= Some(3));
    // Again, with two other nodes whose progress is unknown.
    wait_for_lines(&journal(&sandbox), "v2", 3);
    let fleet = fleet.killed(|| gate.release(3));

    let shown = fleet.ends(0);
    assert_eq!(shown["record"]["phase"], "completed");
    assert_eq!(shown["record"]["grants"], 4, "{shown:#}");
    assert_eq!(fleet.applied("v2"), once_each());
    assert_eq!(fleet.applied("v1"), once_each());
}

#[test]
fn kill_while_a_wave_soaks() {
    const SOAK: SignedDuration = SignedDuration::from_secs(4);
    let sandbox = Sandbox::new();
    let rollout = "rollout: {waves: [{nodes: 1, soak: 4s}, {percent: 100}], max_unavailable: 4, soak: 0s}\n";
    let fleet = StartedFleet::new(&sandbox, rollout, "", "");

    fleet.start_rollout();
    wait_rollout(&sandbox, "watches its first wave", |shown| !shown["record"]["waves"][0]["settled"].is_null());
    let fleet = fleet.killed(|| {});

    let shown = fleet.ends(0);
    let wave = &shown["record"]["waves"][0];
    let watched = time(&wave["passed"]).duration_since(time(&wave["settled"]));
    assert!(watched >= SOAK, "it was watched for {watched}: {wave:#}");
    let second = shown["waves"][1]["nodes"].as_array().expect("it had a second wave");
    assert!(!second.is_empty());
    let early = second.iter().find(|node| time(&node["started"]) < time(&wave["passed"]));
    assert_eq!(early, None, "no node was granted early: {shown:#}");
    assert_eq!(fleet.applied("v2"), once_each());
}

#[test]
fn kill_while_a_gate_runs() {
    let sandbox = Sandbox::new();
    let (gate, asked) = (Barrier::new(sandbox.path("gate")), sandbox.path("asked"));
    // It has a child process.
    let program = format!("echo $$ >> {0}; sh -c 'read line < {1}' && exit 0", asked.display(), gate.path().display());
    let rollout = format!(
        "rollout:
  waves: [{{nodes: 1, soak: 0s}}, {{percent: 100}}]
  max_unavailable: 4
  soak: 0s
  gate: {{checks: [{{name: door, command: [/bin/sh, -c, {program:?}], timeout: 10m}}]}}
"
    );
    let fleet = StartedFleet::new(&sandbox, &rollout, "", "");

    fleet.start_rollout();
    let first: u32 = wait_for_lines(&asked, "", 1)[0].parse().unwrap();
    let first = Process::open(first).unwrap().expect("the program runs");
    let fleet = fleet.killed(|| assert!(!first.has_ended().unwrap(), "it must still run"));
    // Processes of the killed gate are ended before the next one starts.
    wait_for_lines(&asked, "", 2);
    assert!(first.has_ended().unwrap(), "two of them run");
    let still = shown(&sandbox, None);
    assert_eq!(still["record"]["grants"], 1, "the gate has not passed: {still:#}");
    // One line for the first wave, one for the second.
    gate.release(2);

    let shown = fleet.ends(0);
    assert_eq!(shown["record"]["phase"], "completed");
    assert_eq!(lines(&asked).len(), 3, "once more after the start, and once for the second wave");
    assert_eq!(fleet.applied("v2"), once_each());
    let StartedFleet { server, _agents: agents, .. } = fleet;
    drop((server, agents));
    sandbox.assert_no_processes();
}

#[test]
fn kill_during_an_automatic_rollback() {
    let sandbox = Sandbox::new();
    let gate = Barrier::new(sandbox.path("gate"));
    let rollout = "rollout:
  waves: [{nodes: 2, soak: 0s}, {percent: 100}]
  max_unavailable: 1
  soak: 0s
  gate: {checks: [{name: door, command: [/bin/false], retries: 0}]}
  on_failure: rollback
";
    // The rollback waits at the barrier.
    let back = format!("if [ -e $MUSTER_ROOT/was ]; then read line < {}; fi", gate.path().display());
    let fleet = StartedFleet::new(&sandbox, rollout, &back, "touch $MUSTER_ROOT/was");

    fleet.start_rollout();
    wait_for_lines(&journal(&sandbox), "v1", NODES.len() + 1);
    let fleet = fleet.killed(|| {});
    wait_rollout(&sandbox, "rolls back", |shown| shown["record"]["rolls_back"] == 1);
    // One node has rolled back, the other is running.
    gate.release(1);
    wait_for_lines(&journal(&sandbox), "v1", NODES.len() + 2);
    let fleet = fleet.killed(|| gate.release(1));

    let shown = fleet.ends(0);
    assert_eq!((text(&shown["record"]["to"]), &shown["record"]["grants"]), ("v1", &Value::from(2)), "{shown:#}");
    let phases = sandbox.muster_json(&["rollout", "history"]);
    let phases: Vec<_> = phases["items"].as_array().unwrap().iter().map(|row| row["phase"].clone()).collect();
    assert_eq!(phases, ["completed", "rolled_back"]);
    let moved: Vec<String> = fleet.applied("v2").into_keys().collect();
    assert_eq!(moved.len(), 2, "{moved:?}");
    assert!(fleet.applied("v2").values().all(|times| *times == 1));
    // To v1 once at the beginning, and those two once more.
    let times = |node: &str| 1 + usize::from(moved.iter().any(|moved| moved == node));
    let expected: BTreeMap<String, usize> = NODES.into_iter().map(|node| (node.to_owned(), times(node))).collect();
    assert_eq!(fleet.applied("v1"), expected);
    assert_eq!(sandbox.run_muster(&["check-single-version", "v1"]).code(), 0);
}
