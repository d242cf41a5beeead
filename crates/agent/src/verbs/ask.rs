//! Asks the servers what the node should do. One that does not answer in time is as good as none: who asks from cron
//! must get an answer, or be told that there is none.

use std::time::Duration;

use tokio::time::timeout;

use muster_wire::sync::DesiredResponse;

use crate::config::Config;
use crate::servers::Servers;
use crate::sync::chain;

/// How long each server may take. One that is there answers in a millisecond; one that is frozen takes the connection and
/// never answers.
const ANSWER: Duration = Duration::from_secs(5);

/// What the first server that answers says; if none does, why not.
pub async fn ask(config: &Config) -> Result<DesiredResponse, String> {
    let servers = Servers::new(&config.env, &config.node, config.server.urls()).map_err(|error| chain(&error))?;
    let mut why = String::new();
    for client in servers.all() {
        match timeout(ANSWER, client.told(&config.env, &config.node)).await {
            Ok(Ok(told)) => return Ok(told),
            Ok(Err(error)) => why = chain(&error),
            Err(_) => why = format!("the server at {} does not answer", client.base()),
        }
    }
    Err(why)
}
