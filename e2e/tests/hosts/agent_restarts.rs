//! The agent's service is restarted during a run: while dpkg installs packages, and by the run itself.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;
use std::process::Command;

use muster_e2e::host::HostFiles;
use muster_e2e::sandbox::{Barrier, Sandbox, TestProject};
use muster_e2e::server::SandboxServer;
use muster_sim::Rng;
use muster_testkit::release::{write_file, write_script};
use muster_testkit::wait::{TIMEOUT, eventually};

const PACKAGES: [&str; 5] = ["slow0", "slow1", "slow2", "slow3", "slow4"];
/// Scripts of each package, and steps of each script.
const SCRIPTS: [&str; 2] = ["preinst", "postinst"];
const STEPS: usize = 4;
/// Steps of the whole installation.
const ALL_STEPS: usize = PACKAGES.len() * SCRIPTS.len() * STEPS;
const RESTARTS: usize = 10;
/// Seed of the restarts. Each run of the test draws another one, unless this variable has it.
const SEED: &str = "MUSTER_E2E_SEED";

/// Builds a package whose scripts write down each step and wait at a gate.
fn build_package(sandbox: &Sandbox, packages: &Path, name: &str) {
    let source = sandbox.path("packages").join(name);
    let control = format!(
        "Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: test <test@localhost>\nDescription: slow\n"
    );
    write_file(&source.join("DEBIAN/control"), &control);
    write_file(&source.join("usr/share").join(name), name);
    for script in SCRIPTS {
        let steps = format!(
            "for step in $(seq {STEPS}); do echo {name} {script} $step >> /srv/steps; read line < /srv/gate; done"
        );
        write_script(&source.join("DEBIAN").join(script), &steps);
    }
    std::fs::create_dir_all(packages).unwrap();
    let built = Command::new("dpkg-deb")
        .args(["--root-owner-group", "--build"])
        .args([&source, &packages.join(format!("{name}.deb"))])
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
}

/// A restart of the agent.
#[derive(Clone, Copy, Debug)]
struct Restart {
    /// The step that has begun, from 1.
    step: usize,
    /// The script waits until the agent has been restarted. Otherwise the installation continues meanwhile.
    is_held: bool,
}

/// Restarts at different steps, in order.
fn random_restarts() -> Vec<Restart> {
    let given = std::env::var(SEED).ok().map(|text| text.parse().expect("the seed is a number"));
    let seed = given.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    let mut rng = Rng::new(seed);
    let mut steps = BTreeSet::new();
    while steps.len() < RESTARTS {
        steps.insert(usize::try_from(rng.below(ALL_STEPS as u64)).unwrap() + 1);
    }
    // After the last step the run may end before the restart, which then is not in the installation.
    let restarts = steps.into_iter().map(|step| Restart { step, is_held: rng.chance(0.4) || step == ALL_STEPS });
    let restarts: Vec<Restart> = restarts.collect();
    println!("{SEED}={seed} repeats these restarts: {restarts:?}");
    restarts
}

#[test]
fn restarts_while_packages_are_installed_leave_dpkg_sound() {
    let restarts = random_restarts();
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
        "rm -f /etc/apt/sources.list.d/*; cd /srv/packages; apt-ftparchive packages . > Packages; apt-get -q update",
    );
    let gate = Barrier::new(host.path("/srv/gate"));
    host.run("systemctl start muster-agent");
    let begun_steps = || host.read("/srv/steps");
    // Steps that were let through the gate.
    let mut passed = 0;
    for (number, Restart { step, is_held }) in restarts.iter().copied().enumerate() {
        gate.release(step - 1 - passed);
        eventually(&format!("step {step} has begun"), TIMEOUT * 3, || {
            let steps = begun_steps();
            if steps.lines().count() == step { Ok(()) } else { Err(steps) }
        });
        passed = step - 1;
        if is_held {
            let scopes = host.run("systemctl list-units --no-legend --plain 'muster-run-*.scope'");
            assert_eq!(scopes.lines().count(), 1, "the run has a scope of its own: {scopes:?}");
        } else {
            passed = restarts.get(number + 1).map_or(step, |next| next.step - 1);
            gate.release(passed + 1 - step);
        }
        host.run("systemctl restart muster-agent");
    }
    gate.release(ALL_STEPS - passed);
    sandbox.wait_validated("v1", &["web1"]);
    assert_eq!(host.run("dpkg --audit"), "");
    let installed = host.run("dpkg-query --show --showformat='${Package} ${Status}\\n' 'slow*'");
    assert_eq!(installed.lines().filter(|line| line.ends_with(" install ok installed")).count(), PACKAGES.len());
    let steps = begun_steps();
    let expected = PACKAGES.iter().flat_map(|name| {
        SCRIPTS.iter().flat_map(move |script| (1..=STEPS).map(move |step| format!("{name} {script} {step}")))
    });
    assert_eq!(steps.lines().collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "each step was taken once");
    assert_reported_once(&server);
}

/// Asserts that the node has made one run, with one report of its applier and one of its checks.
fn assert_reported_once(server: &SandboxServer) {
    server.api.wait_node_state("web1", "validated");
    let runs = server.api.runs("web1");
    assert_eq!(runs.len(), 1, "one run: {runs:#?}");
    assert_eq!((&runs[0]["phase"], &runs[0]["result"]), (&"validated".into(), &"passed".into()), "{runs:#?}");
    let reports = server.api.reports("web1");
    let phases: Vec<_> = reports.iter().map(|report| report["phase"].as_str().unwrap_or_default()).collect();
    assert_eq!(phases, ["configured", "validated"], "{reports:#?}");
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
    assert_reported_once(&server);
    assert_eq!(host.run("systemctl list-units --no-legend 'muster-run-*'"), "", "no scope is left");
}
