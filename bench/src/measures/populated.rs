//! A real server with thousands of validated nodes, and timed commands against it.

use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context;
use muster_core::names::Version;
use muster_core::txn::Generation;
use tempfile::TempDir;

use crate::bench::Bench;
use crate::parts::agent::SCRIPT;
use crate::parts::process::command;
use crate::parts::project::{self, Project};
use crate::parts::sender::{Senders, SentReports, StopAfter};
use crate::parts::server::Server;

/// Senders that fill the store.
const SENDERS: usize = 64;
/// A run makes two reports.
const RUN: u64 = 2;

#[derive(Debug)]
pub(crate) struct Populated {
    pub(crate) server: Server,
    pub(crate) project: Project,
    /// Reports that filled the store.
    pub(crate) sent: SentReports,
    senders: Senders,
    pub(crate) dir: TempDir,
}

impl Populated {
    /// A server with this many nodes, each with one complete run.
    pub(crate) async fn start(bench: &Bench, nodes: u32) -> anyhow::Result<Self> {
        let dir = bench.dir()?;
        let store = format!("embedded:{}", dir.path().join("store").display());
        Self::start_on(bench, nodes, dir, &store).await
    }

    /// The same on a store that is there already.
    pub(crate) async fn start_on(bench: &Bench, nodes: u32, dir: TempDir, store: &str) -> anyhow::Result<Self> {
        Self::start_with(bench, nodes, dir, store, &[project::version("v1")?]).await
    }

    /// The same with several versions, of which the first is the one that runs.
    pub(crate) async fn start_with(
        bench: &Bench,
        nodes: u32,
        dir: TempDir,
        store: &str,
        versions: &[Version],
    ) -> anyhow::Result<Self> {
        // A role has at most 9,999 nodes.
        let roles = [("app", nodes / 2), ("store", nodes - nodes / 2)];
        let names: Vec<&str> = versions.iter().map(Version::as_str).collect();
        let project = Project::write(dir.path(), &roles, &names, SCRIPT)?;
        let blobs = dir.path().join("blobs");
        let server = Server::start_on(bench, dir.path(), store, &blobs, Some(&project.dir)).await?;
        let runs = versions.first().context("no version was named")?;
        let mut senders = Senders::new(&server.address, &project.nodes, runs, SENDERS);
        let sent = senders.send(StopAfter::Each(RUN)).await.context("the store cannot be filled")?;
        let populated = Self { server, project, sent, senders, dir };
        populated.all_run(runs).await?;
        Ok(populated)
    }

    /// Every node reports a complete run of a version.
    pub(crate) async fn validate(&mut self, version: &Version) -> anyhow::Result<()> {
        self.senders.run(version);
        self.senders.send(StopAfter::Each(RUN)).await?;
        self.all_run(version).await
    }

    /// The same, in answer to what the nodes were told under a generation.
    pub(crate) async fn report_for(&mut self, version: &Version, generation: Generation) -> anyhow::Result<()> {
        self.senders.report_for(generation);
        self.validate(version).await
    }

    async fn all_run(&self, version: &Version) -> anyhow::Result<()> {
        let status = self.server.client()?.status(&project::env()?).await?;
        let (running, nodes) = (status.running.get(version).copied().unwrap_or(0), self.project.nodes.len());
        anyhow::ensure!(running == nodes, "only {running} of {nodes} nodes are validated at {version}");
        Ok(())
    }

    /// A file with the names of all nodes.
    pub(crate) fn hosts(&self) -> anyhow::Result<PathBuf> {
        let path = self.dir.path().join("hosts");
        let text: String = self.project.nodes.iter().map(|node| format!("{node}\n")).collect();
        std::fs::write(&path, text).context("cannot write the list of hosts")?;
        Ok(path)
    }

    /// Time of a command, from before its process is created until it has ended. It must exit with 0.
    pub(crate) async fn time(&self, bench: &Bench, args: &[&str], input: Option<&PathBuf>) -> anyhow::Result<Duration> {
        let mut muster = command(bench, bench.muster()?, self.dir.path());
        muster.args(args).arg("--state").arg(&self.server.state).stdout(Stdio::null()).stderr(Stdio::piped());
        muster.stdin(match input {
            Some(path) => File::open(path)?.into(),
            None => Stdio::null(),
        });
        let begin = Instant::now();
        let output = muster.output().await.context("cannot start muster")?;
        let took = begin.elapsed();
        let said = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "muster {} ended with {}: {said}", args.join(" "), output.status);
        Ok(took)
    }
}
