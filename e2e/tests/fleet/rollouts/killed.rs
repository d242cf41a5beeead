//! The only server dies, with its store in its own files, at each of the moments at which a rollout can be hit; and is started
//! again by whoever looks after it. Nobody says anything to the rollout, and it comes to its end.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use jiff::SignedDuration;
use muster_testkit::release::ScriptRelease;
use serde_json::Value;

use super::{shown, text, time, until};
use muster_e2e::agent::Node;
use muster_e2e::gate::Gate;
use muster_e2e::process::{Process, Started};
use muster_e2e::project::Project;
use muster_e2e::server::Server;
use muster_e2e::stage::Stage;
use muster_testkit::wait::{TIMEOUT, eventually};

const NODES: [&str; 4] = ["web1", "web2", "web3", "web4"];
const ROLES: &str = "
roles:
  web: {cardinality: 4, flavor: local}
";

/// A fleet at v1, which every node has proved; nothing has gone to v2 yet.
struct Ready<'a> {
    stage: &'a Stage,
    project: Project,
    server: Server,
    _agents: Vec<Started>,
}

impl<'a> Ready<'a> {
    /// `first` and `second`: what appliers of v1 and v2 do, after they have written down that they run.
    fn new(stage: &'a Stage, rollout: &str, first: &str, second: &str) -> Self {
        let release = |more: &str| {
            let journal = journal(stage);
            ScriptRelease::new(&format!("echo $MUSTER_NODE $MUSTER_VERSION >> {}\n{more}\nexit 2", journal.display()))
        };
        let project = Project::with_environment(stage, &format!("{ROLES}{rollout}"))
            .release("v1", &release(first))
            .release("v2", &release(second));
        let server = Server::start(stage, &project);
        let agents = NODES.iter().zip(1..).map(|(name, number)| Node::new(stage, name, number).start()).collect();
        stage.wait_for("v1", &NODES);
        Self { stage, project, server, _agents: agents }
    }

    fn start_rollout(&self) {
        let started = self.stage.ask(&["rollout", "start", "v2"]);
        assert_eq!(started.code(), 0, "{started:?}");
    }

    /// `kill -9`, something that happens meanwhile, and another start.
    fn killed(self, meanwhile: impl FnOnce()) -> Self {
        let Self { stage, project, server, _agents } = self;
        server.kill();
        meanwhile();
        let server = Server::start(stage, &project);
        Self { stage, project, server, _agents }
    }

    /// Follows it, and what it leads to, to the end.
    fn ends(&self, code: i32) -> Value {
        let watched = self.stage.ask(&["rollout", "status", "--watch"]);
        assert_eq!(watched.code(), code, "{watched:?}");
        shown(self.stage, None)
    }

    /// How often each node has applied a version.
    fn applied(&self, version: &str) -> BTreeMap<String, usize> {
        let mut applied = BTreeMap::new();
        for line in lines(&journal(self.stage)) {
            let (node, of) = line.split_once(' ').unwrap();
            if of == version {
                *applied.entry(node.to_owned()).or_default() += 1;
            }
        }
        applied
    }
}

fn journal(stage: &Stage) -> PathBuf {
    stage.path("journal")
}

fn lines(path: &PathBuf) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Waits until somebody has written so many lines of this kind.
fn until_written(path: &PathBuf, suffix: &str, many: usize) -> Vec<String> {
    eventually(&format!("{many} lines end with {suffix:?}"), TIMEOUT, || {
        let lines: Vec<String> = lines(path).into_iter().filter(|line| line.ends_with(suffix)).collect();
        if lines.len() >= many { Ok(lines) } else { Err(format!("{lines:?}")) }
    })
}

fn once_each() -> BTreeMap<String, usize> {
    NODES.into_iter().map(|node| (node.to_owned(), 1)).collect()
}

#[test]
fn in_the_middle_of_a_wave() {
    let stage = Stage::new();
    let gate = Gate::new(stage.path("gate"));
    let rollout = "rollout: {waves: [{percent: 100}], max_unavailable: 2, soak: 0s, ramp: false}\n";
    let fleet = Ready::new(&stage, rollout, "", &format!("read line < {}", gate.path().display()));

    fleet.start_rollout();
    // Two are in their appliers, and nobody else may go. One of them ends while there is no server.
    until_written(&journal(&stage), "v2", 2);
    let fleet = fleet.killed(|| gate.let_pass(1));
    until(&stage, "grants to a third", |shown| shown["record"]["grants"].as_u64() >= Some(3));
    // Again, with two others of whom nobody knows how far they are.
    until_written(&journal(&stage), "v2", 3);
    let fleet = fleet.killed(|| gate.let_pass(3));

    let shown = fleet.ends(0);
    assert_eq!(shown["record"]["phase"], "completed");
    assert_eq!(shown["record"]["grants"], 4, "{shown:#}");
    assert_eq!(fleet.applied("v2"), once_each());
    assert_eq!(fleet.applied("v1"), once_each());
}

