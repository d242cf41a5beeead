//! The server's code in this process, for counters that no API tells.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use muster_core::names::NodeName;
use muster_core::node::liveness::LivenessTimeouts;

use muster_server::{Clock, Config, FirstVersion, LeasePace, Registration, Server, register};
use muster_store::EmbeddedStore;
use muster_store::embedded::Options;
use muster_testkit::records::{node_record, release_records};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::project::{self, Project};

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
    pub(crate) async fn start(dir: &Path, project: &Project) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start")?;
        let handle = runtime.handle().clone();
        let background = Background(Some(runtime));
        let (store_path, blobs) = (dir.join("store"), dir.join("blobs"));
        let registration = registration(project)?;
        let started = handle.spawn(async move {
            let store = Arc::new(EmbeddedStore::open(store_path, Options::default()).await?);
            let listen = "127.0.0.1:0".parse()?;
            let config = Config {
                listen,
                blobs,
                patience: LivenessTimeouts::default(),
                lease: LeasePace::default(),
                clock: Clock::system(),
            };
            let server = Server::start(config, store.clone(), CancellationToken::new()).await?;
            register(server.app(), &registration).await?;
            anyhow::Ok((store, server))
        });
        let (store, server) = started.await??;
        let address = server.address().to_string();
        handle.spawn(server.run());
        Ok(Self { store, address, _runtime: background })
    }
}

fn registration(project: &Project) -> anyhow::Result<Registration> {
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
