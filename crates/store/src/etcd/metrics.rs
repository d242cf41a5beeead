//! The one number that etcd before 3.6 tells in its metrics only: its quota.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const QUOTA: &str = "etcd_server_quota_backend_bytes";

/// Some hundred kilobytes on a real member.
const MOST: u64 = 8 * 1024 * 1024;

/// Asks a member at `http://host:port`. None if it does not say, and none with TLS: for one number in a report that
/// does not justify a second TLS client.
pub(super) async fn quota(url: &str, patience: Duration) -> Option<u64> {
    let address = url.strip_prefix("http://")?.trim_end_matches('/');
    let body = timeout(patience, fetch(address)).await.ok()?.ok()?;
    let line = body.lines().find(|line| line.starts_with(QUOTA) && line[QUOTA.len()..].starts_with(' '))?;
    // Written as a float: 2.147483648e+09.
    let bytes: f64 = line[QUOTA.len()..].trim().parse().ok()?;
    (1.0..1e18).contains(&bytes).then_some(bytes as u64)
}

async fn fetch(address: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    // In HTTP/1.0 the answer ends when the connection does.
    stream.write_all(format!("GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(MOST).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
