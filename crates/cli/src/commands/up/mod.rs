//! `muster up`: a whole fleet on this machine, from a project directory to validated nodes.

mod line;
mod live;
mod switched_off;
mod transcript;
pub(super) mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use muster_core::names::{EnvName, NodeName, Version};
use muster_core::node::liveness::LivenessTimeouts;
use muster_core::node::status::NodeState;
use muster_core::replica::{ControllerName, ControllerRecord};
use muster_provision::lifecycle::Policy;
use muster_provision::local::{LocalConfig, LocalDriver, Network};
use muster_server::controllers::provision::Provision;
use muster_server::{
    App, Clock, Config, LeasePace, RegisterError, RegistrationResult, Server, node_rows, register_design,
};
use muster_wire::operator::NodeRow;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::args::Globals;
use crate::discovery::{self, Announced, Places};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::logging;
use crate::project::{self, Loaded};
use crate::signals::Signals;
use crate::signing_key::signing_key;
use crate::state_dir::{blobs_in, state_dir};
use crate::store_args::StoreArgs;
use crate::terminal::{Notes, Terminal, age};

use self::live::Live;
use self::switched_off::all_off;
use self::transcript::Transcript;
use self::verdict::{Standing, Verdict, judge};

/// How often ages on the screen are brought up to date. Everything else is shown when it changes.
const FRAME: Duration = Duration::from_millis(200);
/// A fleet counts as stuck when nothing has moved for this long: an agent that is about to run has begun by then.
const SETTLED: Duration = Duration::from_secs(3);

/// Bring up a fleet of local nodes from a project directory
///
/// Starts an embedded store (or uses the etcd that --store names), the server on a loopback address, and one agent for each node of the environment, each in
/// a directory of its own with an address of its own. Shows how the nodes converge, and stays up until Ctrl-C, which
/// ends every agent and everything that they started, and keeps the state: the next `muster up` goes on from there.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  the fleet was validated (--once), or was stopped with Ctrl-C
  1  it could not be brought up, it cannot become validated (--once), or something that ran on a
     node does not end; the reasons are printed

Examples:
  muster up examples/quickstart             bring it up, and look after it
  muster up examples/quickstart --once      bring it up, prove that it works, and take it down again
  muster up examples/quickstart --store etcd://127.0.0.1:2379
                                            keep the state in etcd, for all who have a client of etcd to see
  muster status                             in another terminal: how it stands, and who blocks
  muster trigger-update v2                  in another terminal: move it to another version")]
pub struct Args {
    /// The project: a directory with environments/ and releases/
    dir: PathBuf,
    /// End as soon as all nodes are validated, or cannot become so
    #[arg(long)]
    once: bool,
    /// With --once: give up after this long
    #[arg(long, value_name = "TIME", default_value = "15m", requires = "once")]
    timeout: jiff::SignedDuration,
    /// The version that a new environment begins with; one that has another version is refused [default: the lowest]
    #[arg(long, value_name = "VERSION")]
    first_version: Option<Version>,
    /// The address that the server listens on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The loopback network that the nodes' addresses are taken from
    #[arg(long, value_name = "NETWORK", default_value = "127.77.0.0/24")]
    network: Network,
    #[command(flatten)]
    store: StoreArgs,
    /// The agent's program [default: `muster-agent` beside this one, or on the PATH]
    #[arg(long, value_name = "FILE")]
    agent: Option<PathBuf>,
    /// The key that signs the project's releases [default: keys/release.key in the state directory, made if it is not there]
    #[arg(long, value_name = "FILE")]
    release_key: Option<PathBuf>,
}

pub(super) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let began = terminal.now;
    let epoch = u64::try_from(began.as_second()).unwrap_or(0);
    let first = args.first_version.as_ref();
    // Before anything is made: a project with mistakes leaves nothing behind.
    let loaded = project::load(&args.dir, globals.env.as_ref(), first, epoch, &mut terminal.notes)?;
    let state = state_dir(globals.state.as_deref()).map_err(Failure::failed)?;
    let log = state.join("server.log");
    let logged = logging::to_file(&log).with_context(|| format!("cannot log to {}", log.display()));
    logged.map_err(Failure::failed)?;
    // Taken before anything is started, so that Ctrl-C at any moment ends everything that was.
    let mut signals = Signals::new().context("cannot listen for signals").map_err(Failure::failed)?;

    let mut fleet = tokio::select! {
        started = LocalFleet::start(args, loaded, &state, &mut terminal.notes) => started?,
        // The agents are started last, so there is nobody to end yet.
        () = signals.recv() => return Ok(Exit::Yes),
    };
    let shown = show(args, &mut fleet, &mut signals, terminal, began).await;
    terminal.notes.progress("stopping: ending the agents and what they started …");
    let stopped = fleet.stop().await;
    terminal.notes.end_progress();
    let exit = match (shown, stopped) {
        (Ok(exit), Ok(())) => exit,
        (Ok(_), Err(failure)) | (Err(failure), Ok(())) => return Err(failure),
        (Err(failure), Err(also)) => {
            // What is left running is worth knowing, whatever else went wrong.
            terminal.notes.failure(&also);
            return Err(failure);
        }
    };
    if !args.once {
        terminal.notes.note(format_args!("stopped; the state is kept in {}", state.display()));
    }
    Ok(exit)
}

