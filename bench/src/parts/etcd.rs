//! A real etcd with one member, on the disk that the benchmarks work on, with its fsyncs.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use etcd_client::Client;

use super::process::{Running, command};
use super::scrape::Scrape;
use crate::bench::Bench;

/// It needs about a second.
const READY: Duration = Duration::from_secs(30);
/// What a fleet of this size needs is far below it; nothing is to be said about quotas here.
const QUOTA: &str = "8589934592";

#[derive(Debug)]
pub(crate) struct Etcd {
    running: Running,
    /// `host:port`
    pub(crate) address: String,
    pub(crate) version: String,
}

impl Etcd {
    /// Starts one with an empty disk in `dir`, and waits until it serves.
    pub(crate) async fn start(bench: &Bench, dir: &Path) -> anyhow::Result<Self> {
        let (address, peer) = (free_address()?, free_address()?);
        let mut etcd = command(bench, &program()?, dir);
        etcd.arg("--data-dir").arg(dir.join("etcd")).args(["--name", "bench", "--quota-backend-bytes", QUOTA]);
        let url = format!("http://{address}");
        etcd.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
        let url = format!("http://{peer}");
        etcd.args(["--listen-peer-urls", &url, "--initial-advertise-peer-urls", &url]);
        etcd.args(["--initial-cluster", &format!("bench={url}"), "--logger", "zap", "--log-outputs", "stderr"]);
        let running = Running::start(etcd, dir, "etcd")?;
        let begin = Instant::now();
        let version = loop {
            if let Ok(version) = serves(&address).await {
                break version;
            }
            anyhow::ensure!(begin.elapsed() < READY, "etcd does not serve after {READY:?}:\n{}", running.last_words());
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        Ok(Self { running, address, version })
    }

    /// As `--store` takes it.
    pub(crate) fn spec(&self) -> String {
        format!("etcd://{}", self.address)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.running.pid()
    }

    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        Client::connect([&self.address], None).await.context("cannot connect to etcd")
    }

    pub(crate) async fn metrics(&self) -> anyhow::Result<Scrape> {
        Scrape::of(&self.address).await
    }

    /// Bytes of its file that hold something.
    pub(crate) async fn bytes_in_use(&self) -> anyhow::Result<f64> {
        self.metrics().await?.get("etcd_mvcc_db_total_size_in_use_in_bytes")
    }

    /// Forgets all that was before now, and waits until that is done on disk.
    pub(crate) async fn compact(&self) -> anyhow::Result<()> {
        let mut client = self.client().await?;
        let now = client.get("compact", None).await?.header().context("etcd does not say its revision")?.revision();
        client.compact(now, Some(etcd_client::CompactionOptions::new().with_physical())).await?;
        Ok(())
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        // It says goodbye with the signal itself, so its exit status tells nothing.
        let _ = self.running.stop().await;
        Ok(())
    }
}

/// Its version, once it answers a read that no later answer can contradict.
async fn serves(address: &str) -> anyhow::Result<String> {
    let mut client = Client::connect([address], None).await?;
    client.get("ready", None).await?;
    Ok(client.status().await?.version().to_owned())
}

fn program() -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|place| place.join("etcd")).find(|program| program.is_file());
    found.context("`etcd` is not on the PATH: `make bench` unpacks it into .tools and puts it there")
}

/// Free at this moment, which is soon enough: nothing else here takes ports.
fn free_address() -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").context("there is no free port")?;
    Ok(listener.local_addr()?.to_string())
}
