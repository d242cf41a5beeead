//! `muster serve`: runs a server without agents.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use muster_core::node::liveness::LivenessTimeouts;
use muster_server::{Clock, ConnectionLimits, LeasePace, Server, ServerConfig, register_design};
use tokio_util::sync::CancellationToken;

use crate::args::Globals;
use crate::args::store::StoreArgs;
use crate::connect::{Announcement, SearchPaths, announce};
use crate::failure::{Exit, Failure};
use crate::output::Terminal;
use crate::process::{
    LogFormat, ServerAccess, Signals, blobs_in, log_to_stderr, raise_open_file_limit, state_dir, store_in,
};
use crate::project::{self, LoadedProject, signing_key};

/// Run the server
///
/// Serves the environments of its store until Ctrl-C or SIGTERM. Listens on the Unix socket `server.sock` in its state
/// directory, for its own user and root, and on a TCP port of a loopback address, for clients with its token. Connections are
/// not encrypted yet, for which reason it listens on loopback addresses only.
///
/// With etcd any number of servers can run as replicas; they need a shared directory of blobs and the same --token-file.
/// Configure agents with the addresses of several replicas.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  stopped by a signal
  1  the server could not start, or failed

Examples:
  muster serve                                 the embedded store in its state directory
  muster serve --store embedded:/var/lib/muster/store --project examples/quickstart
  muster serve --store etcd://10.0.0.1:2379,10.0.0.2:2379 --blobs /srv/muster/blobs \\
               --token-file /etc/muster/token
  muster serve --store etcd://etcd1:2379 --store-ca ca.pem --store-cert me.pem --store-key me.key \\
               --store-user muster --store-password-file /etc/muster/password --blobs /srv/muster/blobs")]
pub struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// Address to listen on; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7300")]
    listen: SocketAddr,
    /// Directory of the programs that gates of rollouts may run [default: gates run no commands]
    #[arg(long, value_name = "DIR")]
    gate_commands: Option<PathBuf>,
    /// Import the environment and the releases of a project first
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
    /// Key that signs the releases of the project [default: keys/release.key in the state directory, generated if missing]
    #[arg(long, value_name = "FILE", requires = "project")]
    release_key: Option<PathBuf>,
    /// Do not parse manifests, templates and YAML files of the project's releases
    #[arg(long, requires = "project")]
    no_validate: bool,
    /// Format of the log on standard error
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text", env = "MUSTER_LOG_FORMAT")]
    log_format: LogFormat,
}

pub(super) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    log_to_stderr(args.log_format);
    raise_open_file_limit();
    let state = state_dir(globals.state.as_deref()).map_err(Failure::failed)?;
    let mut signals = Signals::new().context("cannot listen for signals").map_err(Failure::failed)?;
    let project = match &args.project {
        None => None,
        Some(dir) => {
            let epoch = u64::try_from(terminal.now.as_second()).unwrap_or(0);
            Some(project::load(dir, globals.env.as_ref(), None, epoch, !args.no_validate, &mut terminal.notes)?)
        }
    };
    // Opening an unreachable cluster takes a while.
    let default = store_in(&state);
    let store = tokio::select! {
        opened = args.store.open(Some(&default), &mut terminal.notes) => opened?,
        () = signals.recv() => return Ok(Exit::Yes),
    };
    let access = ServerAccess::open(&state, globals.token_file.as_deref()).map_err(Failure::failed)?;
    let clock = Clock::system();
    let blobs = args.store.blobs.clone().unwrap_or_else(|| blobs_in(&state));
    let config = ServerConfig {
        listen: args.listen,
        socket: access.socket.clone(),
        token: access.token.clone(),
        limits: ConnectionLimits::default(),
        blobs,
        liveness_timeouts: LivenessTimeouts::default(),
        lease: LeasePace::default(),
        gate_commands: args.gate_commands.clone(),
        clock: clock.clone(),
    };
    let stop = CancellationToken::new();
    let server = tokio::select! {
        started = Server::start(config, store, stop.clone()) => started.map_err(Failure::failed)?,
        // The cluster may have become unreachable since.
        () = signals.recv() => return Ok(Exit::Yes),
    };
    let url = format!("http://{}", server.address());
    let env = project.as_ref().map(|project| project.registration.env.clone());
    if let Some(mut project) = project {
        let key = signing_key(args.release_key.as_deref(), &state)?;
        project.build(server.app(), key).await?;
        let LoadedProject { registration, design, by, .. } = project;
        register_design(server.app(), &registration, design, true, &by).await.map_err(Failure::failed)?;
    }
    let paths = SearchPaths::from_process().context("cannot announce the server").map_err(Failure::failed)?;
    let announcement = Announcement {
        url: url.clone(),
        pid: i32::try_from(std::process::id()).unwrap_or(i32::MAX),
        env,
        started: clock.now(),
        state,
        socket: server.socket().map(Path::to_owned),
        token_file: Some(access.token_file),
    };
    let _announcement = announce(&paths, announcement).map_err(Failure::failed)?;
    terminal.out.line(format_args!("API: {url}"));
    terminal.out.flush();

    let mut serving = std::pin::pin!(server.run());
    tokio::select! {
        served = &mut serving => return served.map(|()| Exit::Yes).context("the server failed").map_err(Failure::failed),
        () = signals.recv() => stop.cancel(),
    }
    let stopped = tokio::select! {
        stopped = serving => stopped,
        // A second signal does not wait for open connections.
        () = signals.recv() => Ok(()),
    };
    stopped.map(|()| Exit::Yes).context("the server failed").map_err(Failure::failed)
}
