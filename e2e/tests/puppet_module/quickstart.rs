//! The quickstart's releases, node by node, with test snapshots. Another test runs them with `muster up`.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{self, Command};
use std::thread;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::apply::{PuppetNode, PuppetRun, repository};

struct QuickstartFleet {
    db1: PuppetNode,
    web1: PuppetNode,
    web2: PuppetNode,
    lb1: PuppetNode,
}

impl QuickstartFleet {
    /// Addresses from this process id, which no other test process uses.
    fn new() -> Self {
        let id = process::id();
        let address = |n: u8| format!("127.{}.{}.{n}", 128 + (id >> 8) % 127, id % 256);
        Self {
            db1: PuppetNode::new("db1", "db", &address(1)),
            web1: PuppetNode::new("web1", "web", &address(2)),
            web2: PuppetNode::new("web2", "web", &address(3)),
            lb1: PuppetNode::new("lb1", "lb", &address(4)),
        }
    }

    fn nodes(&self) -> [&PuppetNode; 4] {
        [&self.db1, &self.web1, &self.web2, &self.lb1]
    }

    /// Applies a version on one node, with these nodes active.
    fn apply(&self, node: &PuppetNode, version: &str, active: &[&PuppetNode]) -> PuppetRun {
        let mut roles = json!({"db": {}, "web": {}, "lb": {}});
        for other in active {
            let role = other.name().trim_end_matches(|c: char| c.is_ascii_digit());
            let nodes: &mut Map<String, Value> = roles[role].as_object_mut().unwrap();
            nodes.insert(other.name().into(), json!({"eth0": other.address()}));
        }
        node.apply(&release(version), version, &roles)
    }

    /// Applies a version on several nodes concurrently, with all nodes active.
    fn apply_to(&self, nodes: &[&PuppetNode], version: &str) -> Vec<PuppetRun> {
        thread::scope(|scope| {
            let runs: Vec<_> =
                nodes.iter().map(|node| scope.spawn(|| self.apply(node, version, &self.nodes()))).collect();
            runs.into_iter().map(|run| run.join().unwrap()).collect()
        })
    }

    fn apply_everywhere(&self, version: &str) -> Vec<PuppetRun> {
        self.apply_to(&self.nodes(), version)
    }

    /// Two responses of the load balancer, sorted.
    fn answers(&self) -> Vec<String> {
        let mut bodies: Vec<_> = (0..2).map(|_| body(&get(&self.lb1, 7301, "/"))).collect();
        bodies.sort();
        bodies
    }
}

