//! The real `muster-agent`, with the script applier.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use muster_core::names::NodeName;

use super::process::{BenchProcess, command};
use super::project::{BenchProject, ENV};
use crate::bench::Bench;

/// The script of every node. It records its start; needs of its role are looked up and waited for.
///
/// `$EPOCHREALTIME` is built into bash and starts no process.
pub(crate) const SCRIPT: &str = r#"#!/bin/bash
echo "$EPOCHREALTIME" >> "$MUSTER_ROOT/starts"

# need ROLE NODE...: continues only if all these nodes of the role are active.
need() {
  local role=$1 have=0 node; shift
  echo "active_roles::$role" >> "$MUSTER_LOOKUPS_FILE"
  for node in "$@"; do
    tr -d ' \n' < "$MUSTER_SNAPSHOT" | grep -q "\"$node\":{\"eth0\"" && have=$((have + 1))
  done
  [ "$have" -ge $# ] && return
  echo "{\"kind\":\"role\",\"role\":\"$role\",\"want\":$#,\"have\":$have}" >> "$MUSTER_PENDING_FILE"
  exit 75
}

case $MUSTER_ROLE in
  db)
    # Waits at its gate, if there is one, until the gate is opened or the directory is removed.
    while [ -e "$MUSTER_ROOT/hold" ]; do sleep 0.005; done ;;
  web) need db db1 ;;
  lb) need web web1 web2 ;;
esac
exit 2
"#;

#[derive(Debug)]
pub(crate) struct BenchAgent {
    running: BenchProcess,
    pub(crate) node: NodeName,
    root: PathBuf,
    state: PathBuf,
}

impl BenchAgent {
    /// Creates a node's directories. With `hold`, its first run waits for [`release`].
    pub(crate) fn start(
        bench: &Bench,
        dir: &Path,
        project: &BenchProject,
        node: &NodeName,
        number: usize,
        server: &str,
        hold: bool,
    ) -> anyhow::Result<Self> {
        let dir = dir.join("nodes").join(node.as_str());
        let root = dir.join("root");
        fs::create_dir_all(&root).with_context(|| format!("cannot make {}", root.display()))?;
        if hold {
            fs::write(root.join("hold"), "")?;
        }
        let (config, state) = (dir.join("agent.toml"), dir.join("state"));
        let text = format!(
            "env = {ENV:?}\nnode = {:?}\nserver = {server:?}\nstate_dir = {:?}\nroot = {root:?}\ntrusted_keys = [{:?}]\n\
             puppet_agent_lock = \"none\"\ninterfaces = {{ eth0 = \"127.77.{}.{}\" }}\n",
            node.as_str(),
            state,
            project.trusted_key,
            number / 250,
            number % 250 + 1,
        );
        fs::write(&config, text)?;
        let mut run = command(bench, bench.agent()?, &dir);
        run.arg("run").arg("--config").arg(&config);
        let running = BenchProcess::start(run, &dir, "agent")?;
        Ok(Self { running, node: node.clone(), root, state })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Its state directory.
    pub(crate) fn state(&self) -> &Path {
        &self.state
    }

    /// Lets the waiting run continue.
    pub(crate) fn release(&self) -> anyhow::Result<()> {
        fs::remove_file(self.root.join("hold")).context("the node is not held back")
    }

    /// Start times of its applier, since the epoch.
    pub(crate) fn starts(&self) -> anyhow::Result<Vec<Duration>> {
        let text = match fs::read_to_string(self.root.join("starts")) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            text => text?,
        };
        // The last line may be half written.
        let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
        complete.lines().map(time).collect()
    }

    pub(crate) fn log_tail(&self) -> String {
        self.running.log_tail()
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        let node = self.node;
        self.running.stop().await.with_context(|| format!("the agent of {node}"))
    }
}

/// `1763180000.123456`; some locales write a comma.
fn time(text: &str) -> anyhow::Result<Duration> {
    let seconds: f64 = text.replace(',', ".").parse().with_context(|| format!("{text:?} is no time"))?;
    Ok(Duration::try_from_secs_f64(seconds)?)
}
