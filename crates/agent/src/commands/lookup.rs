//! `muster-agent lookup`: looks a key up as a run of the current release would, with the node's facts, and shows its origin.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;
use muster_core::names::{RunId, Version};
use muster_core::release::manifest::Digest;
use muster_core::release::spec::Applier;
use muster_core::report::RunOptions;
use muster_release::contents::line_of_key;
use muster_supervisor::files::OsText;
use muster_wire::output::ObjectOutput;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::applier::{self, Job, Mode};
use crate::commands::{FAILURE, LocalState, SUCCESS, print_line};
use crate::config::{AgentNode, ConfigFile};
use crate::redact::Redactor;
use crate::release::UnpackedRelease;
use crate::release::release_cache::ReleaseCache;
use crate::run::directory::RunDirectory;
use crate::state::directory::Layout;
use crate::state::ledger::{self, Ledger};

/// What Puppet is called with: a manifest without resources.
const MANIFEST: &str = "muster::explain_lookup()\n";
/// Lines of Puppet's output in an error.
const ERROR_LINES: usize = 5;

/// The answer of the function `muster::explain_lookup`.
#[derive(Debug, Deserialize)]
struct PuppetAnswer {
    found: bool,
    value: Value,
    explanation: String,
    #[serde(default)]
    steps: Value,
}

/// Value and origin of a key.
#[derive(Debug, Serialize)]
pub struct LookupOutput {
    pub key: String,
    pub version: Version,
    pub found: bool,
    pub value: Value,
    /// File of the release that has the value; none if it is not from a file.
    pub file: Option<String>,
    pub line: Option<usize>,
    /// The level of the hierarchy that has the value.
    pub level: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explanation: Option<String>,
}

pub fn run(config: &ConfigFile, key: &str, explain: bool, json: bool) -> anyhow::Result<ExitCode> {
    let output = look_up(config, key, explain)?;
    if json {
        print_line(format_args!("{}", serde_json::to_string_pretty(&ObjectOutput::new(&output))?));
    } else {
        print(&output);
    }
    Ok(ExitCode::from(if output.found { SUCCESS } else { FAILURE }))
}

/// Looks a key up in the release that was applied last.
pub fn look_up(config: &ConfigFile, key: &str, explain: bool) -> anyhow::Result<LookupOutput> {
    anyhow::ensure!(!key.is_empty() && !key.contains(['\n', '\r']), "the key {key:?} cannot be looked up");
    let known = LocalState::read(config)?;
    let ledger = known.ledger.context("no agent was ever started on this node")?;
    let layout = Layout::at(&config.state_dir);
    let (version, release) = current_release(&ledger, &layout)?;
    anyhow::ensure!(
        release.spec.applier == Applier::Puppet,
        "release {version} is applied by an executable, and has no hierarchy to look a key up in"
    );
    let answer = ask_puppet(config, &ledger, &layout, &version, &release, key)?;
    let origin = origin(&answer.steps, key);
    let in_release = |path: &str| applier::in_release(path, &release.directory);
    let file = origin.path.as_deref();
    Ok(LookupOutput {
        key: key.to_owned(),
        found: answer.found,
        value: answer.value,
        line: file.and_then(|file| line_of_key(&fs::read_to_string(file).ok()?, key)),
        file: file.map(in_release),
        level: origin.level,
        explanation: explain.then(|| answer.explanation.replace(&format!("{}/", release.directory.display()), "")),
        version,
    })
}

/// The release that was applied last.
fn current_release(ledger: &Ledger, layout: &Layout) -> anyhow::Result<(Version, UnpackedRelease)> {
    let applied = ledger.applied.as_ref().map(|applied| (&applied.desired.version, &applied.desired.digest));
    let local = ledger.local.as_ref().map(|local| (&local.version, &local.digest));
    let (version, digest) = applied.or(local).context("no release was applied on this node yet")?;
    let digest = Digest::new(digest.clone()).with_context(|| format!("release {version} has no valid digest"))?;
    let directory = ReleaseCache::new(layout.releases()).release(&digest);
    let spec = muster_release::check_directory(&directory)
        .with_context(|| format!("release {version} cannot be read from {}", directory.display()))?;
    Ok((version.clone(), UnpackedRelease { directory, spec }))
}