#[test]
fn while_a_wave_is_watched() {
    const SOAK: SignedDuration = SignedDuration::from_secs(4);
    let stage = Stage::new();
    let rollout = "rollout: {waves: [{nodes: 1, soak: 4s}, {percent: 100}], max_unavailable: 4, soak: 0s}\n";
    let fleet = Ready::new(&stage, rollout, "", "");

    fleet.start_rollout();
    until(&stage, "watches its first wave", |shown| !shown["record"]["waves"][0]["settled"].is_null());
    let fleet = fleet.killed(|| {});

    let shown = fleet.ends(0);
    let wave = &shown["record"]["waves"][0];
    let watched = time(&wave["passed"]).duration_since(time(&wave["settled"]));
    assert!(watched >= SOAK, "it was watched for {watched}: {wave:#}");
    let second = shown["waves"][1]["nodes"].as_array().expect("it had a second wave");
    assert!(!second.is_empty());
    let early = second.iter().find(|node| time(&node["granted"]) < time(&wave["passed"]));
    assert_eq!(early, None, "nobody went before the time: {shown:#}");
    assert_eq!(fleet.applied("v2"), once_each());
}

#[test]
fn while_a_program_of_the_gate_runs() {
    let stage = Stage::new();
    let (gate, asked) = (Gate::new(stage.path("gate")), stage.path("asked"));
    // It has a child, as a script has.
    let program = format!("echo $$ >> {0}; sh -c 'read line < {1}' && exit 0", asked.display(), gate.path().display());
    let rollout = format!(
        "rollout:
  waves: [{{nodes: 1, soak: 0s}}, {{percent: 100}}]
  max_unavailable: 4
  soak: 0s
  gate: {{checks: [{{name: door, command: [/bin/sh, -c, {program:?}], timeout: 10m}}]}}
"
    );
    let fleet = Ready::new(&stage, &rollout, "", "");

    fleet.start_rollout();
    let first: u32 = until_written(&asked, "", 1)[0].parse().unwrap();
    let first = Process::open(first).unwrap().expect("the program runs");
    let fleet = fleet.killed(|| assert!(!first.has_ended().unwrap(), "nobody has told it to end"));
    // What the killed one has left is ended before the next one asks.
    until_written(&asked, "", 2);
    assert!(first.has_ended().unwrap(), "two of them run");
    let still = shown(&stage, None);
    assert_eq!(still["record"]["grants"], 1, "nobody has said yes: {still:#}");
    // One word is enough: nobody else reads it. The other one is for the second wave.
    gate.let_pass(2);

    let shown = fleet.ends(0);
    assert_eq!(shown["record"]["phase"], "completed");
    assert_eq!(lines(&asked).len(), 3, "once more after the start, and once for the second wave");
    assert_eq!(fleet.applied("v2"), once_each());
    let Ready { server, _agents: agents, .. } = fleet;
    drop((server, agents));
    stage.is_empty();
}

#[test]
fn while_it_goes_back_by_itself() {
    let stage = Stage::new();
    let gate = Gate::new(stage.path("gate"));
    let rollout = "rollout:
  waves: [{nodes: 2, soak: 0s}, {percent: 100}]
  max_unavailable: 1
  soak: 0s
  gate: {checks: [{name: door, command: [/bin/false], retries: 0}]}
  on_failure: rollback
";
    // The way back takes as long as it is made to.
    let back = format!("if [ -e $MUSTER_ROOT/was ]; then read line < {}; fi", gate.path().display());
    let fleet = Ready::new(&stage, rollout, &back, "touch $MUSTER_ROOT/was");

    fleet.start_rollout();
    until_written(&journal(&stage), "v1", NODES.len() + 1);
    let fleet = fleet.killed(|| {});
    until(&stage, "goes back", |shown| shown["record"]["rolls_back"] == 1);
    // The one is back, and the other on its way.
    gate.let_pass(1);
    until_written(&journal(&stage), "v1", NODES.len() + 2);
    let fleet = fleet.killed(|| gate.let_pass(1));

    let shown = fleet.ends(0);
    assert_eq!((text(&shown["record"]["to"]), &shown["record"]["grants"]), ("v1", &Value::from(2)), "{shown:#}");
    let phases = stage.ask_json(&["rollout", "history"]);
    let phases: Vec<_> = phases["items"].as_array().unwrap().iter().map(|row| row["phase"].clone()).collect();
    assert_eq!(phases, ["completed", "rolled_back"]);
    let moved: Vec<String> = fleet.applied("v2").into_keys().collect();
    assert_eq!(moved.len(), 2, "{moved:?}");
    assert!(fleet.applied("v2").values().all(|times| *times == 1));
    // To v1 once at the beginning, and those two once more.
    let times = |node: &str| 1 + usize::from(moved.iter().any(|moved| moved == node));
    let expected: BTreeMap<String, usize> = NODES.into_iter().map(|node| (node.to_owned(), times(node))).collect();
    assert_eq!(fleet.applied("v1"), expected);
    assert_eq!(stage.ask(&["check-single-version", "v1"]).code(), 0);
}
