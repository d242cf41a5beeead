//! Passes when the answer is a success and its body holds the expected text.

use std::error::Error;

use muster_core::report::summary::clip;

use crate::redact::Redactor;

/// So much of a body is read.
const BODY: usize = 1024 * 1024;
/// So much of it is shown when it is not what was expected.
const SHOWN: usize = 200;

pub(super) async fn check(url: &str, expect: Option<&str>, secrets: &Redactor) -> Result<String, String> {
    // The deadline of the check is that of the request; a proxy is for the world, and a node is not the world.
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
            Err(format!("{url} answered without {text:?}; it said: {}", clip(&secrets.text(body.trim()), SHOWN)))
        }
        Some(_) | None => Ok(format!("{url} answered {status}")),
    }
}

/// The outer errors say that a request failed, the innermost why.
fn innermost(error: &reqwest::Error) -> String {
    let mut inner: &dyn Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}
