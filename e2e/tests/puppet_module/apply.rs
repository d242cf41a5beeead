//! A node's directories, and `puppet apply` as the agent calls it.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

/// The top of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// A node with its own directories, removed at the end of the test.
pub(crate) struct PuppetNode {
    name: String,
    role: String,
    address: String,
    directory: TempDir,
}

/// Result of a run.
#[derive(Debug)]
pub(crate) struct PuppetRun {
    pub(crate) code: Option<i32>,
    /// The lines of `log.jsonl`.
    pub(crate) log: Vec<Value>,
    pub(crate) lookups: Vec<String>,
    pub(crate) pending: Vec<Value>,
    pub(crate) published: Vec<Value>,
    pub(crate) report: Option<Value>,
}

impl PuppetNode {
    pub(crate) fn new(name: &str, role: &str, address: &str) -> Self {
        let directory = tempfile::Builder::new().prefix("muster-puppet-").tempdir().unwrap();
        for part in ["root", "run"] {
            fs::create_dir(directory.path().join(part)).unwrap();
        }
        Self { name: name.into(), role: role.into(), address: address.into(), directory }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Directory of files that the release writes.
    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    fn run_file(&self, name: &str) -> PathBuf {
        self.directory.path().join("run").join(name)
    }

    /// Writes the agent's snapshot and applies the release.
    pub(crate) fn apply(&self, release: &Path, version: &str, active_roles: &Value) -> PuppetRun {
        self.apply_with(release, version, json!({"active_roles": active_roles}))
    }

    /// The same with these tables of the snapshot; other tables are empty.
    pub(crate) fn apply_with(&self, release: &Path, version: &str, tables: Value) -> PuppetRun {
        let mut snapshot = json!({
            "revision": 42, "env": "test", "node": self.name, "host": self.name, "role": self.role, "version": version,
            "interfaces": {"eth0": self.address}, "active_roles": {}, "leaders": {}, "published": {}, "services": {},
            "data": {},
        });
        let Value::Object(tables) = tables else { panic!("tables have names") };
        snapshot.as_object_mut().unwrap().extend(tables);
        fs::write(self.run_file("snapshot.json"), snapshot.to_string()).unwrap();
        self.apply_as_is(release, |_| ())
    }

    /// Applies the release with the present snapshot; `adjust` may change the call.
    pub(crate) fn apply_as_is(&self, release: &Path, adjust: impl FnOnce(&mut Command)) -> PuppetRun {
        for leftover in ["lookups", "pending", "published", "report.json", "log.jsonl"] {
            let _ = fs::remove_file(self.run_file(leftover));
        }
        let mut puppet = self.command("puppet", release);
        let directory = self.directory.path().join("puppet");
        puppet.arg("apply");
        for (option, below) in [
            ("--confdir", "conf"),
            ("--vardir", "var"),
            ("--publicdir", "public"),
            ("--logdir", "log"),
            ("--rundir", "run"),
            ("--codedir", "code"),
        ] {
            puppet.arg(option).arg(directory.join(below));
        }
        puppet.args(["--certname", &self.name, "--detailed-exitcodes", "--color=false", "--strict_variables"]);
        let modules = release.join("modules");
        puppet.arg("--modulepath").arg(format!("{}:{}", modules.display(), repository().join("puppet").display()));
        puppet.arg("--hiera_config").arg(release.join("hiera.yaml"));
        puppet.args(["--reports", "muster", "--logdest"]).arg(self.run_file("log.jsonl"));
        puppet.arg(release.join("site.pp"));
        adjust(&mut puppet);

        let output = puppet.output().unwrap_or_else(|error| {
            assert_ne!(
                error.kind(),
                ErrorKind::NotFound,
                "these tests run the real Puppet, and there is no `puppet` on the PATH. \
                 Install it (Debian: apt-get install puppet-agent), or let `make test` do so"
            );
            panic!("cannot start puppet: {error}")
        });
        PuppetRun {
            code: output.status.code(),
            log: json_lines(&self.run_file("log.jsonl")),
            lookups: lines(&self.run_file("lookups")),
            pending: json_lines(&self.run_file("pending")),
            published: json_lines(&self.run_file("published")),
            report: fs::read_to_string(self.run_file("report.json"))
                .ok()
                .map(|text| serde_json::from_str(&text).expect("the report is JSON")),
        }
    }

    /// A command with exactly the environment that the agent gives to appliers and checks.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>, release: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        // Without a locale Puppet assumes ASCII, and a resource fails whose command prints anything else.
        command.env("LANG", "C.UTF-8");
        command.env("HOME", self.directory.path()).current_dir(self.directory.path());
        command.env("MUSTER_RUN_ID", format!("run-of-{}", self.directory.path().display()));
        command.env("MUSTER_SNAPSHOT", self.run_file("snapshot.json"));
        command.env("MUSTER_LOOKUPS_FILE", self.run_file("lookups"));
        command.env("MUSTER_PENDING_FILE", self.run_file("pending"));
        command.env("MUSTER_PUBLISH_FILE", self.run_file("published"));
        command.env("MUSTER_REPORT_FILE", self.run_file("report.json"));
        command.env("MUSTER_ROOT", self.root()).env("MUSTER_RELEASE", release).env("MUSTER_ADDRESS", &self.address);
        command
    }
}

