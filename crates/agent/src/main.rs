//! `muster-agent`: the command line around the library.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand};
use jiff::SignedDuration;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

use muster_agent::agent;
use muster_agent::commands::{UNKNOWN, check, join, lookup, once, status, version};
use muster_agent::config::{ConfigFile, ReadConfigError, ServerUrls};
use muster_agent::service_manager;
use muster_wire::token::TOKEN_FILE_VARIABLE;

/// Threads for blocking work, at most.
const BLOCKING_THREADS: usize = 4;

const EXAMPLES: &str = r#"Examples:
  muster-agent join https://muster.example.org:7300 muster_join_…
  muster-agent run --config /etc/muster/agent.toml
  muster-agent run --config agent.toml --server http://127.0.0.1:7300 --server http://127.0.0.1:7301
  RUST_LOG=debug muster-agent run --config agent.toml
  muster-agent status -o json
  muster-agent once --interval 30m               # from cron, on a node without a running agent

The configuration is one TOML file:
  env = "quickstart"                       # environment of the node
  node = "web1"                            # name of the node in the design
  server = "http://127.0.0.1:7300"         # or unix:/PATH, or a list: ["http://…:7300", "http://…:7300"]
  token_file = "/etc/muster/token"         # copy of the server's token; not needed with https:// and unix:/PATH
  state_dir = "/var/lib/muster-agent"      # state of the agent: ledger, outbox, runs
  root = "/srv/web1"                       # directory for the files of releases (MUSTER_ROOT)
  trusted_keys = ["ed25519:…"]             # public keys that sign releases
  interfaces = { eth0 = "127.77.0.2" }     # addresses of the node, or "auto"
  keep_releases = 3                        # optional: number of releases kept on the node
  puppet = "puppet"                        # optional: the Puppet program
  retry = { first = "5s", cap = "5m" }     # optional: backoff of failed runs
  debounce = "10ms"                        # optional: delay of a run for further causes
  interval = "30m"                         # optional: interval of `muster-agent once` in cron

Signals:
  SIGTERM, SIGINT   stop the agent at once. A run in progress continues under its supervisor.
                    The next agent adopts it and reports its result. Checks in progress are ended
                    and made again. Services that runs have started continue.

Exit codes of run:
  0   stopped by a signal
  1   failed; the message has the reason
  64  wrong usage
The help of each other command lists its exit codes."#;

/// Muster agent: converges the node to its desired release, validates it, and reports.
#[derive(Debug, Parser)]
#[command(name = "muster-agent", version, after_help = EXAMPLES)]
struct AgentCli {
    #[command(subcommand)]
    command: AgentCommand,
}

#[derive(Debug, clap::Args)]
struct ConfigArg {
    /// Configuration file of the agent.
    #[arg(long, value_name = "FILE", default_value = "/etc/muster/agent.toml")]
    config: PathBuf,
    /// File with the token of the servers, instead of that in the configuration.
    #[arg(long, value_name = "FILE", env = TOKEN_FILE_VARIABLE, hide_env_values = true)]
    token_file: Option<PathBuf>,
}

