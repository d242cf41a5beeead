//! `muster serve`: runs a server without agents.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use jiff::SignedDuration;
use muster_core::names::HostName;
use muster_core::node::liveness::LivenessTimeouts;
use muster_identity::authority_files::AuthorityFiles;
use muster_server::oidc::OidcConfig;
use muster_server::{
    Clock, ConnectionLimits, LeasePace, Server, ServerConfig, TlsConfig, read_authority, register_design,
};
use muster_store::Store;
use tokio_util::sync::CancellationToken;

use crate::args::store::StoreArgs;
use crate::args::{Globals, duration_arg};
use crate::connect::{Announcement, SearchPaths, announce};
use crate::failure::{Exit, Failure};
use crate::output::Terminal;
use crate::process::{
    AUTHORITY, LogFormat, SECRETS_KEY, ServerAccess, Signals, log_to_stderr, raise_open_file_limit, state_dir, store_in,
};
use crate::project::{self, LoadedProject, signing_key};
use crate::service_manager;

/// Run the server
///
/// Serves the environments of its store until Ctrl-C or SIGTERM. Listens on the Unix socket `server.sock` in its state
/// directory, for its own user and root, and on a TCP port, for clients with its token and for nodes with a certificate.
/// Connections from other machines need TLS. The certificate authority is made at the first start; machines join with a token
/// of `muster token create`.
///
/// With etcd any number of servers can run as replicas; they need a shared directory of blobs, the same --token-file, and
/// copies of the same --ca directory and --secrets-key file. Agents learn the URLs of all
/// of them, and use another one if theirs does not answer.
///
/// A configuration file (TOML) has the options of this command and `state` and `token_file`, with `_` in place of `-`: listen =
/// "0.0.0.0:7300". An option that can be repeated is a list. Options of the command line and environment variables precede.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  stopped by a signal
  1  the server could not start, or failed

Examples:
  muster serve                                 the embedded store in its state directory
  muster serve --listen 0.0.0.0:7300 --name muster.example.org
  muster serve --config /etc/muster/server.toml
  muster serve --store embedded:/var/lib/muster/store --project examples/quickstart
  muster serve --store etcd://10.0.0.1:2379,10.0.0.2:2379 --blobs /srv/muster/blobs \\
               --token-file /etc/muster/token
  muster serve --store etcd://etcd1:2379 --store-ca ca.pem --store-cert me.pem --store-key me.key \\
               --store-user muster --store-password-file /etc/muster/password --blobs /srv/muster/blobs")]
