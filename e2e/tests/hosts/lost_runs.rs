//! A host whose runs lose their agent, their supervisor or their machine. A run that ends by itself is reported once, by the
//! agent that finds it. A lost run is a failure, and a full run follows.

use muster_e2e::host::{Host, HostFiles};
use muster_e2e::sandbox::{Barrier, Sandbox, TestProject};
use muster_e2e::server::SandboxServer;
use muster_testkit::release::ScriptRelease;
use muster_testkit::wait::{TIMEOUT, eventually};
use serde_json::{Value, json};

/// A changed file, whose service is reloaded after a command that waits at a gate.
fn manifest(version: &str) -> String {
    format!(
        "file {{ '/etc/service.conf': content => \"{version}\\n\" }}\n\
         -> exec {{ 'wait': provider => shell, timeout => 0, command => 'echo $MUSTER_RUN_ID >> /srv/begun; \
            until test -p /run/gate; do sleep 0.01; done; read line < /run/gate' }}\n\
         -> exec {{ 'reload': provider => shell, command => 'echo {version} >> /srv/reloads', refreshonly => true, \
            subscribe => File['/etc/service.conf'] }}\n"
    )
}

/// The fleet of one host.
struct OneHost<'a> {
    sandbox: &'a Sandbox,
    server: SandboxServer,
}

impl OneHost<'_> {
    /// The run with this number, from 0, as soon as it waits at the gate.
    fn begun_run(&self, host: &Host, number: usize) -> String {
        eventually("the run waits at the gate", TIMEOUT * 3, || {
            let begun = host.read("/srv/begun");
            let status = || self.sandbox.run_muster(&["status"]).stdout;
            begun.lines().nth(number).map(str::to_owned).ok_or_else(|| format!("{begun}{}", status()))
        })
    }

    /// Asserts that a run is reported as lost with this reason, and that the next run follows because of it, while the version
    /// is not validated.
    fn assert_lost(&self, host: &Host, version: &str, lost: &str, not_refreshed: &str, next: usize) -> String {
        let next = self.begun_run(host, next);
        let seen = self.server.api.wait_node("web1", "has reported the loss", |seen| seen["history"][0]["run"] == lost);
        let reported = &seen["history"][0];
        assert_eq!((&reported["phase"], &reported["result"]), (&json!("configured"), &json!("failed")), "{seen:#}");
        let reason = reported["reason"].as_str().unwrap();
        assert!(reason.contains("was lost") && reason.ends_with(not_refreshed), "{reason}");
        assert_ne!(seen["version"], version, "a lost run validates nothing: {seen:#}");
        next
    }

    fn run_causes(&self, run: &str) -> Vec<Value> {
        let runs = self.server.api.runs("web1");
        let run = runs.iter().find(|listed| listed["run"] == run);
        run.unwrap_or_else(|| panic!("{runs:#?}"))["causes"].as_array().unwrap().clone()
    }
}

/// The pid of the agent that systemd has started last.
const AGENT: &str = "$(systemctl show --property=MainPID --value muster-agent)";

fn supervisor(run: &str) -> String {
    format!("$(cat /var/lib/muster-agent/runs/{run}/applier/lock)")
}

/// Waits until this many agents have adopted work.
fn wait_adopted(host: &Host, count: usize) {
    eventually("the next agent adopts the run", TIMEOUT, || {
        let log = host.run("journalctl --no-pager --output=cat --unit=muster-agent");
        if log.matches("adopting the work of an earlier agent").count() == count { Ok(()) } else { Err(log) }
    });
}