#[test]
fn quickstart_updates_and_recovers_after_a_power_cut() {
    let fleet = QuickstartFleet::new();
    let QuickstartFleet { db1, web1, web2, lb1 } = &fleet;

    // At first no node is active. Only db needs none.
    let early = thread::scope(|scope| {
        let web = scope.spawn(|| fleet.apply(web1, "v1", &[]));
        assert_code(&fleet.apply(db1, "v1", &[]), 2);
        web.join().unwrap()
    });
    assert_code(&early, 1);
    assert_eq!(early.pending, [json!({"kind": "role", "role": "db", "want": 1, "have": 0})]);
    // Class parameters are looked up as data too.
    let (parameters, others): (Vec<_>, Vec<_>) = early.lookups.iter().partition(|key| key.starts_with("data::"));
    assert_eq!(others, ["active_roles::db::eth0", "active_roles::db"]);
    assert!(parameters.iter().any(|key| *key == "data::web::greeting"), "{parameters:?}");
    let motto = get(db1, 7101, "/motto");
    assert_eq!(body(&motto), "To pass muster is to be inspected and found fit.");
    assert!(get(db1, 7101, "/nothing").starts_with("HTTP/1.1 404 "));

    thread::scope(|scope| {
        let first = scope.spawn(|| assert_code(&fleet.apply(web1, "v1", &[db1]), 2));
        assert_code(&fleet.apply(web2, "v1", &[db1]), 2);
        first.join().unwrap();
    });
    let waiting = fleet.apply(lb1, "v1", &[db1, web1]);
    assert_code(&waiting, 1);
    assert_eq!(waiting.pending, [json!({"kind": "role", "role": "web", "want": 2, "have": 1})]);

    // A converged run changes nothing and restarts nothing.
    let pids = [pid(db1, "db"), pid(web1, "web"), pid(web2, "web")];
    let runs = fleet.apply_everywhere("v1");
    let codes: Vec<_> = runs.iter().map(|run| run.code.unwrap()).collect();
    assert_eq!(codes, [0, 0, 0, 2], "{runs:#?}");
    assert_eq!([pid(db1, "db"), pid(web1, "web"), pid(web2, "web")], pids);
    assert_eq!(
        fleet.answers(),
        ["web1", "web2"]
            .map(|web| format!("{web} (v1): Hello. db says: To pass muster is to be inspected and found fit."))
    );
    balances(lb1, "v1");

    for run in fleet.apply_everywhere("v2") {
        assert_code(&run, 2);
    }
    let greeting =
        |web| format!("{web} (v2): Welcome back. db says: To pass muster is to be found fit, again and again.");
    assert_eq!(fleet.answers(), ["web1", "web2"].map(greeting));
    assert!(get(lb1, 7301, "/").contains("X-Served-By: 127."));
    balances(lb1, "v2");

    // Power cut: the listener is gone, its pid file is stale, and another process has the pid.
    let cut = pid(web2, "web");
    assert!(Command::new("kill").args(["-KILL", &cut]).status().unwrap().success());
    fs::write(web2.root().join("run/web.pid"), format!("{}\n", process::id())).unwrap();
    // The load balancer skips the node that is down.
    assert_eq!(fleet.answers(), [greeting("web1"), greeting("web1")]);
    // Meanwhile web1 runs with other configuration than on disk, as after a run that was interrupted before the
    // restart.
    let config = web1.root().join("etc/web.conf");
    let right = fs::read_to_string(&config).unwrap();
    fs::write(&config, right.replace("Welcome back.", "Cut off.")).unwrap();
    assert!(control(web1, "web", "start"));
    fs::write(&config, right).unwrap();
    assert!(body(&get(lb1, 7301, "/")).starts_with("web1 (v2): Cut off. "));
    for run in fleet.apply_to(&[web1, web2], "v2") {
        assert_code(&run, 2);
    }
    assert_eq!(fleet.answers(), ["web1", "web2"].map(greeting));

    // `stop` returns when the listener has ended.
    assert!(control(web2, "web", "status"));
    assert!(control(web2, "web", "stop"));
    assert!(!control(web2, "web", "status"));
    assert!(TcpStream::connect((web2.address(), 7201)).is_err());
}

fn release(version: &str) -> PathBuf {
    repository().join("examples/quickstart/releases").join(version)
}

fn assert_code(run: &PuppetRun, code: i32) {
    assert_eq!(run.code, Some(code), "{run:#?}");
}

fn pid(node: &PuppetNode, listener: &str) -> String {
    fs::read_to_string(node.root().join(format!("run/{listener}.pid"))).unwrap().trim().to_owned()
}

/// Calls a listener's program as Puppet does.
fn control(node: &PuppetNode, listener: &str, what: &str) -> bool {
    let program = node.root().join(format!("bin/{listener}.rb"));
    node.command("ruby", &release("v2")).arg(program).arg(what).status().unwrap().success()
}

/// The release's check of the load balancer passes.
fn balances(lb: &PuppetNode, version: &str) {
    let release = release(version);
    let output = lb.command(release.join("checks/balances"), &release).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("web1 ") && said.contains("web2 "), "{said}");
}

/// The response to a GET.
fn get(node: &PuppetNode, port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect((node.address(), port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", node.name()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn body(answer: &str) -> String {
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    body.trim_end().to_owned()
}
