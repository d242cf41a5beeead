//! A check that asks a web server.

use std::error::Error;
use std::time::Duration;

use muster_core::rollout::strategy::HttpCheck;
use reqwest::redirect::Policy;

use super::Answer;
use crate::api::chain;

/// A service may send on to its front page, and not in circles.
const REDIRECTS: usize = 3;
/// So much of an answer that says no is read, for the sake of its first line.
const BODY: usize = 4096;
const CONNECT: Duration = Duration::from_secs(5);

/// Asks once. Whoever asks ends it when it takes too long.
pub(super) async fn ask(check: &HttpCheck) -> Answer {
    if check.url.starts_with("https:") {
        let text = "https cannot be asked by this server; use a command instead, `[curl, -fsS, URL]` for instance";
        return Answer::Inconclusive(text.to_owned());
    }
    // A client of its own: a kept connection would ask whoever answered before, and a wave may have moved that.
    let client = reqwest::Client::builder().no_proxy().redirect(Policy::limited(REDIRECTS)).connect_timeout(CONNECT);
    let response = match client.build() {
        Ok(client) => client.get(&check.url).send().await,
        Err(error) => Err(error),
    };
    let mut response = match response {
        Ok(response) => response,
        Err(error) => return Answer::Inconclusive(format!("no answer: {}", cause(&error))),
    };
    let status = response.status();
    let passes = match check.status {
        Some(wanted) => status.as_u16() == wanted,
        None => status.is_success(),
    };
    if passes {
        return Answer::Passed;
    }
    let mut body = Vec::new();
    while body.len() < BODY
        && let Ok(Some(piece)) = response.chunk().await
    {
        body.extend_from_slice(&piece);
    }
    body.truncate(BODY);
    let body = String::from_utf8_lossy(&body);
    let wanted = check.status.map(|wanted| format!(", and {wanted} was expected")).unwrap_or_default();
    let said = body.lines().map(str::trim).find(|line| !line.is_empty());
    let said = said.map(|line| format!(": {line}")).unwrap_or_default();
    Answer::Failed(format!("the answer has status {status}{wanted}{said}"))
}

/// What lies behind it, without the address: the check names that.
fn cause(error: &reqwest::Error) -> String {
    error.source().map(chain).unwrap_or_else(|| error.to_string())
}
