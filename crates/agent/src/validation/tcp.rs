//! Passes when a connection is accepted.

use tokio::net::TcpStream;

pub(super) async fn check(address: &str) -> Result<String, String> {
    match TcpStream::connect(address).await {
        Ok(_) => Ok(format!("{address} accepts connections")),
        Err(error) => Err(format!("{address}: {error}")),
    }
}