/// Everything that runs.
struct LocalFleet {
    app: App,
    env: EnvName,
    registered: RegistrationResult,
    /// The nodes whose machines were there still, and are not in the design.
    released: Vec<NodeName>,
    url: String,
    driver: Arc<LocalDriver>,
    machines: JoinSet<()>,
    server: JoinSet<std::io::Result<()>>,
    stop: CancellationToken,
    _announcement: discovery::Announcement,
}

impl LocalFleet {
    async fn start(args: &Args, mut loaded: Loaded, state: &Path, notes: &mut Notes) -> Result<Self, Failure> {
        let env = loaded.registration.env.clone();
        let default = format!("embedded:{}", state.join("store").display());
        let store = args.store.open(Some(&default), notes).await?;
        let clock = Clock::system();
        let config = Config {
            listen: args.listen,
            blobs: args.store.blobs.clone().unwrap_or_else(|| blobs_in(state)),
            patience: LivenessTimeouts::default(),
            lease: LeasePace::default(),
            clock: clock.clone(),
        };
        let stop = CancellationToken::new();
        let server = Server::start(config, store, stop.clone()).await.map_err(Failure::failed)?;
        let url = format!("http://{}", server.address());
        let app = server.app().clone();
        let key = signing_key(args.release_key.as_deref(), state)?;
        // Nothing of the store: lists of other keys reach agents signed, and each proves them for itself.
        let trusted_keys = vec![key.public().clone()];
        loaded.build(&app, key).await?;
        let Loaded { registration, design, by, .. } = loaded;
        let config = LocalConfig {
            state: state.to_owned(),
            network: args.network,
            server: url.clone(),
            trusted_keys,
            agent: args.agent.clone(),
            puppet: None,
        };
        let driver = Arc::new(LocalDriver::open(config).map_err(Failure::failed)?);
        let registered = match register_design(&app, &registration, design, &by).await {
            // Somebody has to take its machines away, and nobody else can.
            Err(error @ RegisterError::Destroying { .. }) => {
                notes.note(format_args!("{error}; until then this process lets its nodes leave"));
                RegistrationResult::default()
            }
            registered => registered.map_err(refused)?,
        };
        // After the registration, which may be refused: what is removed here does not come back.
        let known = nodes_of(&app, &env);
        let released = driver.release_others(&env, &known).await.map_err(Failure::failed)?;
        let places =
            Places::of_process().context("cannot tell where to announce the server").map_err(Failure::failed)?;
        let announced = Announced {
            url: url.clone(),
            pid: i32::try_from(std::process::id()).unwrap_or(i32::MAX),
            env: Some(env.clone()),
            started: clock.now(),
            state: state.to_owned(),
        };
        let announcement = discovery::announce(&places, announced).map_err(Failure::failed)?;
        let (mut serving, mut machines) = (JoinSet::new(), JoinSet::new());
        serving.spawn(server.run());
        let policy = Policy::local(clock.now());
        let provision = Provision::new(app.clone(), env.clone(), driver.clone(), policy);
        machines.spawn(provision.run());
        Ok(Self {
            app,
            env,
            registered,
            released,
            url,
            driver,
            machines,
            server: serving,
            stop,
            _announcement: announcement,
        })
    }

    fn rows(&self) -> Vec<NodeRow> {
        let fleets = self.app.view.fleets();
        // The agents of this fleet are connected to this process; what others do elsewhere, `muster status` shows.
        let elsewhere = node_rows::RemoteActivities::new();
        let agents = self.app.agents(&elsewhere);
        fleets.get(&self.env).map(|fleet| node_rows::all(fleet, agents)).unwrap_or_default()
    }

    /// Who looks after the machines instead of this process, if somebody does.
    fn machines_held_by(&self) -> Option<ControllerRecord> {
        self.app.controller_locks.held_elsewhere(&self.env, ControllerName::Provision)
    }

