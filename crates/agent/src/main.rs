//! `muster-agent`: the command line around the library.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use muster_agent::agent;
use muster_agent::config::{Config, Servers};

const EXAMPLES: &str = r#"Examples:
  muster-agent run --config /etc/muster/agent.toml
  muster-agent run --config agent.toml --server http://10.0.0.1:7300 --server http://10.0.0.2:7300
  RUST_LOG=debug muster-agent run --config agent.toml

The configuration is one TOML file:
  env = "quickstart"                       # the environment that the node belongs to
  node = "web1"                            # its name in the design
  server = "http://127.0.0.1:7300"         # or a list: ["http://10.0.0.1:7300", "http://10.0.0.2:7300"]
  state_dir = "/var/lib/muster-agent"      # the agent's own: ledger, outbox, runs
  root = "/srv/web1"                       # where the content may keep files (MUSTER_ROOT)
  trusted_keys = ["ed25519:…"]             # public keys of those who sign releases
  keep_releases = 3                        # optional: how many stay on the node
  interfaces = { eth0 = "127.77.0.2" }     # the node's addresses
  puppet = "puppet"                        # optional: the program
  retry = { first = "5s", cap = "5m" }     # optional: pauses before a failed run is made again
  debounce = "10ms"                        # optional: how long a cause waits for others

Signals:
  SIGTERM, SIGINT   end the agent. A run is ended with all of its processes, and is reported
                    as interrupted and made again after the next start. Services that runs
                    have started stay.

Exit codes:
  0   ended as asked
  1   could not go on; the message says why
  64  the command was not understood"#;

/// The agent of a Muster node: brings the node to what it should run, proves that it works, and reports.
#[derive(Debug, Parser)]
#[command(name = "muster-agent", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run until ended by a signal.
    Run {
        /// The configuration of this agent.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// A server, instead of those in the configuration; several times, or with commas, for several.
        ///
        /// The agent talks to one of them at a time, begins with the one that its name falls to, and goes to another
        /// when that does not answer.
        #[arg(long, value_name = "URL", value_delimiter = ',')]
        server: Vec<String>,
    },
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come this way too, and are no mistakes.
            let code = if error.use_stderr() { ExitCode::from(64) } else { ExitCode::SUCCESS };
            let _ = error.print();
            return code;
        }
    };
    start_logging();
    let Command::Run { config, server } = cli.command;
    match run(&config, server) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(config: &std::path::Path, servers: Vec<String>) -> anyhow::Result<()> {
    let mut config = Config::read(config)?;
    if !servers.is_empty() {
        config.server = Servers::Several(servers);
    }
    // One thread: the agent waits nearly all the time, and every further thread costs memory on every node.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2)
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        let cancel = CancellationToken::new();
        let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
        let agent = agent::run(&config, cancel.clone());
        tokio::pin!(agent);
        tokio::select! {
            ended = &mut agent => return ended.map_err(Into::into),
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("ending");
        cancel.cancel();
        agent.await.map_err(Into::into)
    })
}

fn start_logging() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .with_target(false)
        .init();
}
