//! `muster up --watch` and `muster up --fresh`: a fleet that follows the files of its project, and one without a past.

use muster_e2e::sandbox::{Sandbox, TestProject};
use muster_e2e::server::UpProcess;
use muster_testkit::release::{ScriptRelease, write_file};
use muster_testkit::wait::TIMEOUT;

fn script(text: &str) -> ScriptRelease {
    ScriptRelease::new(text)
}

#[test]
fn saved_changes_are_taken_over_and_broken_ones_are_not() {
    let sandbox = Sandbox::new();
    let project = TestProject::new(&sandbox, &[("web", 1)]).release("v1", &script("exit 0"));
    let up = UpProcess::start(&sandbox, &project.dir, &["--watch"]);
    let mut lines = 0;
    let mut expect = |text: &str| {
        let (at, line) = up.process.wait_for_output_after(lines, text, TIMEOUT);
        lines = at;
        line
    };
    expect("Saved changes in ");
    let environment = |cardinality: &str| {
        let text = format!("roles:\n  web: {{{cardinality}, flavor: local}}\n");
        write_file(&project.dir.join("environments/test.yaml"), &text);
    };

    script("exit 2").write(&project.dir.join("releases/v1"));
    let line = expect("saved: v1-dev.");
    assert!(line.ends_with(" from releases/v1"), "{line}");
    expect("the node is validated at v1-dev.");

    environment("cardinalty: 2");
    expect("did you mean \"cardinality\"?");
    expect("nothing was changed: correct the files and save again");
    environment("cardinality: 0");
    expect("this would remove all 1 nodes of test");
    expect("nothing was changed");
    environment("cardinality: 2");
    expect("saved: design: + web2");
    expect("all 2 nodes validated at v1-dev.");

    script("echo 2; exit 2").write(&project.dir.join("releases/v2"));
    expect("saved: v2-dev.");
    expect("all 2 nodes validated at v2-dev.");
    // The first content is registered, with a lower serial.
    script("exit 0").write(&project.dir.join("releases/v1"));
    expect("saved: v1 again");
    expect("all 2 nodes validated at v1");

    up.process.interrupt_group();
    assert_eq!(up.process.wait_exit(TIMEOUT).code(), 0);
    sandbox.assert_no_processes();
}

#[test]
fn change_while_stopped_is_taken_over_or_refused() {
    let sandbox = Sandbox::new();
    let project = TestProject::new(&sandbox, &[("web", 1)]).release("v1", &script("exit 0"));
    let once = |more: &[&str]| {
        let up = UpProcess::start(&sandbox, &project.dir, &[&["--once"], more].concat());
        let ended = up.process.wait_exit(TIMEOUT);
        sandbox.assert_no_processes();
        ended
    };
    assert_eq!(once(&[]).code(), 0);
    script("exit 2").write(&project.dir.join("releases/v1"));
    let refused = once(&[]);
    assert_eq!(refused.code(), 1, "{refused:?}");
    assert!(refused.stderr.contains("release v1 has changed since it was registered"), "{}", refused.stderr);
    assert!(refused.stderr.contains("hint: `muster up --watch`"), "{}", refused.stderr);

    let up = UpProcess::start(&sandbox, &project.dir, &["--watch"]);
    up.process.wait_for_output("saved: v1-dev.", TIMEOUT);
    up.process.wait_for_output("validated at v1-dev.", TIMEOUT);
    let fresh = |more: &[&str]| sandbox.run_muster(&[&["up", "project", "--state", "state", "--fresh"], more].concat());
    let running = fresh(&["--yes"]);
    assert_eq!(running.code(), 1, "{running:?}");
    assert!(running.stderr.contains("a fleet is running on "), "{}", running.stderr);
    up.process.interrupt_group();
    assert_eq!(up.process.wait_exit(TIMEOUT).code(), 0);

    // Without a terminal and --yes nothing is removed.
    let unconfirmed = fresh(&[]);
    assert_eq!(unconfirmed.code(), 64, "{unconfirmed:?}");
    assert!(unconfirmed.stderr.contains("hint: confirm with --yes"), "{}", unconfirmed.stderr);
    let key = std::fs::read(sandbox.path("state/keys/release.key")).unwrap();
    let again = once(&["--fresh", "--yes"]);
    assert_eq!(again.code(), 0, "{again:?}");
    assert!(again.stdout.contains("the node is validated at v1\n"), "{}", again.stdout);
    assert_eq!(std::fs::read(sandbox.path("state/keys/release.key")).unwrap(), key, "the key is kept");
}