    /// How the fleet stands, and which nodes have run since a moment.
    fn judge(&self, rows: &[NodeRow], began: Timestamp) -> Verdict {
        let fleets = self.app.view.fleets();
        let Some(fleet) = fleets.get(&self.env) else { return Verdict::Underway };
        let ran = |row: &NodeRow| {
            let observed = fleet.get(&row.node).and_then(|node| node.observed.as_ref());
            observed.and_then(|(observed, _)| observed.last.as_ref()).is_some_and(|last| last.started >= began)
        };
        judge(&rows.iter().map(|row| Standing { row: row.clone(), ran: ran(row) }).collect::<Vec<_>>())
    }

    /// Ends every process of every machine.
    async fn switch_off(&self) -> Result<(), Failure> {
        let machines = self.driver.shutdown().await.context("cannot look for the processes of the nodes");
        all_off(machines.map_err(Failure::failed)?).map_err(Failure::failed)
    }

    fn current_version(&self) -> String {
        let fleets = self.app.view.fleets();
        let current = fleets.get(&self.env).and_then(|fleet| fleet.current_version());
        current.map_or_else(|| "none".to_owned(), |(version, _)| version.to_string())
    }

    /// That not every node was told yet to run the version, if that is so.
    fn open_rollout(&self) -> Option<String> {
        let fleets = self.app.view.fleets();
        let (active, _) = fleets.get(&self.env)?.active_rollout()?;
        let open = !active.completed && !active.at_once;
        open.then(|| format!("rollout {} to {} has not ended: muster rollout status", active.id, active.to))
    }

    /// Switches the machines off first, while the server still takes their last reports.
    async fn stop(mut self) -> Result<(), Failure> {
        self.machines.shutdown().await;
        let off = self.switch_off().await;
        self.app.liveness.switched_off(&self.env).await;
        self.stop.cancel();
        let served =
            self.server.join_next().await.transpose().context("the server panicked").map_err(Failure::failed)?;
        off?;
        served.transpose().context("the server failed").map(drop).map_err(Failure::failed)
    }
}

/// The nodes that the store knows: those of the design, and those that are leaving it.
fn nodes_of(app: &App, env: &EnvName) -> BTreeSet<NodeName> {
    let fleets = app.view.fleets();
    fleets.get(env).into_iter().flat_map(|fleet| fleet.recorded()).map(|(name, ..)| name.clone()).collect()
}

/// What to do about a registration that was not taken.
fn refused(error: RegisterError) -> Failure {
    let hint = match &error {
        RegisterError::HasVersion { asked, .. } => {
            Some(format!("leave --first-version out, and when it is up, run `muster trigger-update {asked}`"))
        }
        RegisterError::ReleaseChanged { .. }
        | RegisterError::Restoring { .. }
        | RegisterError::Destroying { .. }
        | RegisterError::Store(_)
        | RegisterError::Record(_)
        | RegisterError::Contended { .. }
        | RegisterError::StaleView(_)
        | RegisterError::Nodes(_)
        | RegisterError::Design(_) => None,
    };
    let failure = Failure::failed(error);
    hint.into_iter().fold(failure, Failure::hint)
}