#[test]
fn only_a_run_that_ends_by_itself_validates_the_host() {
    let sandbox = Sandbox::new();
    let daemon = "test -e /srv/daemon && exit 0\n\
                  setsid sleep 1000 < /dev/null > /dev/null 2>&1 & echo $! > /srv/daemon; exit 2";
    let project = TestProject::new(&sandbox, &[("web", 1)])
        .puppet_release("v1", &manifest("v1"))
        .puppet_release("v2", &manifest("v2"))
        .release("v3", &ScriptRelease::new(daemon));
    let one = OneHost { server: SandboxServer::start(&sandbox, &project), sandbox: &sandbox };
    let files = HostFiles::new(&sandbox, "web1");
    files.agent("web1");
    // A file of the host's own, which can be replaced.
    let unit = "[Service]\nExecStart=\nExecStart=/opt/muster-agent run\n";
    files.file("etc/systemd/system/muster-agent.service.d/opt.conf", unit);
    let host = files.boot();
    let gate = Barrier::new(host.path("/run/gate"));
    host.run("cp /usr/bin/muster-agent /opt/muster-agent; systemctl enable --now muster-agent");

    // The agent is killed, and the next one adopts the run. Then the supervisor is killed.
    let first = one.begun_run(&host, 0);
    host.run(&format!("kill -9 {AGENT}"));
    wait_adopted(&host, 1);
    host.run(&format!("kill -9 {}", supervisor(&first)));
    let second = one.assert_lost(&host, "v1", &first, "; not refreshed: Exec[reload]", 1);

    // Both are killed at once.
    host.run(&format!("kill -9 {} {AGENT}", supervisor(&second)));
    let third = one.assert_lost(&host, "v1", &second, "a full run follows", 2);

    // The agent is upgraded, and a second agent is started by mistake. The run is completed under its old supervisor.
    let upgrade = "cp /opt/muster-agent /opt/new && echo upgraded >> /opt/new && mv /opt/new /opt/muster-agent";
    host.run(&format!("{upgrade}; systemctl restart muster-agent"));
    // The second and third agent have adopted a run, too.
    wait_adopted(&host, 3);
    let program = host.run(&format!("readlink /proc/{}/exe", supervisor(&third)));
    assert_eq!(program, "/opt/muster-agent (deleted)\n", "the supervisor is of the replaced file");
    let duplicate = host.try_run("/opt/muster-agent run");
    assert_eq!(duplicate.code(), 1, "{duplicate:?}");
    assert!(duplicate.stderr.contains("another agent uses the state directory"), "{duplicate:?}");
    gate.release(1);
    sandbox.wait_validated("v1", &["web1"]);
    let runs = one.server.api.runs("web1");
    assert_eq!(runs.iter().map(|run| &run["run"]).collect::<Vec<_>>(), [&first, &second, &third], "each once");
    for (run, lost) in [(&second, &first), (&third, &second)] {
        let causes = one.run_causes(run);
        assert!(causes.contains(&json!({"kind": "interrupted", "run": lost})), "{causes:?}");
    }

    // The host is rebooted during a run.
    assert_eq!(one.server.api.trigger_update("v2").status, 200);
    let fourth = one.begun_run(&host, 3);
    drop(gate);
    host.reboot();
    let host = files.boot();
    let fifth = one.assert_lost(&host, "v2", &fourth, "; not refreshed: Exec[reload]", 4);
    let gate = Barrier::new(host.path("/run/gate"));
    gate.release(1);
    sandbox.wait_validated("v2", &["web1"]);
    let causes = one.run_causes(&fifth);
    assert!(causes.contains(&json!({"kind": "interrupted", "run": fourth})), "{causes:?}");
    assert_eq!(host.read("/srv/reloads"), "", "as documented: a full run does not repeat a lost refresh");

    // A run leaves a daemon behind. The run ends, and the daemon survives it, and the agent.
    assert_eq!(one.server.api.trigger_update("v3").status, 200);
    sandbox.wait_validated("v3", &["web1"]);
    let scope = "grep -o 'muster-run-.*scope' /proc/$(cat /srv/daemon)/cgroup";
    let before = host.run(scope);
    host.run("systemctl restart muster-agent");
    assert_eq!(host.run(scope), before, "it is still in the scope of its run");
}
