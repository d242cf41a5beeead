//! A real server with thousands of validated nodes, and timed commands against it: `muster verify-hosts` and `muster status`.

use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context;
use muster_core::names::Version;
use muster_core::txn::Generation;
use muster_wire::operator::{VerifyHostsRequest, VerifyHostsResponse};
use tempfile::TempDir;

use crate::bench::Bench;
use crate::parts::agent::SCRIPT;
use crate::parts::http::RawConnection;
use crate::parts::process::command;
use crate::parts::project::{self, BenchProject, ENV, Roles};
use crate::parts::reports::{Senders, SentReports, StopAfter};
use crate::parts::server::BenchServer;
use crate::row::{BenchRow, Sample, Unit};

/// Senders that fill the store.
const SENDERS: usize = 64;
/// A run makes two reports.
const RUN: u64 = 2;
/// Longest time until the server's view shows committed reports, and the time between two looks at it.
const VIEW_TIMEOUT: Duration = Duration::from_secs(10);
const VIEW_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Populated {
    pub(crate) server: BenchServer,
    pub(crate) project: BenchProject,
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
        Self::start_roles(bench, &roles, dir, store, versions).await
    }

    /// The same with the nodes of these roles.
    pub(crate) async fn start_roles(
        bench: &Bench,
        roles: Roles<'_>,
        dir: TempDir,
        store: &str,
        versions: &[Version],
    ) -> anyhow::Result<Self> {
        let names: Vec<&str> = versions.iter().map(Version::as_str).collect();
        let project = BenchProject::write(dir.path(), roles, &names, SCRIPT)?;
        let blobs = dir.path().join("blobs");
        let server = BenchServer::start_on(bench, dir.path(), store, &blobs, Some(&project.dir)).await?;
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

    /// Every node reports one more complete run of the version that it runs.
    pub(crate) async fn report_runs(&mut self) -> anyhow::Result<SentReports> {
        self.senders.send(StopAfter::Each(RUN)).await
    }

    /// Stops the server and starts another one on its store, which must be embedded. It accepts an agent for each node.
    pub(crate) async fn restart(self, bench: &Bench) -> anyhow::Result<Self> {
        let Self { server, project, sent, mut senders, dir } = self;
        server.stop().await?;
        let agents = u32::try_from(project.nodes.len())?;
        let server = BenchServer::start_for(bench, dir.path(), agents).await?;
        senders.go_to(&server.address);
        Ok(Self { server, project, sent, senders, dir })
    }

    /// The same, as the answer to a desired version of a generation.
    pub(crate) async fn report_for(&mut self, version: &Version, generation: Generation) -> anyhow::Result<()> {
        self.senders.report_for(generation);
        self.validate(version).await
    }

    /// Waits until the server's view shows the reports: they are answered when they are committed, shortly before that.
    async fn all_run(&self, version: &Version) -> anyhow::Result<()> {
        let (client, env, nodes) = (self.server.client()?, project::env()?, self.project.nodes.len());
        let deadline = Instant::now() + VIEW_TIMEOUT;
        loop {
            let running = client.status(&env).await?.running.get(version).copied().unwrap_or(0);
            if running == nodes {
                return Ok(());
            }
            anyhow::ensure!(Instant::now() < deadline, "only {running} of {nodes} nodes are validated at {version}");
            tokio::time::sleep(VIEW_INTERVAL).await;
        }
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

pub(crate) const VERIFY_HOSTS_METHOD: &str = "`muster serve` with 5,000 nodes that have reported, all validated; the request names all 5,000. In the server: \
    the `micros` of its responses, which are parsing the request and deciding it. Over HTTP: a raw client on one \
    open connection, from sending the request until the complete response. As a command: the real `muster \
    verify-hosts v1 --recorded < hosts`, from before its process is created until it has ended. No agent is connected, so the \
    recorded versions are verified.";

pub(crate) async fn measure_verify_hosts(bench: &Bench) -> anyhow::Result<Vec<BenchRow>> {
    let nodes = bench.size(5_000, 1_000);
    let fleet = Populated::start(bench, nodes).await?;

    let question = VerifyHostsRequest {
        version: project::version("v1")?,
        hosts: fleet.project.nodes.iter().map(ToString::to_string).collect(),
        wait_seconds: 0,
        recorded: true,
    };
    let body = serde_json::to_vec(&question)?;
    let path = format!("/v1/envs/{ENV}/verify-hosts");
    let mut connection = RawConnection::open(&fleet.server.address).await?;
    let (mut server, mut http) = (Vec::new(), Vec::new());
    for _ in 0..bench.size(200, 20) {
        let begin = Instant::now();
        let (status, answer) = connection.post(&path, &body).await?;
        http.push(begin.elapsed());
        anyhow::ensure!(status == 200, "the question was answered with {status}");
        let answer: VerifyHostsResponse = serde_json::from_slice(&answer)?;
        anyhow::ensure!(answer.verified, "{} hosts are not there", answer.missing.len());
        server.push(Duration::from_micros(answer.micros));
    }

    let hosts = fleet.hosts()?;
    let mut command = Vec::new();
    for _ in 0..bench.size(50, 5) {
        command.push(fleet.time(bench, &["verify-hosts", "v1", "--recorded"], Some(&hosts)).await?);
    }
    fleet.server.stop().await?;

    let (server, http, command) = (Sample::new(server), Sample::new(http), Sample::new(command));
    let name = |where_: &str| format!("verify-hosts, {nodes} hosts: {where_}");
    Ok(vec![
        BenchRow::new(name("in the server"), Unit::Seconds, server.median()).under(0.001).detail(server.spread()),
        BenchRow::new(name("over HTTP"), Unit::Seconds, http.median()).detail(http.spread()),
        BenchRow::new(name("whole command"), Unit::Seconds, command.median()).under(0.020).detail(command.spread()),
    ])
}

pub(crate) const STATUS_METHOD: &str = "the same server as for verify-hosts; the real `muster status`, from before its process is created until it has \
    ended. No agent is connected, so all 5,000 nodes are silent: the server has to evaluate and sort every one as a \
    blocker, which is its worst case.";

pub(crate) async fn measure_status(bench: &Bench) -> anyhow::Result<Vec<BenchRow>> {
    let nodes = bench.size(5_000, 1_000);
    let fleet = Populated::start(bench, nodes).await?;
    let mut status = Vec::new();
    let mut list = Vec::new();
    for _ in 0..bench.size(50, 5) {
        status.push(fleet.time(bench, &["status"], None).await?);
        list.push(fleet.time(bench, &["node", "list"], None).await?);
    }
    fleet.server.stop().await?;
    let (status, list) = (Sample::new(status), Sample::new(list));
    Ok(vec![
        BenchRow::new(format!("status, {nodes} nodes: whole command"), Unit::Seconds, status.median())
            .under(0.050)
            .detail(status.spread()),
        BenchRow::new(format!("node list, {nodes} nodes: whole command"), Unit::Seconds, list.median())
            .detail(list.spread()),
    ])
}
