//! The quickstart as a new user runs it, with the real Puppet.
//!
//! One test, because a start of Puppet costs seconds of CPU time: a fleet starts, stops, starts again, is updated,
//! stops, and starts as it was. Then the commands of the README run, as they are written.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use muster_e2e::http;
use muster_e2e::process::ChildProcess;
use muster_e2e::sandbox::{Sandbox, muster};
use muster_e2e::server::UpProcess;
use muster_e2e::server::{Api, repository};
use muster_testkit::wait::eventually;

const NODES: [&str; 4] = ["db1", "web1", "web2", "lb1"];
/// Timeout of Puppet runs.
const TIMEOUT: Duration = Duration::from_secs(240);
/// A client that retries is served within this time: a replaced listener is down for a moment.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(20);

fn quickstart() -> PathBuf {
    repository().join("examples/quickstart")
}

/// Sends a request to the load balancer.
fn through_lb(sandbox: &Sandbox) -> Result<String, String> {
    match http::try_request("GET", &format!("{}:7301", sandbox.address(4)), "/", None) {
        Ok(answer) if answer.status == 200 => Ok(answer.body.trim_end().to_owned()),
        Ok(answer) => Err(format!("{answer:?}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Two requests are answered by two nodes, in turn.
fn both_answer(sandbox: &Sandbox, version: &str, says: &str) {
    let mut answers = [through_lb(sandbox).unwrap(), through_lb(sandbox).unwrap()];
    answers.sort();
    let expected = ["web1", "web2"].map(|web| format!("{web} ({version}): {says}"));
    assert_eq!(answers, expected);
}

/// Lines of the transcript about a node, without their times.
fn lines_of<'a>(transcript: &'a str, node: &str) -> Vec<&'a str> {
    let about = |line: &'a str| {
        let (_, rest) = line.split_once("s  ")?;
        rest.strip_prefix(node).map(str::trim)
    };
    transcript.lines().filter_map(about).collect()
}

/// Observations during the update.
struct Watched {
    samples: usize,
    inactive: usize,
    answers: Vec<String>,
}

/// Reads the state of `lb1` and sends it requests during the update.
fn watch(sandbox: &Sandbox, api: &Api, moved: &AtomicBool) -> Watched {
    let mut watched = Watched { samples: 0, inactive: 0, answers: Vec::new() };
    while !moved.load(Ordering::SeqCst) {
        watched.samples += 1;
        let active = api.node("lb1")["active"].as_bool().unwrap();
        watched.inactive += usize::from(!active);
        watched.answers.push(eventually("lb1 answers", CLIENT_TIMEOUT, || through_lb(sandbox)));
    }
    watched
}

/// Starts the fleet from nothing. Nodes wait for those that they need.
fn start_from_nothing(sandbox: &Sandbox) {
    let first = UpProcess::start(sandbox, &quickstart(), &["--once"]).process.wait_exit(TIMEOUT);
    assert_eq!(first.code(), 0, "{}\n{}", first.stdout, first.stderr);
    assert!(first.stdout.contains("all 4 nodes validated at v1"), "{}", first.stdout);
    let seen = |node: &str, text: &str| lines_of(&first.stdout, node).iter().any(|line| line.starts_with(text));
    let waits = [
        ("web1", "pending v1: waiting for role db: 0 of 1 active"),
        ("lb1", "pending v1: waiting for role web: 0 of 2 active"),
    ];
    // What a node waits for may be there in the moment in which its run ends: then its next run is what can be seen.
    assert!(waits.iter().any(|(node, pending)| seen(node, pending)), "{}", first.stdout);
    let validated = |node: &str| {
        let is_validated = |line: &str| lines_of(line, node).iter().any(|line| line.starts_with("validated v1"));
        // The last line of a node may be that of the table.
        first.stdout.lines().position(is_validated).unwrap_or(usize::MAX)
    };
    assert!(["db1", "web1", "lb1"].map(validated).is_sorted(), "{}", first.stdout);
    sandbox.assert_no_processes();
    assert!(sandbox.path("state/store").exists(), "the state is kept");
}

/// Updates the fleet to v2 from a second terminal. `lb1` stays active and answers.
fn update(sandbox: &Sandbox, api: &Api) {
    let moved = AtomicBool::new(false);
    let watched = std::thread::scope(|scope| {
        let watching = scope.spawn(|| watch(sandbox, api, &moved));
        let triggered = sandbox.run_muster_in("elsewhere", &["trigger-update", "v2", "--at-once"]);
        assert_eq!(triggered.code(), 0, "{triggered:?}");
        assert!(triggered.stdout.contains("quickstart is updated from v1 to v2"), "{triggered:?}");
        let arrived = sandbox
            .run_muster_in("elsewhere", &[&["verify-hosts", "v2", "--wait", "--timeout", "3m"], &NODES[..]].concat());
        moved.store(true, Ordering::SeqCst);
        assert_eq!(arrived.code(), 0, "{arrived:?}");
        watching.join().unwrap()
    });
    assert!(watched.samples > 10, "only {} samples", watched.samples);
    assert_eq!(watched.inactive, 0, "lb1 left active_roles in {} of {} samples", watched.inactive, watched.samples);
    assert!(watched.answers.iter().any(|answer| answer.contains("(v1)")), "{:?}", watched.answers);
    both_answer(sandbox, "v2", "Welcome back. db says: To pass muster is to be found fit, again and again.");
    for node in NODES {
        let versions: Vec<_> = api.runs(node).iter().map(|run| run["version"].clone()).collect();
        assert_eq!(versions.last().unwrap(), "v2", "{node}: {versions:?}");
    }
}

/// Runs the commands of an operator on the updated fleet.
fn check_commands(sandbox: &Sandbox) {
    let run = |args: &[&str]| sandbox.run_muster(args);
    let hosts = run(&["hosts-at-version", "v2"]).stdout;
    assert_eq!(hosts.split_whitespace().collect::<std::collections::BTreeSet<_>>(), NODES.into());
    assert_eq!(run(&["check-single-version", "v2"]).code(), 0);
    assert_eq!(run(&["check-single-version", "v1"]).code(), 1);
    let running = sandbox.muster_json(&["running-versions"]);
    assert_eq!(running["items"], serde_json::json!([{"version": "v2", "nodes": 4}]));
    assert_eq!(sandbox.run_muster_with_input(&["verify-hosts", "v2"], "db1\nweb1 web2\n\nlb1\n").code(), 0);
    let missing = sandbox.run_muster_with_input(&["verify-hosts", "v2"], "db1 web9");
    assert_eq!(missing.code(), 1, "{missing:?}");
    assert!(missing.stdout.contains("web9 is not in the design"), "{missing:?}");
    assert_eq!(
        sandbox.run_muster_with_input(&["verify-hosts", "v2", "-"], "").code(),
        64,
        "an empty list verifies nothing"
    );
    assert_eq!(run(&["verify-hosts", "v2"]).code(), 0, "every node");
    assert_eq!(run(&["trigger-update", "v9"]).code(), 1);
    assert_eq!(run(&["current-version"]).stdout.trim(), "v2");
    assert_eq!(run(&["failures"]).code(), 0);
    let status = run(&["status"]).stdout;
    assert!(status.contains("quickstart: all 4 nodes validated at v2"), "{status}");
    assert_eq!(run(&["status", "--server", "http://127.0.0.1:9"]).code(), 2);
}

#[test]
fn project_of_init_is_validated() {
    let sandbox = Sandbox::new();
    let created = sandbox.run_muster(&["init", "shop"]);
    assert_eq!(created.code(), 0, "{created:?}");
    let up = UpProcess::start(&sandbox, &sandbox.path("shop"), &["--once"]).process.wait_exit(TIMEOUT);
    assert_eq!(up.code(), 0, "{up:?}");
    assert!(up.stdout.contains("all 2 nodes validated at v1"), "{}", up.stdout);
    sandbox.assert_no_processes();
}

#[test]
fn quickstart_starts_updates_and_restarts() {
    let sandbox = Sandbox::new();
    start_from_nothing(&sandbox);

    // Again, from its present state.
    let up = UpProcess::start(&sandbox, &quickstart(), &[]);
    let api = up.api(&sandbox, "quickstart");
    up.process.wait_for_output("all 4 nodes validated at v1", TIMEOUT);
    assert_eq!(api.node("db1")["incarnation"], 1, "the same incarnation");
    both_answer(&sandbox, "v1", "Hello. db says: To pass muster is to be inspected and found fit.");
    assert_eq!(sandbox.run_muster(&["verify-hosts", "v2", "--all"]).code(), 1);
    assert_eq!(sandbox.run_muster(&["check-single-version", "v1"]).code(), 0);

    update(&sandbox, &api);
    check_commands(&sandbox);

    up.process.interrupt_group();
    assert_eq!(up.process.wait_exit(TIMEOUT).code(), 0);
    sandbox.assert_no_processes();
    assert!(through_lb(&sandbox).is_err());

    // Once more, from its present state.
    let last = UpProcess::start(&sandbox, &quickstart(), &[]);
    last.process.wait_for_output("all 4 nodes validated at v2", TIMEOUT);
    run_documented_commands(&sandbox);
    last.process.interrupt_group();
    assert_eq!(last.process.wait_exit(TIMEOUT).code(), 0);
    sandbox.assert_no_processes();
}

/// Commands of the documentation that never end.
const ENDLESS: [&str; 2] = ["muster node logs web1 --follow", "muster node logs lb1 --follow"];

/// Runs the blocks of the README and of the quickstart page that are for a running fleet, as they are written.
fn run_documented_commands(sandbox: &Sandbox) {
    let directory = sandbox.path("checkout");
    fs::create_dir_all(directory.join("my/releases")).unwrap();
    symlink(repository().join("examples"), directory.join("examples")).unwrap();
    symlink(sandbox.path("state"), directory.join(".muster")).unwrap();
    let mut copy = Command::new("cp");
    copy.arg("-rL").arg(quickstart().join("releases/v2")).arg(directory.join("my/releases/v3"));
    assert!(copy.status().unwrap().success());
    let spec = directory.join("my/releases/v3/release.yaml");
    fs::write(&spec, fs::read_to_string(&spec).unwrap().replace("(v2)", "(v3)")).unwrap();
    let programs = muster();
    let path = format!("{}:{}", programs.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut commands = 0;
    for (page, first) in [
        ("README.md", "$ muster status"),
        ("docs/src/quickstart.md", "$ muster status"),
        ("README.md", "$ muster key new"),
        ("README.md", "$ muster design check"),
    ] {
        for command in block(page, first) {
            if ENDLESS.iter().any(|endless| command.starts_with(endless)) {
                continue;
            }
            let command = command.replace("127.77.0.4", &sandbox.address(4).to_string());
            let mut shell = sandbox.command("bash");
            shell.args(["-ec", &command]).current_dir(&directory).env("PATH", &path);
            let ended = ChildProcess::new(&command, &mut shell).wait_exit(TIMEOUT);
            assert_eq!(ended.code(), 0, "{page}: {command}\n{}\n{}", ended.stdout, ended.stderr);
            commands += 1;
        }
    }
    assert!(commands > 30, "only {commands} commands were run");
}

/// The commands of the block of a page that begins with this command.
fn block(page: &str, first: &str) -> Vec<String> {
    let text = fs::read_to_string(repository().join(page)).unwrap();
    let blocks = text.split("```console\n").skip(1).filter_map(|block| block.split("```").next());
    let found = blocks.into_iter().find(|block| block.starts_with(first));
    let found = found.unwrap_or_else(|| panic!("{page} has no block that begins with {first:?}"));
    found.lines().filter_map(|line| line.strip_prefix("$ ")).map(str::to_owned).collect()
}
