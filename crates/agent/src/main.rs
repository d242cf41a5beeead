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
use muster_agent::verbs::{CANNOT_TELL, check, local_version, once, pending_update, status};

const EXAMPLES: &str = r#"Examples:
  muster-agent run --config /etc/muster/agent.toml
  muster-agent run --config agent.toml --server http://10.0.0.1:7300 --server http://10.0.0.2:7300
  RUST_LOG=debug muster-agent run --config agent.toml
  muster-agent status -o json
  muster-agent check && muster-agent once        # from cron, on a node without a living agent

The configuration is one TOML file:
  env = "quickstart"                       # the environment that the node belongs to
  node = "web1"                            # its name in the design
  server = "http://127.0.0.1:7300"         # or a list: ["http://10.0.0.1:7300", "http://10.0.0.2:7300"]
  state_dir = "/var/lib/muster-agent"      # the agent's own: ledger, outbox, runs
  root = "/srv/web1"                       # where the content may keep files (MUSTER_ROOT)
  trusted_keys = ["ed25519:…"]             # public keys of those who sign releases
  interfaces = { eth0 = "127.77.0.2" }     # the node's addresses
  keep_releases = 3                        # optional: how many stay on the node
  puppet = "puppet"                        # optional: the program
  retry = { first = "5s", cap = "5m" }     # optional: pauses before a failed run is made again
  debounce = "10ms"                        # optional: how long a cause waits for others

Signals:
  SIGTERM, SIGINT   end the agent. A run is ended with all of its processes, and is reported
                    as interrupted and made again after the next start. Services that runs
                    have started stay.

Exit codes of run:
  0   ended as asked
  1   could not go on; the message says why
  64  the command was not understood
The other commands say theirs in their own help."#;

/// The agent of a Muster node: brings the node to what it should run, proves that it works, and reports.
#[derive(Debug, Parser)]
#[command(name = "muster-agent", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The configuration, where it is told and where it is looked for.
#[derive(Debug, clap::Args)]
struct Configured {
    /// The configuration of this agent.
    #[arg(long, value_name = "FILE", default_value = "/etc/muster/agent.toml")]
    config: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run until ended by a signal.
    Run {
        #[command(flatten)]
        configured: Configured,
        /// A server, instead of those in the configuration; several times, or with commas, for several.
        ///
        /// The agent talks to one of them at a time, begins with the one that its name falls to, and goes to another
        /// when that does not answer.
        #[arg(long, value_name = "URL", value_delimiter = ',')]
        server: Vec<String>,
    },
    /// Show what the node runs and should run.
    #[command(after_help = STATUS)]
    Status {
        #[command(flatten)]
        configured: Configured,
        /// For people or for programs.
        #[arg(short, long, value_enum, default_value = "text")]
        output: Output,
    },
    /// Make the run that is due, report, and end; for cron.
    #[command(after_help = ONCE)]
    Once {
        #[command(flatten)]
        configured: Configured,
    },
    /// Say whether the node should run something else than it does.
    #[command(after_help = PENDING_UPDATE)]
    PendingUpdate {
        #[command(flatten)]
        configured: Configured,
    },
    /// Print the version that the node has proved to run.
    #[command(after_help = LOCAL_VERSION)]
    LocalVersion {
        #[command(flatten)]
        configured: Configured,
    },
    /// Say whether the node may run, or is paused.
    #[command(after_help = CHECK)]
    Check {
        #[command(flatten)]
        configured: Configured,
    },
}

const STATUS: &str = "Works beside a living agent and without one, with the server and without it.

Exit codes:
  0   it is shown
  1   the configuration or the agent's memory cannot be read

Examples:
  muster-agent status
  muster-agent status -o json | jq -r .runs";

const ONCE: &str =
    "A run is due when the node should run something else, its last run did not end well or was cut off, \
what it looked up has changed, or a person asks for it. With the server away it is made from what is known.

Exit codes:
  0   the node was validated, or there was nothing to do
  1   the run failed, could not be made, or was ended by a signal; the message says why
  2   cannot tell: no server answers, and nothing is due by what is known
  3   an agent lives here, and does all this by itself
  9   a run is due, and the node is paused
  75  the node waits for something from another node

Examples:
  * * * * *  root  muster-agent once > /dev/null";

const PENDING_UPDATE: &str = "Exit codes:
  0   an update is there
  1   the node runs what it should
  2   cannot tell: no server answers in time, no version was chosen, or the configuration or the
      agent's memory cannot be read
  3   cannot tell, and the node was never configured

Examples:
  muster-agent pending-update && muster-agent once";

const LOCAL_VERSION: &str = "Exit codes:
  0   it is printed
  1   there is none: no validation has passed on this node

Examples:
  muster-agent local-version";

const CHECK: &str =
    "With the server away, what was heard last counts: a pause that is not over goes on. A node that has \
never heard from a server cannot tell, and that is never a yes.

Exit codes:
  0   the node may run
  1   the configuration or the agent's memory cannot be read
  2   cannot tell: no server answers in time, and the node has never heard from one
  9   the node is paused; who paused it and why is printed

Examples:
  muster-agent check && apt-get -y upgrade";

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
    let level = match &cli.command {
        Command::Run { .. } => "info",
        // Whoever asks wants the answer; of a run from cron, what went wrong.
        Command::Once { .. } => "warn",
        Command::Status { .. }
        | Command::PendingUpdate { .. }
        | Command::LocalVersion { .. }
        | Command::Check { .. } => "error",
    };
    start_logging(level);
    match carry_out(cli.command) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn carry_out(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run { configured, server } => {
            let mut config = Config::read(&configured.config)?;
            if !server.is_empty() {
                config.server = Servers::Several(server);
            }
            runtime()?.block_on(live(&config)).map(|()| ExitCode::SUCCESS)
        }
        Command::Status { configured, output } => {
            let config = Config::read(&configured.config)?;
            runtime()?.block_on(status::run(&config, output == Output::Json))
        }
        Command::Once { configured } => runtime()?.block_on(once::run(&Config::read(&configured.config)?)),
        Command::PendingUpdate { configured } => {
            let told = Config::read(&configured.config).map_err(anyhow::Error::from);
            let told = told.and_then(|config| runtime()?.block_on(pending_update::run(&config)));
            // 1 would say that the node is current, and cron would believe it for ever.
            told.or_else(|error| {
                tracing::error!("{error:#}");
                Ok(ExitCode::from(CANNOT_TELL))
            })
        }
        Command::LocalVersion { configured } => local_version::run(&Config::read(&configured.config)?),
        Command::Check { configured } => runtime()?.block_on(check::run(&Config::read(&configured.config)?)),
    }
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    // One thread: the agent waits nearly all the time, and every further thread costs memory on every node.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(2).build();
    runtime.context("cannot start the runtime")
}

async fn live(config: &Config) -> anyhow::Result<()> {
    let cancel = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
    let agent = agent::run(config, cancel.clone());
    tokio::pin!(agent);
    tokio::select! {
        ended = &mut agent => return ended.map_err(Into::into),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("ending");
    cancel.cancel();
    agent.await.map_err(Into::into)
}

fn start_logging(level: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .with_target(false)
        .init();
}
