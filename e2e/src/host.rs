//! Real hosts: copies of a small Debian with systemd and Puppet, booted with `systemd-nspawn`.
//!
//! `scripts/setup test` builds the root once. Each host has a copy of it (overlayfs) that is removed with the test. A host shares
//! the network namespace of the test, so that it reaches servers of the sandbox on the loopback interface; it has no name
//! resolution and no package sources. Everything else is its own: processes, services, users, packages. Only root can boot
//! hosts.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use muster_marked::{Process, Signal};
use muster_testkit::release::{write_file, write_script};
use muster_testkit::wait::{TIMEOUT, eventually};

use crate::process::{ChildProcess, ExitResult};
use crate::sandbox::{Sandbox, muster_agent};
use crate::server::{ENV, repository};

/// Units that a host without a network of its own does not need.
const MASKED: [&str; 4] =
    ["systemd-networkd.service", "systemd-networkd-wait-online.service", "apt-daily.timer", "apt-daily-upgrade.timer"];

/// Exit code of nspawn with `--keep-unit` if the host wants to be booted again.
const REBOOTED: i32 = 133;

/// A host that has not been booted. Its files can be written.
#[derive(Debug)]
pub struct HostFiles<'a> {
    sandbox: &'a Sandbox,
    name: String,
}

/// A booted host. It is killed, with all its processes, when this is dropped.
#[derive(Debug)]
pub struct Host {
    name: String,
    /// Its process 1, as seen from outside.
    init: Process,
    nspawn: ChildProcess,
}

impl<'a> HostFiles<'a> {
    pub fn new(sandbox: &'a Sandbox, name: &str) -> Self {
        let host = Self { sandbox, name: name.to_owned() };
        for directory in ["upper", "work", "merged"] {
            fs::create_dir_all(host.directory().join(directory)).unwrap();
        }
        host.file("etc/hostname", &format!("{name}\n"));
        host.file("etc/hosts", &format!("127.0.0.1 localhost {name}\n"));
        // Without a name server: Facter would wait for one that does not answer.
        host.file("etc/resolv.conf", "");
        host.file("etc/machine-id", "");
        host.file("etc/apt/sources.list", "");
        for unit in MASKED {
            let path = host.path("etc/systemd/system").join(unit);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink("/dev/null", path).unwrap();
        }
        host
    }

    fn directory(&self) -> PathBuf {
        self.sandbox.path("hosts").join(&self.name)
    }

    /// A file of the host, before it is booted.
    pub fn path(&self, path: &str) -> PathBuf {
        self.directory().join("upper").join(path)
    }

    /// Writes a file of the host.
    pub fn file(&self, path: &str, text: &str) {
        write_file(&self.path(path), text);
    }

    /// Installs the agent of a node as the service `muster-agent`, with the unit of the package.
    pub fn agent(&self, node: &str) {
        self.agent_of(ENV, node, "127.0.0.1");
    }

    /// The same for a node of another environment, with an address of its own.
    pub fn agent_of(&self, env: &str, node: &str, address: &str) {
        let text = format!(
            "env = {env:?}\nnode = {node:?}\nserver = \"http://{}\"\nstate_dir = \"/var/lib/muster-agent\"\n\
             token_file = \"/etc/muster/token\"\nroot = \"/srv\"\ntrusted_keys = [{:?}]\n\
             interfaces = {{ eth0 = {address:?} }}\nretry = {{ first = \"50ms\", cap = \"200ms\" }}\n",
            self.sandbox.listen(),
            self.sandbox.trusted_key(),
        );
        self.file("etc/muster/agent.toml", &text);
        fs::copy(self.sandbox.token_file(), self.path("etc/muster/token")).unwrap();
        let unit = fs::read_to_string(repository().join("packaging/agent/muster-agent.service")).unwrap();
        self.file("etc/systemd/system/muster-agent.service", &unit);
        let restarts = "[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestartSec=100ms\n";
        self.file("etc/systemd/system/muster-agent.service.d/restarts.conf", restarts);
        self.file("usr/bin/muster-agent", "");
    }