impl Drop for PuppetNode {
    /// Ends processes that the node's runs have left, also when the test fails.
    fn drop(&mut self) {
        let mark = format!("MUSTER_RUN_ID=run-of-{}", self.directory.path().display());
        for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let environment = fs::read(process.path().join("environ")).unwrap_or_default();
            if environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()) {
                let _ = Command::new("kill").arg("-KILL").arg(process.file_name()).status();
            }
        }
    }
}

impl PuppetRun {
    /// The text of the `notice()` that begins with `name=`, without the prefix.
    pub(crate) fn noticed(&self, name: &str) -> &str {
        let begin = format!("{name}=");
        self.messages("notice")
            .find_map(|message| message.strip_prefix(&begin))
            .unwrap_or_else(|| panic!("no notice {begin} in {:#?}", self.log))
    }

    /// The message of the only error, without Facter's warnings about unreadable files.
    pub(crate) fn error(&self) -> &str {
        let errors: Vec<_> = self.messages("err").collect();
        let [error] = errors[..] else { panic!("one error was expected: {errors:#?} in {:#?}", self.log) };
        error
    }

    /// `status` of the report.
    pub(crate) fn status(&self) -> &str {
        let report = self.report.as_ref().unwrap_or_else(|| panic!("there is no report: {:#?}", self.log));
        report["status"].as_str().unwrap()
    }

    fn messages(&self, level: &str) -> impl Iterator<Item = &str> {
        self.log
            .iter()
            .filter(move |entry| entry["level"] == level && entry["source"] != "Facter")
            .filter_map(|entry| entry["message"].as_str())
    }
}

/// A release in its own directory: a manifest, and data below the module's Hiera backend.
pub(crate) fn release(manifest: &str, data: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let hiera = "version: 5\n\
                 defaults: {datadir: data, data_hash: yaml_data}\n\
                 hierarchy:\n\
                 - {name: muster, lookup_key: muster::lookup_key}\n\
                 - {name: common, path: common.yaml}\n";
    fs::create_dir(directory.path().join("data")).unwrap();
    fs::write(directory.path().join("hiera.yaml"), hiera).unwrap();
    fs::write(directory.path().join("data/common.yaml"), data).unwrap();
    fs::write(directory.path().join("site.pp"), manifest).unwrap();
    directory
}

/// Output of a Ruby script that uses a part of the module. The variable has the path of its file.
pub(crate) fn ruby(part: &str, script: &str, variable: &str, file: &Path) -> String {
    let output = Command::new("ruby")
        .args(["-rpuppet", "-r"])
        .arg(repository().join(format!("puppet/muster/lib/puppet_x/muster/{part}.rb")))
        .args(["-e", script])
        .env(variable, file)
        .env("LANG", "C.UTF-8")
        .output()
        .expect("Ruby comes with Puppet");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn lines(file: &Path) -> Vec<String> {
    fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn json_lines(file: &Path) -> Vec<Value> {
    lines(file).iter().map(|line| serde_json::from_str(line).expect("every line is JSON")).collect()
}
