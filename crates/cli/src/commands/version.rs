//! `muster version`: prints the version of this program, and of the server.

use std::time::Duration;

use serde::Serialize;

use crate::args::Globals;
use crate::connect::ServerConnection;
use crate::failure::{Exit, Failure};
use crate::output::Terminal;

/// Print the version of this program, and of the server if one is running
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  printed; without a running server only the version of this program

Examples:
  muster version
  muster version -o json")]
pub struct Args {}

/// Time that the server has to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Serialize)]
struct Versions {
    muster: &'static str,
    /// None without a running server.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<ServerVersion>,
}

#[derive(Debug, Serialize)]
struct ServerVersion {
    url: String,
    version: String,
}

pub(super) async fn run(_: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let server = match ServerConnection::find(globals) {
        // No server, or one that does not answer, has no version.
        Err(_) => None,
        Ok(server) => server.client.self_examination(TIMEOUT).await.ok().map(|replica| {
            let url = server.client.base().to_owned();
            ServerVersion { url, version: replica.version }
        }),
    };
    let versions = Versions { muster: env!("CARGO_PKG_VERSION"), server };
    terminal.out.answer(&versions, |out| {
        out.line(format_args!("muster {}", versions.muster));
        if let Some(ServerVersion { url, version }) = &versions.server {
            out.line(format_args!("server {version} at {url}"));
        }
    });
    Ok(Exit::Yes)
}