    /// Makes the packages in `/srv/archive` of the root available. Their services are not started by the installation: with
    /// their default configuration they would listen on all addresses, which the host shares with the machine.
    pub fn archive(&self) {
        self.file("etc/apt/sources.list", "deb [trusted=yes] file:/srv/archive ./\n");
        write_script(&self.path("usr/sbin/policy-rc.d"), "exit 101");
    }

    /// Boots the host, or boots it again after a [reboot](Host::reboot).
    pub fn boot(&self) -> Host {
        let base = repository().join(".tools/host-root");
        assert!(base.is_dir(), "{} is missing: run `make setup` as root", base.display());
        let directory = self.directory();
        let at = |name: &str| directory.join(name).display().to_string();
        let overlay = format!("lowerdir={},upperdir={},workdir={}", base.display(), at("upper"), at("work"));
        // The mount ends with the mount namespace, and that with the last process of the host.
        let script = "mount -t overlay overlay -o \"$1\" \"$2\" && exec systemd-nspawn --quiet --boot --directory=\"$2\" \
                      --register=no --keep-unit --resolv-conf=off --timezone=off --link-journal=no --machine=\"$3\" \
                      --bind-ro=\"$4\":/usr/bin/muster-agent";
        let mut command: Command = self.sandbox.command("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh", &overlay, &at("merged")]);
        command.arg(format!("{}-{}", self.name, std::process::id())).arg(muster_agent());
        let nspawn = ChildProcess::new(format!("host {}", self.name), &mut command);
        let pid = nspawn.pid();
        let init = eventually("the host has a process 1", TIMEOUT, || {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            let init = children.split_whitespace().filter_map(|pid| Process::open(pid.parse().ok()?).ok()?);
            // Before it executes systemd it is still a copy of nspawn, in other namespaces.
            let is_systemd = |process: &Process| {
                process
                    .arguments()
                    .is_ok_and(|line| line.first().is_some_and(|name| name.to_string_lossy().contains("/systemd")))
            };
            init.into_iter().find(is_systemd).ok_or_else(|| nspawn.transcript())
        });
        let host = Host { name: self.name.clone(), init, nspawn };
        eventually("the host has booted", TIMEOUT * 2, || {
            let state = host.try_run("systemctl is-system-running").stdout;
            if ["running", "degraded"].contains(&state.trim()) { Ok(()) } else { Err(state) }
        });
        host
    }
}

impl Host {
    /// Path of a file of the host, as seen from outside.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.init.pid())).join(path.as_ref().strip_prefix("/").unwrap())
    }

    /// Content of a file of the host; empty if there is none.
    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_default()
    }

    /// Runs a shell script on the host.
    pub fn try_run(&self, script: &str) -> ExitResult {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init.pid().to_string(), "--mount", "--pid", "--uts", "--ipc", "--cgroup"]);
        command.args(["--root", "--wd=/", "/bin/sh", "-c", script]);
        command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        ChildProcess::new(format!("{script:?} on {}", self.name), &mut command).wait_exit(TIMEOUT * 2)
    }

    /// Runs a shell script on the host, which must succeed. Returns its output.
    pub fn run(&self, script: &str) -> String {
        let ended = self.try_run(script);
        assert!(ended.status.success(), "{script}: {ended:?}\n{}", self.run_log());
        ended.stdout
    }

    /// Reboots the host, as an operator does. It is down when this returns. No file of it may be open.
    pub fn reboot(self) {
        // The connection to systemd may end before the answer.
        self.try_run("systemctl reboot");
        assert_eq!(self.nspawn.wait_exit(TIMEOUT * 2).code(), REBOOTED);
    }

    /// The log of the agent.
    fn run_log(&self) -> String {
        self.try_run("journalctl --no-pager --lines=50 --unit=muster-agent").stdout
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if std::thread::panicking() {
            #[expect(clippy::print_stderr, reason = "shows the log of a failed test")]
            {
                eprintln!("---- agent of {}:\n{}----", self.name, self.run_log());
            }
        }
        // The kernel ends all processes of a PID namespace with its process 1.
        let _ = self.init.signal(Signal::KILL);
    }
}
