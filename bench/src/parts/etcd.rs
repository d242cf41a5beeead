//! A real etcd with one member, with fsync, on the disk of the benchmarks.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use etcd_client::Client;

use super::http::MetricsScrape;
use super::process::{BenchProcess, command};
use crate::bench::Bench;

/// Timeout of the start, which needs about a second.
const READY: Duration = Duration::from_secs(30);
/// Far above the need of these fleets: quotas are not measured here.
const QUOTA: &str = "8589934592";

#[derive(Debug)]
pub(crate) struct Etcd {
    running: BenchProcess,
    /// `host:port`
    pub(crate) address: String,
    pub(crate) version: String,
}

impl Etcd {
    /// Starts one with an empty disk in `dir`, and waits until it is healthy.
    pub(crate) async fn start(bench: &Bench, dir: &Path) -> anyhow::Result<Self> {
        let (address, peer) = (free_address()?, free_address()?);
        let mut etcd = command(bench, &program()?, dir);
        etcd.arg("--data-dir").arg(dir.join("etcd")).args(["--name", "bench", "--quota-backend-bytes", QUOTA]);
        let url = format!("http://{address}");
        etcd.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
        let url = format!("http://{peer}");
        etcd.args(["--listen-peer-urls", &url, "--initial-advertise-peer-urls", &url]);
        etcd.args(["--initial-cluster", &format!("bench={url}"), "--logger", "zap", "--log-outputs", "stderr"]);
        let running = BenchProcess::start(etcd, dir, "etcd")?;
        let begin = Instant::now();
        let version = loop {
            if let Ok(version) = version_of(&address).await {
                break version;
            }
            anyhow::ensure!(
                begin.elapsed() < READY,
                "etcd is not healthy after {READY:?}:
{}",
                running.log_tail()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        Ok(Self { running, address, version })
    }

    /// The argument of `--store`.
    pub(crate) fn spec(&self) -> String {
        format!("etcd://{}", self.address)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.running.pid()
    }

    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        Client::connect([&self.address], None).await.context("cannot connect to etcd")
    }

    pub(crate) async fn metrics(&self) -> anyhow::Result<MetricsScrape> {
        MetricsScrape::read(&self.address).await
    }

    /// Bytes of its file in use.
    pub(crate) async fn bytes_in_use(&self) -> anyhow::Result<f64> {
        self.metrics().await?.get("etcd_mvcc_db_total_size_in_use_in_bytes")
    }

    /// Discards all history, and waits until that is done on disk.
    pub(crate) async fn compact(&self) -> anyhow::Result<()> {
        let mut client = self.client().await?;
        let now = client.get("compact", None).await?.header().context("etcd does not say its revision")?.revision();
        client.compact(now, Some(etcd_client::CompactionOptions::new().with_physical())).await?;
        Ok(())
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        // It ends with the signal itself, so its exit status has no meaning.
        let _ = self.running.stop().await;
        Ok(())
    }
}

/// Its version, once it answers a linearizable read.
async fn version_of(address: &str) -> anyhow::Result<String> {
    let mut client = Client::connect([address], None).await?;
    client.get("ready", None).await?;
    Ok(client.status().await?.version().to_owned())
}

fn program() -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|place| place.join("etcd")).find(|program| program.is_file());
    found.context("`etcd` is not on the PATH: `make bench` unpacks it into .tools and puts it there")
}

/// A free address; no other process here takes ports.
fn free_address() -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").context("there is no free port")?;
    Ok(listener.local_addr()?.to_string())
}