impl ConfigArg {
    fn read(&self) -> Result<ConfigFile, ReadConfigError> {
        let mut config = ConfigFile::read(&self.config)?;
        if let Some(file) = &self.token_file {
            config.token_file = Some(file.clone());
        }
        Ok(config)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum StatusFormat {
    Text,
    Json,
}

/// Format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LogFormat {
    Text,
    /// One JSON object per line.
    Json,
}

#[derive(Debug, Subcommand)]
enum AgentCommand {
    /// Run the agent until a signal stops it.
    Run {
        #[command(flatten)]
        config: ConfigArg,
        /// URL of a server or unix:/PATH, instead of those in the configuration. Repeat it, or separate several with commas.
        ///
        /// The agent uses one server at a time. It starts with the one that its name hashes to, and fails over to
        /// another when that does not answer.
        #[arg(long, value_name = "URL", value_delimiter = ',')]
        server: Vec<String>,
        /// Format of the log on standard error.
        #[arg(long, value_enum, value_name = "FORMAT", default_value = "text", env = "MUSTER_LOG_FORMAT")]
        log_format: LogFormat,
    },
    /// Give this machine the identity of a node.
    #[command(after_help = JOIN)]
    Join {
        #[command(flatten)]
        args: join::Args,
    },
    /// Show the validated and the desired version of the node.
    #[command(after_help = STATUS)]
    Status {
        #[command(flatten)]
        config: ConfigArg,
        /// Output format.
        #[arg(short, long, value_enum, default_value = "text")]
        output: StatusFormat,
    },
    /// Make the run that is due, report, and exit; for cron.
    #[command(after_help = ONCE)]
    Once {
        #[command(flatten)]
        config: ConfigArg,
        /// Interval at which cron starts this command, instead of that in the configuration.
        ///
        /// The server counts the node as live until two intervals and a minute have passed without a call. Without an
        /// interval the node leaves service 30 s after each call.
        #[arg(long, value_name = "TIME")]
        interval: Option<SignedDuration>,
    },
    /// Check whether the desired version differs from the validated one.
    #[command(after_help = PENDING_UPDATE)]
    PendingUpdate {
        #[command(flatten)]
        config: ConfigArg,
    },
    /// Print the version that was validated last.
    #[command(after_help = LOCAL_VERSION)]
    LocalVersion {
        #[command(flatten)]
        config: ConfigArg,
    },
    /// Look a key up as a run of the current release would, and show where its value comes from.
    #[command(after_help = LOOKUP)]
    Lookup {
        /// Key, as a class or `lookup()` would look it up.
        key: String,
        /// Print Puppet's explanation: every level of the hierarchy, with the files that it has tried.
        #[arg(long)]
        explain: bool,
        #[command(flatten)]
        config: ConfigArg,
        /// Output format.
        #[arg(short, long, value_enum, default_value = "text")]
        output: StatusFormat,
    },
    /// Write the manual pages, for the build of packages.
    #[command(hide = true)]
    Man {
        /// Directory.
        directory: PathBuf,
    },
    /// Check whether the node may run or is paused.
    #[command(after_help = CHECK)]
    Check {
        #[command(flatten)]
        config: ConfigArg,
    },
}

const JOIN: &str = "Makes a private key, which stays on this machine, and exchanges the token for a certificate. The token holds the \
pin of the server's root certificate: another server is not talked to. Then writes the configuration, and starts the agent's \
unit if systemd has it.

Exit codes:
  0   joined
  1   the server refused the token, or cannot be reached; the message has the reason
  64  wrong usage

Examples:
  muster-agent join https://muster.example.org:7300 muster_join_…
  muster-agent join https://muster.example.org:7300 - < token      # not visible in the list of processes
  muster-agent join --replace https://muster.example.org:7300 muster_join_…";

const STATUS: &str = "Works with and without a running agent, and with and without a server.

Exit codes:
  0   shown
  1   the configuration or the agent's state cannot be read

Examples:
  muster-agent status
  muster-agent status -o json | jq -r .version";

const ONCE: &str =
    "A run is due if the desired version has changed, the last run did not succeed or is still in progress, \
lookups have changed, or an operator requests it. If none is due, the checks of the release run again, and their result is \
reported if it differs. Without a server, the last known state counts.

Exit codes:
  0   the node was validated, or nothing was due
  1   the run or the checks failed or could not be made, or the command was stopped by a signal; the message has
      the reason. After a signal the run continues, and the next call reports its result
  2   unknown: no server answers, and no run is due by the last known state
  3   an agent is running here and makes its own runs
  9   a run is due, but the node is paused
  75  the node waits for another node

Examples:
  */30 * * * *  root  muster-agent once --interval 30m > /dev/null";

const PENDING_UPDATE: &str = "Exit codes:
  0   an update is pending
  1   the node runs the desired version
  2   unknown: no server answers in time, there is no current version, or the configuration or the
      agent's state cannot be read
  3   unknown, and the node was never configured

Examples:
  muster-agent pending-update && muster-agent once";

const LOCAL_VERSION: &str = "Exit codes:
  0   printed
  1   no validation has passed on this node

Examples:
  muster-agent local-version";

const LOOKUP: &str =
    "Runs Puppet with the facts, modules, hierarchy and settings of a run, and the last known values of the \
server. Nothing is applied, and it works beside a running agent. A secret is printed as `Sensitive [value redacted]`.

Exit codes:
  0   the key has a value
  1   the key has no value
  2   unknown: no release was applied yet, Puppet failed, or the configuration or the agent's state cannot be read

Examples:
  muster-agent lookup ntp::servers
  muster-agent lookup profile::web::port --explain
  muster-agent lookup ntp::servers -o json | jq -r '.file, .line'";

const CHECK: &str =
    "Without a server the last known pause counts, until it expires. A node that was never connected to a \
server exits with 2.

Exit codes:
  0   the node may run
  1   the configuration or the agent's state cannot be read
  2   unknown: no server answers in time, and the node was never connected to one
  9   the node is paused; the operator and the reason are printed

Examples:
  muster-agent check && apt-get -y upgrade";

fn main() -> ExitCode {
    // First, and without a runtime: the supervisor of a run needs nothing of the agent.
    if let Some(code) = muster_supervisor::run_if_requested(std::env::args_os()) {
        return code;
    }
    let cli = match AgentCli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are errors for clap, but no usage errors.
            let code = if error.use_stderr() { ExitCode::from(64) } else { ExitCode::SUCCESS };
            let _ = error.print();
            return code;
        }
    };
    let (level, format) = match &cli.command {
        AgentCommand::Run { log_format, .. } => ("info", *log_format),
        // From cron only problems matter.
        AgentCommand::Once { .. } => ("warn", LogFormat::Text),
        AgentCommand::Join { .. }
        | AgentCommand::Status { .. }
        | AgentCommand::PendingUpdate { .. }
        | AgentCommand::LocalVersion { .. }
        | AgentCommand::Lookup { .. }
        | AgentCommand::Man { .. }
        | AgentCommand::Check { .. } => ("error", LogFormat::Text),
    };
    start_logging(level, format);
    match execute(cli.command) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn execute(command: AgentCommand) -> anyhow::Result<ExitCode> {
    match command {
        AgentCommand::Run { config, server, log_format: _ } => {
            let mut config = config.read()?;
            if !server.is_empty() {
                config.server = ServerUrls::Several(server);
            }
            config.interval = None;
            block_on(run(&config))?.map(|()| ExitCode::SUCCESS)
        }
        AgentCommand::Join { args } => block_on(join::run(&args))?,
        AgentCommand::Status { config, output } => {
            let config = config.read()?;
            block_on(status::run(&config, output == StatusFormat::Json))?
        }
        AgentCommand::Once { config, interval } => {
            let mut config = config.read()?;
            if let Some(interval) = interval {
                config.interval = Some(interval.try_into()?);
            }
            block_on(once::run(&config))?
        }
        AgentCommand::PendingUpdate { config } => {
            let config = config.read().map_err(anyhow::Error::from);
            let result = config.and_then(|config| block_on(version::pending_update(&config))?);
            // Exit code 1 would mean that the node is current, and cron would never update it.
            result.or_else(|error| {
                tracing::error!("{error:#}");
                Ok(ExitCode::from(UNKNOWN))
            })
        }
        AgentCommand::LocalVersion { config } => version::local_version(&config.read()?),
        AgentCommand::Lookup { key, explain, config, output } => {
            let looked_up = lookup::run(&config.read()?, &key, explain, output == StatusFormat::Json);
            // Exit code 1 would mean that the key has no value.
            looked_up.or_else(|error| {
                tracing::error!("{error:#}");
                Ok(ExitCode::from(UNKNOWN))
            })
        }
        AgentCommand::Man { directory } => {
            clap_mangen::generate_to(AgentCli::command(), &directory)
                .with_context(|| format!("cannot write manual pages to {}", directory.display()))?;
            Ok(ExitCode::SUCCESS)
        }
        AgentCommand::Check { config } => block_on(check::run(&config.read()?))?,
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> anyhow::Result<T> {
    // One thread: the agent is idle nearly all the time, and each thread costs memory on every node. Threads for blocking work
    // end when they are idle. One may remove evicted releases for minutes while another unpacks a release; look-ups of host
    // names and the queries of processes must not wait for them.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(BLOCKING_THREADS).build();
    let runtime = runtime.context("cannot start the runtime")?;
    let result = runtime.block_on(work);
    // All tasks have ended. A removal in progress must not delay the exit; it continues after the next start.
    runtime.shutdown_background();
    Ok(result)
}

async fn run(config: &ConfigFile) -> anyhow::Result<()> {
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
    tracing::info!("stopping");
    service_manager::stopping();
    cancel.cancel();
    agent.await.map_err(Into::into)
}

fn start_logging(level: &str, format: LogFormat) {
    let parse = |filter: &str| filter.parse::<Targets>().ok();
    let filter = std::env::var("RUST_LOG").ok().and_then(|filter| parse(&filter)).or_else(|| parse(level));
    let log = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .with_target(false)
        // It would be reported on standard error, and panic if nobody reads that.
        .log_internal_errors(false);
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        LogFormat::Text => registry.with(log).init(),
        LogFormat::Json => registry.with(log.json().flatten_event(true)).init(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn third_blocking_task_does_not_wait_for_two_long_ones() {
        block_on(async {
            let long = [(); 2].map(|()| {
                let (end, ends) = mpsc::sync_channel::<()>(1);
                (end, tokio::task::spawn_blocking(move || ends.recv()))
            });
            tokio::task::spawn_blocking(|| ()).await.unwrap();
            for (end, task) in long {
                end.send(()).unwrap();
                task.await.unwrap().unwrap();
            }
        })
        .unwrap();
    }
}
