//! Requests the desired state and the pause of the node from the servers, with a timeout for each.

use std::time::Duration;

use tokio::time::timeout;

use muster_wire::sync::DesiredResponse;

use crate::config::Config;
use crate::sync::error_chain;
use crate::sync::servers::Servers;

/// Timeout of each server. A healthy one answers in a millisecond; a frozen one accepts the connection and never answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The answer of the first server that answers, or why none did.
pub(super) async fn request_desired(config: &Config) -> Result<DesiredResponse, String> {
    let servers = Servers::new(&config.env, &config.node, config.server.urls()).map_err(|error| error_chain(&error))?;
    let mut why = String::new();
    for client in servers.all() {
        match timeout(ANSWER_TIMEOUT, client.desired(&config.env, &config.node)).await {
            Ok(Ok(told)) => return Ok(told),
            Ok(Err(error)) => why = error_chain(&error),
            Err(_) => why = format!("the server at {} does not answer", client.base()),
        }
    }
    Err(why)
}