/// Runs Puppet with the settings of a run and an empty manifest, in directories of its own.
fn ask_puppet(
    config: &ConfigFile,
    ledger: &Ledger,
    layout: &Layout,
    version: &Version,
    release: &UnpackedRelease,
    key: &str,
) -> anyhow::Result<PuppetAnswer> {
    let role = ledger.role.as_ref().context("the role of the node is not known yet")?;
    let snapshot = ledger::load_snapshot(layout)?.context("the node has no snapshot yet: it was never connected")?;
    let node = AgentNode::new(config, layout.clone());
    let own = OwnDirectory::create(layout)?;
    let run = RunId::new(format!("lookup-{}", std::process::id())).context("no id for the lookup")?;
    let directory = RunDirectory::create(&own.0, &run)?;
    let names = node.names(ledger.host_name.as_ref());
    directory.write_snapshot(&node, &names, role, version, &snapshot)?;
    let secrets = Redactor::for_run(&snapshot, &own.0);
    let job = Job {
        node: &node,
        names: &names,
        role,
        version,
        run: &run,
        directory: &directory,
        release,
        mode: Mode::Preview,
        options: &RunOptions::default(),
        secrets: &secrets,
    };
    let (manifest, result) = (directory.path().join("lookup.pp"), directory.path().join("lookup.json"));
    fs::write(&manifest, MANIFEST).with_context(|| format!("cannot write {}", manifest.display()))?;
    let program = applier::puppet_call(&job, &manifest, &own.0.join("puppet"))
        .map_err(|reason| anyhow::anyhow!("Puppet cannot be prepared: {reason}"))?;
    let path = PathBuf::from(program.path.to_os());
    let mut command = Command::new(&path);
    command.args(program.args.iter().map(OsText::to_os)).current_dir(program.directory.to_os()).env_clear();
    command.envs(program.environment.iter().map(|(name, value)| (name, value.to_os())));
    command.env("MUSTER_LOOKUP_KEY", key).env("MUSTER_LOOKUP_FILE", &result);
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {}", path.display()))?;
    let text = fs::read(&result).map_err(|_| {
        let errors = applier::log_errors(&job);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        let lines: Vec<String> =
            errors.into_iter().chain(printed.lines().map(str::to_owned)).take(ERROR_LINES).collect();
        anyhow::anyhow!("Puppet failed ({}): {}", output.status, secrets.text(&lines.join("; ")))
    })?;
    let answer: PuppetAnswer = serde_json::from_slice(&text).context("the answer of Puppet is not valid")?;
    // A secret of the store that reached other data through an interpolation.
    Ok(PuppetAnswer { explanation: secrets.text(&answer.explanation).into_owned(), ..answer })
}

/// Directory of one lookup, which is removed afterwards. It may contain secrets.
struct OwnDirectory(PathBuf);

impl OwnDirectory {
    fn create(layout: &Layout) -> anyhow::Result<Self> {
        let path = layout.state().join(format!("lookup-{}", std::process::id()));
        let made = std::os::unix::fs::DirBuilderExt::mode(&mut fs::DirBuilder::new(), 0o700).create(&path);
        made.with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for OwnDirectory {
    fn drop(&mut self) {
        // Errors cannot be returned from here; the name of a leftover says what it is.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The level of the hierarchy that a value comes from.
#[derive(Debug, Default, PartialEq, Eq)]
struct Origin {
    path: Option<String>,
    level: Option<String>,
}

/// Finds the step of Puppet's explanation that found the key.
fn origin(steps: &Value, key: &str) -> Origin {
    let root = key.split('.').next().unwrap_or(key);
    let of_key = |step: &Value| step["key"].as_str().is_some_and(|found| found == key || found == root);
    let branches = |step: &Value| step["branches"].as_array().cloned().unwrap_or_default();
    let trees = branches(steps).into_iter().chain([steps.clone()]);
    let mut pending: Vec<(Value, Option<String>)> =
        trees.filter(|tree| of_key(tree)).map(|tree| (tree, None)).take(1).collect();
    while let Some((step, level)) = pending.pop() {
        let level = match step["type"].as_str() {
            Some("data_provider") => step["name"].as_str().map(str::to_owned),
            Some(_) | None => level,
        };
        if of_key(&step) && step["event"].as_str().is_some_and(|event| event.starts_with("found")) {
            return Origin { path: step["path"].as_str().map(str::to_owned), level };
        }
        pending.extend(branches(&step).into_iter().rev().map(|branch| (branch, level.clone())));
    }
    Origin::default()
}

fn print(output: &LookupOutput) {
    if let Some(explanation) = &output.explanation {
        print_line(format_args!("{}\n", explanation.trim_end()));
    }
    if !output.found {
        print_line(format_args!("{} has no value in release {}", output.key, output.version));
        return;
    }
    match output.value.as_str() {
        Some(text) => print_line(format_args!("{text}")),
        None => print_line(format_args!("{:#}", output.value)),
    }
    let line = output.line.map(|line| format!(":{line}")).unwrap_or_default();
    match (&output.file, &output.level) {
        (Some(file), _) => print_line(format_args!("\nfrom  {file}{line} of release {}", output.version)),
        (None, Some(level)) => print_line(format_args!("\nfrom  {level}")),
        (None, None) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn origin_is_the_step_that_found_the_key() {
        let path =
            |key: &str, event: &str, path: &str| json!({"type": "path", "key": key, "event": event, "path": path});
        let level = |name: &str, branch: Value| json!({"type": "data_provider", "name": name, "branches": [branch]});
        let tree = |key: &str, branches: Value| json!({"type": "root", "key": key, "branches": branches});
        let steps = json!({"branches": [
            tree("lookup_options", json!([level("common", path("lookup_options", "found", "/r/other.yaml"))])),
            tree("ntp", json!([
                level("nodes", json!({"type": "path", "event": "location_not_found", "path": "/r/nodes.yaml"})),
                level("os", path("ntp", "not_found", "/r/os.yaml")),
                level("common", path("ntp", "found", "/r/common.yaml")),
            ])),
        ]});
        let found = Origin { path: Some("/r/common.yaml".into()), level: Some("common".into()) };
        assert_eq!(origin(&steps, "ntp"), found);
        assert_eq!(origin(&steps, "ntp.servers"), found);
        assert_eq!(origin(&steps, "other"), Origin::default());
        let from_function = tree("ntp", json!([level("muster", json!({"key": "ntp", "event": "found"}))]));
        assert_eq!(origin(&from_function, "ntp"), Origin { path: None, level: Some("muster".into()) });
    }
}
