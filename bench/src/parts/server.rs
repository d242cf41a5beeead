//! The real `muster serve`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use muster_wire::client::Client;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::timeout;

use super::http::Connection;
use super::process::{BenchProcess, command};
use super::project::release_key;
use super::scrape::Scrape;
use crate::bench::Bench;

/// Timeout of the start, which needs a fraction of a second.
const READY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Server {
    running: BenchProcess,
    pub(crate) url: String,
    /// `host:port`
    pub(crate) address: String,
    pub(crate) state: PathBuf,
    /// From the start of the process until it prints its address; its view is complete then.
    pub(crate) ready_after: Duration,
}

impl Server {
    /// Starts a server on the state in `dir`, and waits until it answers.
    pub(crate) async fn start(bench: &Bench, dir: &Path, project: Option<&Path>) -> anyhow::Result<Self> {
        let store = format!("embedded:{}", dir.join("store").display());
        Self::start_on(bench, dir, &store, &dir.join("blobs"), project).await
    }

    /// Starts a server with its own state in `dir`, on a store and blobs that others may share.
    pub(crate) async fn start_on(
        bench: &Bench,
        dir: &Path,
        store: &str,
        blobs: &Path,
        project: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let state = dir.join("state");
        let mut serve = command(bench, bench.muster()?, dir);
        serve.args(["serve", "--store", store, "--listen", "127.0.0.1:0"]);
        serve.arg("--state").arg(&state).arg("--blobs").arg(blobs);
        if let Some(project) = project {
            serve.arg("--project").arg(project).arg("--release-key").arg(release_key(project));
        }
        let begin = Instant::now();
        let mut running = BenchProcess::start(serve, dir, "server")?;
        let stdout = running.child().stdout.take().context("its output is not there")?;
        let mut lines = BufReader::new(stdout).lines();
        let line = timeout(READY, lines.next_line()).await;
        let line = line.with_context(|| format!("it is not ready after {READY:?}"))??;
        let ready_after = begin.elapsed();
        let url = line.as_deref().and_then(|line| line.strip_prefix("API: ")).map(str::to_owned);
        let url = url.with_context(|| format!("muster serve did not start:\n{}", running.log_tail()))?;
        let address = url.trim_start_matches("http://").to_owned();
        let (status, _) = Connection::open(&address).await?.get("/readyz").await?;
        anyhow::ensure!(status == 204, "the server says that it is ready, but /readyz answers {status}");
        Ok(Self { running, url, address, state, ready_after })
    }

    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        Ok(Client::new(&self.url)?)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.running.pid()
    }

    pub(crate) async fn metrics(&self) -> anyhow::Result<Scrape> {
        Scrape::read(&self.address).await
    }

    /// `kill -9`.
    pub(crate) async fn kill(self) -> anyhow::Result<()> {
        self.running.kill().await
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.running.stop().await.context("muster serve")
    }
}
