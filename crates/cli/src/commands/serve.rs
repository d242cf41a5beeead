//! `muster serve`: the server alone, for agents that somebody else starts.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use muster_core::node::liveness::LivenessTimeouts;
use muster_server::{Clock, Config, LeasePace, Server, register_design};
use tokio_util::sync::CancellationToken;

use crate::args::Globals;
use crate::discovery::{self, Announced, Places};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::logging;
use crate::open_files;
use crate::project::{self, Loaded};
use crate::signals::Signals;
use crate::signing_key::signing_key;
use crate::state_dir::{blobs_in, state_dir};
use crate::store_args::StoreArgs;
use crate::terminal::Terminal;

/// Run the server
///
/// Serves the environments that are in its store, until it is told to stop (Ctrl-C or SIGTERM). Agents and operators
/// have no identities yet, so it listens on loopback addresses only.
///
/// On etcd, any number of servers may run side by side, with a directory of blobs that all of them see. Give the agents
/// the addresses of several.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  it was told to stop
  1  it could not start, or failed

Examples:
  muster serve --store embedded:.muster/store
  muster serve --store embedded:/var/lib/muster/store --project examples/quickstart
  muster serve --store etcd://10.0.0.1:2379,10.0.0.2:2379 --blobs /srv/muster/blobs
  muster serve --store etcd://etcd1:2379 --store-ca ca.pem --store-cert me.pem --store-key me.key \\
               --store-user muster --store-password-file /etc/muster/password --blobs /srv/muster/blobs")]
pub struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// The address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7300")]
    listen: SocketAddr,
    /// Bring the environment and the releases of a project into the store first
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
    /// The key that signs the project's releases [default: keys/release.key in the state directory, made if it is not there]
    #[arg(long, value_name = "FILE", requires = "project")]
    release_key: Option<PathBuf>,
}

pub(super) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    logging::to_stderr();
    open_files::allow_all();
    let state = state_dir(globals.state.as_deref()).map_err(Failure::failed)?;
    let mut signals = Signals::new().context("cannot listen for signals").map_err(Failure::failed)?;
    let loaded = match &args.project {
        None => None,
        Some(dir) => {
            let epoch = u64::try_from(terminal.now.as_second()).unwrap_or(0);
            Some(project::load(dir, globals.env.as_ref(), None, epoch, &mut terminal.notes)?)
        }
    };
    // A cluster that is away keeps whoever opens it waiting for a while.
    let store = tokio::select! {
        opened = args.store.open(None, &mut terminal.notes) => opened?,
        () = signals.recv() => return Ok(Exit::Yes),
    };
    let clock = Clock::system();
    let blobs = args.store.blobs.clone().unwrap_or_else(|| blobs_in(&state));
    let config = Config {
        listen: args.listen,
        blobs,
        patience: LivenessTimeouts::default(),
        lease: LeasePace::default(),
        clock: clock.clone(),
    };
    let stop = CancellationToken::new();
    let server = tokio::select! {
        started = Server::start(config, store, stop.clone()) => started.map_err(Failure::failed)?,
        // One that went away just now may do so for ever.
        () = signals.recv() => return Ok(Exit::Yes),
    };
    let url = format!("http://{}", server.address());
    let env = loaded.as_ref().map(|loaded| loaded.registration.env.clone());
    if let Some(mut loaded) = loaded {
        let key = signing_key(args.release_key.as_deref(), &state)?;
        loaded.build(server.app(), key).await?;
        let Loaded { registration, design, by, .. } = loaded;
        register_design(server.app(), &registration, design, &by).await.map_err(Failure::failed)?;
    }
    let places = Places::of_process().context("cannot tell where to announce the server").map_err(Failure::failed)?;
    let announced = Announced {
        url: url.clone(),
        pid: i32::try_from(std::process::id()).unwrap_or(i32::MAX),
        env,
        started: clock.now(),
        state,
    };
    let _announcement = discovery::announce(&places, announced).map_err(Failure::failed)?;
    terminal.out.line(format_args!("API: {url}"));
    terminal.out.flush();

    let mut serving = std::pin::pin!(server.run());
    tokio::select! {
        served = &mut serving => return served.map(|()| Exit::Yes).context("the server failed").map_err(Failure::failed),
        () = signals.recv() => stop.cancel(),
    }
    let stopped = tokio::select! {
        stopped = serving => stopped,
        // Asked twice, it waits for nobody.
        () = signals.recv() => Ok(()),
    };
    stopped.map(|()| Exit::Yes).context("the server failed").map_err(Failure::failed)
}