pub struct Args {
    /// Configuration file with options of this command
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
    /// Address to listen on; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7300")]
    listen: SocketAddr,
    /// DNS name or address of this server in URLs of clients; repeat it for several [default: the host name]
    #[arg(long, value_name = "NAME", value_parser = server_name_arg)]
    name: Vec<String>,
    /// Directory of the certificate authority: `ca.crt` and `ca.key` [default: `ca` in the state directory, made if missing]
    #[arg(long, value_name = "DIR")]
    ca: Option<PathBuf>,
    /// Keys that seal secrets; every server needs the same file [default: secrets.key in the state directory, made if missing]
    #[arg(long, value_name = "FILE")]
    secrets_key: Option<PathBuf>,
    /// URL of this server for agents and other servers [default: https://, the first --name, and the port of --listen]
    #[arg(long, value_name = "URL", value_parser = advertised_arg)]
    advertise: Option<Advertised>,
    /// Replace the authority of the servers by that of this one: all machines have to join again
    #[arg(long)]
    replace_authority: bool,
    /// Time after its end in which a node can renew its certificate
    #[arg(long, value_name = "TIME", value_parser = duration_arg, default_value = "7d")]
    renewal_grace: SignedDuration,
    /// Issuer of the OIDC provider at which people log in with `muster login --oidc`
    #[arg(long, value_name = "URL", requires = "oidc_client_id")]
    oidc_issuer: Option<String>,
    /// Name of this installation at the OIDC provider, a public client that may use the device flow
    #[arg(long, value_name = "ID", requires = "oidc_issuer")]
    oidc_client_id: Option<String>,
    /// Root certificates of the OIDC provider, besides those of the system
    #[arg(long, value_name = "FILE", requires = "oidc_issuer")]
    oidc_ca_file: Option<PathBuf>,
    /// Most open connections; TCP has three quarters [default: by the limit of open files, at most 40960]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(64..=1_000_000))]
    max_connections: Option<u32>,
    /// Most connections of one address that have not authenticated [default: a quarter of those on TCP]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_anonymous_connections: Option<u32>,
    /// Time for the head of a request, also on a kept connection
    #[arg(long, value_name = "TIME", value_parser = duration_arg, default_value = "30s")]
    header_timeout: SignedDuration,
    /// Time in which a client has to send a part of a body, or to read a part of a response
    #[arg(long, value_name = "TIME", value_parser = duration_arg, default_value = "60s")]
    stall_timeout: SignedDuration,
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

/// Names of the server, for its certificate and its URLs: those of the command line, or the host name and the address. Clients
/// of this machine may use the loopback interface.
fn names(args: &Args) -> Vec<String> {
    let mut names = args.name.clone();
    names.extend(args.advertise.iter().map(|advertised| advertised.host.clone()));
    if names.is_empty() {
        names.push(rustix::system::uname().nodename().to_string_lossy().to_lowercase());
    }
    let address = args.listen.ip();
    names.extend((!address.is_unspecified()).then(|| address.to_string()));
    names.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
    names.dedup();
    names
}

fn limits(args: &Args) -> ConnectionLimits {
    let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    let defaults = args
        .max_connections
        .map_or_else(ConnectionLimits::default, |most| ConnectionLimits::of_connections(count(most)));
    let (idle, stall) = (args.header_timeout.unsigned_abs(), args.stall_timeout.unsigned_abs());
    let anonymous_of_address = args.max_anonymous_connections.map_or(defaults.anonymous_of_address, count);
    ConnectionLimits { idle, stall, anonymous: idle + stall, anonymous_of_address, ..defaults }
}

fn oidc(args: &Args) -> Option<OidcConfig> {
    let (issuer, client_id) = (args.oidc_issuer.clone()?, args.oidc_client_id.clone()?);
    Some(OidcConfig { issuer, client_id, ca_file: args.oidc_ca_file.clone() })
}

/// URL at which agents and other servers reach a server.
#[derive(Clone, Debug)]
struct Advertised {
    url: String,
    host: String,
}

fn advertised_arg(text: &str) -> Result<Advertised, String> {
    let expected = || "expected https://HOST:PORT".to_owned();
    let url = text.trim_end_matches('/').to_lowercase();
    let authority = url.strip_prefix("https://").ok_or_else(expected)?;
    let (host, port) = authority.rsplit_once(':').ok_or_else(expected)?;
    port.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(expected)?;
    let host = server_name_arg(host.trim_start_matches('[').trim_end_matches(']'))?;
    Ok(Advertised { url, host })
}

/// Opens the authority of this server. It is made at the first start on a new store only: several servers of a store have one.
async fn open_authority(
    args: &Args,
    store: &dyn Store,
    state: &Path,
    clock: &Clock,
) -> Result<AuthorityFiles, Failure> {
    let directory = args.ca.clone().unwrap_or_else(|| state.join(AUTHORITY));
    let known = if directory.exists() || args.replace_authority {
        None
    } else {
        read_authority(store).await.map_err(Failure::failed)?
    };
    if let Some(record) = known {
        let directory = directory.display();
        return Err(Failure::failed(anyhow::anyhow!(
            "the servers of this store have the certificate authority {}, and {directory} does not exist",
            record.issuing().pin
        ))
        .hint(format!(
            "copy the directory of another server to {directory}; only if it is lost, start with --replace-authority: all machines \
             have to join again"
        )));
    }
    let files = match &args.ca {
        Some(directory) => AuthorityFiles::open(directory, clock.now()),
        None => AuthorityFiles::open_or_create(&directory, clock.now()),
    };
    files.map_err(Failure::failed)
}

/// Parses a name that a certificate can have.
fn server_name_arg(text: &str) -> Result<String, String> {
    let is_legal = text.parse::<IpAddr>().is_ok() || HostName::new(text.to_lowercase()).is_ok();
    if is_legal { Ok(text.to_lowercase()) } else { Err("expected a DNS name or an IP address".to_owned()) }
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
    let files = tokio::select! {
        opened = open_authority(args, store.as_ref(), &state, &clock) => opened?,
        () = signals.recv() => return Ok(Exit::Yes),
    };
    let tls = TlsConfig {
        files: Arc::new(files),
        names: names(args),
        advertise: args.advertise.as_ref().map(|advertised| advertised.url.clone()),
        grace: args.renewal_grace,
        replace_authority: args.replace_authority,
    };
    let blobs = args.store.blob_place(&state)?;
    let config = ServerConfig {
        listen: args.listen,
        tls: Some(tls),
        socket: access.socket.clone(),
        token: access.token.clone(),
        limits: limits(args),
        blobs,
        secrets_key: args.secrets_key.clone().unwrap_or_else(|| state.join(SECRETS_KEY)),
        liveness_timeouts: LivenessTimeouts::default(),
        lease: LeasePace::default(),
        gate_commands: args.gate_commands.clone(),
        oidc: oidc(args),
        clock: clock.clone(),
    };
    let stop = CancellationToken::new();
    let server = tokio::select! {
        started = Server::start(config, store, stop.clone()) => started.map_err(Failure::failed)?,
        // The cluster may have become unreachable since.
        () = signals.recv() => return Ok(Exit::Yes),
    };
    let url = server.url().to_owned();
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
    if !args.listen.ip().is_loopback() {
        let authority = server.app().view.server_records().authority().map(|(record, _)| record.issuing().pin.clone());
        terminal.out.line(format_args!("CA pin: {}", authority.unwrap_or_default()));
        terminal.out.line(format_args!(
            "next: muster token create --node NODE, then on the machine: muster-agent join {url} TOKEN"
        ));
    }
    terminal.out.flush();

    let revision = Arc::clone(&server.app().latest_revision);
    let mut serving = std::pin::pin!(server.run());
    service_manager::ready();
    tokio::select! {
        served = &mut serving => return served.map(|()| Exit::Yes).context("the server failed").map_err(Failure::failed),
        () = service_manager::keep_watchdog(&revision) => {}
        () = signals.recv() => {}
    }
    service_manager::stopping();
    stop.cancel();
    let stopped = tokio::select! {
        stopped = serving => stopped,
        // A second signal does not wait for open connections.
        () = signals.recv() => Ok(()),
    };
    stopped.map(|()| Exit::Yes).context("the server failed").map_err(Failure::failed)
}
