//! The real `muster serve`, and the server's code in this process, for counters that the API does not have.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use muster_core::identity::RENEWAL_GRACE;
use muster_core::names::NodeName;
use muster_core::node::liveness::LivenessTimeouts;
use muster_identity::authority_files::AuthorityFiles;
use muster_server::{
    Clock, ConnectionLimits, FirstVersion, LeasePace, Registration, ServerConfig, TlsConfig, register,
};
use muster_store::EmbeddedStore;
use muster_store::embedded::EmbeddedOptions;
use muster_testkit::records::{node_record, release_records};
use muster_wire::client::Client;
use muster_wire::token::Token;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::bench::{Bench, TOKEN};

use super::http::{MetricsScrape, RawConnection};
use super::process::{BenchProcess, command};
use super::project::{self, BenchProject, release_key};

/// Timeout of the start, which needs a fraction of a second.
const READY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct BenchServer {
    running: BenchProcess,
    pub(crate) url: String,
    /// `host:port`
    pub(crate) address: String,
    pub(crate) state: PathBuf,
    /// From the start of the process until it prints its address; its view is complete then.
    pub(crate) ready_after: Duration,
}

impl BenchServer {
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
        Self::start_with(bench, dir, store, blobs, project, None).await
    }

    /// Starts a server on the embedded store in `dir` that accepts this many agents.
    pub(crate) async fn start_for(bench: &Bench, dir: &Path, agents: u32) -> anyhow::Result<Self> {
        let store = format!("embedded:{}", dir.join("store").display());
        Self::start_with(bench, dir, &store, &dir.join("blobs"), None, Some(connections_for(agents))).await
    }

    async fn start_with(
        bench: &Bench,
        dir: &Path,
        store: &str,
        blobs: &Path,
        project: Option<&Path>,
        connections: Option<u32>,
    ) -> anyhow::Result<Self> {
        let state = dir.join("state");
        let mut serve = command(bench, bench.muster()?, dir);
        serve.args(["serve", "--store", store, "--listen", "127.0.0.1:0"]);
        serve.arg("--state").arg(&state).arg("--blobs").arg(blobs);
        if let Some(project) = project {
            serve.arg("--project").arg(project).arg("--release-key").arg(release_key(project));
        }
        if let Some(connections) = connections {
            serve.arg("--max-connections").arg(connections.to_string());
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
        let (status, _) = RawConnection::open(&address).await?.get("/readyz").await?;
        anyhow::ensure!(status == 204, "the server says that it is ready, but /readyz answers {status}");
        Ok(Self { running, url, address, state, ready_after })
    }

    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        client(&self.address)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.running.pid()
    }

    pub(crate) async fn metrics(&self) -> anyhow::Result<MetricsScrape> {
        MetricsScrape::read(&self.address).await
    }

    /// `kill -9`.
    pub(crate) async fn kill(self) -> anyhow::Result<()> {
        self.running.kill().await
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.running.stop().await.context("muster serve")
    }
}

/// Limit of connections of a server for this many agents: TCP has three quarters of them.
fn connections_for(agents: u32) -> u32 {
    /// Other clients.
    const CLIENTS: u32 = 256;
    (agents + CLIENTS).div_ceil(3) * 4
}

/// A client of a server of a benchmark.
pub(crate) fn client(address: &str) -> anyhow::Result<Client> {
    Ok(Client::with_token(&format!("http://{address}"), Some(&Token::new(TOKEN)?))?)
}

/// A server on its own runtime, like that of `muster serve`. Ends when it is dropped.
#[derive(Debug)]
pub(crate) struct InProcessServer {
    pub(crate) store: Arc<EmbeddedStore>,
    /// `host:port`
    pub(crate) address: String,
    _runtime: Background,
}

/// A runtime that is shut down in the background, because it is dropped where blocking is not allowed.
#[derive(Debug)]
struct Background(Option<Runtime>);

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl InProcessServer {
    /// Starts a server in `dir` with the nodes of a project.
    pub(crate) async fn start(dir: &Path, project: &BenchProject) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start")?;
        let handle = runtime.handle().clone();
        let background = Background(Some(runtime));
        let (store_path, blobs, authority) = (dir.join("store"), dir.join("blobs"), dir.join("ca"));
        let registration = registration(project)?;
        let started = handle.spawn(async move {
            let store = Arc::new(EmbeddedStore::open(store_path, EmbeddedOptions::default()).await?);
            let listen = "127.0.0.1:0".parse()?;
            let files = Arc::new(AuthorityFiles::open_or_create(&authority, Clock::system().now())?);
            let tls = TlsConfig {
                files,
                names: vec!["127.0.0.1".to_owned()],
                advertise: None,
                grace: RENEWAL_GRACE,
                replace_authority: false,
            };
            let config = ServerConfig {
                tls: Some(tls),
                listen,
                socket: None,
                token: Token::new(TOKEN)?,
                limits: ConnectionLimits::default(),
                secrets_key: blobs.with_file_name("secrets.key"),
                blobs: muster_server::BlobPlace::Directory(blobs),
                liveness_timeouts: LivenessTimeouts::default(),
                lease: LeasePace::default(),
                gate_commands: None,
                oidc: None,
                clock: Clock::system(),
            };
            let server = muster_server::Server::start(config, store.clone(), CancellationToken::new()).await?;
            register(server.app(), &registration).await?;
            anyhow::Ok((store, server))
        });
        let (store, server) = started.await??;
        let address = server.address().to_string();
        handle.spawn(server.run());
        Ok(Self { store, address, _runtime: background })
    }
}

fn registration(project: &BenchProject) -> anyhow::Result<Registration> {
    let version = project::version("v1")?;
    let record =
        |(position, node): (u32, &NodeName)| (node.clone(), node_record(node.natural().0, "default", position));
    Ok(Registration {
        env: project::env()?,
        nodes: (0..).zip(&project.nodes).map(record).collect(),
        releases: release_records(&["v1"]),
        first_version: FirstVersion::Default(version),
        epoch: 1,
    })
}