/// Shows the fleet until it is told to stop, or until there is nothing more to see.
async fn show(
    args: &Args,
    fleet: &mut LocalFleet,
    signals: &mut Signals,
    terminal: &mut Terminal,
    began: Timestamp,
) -> Result<Exit, Failure> {
    let clock = fleet.app.clock.clone();
    let (mut steps, mut connections) = (fleet.app.view.subscribe(), fleet.app.hub.subscribe());
    let nodes = staying(&fleet.rows()).count();
    let version = fleet.current_version();
    terminal.out.line(format_args!("environment {}: {nodes} nodes, version {version}", fleet.env));
    terminal.out.line(format_args!("API: {}", fleet.url));
    for node in &fleet.registered.nodes.removed {
        terminal.out.line(format_args!("{node} is no longer in the design, and was taken out"));
    }
    for node in &fleet.registered.nodes.leaving {
        terminal.out.line(format_args!("{node} is no longer in the design, and leaves"));
    }
    for node in &fleet.released {
        terminal.out.line(format_args!("the machine of {node} was released: all that ran on it was ended and removed"));
    }
    terminal.out.flush();

    let mut live = terminal.notes.shows_progress().then(Live::new);
    let mut transcript = Transcript::new(began);
    let mut frames = interval(FRAME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let deadline = Duration::try_from(args.timeout).map_or_else(|_| Instant::now(), |timeout| Instant::now() + timeout);
    let mut stuck_since: Option<Instant> = None;
    let mut announced = false;
    let mut held_by: Option<ControllerRecord> = None;
    loop {
        steps.mark_unchanged();
        let holder = fleet.machines_held_by();
        if holder != held_by {
            tell_holder(holder.as_ref(), clock.now(), terminal);
            held_by = holder;
        }
        connections.mark_unchanged();
        let rows = fleet.rows();
        match &mut live {
            Some(live) => live.show(&rows, clock.now()),
            None => {
                transcript.changes(&rows, clock.now()).into_iter().for_each(|line| terminal.out.line(line));
                terminal.out.flush();
            }
        }
        let verdict = fleet.judge(&rows, began);
        if verdict != Verdict::Stuck {
            stuck_since = None;
        }
        let decided = match verdict {
            // Who asks for one state and no more gets all of it: what leaves is gone, too.
            Verdict::Validated => !args.once || rows.len() == staying(&rows).count() || Instant::now() >= deadline,
            Verdict::Stuck => stuck_since.get_or_insert_with(Instant::now).elapsed() >= SETTLED,
            Verdict::Underway => args.once && Instant::now() >= deadline,
        };
        if decided && !announced {
            announced = true;
            if let Some(live) = live.take() {
                live.end();
            }
            transcript.skip(&rows);
            let exit = conclude(verdict, &rows, fleet, terminal, clock.now());
            if args.once {
                return Ok(exit);
            }
            terminal.out.line("Ctrl-C stops it and keeps the state.");
            terminal.out.flush();
        }
        tokio::select! {
            () = signals.recv() => return Ok(Exit::Yes),
            _ = steps.changed() => {}
            _ = connections.changed() => {}
            // Ages on the screen, and the moment at which a fleet counts as stuck or late.
            _ = frames.tick(), if live.is_some() || (!announced && (args.once || stuck_since.is_some())) => {}
            ended = fleet.server.join_next() => {
                let why = format!("{ended:?}");
                return Err(Failure::failed(anyhow::anyhow!("the server ended: {why}")));
            }
        }
    }
}

/// The nodes that the fleet is judged by.
fn staying(rows: &[NodeRow]) -> impl Iterator<Item = &NodeRow> {
    rows.iter().filter(|row| row.state != NodeState::Leaving)
}

/// What they run: one version, unless a rollout is on its way.
fn versions(rows: &[NodeRow]) -> String {
    let mut nodes: BTreeMap<&Version, usize> = BTreeMap::new();
    staying(rows).filter_map(|row| row.running.as_ref()).for_each(|version| *nodes.entry(version).or_default() += 1);
    match nodes.len() {
        1 => nodes.into_keys().map(Version::to_string).collect(),
        _ => nodes.iter().map(|(version, nodes)| format!("{version} ({nodes})")).collect::<Vec<_>>().join(" and "),
    }
}

/// Says who looks after the machines: nothing happens here until they are gone.
fn tell_holder(holder: Option<&ControllerRecord>, now: Timestamp, terminal: &mut Terminal) {
    match holder {
        Some(ControllerRecord { replica, since }) => terminal.notes.note(format_args!(
            "the machines of this environment are looked after by replica {replica}, for {}; this process takes over \
             when it is gone",
            age(*since, now)
        )),
        None => terminal.notes.note("nobody else looks after the machines any more: this process takes over"),
    }
}

/// Prints how it ended: the table, and what is in the way.
fn conclude(verdict: Verdict, rows: &[NodeRow], fleet: &LocalFleet, terminal: &mut Terminal, now: Timestamp) -> Exit {
    terminal.out.gap();
    terminal.out.table(super::rows::table(rows, now));
    terminal.out.gap();
    let exit = match verdict {
        Verdict::Validated => {
            let versions = versions(rows);
            match staying(rows).count() {
                0 => terminal.out.line("there are no nodes"),
                1 => terminal.out.line(format_args!("the node is validated at {versions}")),
                nodes => terminal.out.line(format_args!("all {nodes} nodes validated at {versions}")),
            }
            if let Some(open) = fleet.open_rollout() {
                terminal.out.line(open);
            }
            Exit::Yes
        }
        Verdict::Stuck => {
            terminal.out.line("the fleet cannot become validated by itself:");
            Exit::No
        }
        Verdict::Underway => {
            terminal.out.line("the fleet did not become validated in time:");
            Exit::No
        }
    };
    if exit == Exit::No {
        for (row, why) in rows.iter().filter_map(|row| Some((row, row.reason.as_ref()?))) {
            terminal.out.line(format_args!("  {}: {why}", row.node));
        }
    }
    terminal.out.line(format_args!("API: {}", fleet.url));
    terminal.out.flush();
    exit
}
