//! HTTP and TCP checks.

use std::error::Error;

use tokio::net::TcpStream;

use muster_core::report::summary::clip;

use crate::redact::Redactor;

/// Number of bytes of a body that are read.
const BODY: usize = 1024 * 1024;
/// Number of characters of a body that are shown on a failure.
const SHOWN: usize = 200;

/// Passes if the status is a success and the body contains the expected text.
pub(super) async fn check_http(url: &str, expect: Option<&str>, secrets: &Redactor) -> Result<String, String> {
    // The check's deadline limits the request. No proxy: checks test the node itself.
    let client = reqwest::Client::builder().no_proxy().build().map_err(|error| innermost(&error))?;
    let mut response = client.get(url).send().await.map_err(|error| format!("{url}: {}", innermost(&error)))?;
    let status = response.status();
    let mut body = Vec::new();
    while body.len() < BODY {
        match response.chunk().await {
            Ok(Some(piece)) => body.extend_from_slice(&piece),
            Ok(None) => break,
            Err(error) => return Err(format!("{url}: {}", innermost(&error))),
        }
    }
    let body = String::from_utf8_lossy(&body);
    if !status.is_success() {
        return Err(format!("{url} answered {status}: {}", clip(&secrets.text(body.trim()), SHOWN)));
    }
    match expect {
        Some(text) if !body.contains(text) => {
            Err(format!("{url} answered without {text:?}; the body is: {}", clip(&secrets.text(body.trim()), SHOWN)))
        }
        Some(_) | None => Ok(format!("{url} answered {status}")),
    }
}

/// The innermost error, which has the cause.
fn innermost(error: &reqwest::Error) -> String {
    let mut inner: &dyn Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

/// Passes if a connection is accepted.
pub(super) async fn check_tcp(address: &str) -> Result<String, String> {
    match TcpStream::connect(address).await {
        Ok(_) => Ok(format!("{address} accepts connections")),
        Err(error) => Err(format!("{address}: {error}")),
    }
}
