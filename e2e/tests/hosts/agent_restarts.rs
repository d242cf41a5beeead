//! The agent's service is restarted during a run: while dpkg installs packages, and by the run itself.

use std::path::Path;
use std::process::Command;

use muster_e2e::host::{Host, HostFiles};
use muster_e2e::sandbox::{Sandbox, TestProject};
use muster_e2e::server::SandboxServer;
use muster_testkit::release::{write_file, write_script};
use muster_testkit::wait::{TIMEOUT, eventually};
use serde_json::Value;

const PACKAGES: [&str; 5] = ["slow0", "slow1", "slow2", "slow3", "slow4"];

/// Builds a package whose scripts announce themselves and wait at a gate.
fn build_package(sandbox: &Sandbox, packages: &Path, name: &str) {
    let source = sandbox.path("packages").join(name);
    let control = format!(
        "Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: test <test@localhost>\nDescription: slow\n"
    );
    write_file(&source.join("DEBIAN/control"), &control);
    for script in ["preinst", "postinst"] {
        write_script(
            &source.join("DEBIAN").join(script),
            &format!("echo {script} {name} >> /srv/moments; read line < /srv/gate"),
        );
    }
    std::fs::create_dir_all(packages).unwrap();
    let built = Command::new("dpkg-deb")
        .args(["--root-owner-group", "--build"])
        .args([&source, &packages.join(format!("{name}.deb"))])
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
}

/// Reports of the node's runs, by run.
fn validated_runs(server: &SandboxServer) -> Vec<Value> {
    server.api.wait_node_state("web1", "validated");
    server.api.runs("web1")
}

fn start_agent(host: &Host) {
    host.run("systemctl start muster-agent");
}

#[test]
fn restarts_while_packages_are_installed_leave_dpkg_sound() {
    let sandbox = Sandbox::new();
    let manifest: String = PACKAGES.map(|name| format!("package {{ '{name}': ensure => installed }}\n")).concat();
    let project = TestProject::new(&sandbox, &[("web", 1)]).puppet_release("v1", &manifest);
    let server = SandboxServer::start(&sandbox, &project);
    let files = HostFiles::new(&sandbox, "web1");
    files.agent("web1");
    for name in PACKAGES {
        build_package(&sandbox, &files.path("srv/packages"), name);
    }
    files.file("etc/apt/sources.list", "deb [trusted=yes] file:/srv/packages ./\n");
    let host = files.boot();
    host.run(
        "rm -f /etc/apt/sources.list.d/*; mkfifo /srv/gate; cd /srv/packages; apt-ftparchive packages . > Packages; \
         apt-get -q update",
    );
    start_agent(&host);
    for number in 1..=2 * PACKAGES.len() {
        let moment = eventually("a script of a package waits", TIMEOUT * 3, || {
            let moments = host.read("/srv/moments");
            moments.lines().nth(number - 1).map(str::to_owned).ok_or(moments)
        });
        let scopes = host.run("systemctl list-units --no-legend --plain 'muster-run-*.scope'");
        assert_eq!(scopes.lines().count(), 1, "the run has a scope of its own: {scopes:?}");
        host.run("systemctl restart muster-agent");
        host.run("echo go > /srv/gate");
        assert_eq!(host.read("/srv/moments").lines().filter(|line| **line == moment).count(), 1, "{moment}: once");
    }
    sandbox.wait_validated("v1", &["web1"]);
    assert_eq!(host.run("dpkg --audit"), "");
    let installed = host.run("dpkg-query --show --showformat='${Package} ${Status}\\n' 'slow*'");
    assert_eq!(installed.lines().filter(|line| line.ends_with(" install ok installed")).count(), PACKAGES.len());
    let runs = validated_runs(&server);
    assert_eq!(runs.len(), 1, "one run, reported once: {runs:#?}");
}

#[test]
fn run_that_restarts_its_own_agent_carries_out_its_refreshes() {
    let sandbox = Sandbox::new();
    let manifest = "file { '/etc/default/muster-agent': content => \"managed\\n\" }\n\
        ~> exec { '/usr/bin/systemctl restart muster-agent': refreshonly => true }\n\
        ~> exec { '/bin/sh -c \"echo refreshed >> /srv/refreshed\"': refreshonly => true }\n";
    let project = TestProject::new(&sandbox, &[("web", 1)]).puppet_release("v1", manifest);
    let server = SandboxServer::start(&sandbox, &project);
    let files = HostFiles::new(&sandbox, "web1");
    files.agent("web1");
    let host = files.boot();
    let before = host.run("systemctl start muster-agent; systemctl show --property=MainPID muster-agent");
    sandbox.wait_validated("v1", &["web1"]);
    assert_eq!(host.read("/srv/refreshed"), "refreshed\n");
    assert_ne!(host.run("systemctl show --property=MainPID muster-agent"), before, "the agent was restarted");
    let runs = validated_runs(&server);
    assert_eq!(runs.len(), 1, "one run, reported once: {runs:#?}");
    assert_eq!((&runs[0]["phase"], &runs[0]["result"]), (&"validated".into(), &"passed".into()), "{runs:#?}");
    assert_eq!(host.run("systemctl list-units --no-legend 'muster-run-*'"), "", "no scope is left");
}
