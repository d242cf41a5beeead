//! `muster up`: starts a local fleet from a project directory and shows how its nodes converge.

mod fleet;
mod fresh;
mod take_over;
mod view;
mod watch;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use muster_core::names::Version;
use muster_core::node::status::NodeState;
use muster_core::replica::ControllerRecord;
use muster_provision::local::LoopbackNetwork;
use muster_wire::operator::NodeRow;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::args::Globals;
use crate::args::store::StoreArgs;
use crate::connect::STATE_DIR;
use crate::failure::{Exit, Failure};
use crate::output::{LiveLines, Out, Terminal, age, count, node_table};
use crate::process::{Signals, log_to_file, state_dir};
use crate::project;

use self::fleet::LocalFleet;
pub(super) use self::fleet::check_all_off;
use self::fresh::forget_state;
use self::take_over::{ProjectFollower, TakeOverError};
pub(super) use self::view::FleetTranscript;
use self::watch::ProjectWatch;
use crate::commands::fleet_progress::FleetProgress;

/// Time between two updates of ages on the screen. All other changes are shown at once.
const FRAME: Duration = Duration::from_millis(200);
/// Time without progress after which a fleet counts as stuck: an agent that is about to run has started by then.
const SETTLED: Duration = Duration::from_secs(3);

/// Start a local fleet from a project directory
///
/// Starts an embedded store (or uses the etcd of --store), the server on a Unix socket and a loopback address, and one agent per
/// node of the environment, each with a directory and an address of its own. Shows how the nodes converge, and runs until Ctrl-C,
/// which stops every agent and its processes. The state is kept: the next `muster up` continues from there.
///
/// With --watch it follows the files of the project. A save is checked and taken over: releases that are new or have changed are
/// built and signed, and all nodes update to the last of them at once; a changed design is applied. A registered release never
/// changes, so the version of saved content is a development version such as v1-dev.1a2b3c4d, with the digest of the content. A
/// save with errors prints them and changes nothing. A save supersedes a rollout in progress, unless an operator has paused that
/// rollout: then the update does not start.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   all nodes were validated (--once), or the fleet was stopped with Ctrl-C
  1   the fleet could not start, its nodes cannot become validated (--once), or processes of a \
node do not end; the reasons are printed
  64  the directory is not a project

Examples:
  muster up                                 start the fleet of the project in this directory
  muster up examples/quickstart             start the fleet and keep it running
  muster up examples/quickstart --once      start the fleet, validate all nodes, and stop it
  muster up shop --watch                    take changes over whenever a file is saved
  muster up shop --fresh                    forget the state of the last `muster up`, except for keys
  muster up examples/quickstart --store etcd://127.0.0.1:2379
                                            keep the state in etcd
  muster status                             in another terminal: the state of all nodes
  muster trigger-update v2                  in another terminal: update to another version")]
pub struct Args {
    /// Project: a directory with environments/ and releases/
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// Exit when all nodes are validated, or cannot become validated
    #[arg(long)]
    once: bool,
    /// With --once: maximum time to wait
    #[arg(long, value_name = "TIME", default_value = "15m", requires = "once")]
    timeout: jiff::SignedDuration,
    /// Take changes of the project over whenever files are saved
    #[arg(long, conflicts_with = "once")]
    watch: bool,
    /// Remove the state of the last `muster up` first, except for keys; asks for confirmation
    #[arg(long, conflicts_with = "store")]
    fresh: bool,
    /// With --fresh: remove the state without asking
    #[arg(short, long, requires = "fresh")]
    yes: bool,
    /// First version of a new environment; refused for an environment with another version [default: the lowest]
    #[arg(long, value_name = "VERSION")]
    first_version: Option<Version>,
    /// Address that the server listens on; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Loopback network for the addresses of the nodes [default: that of the state directory; for a new one the first free of
    /// 127.77.0.0/24, 127.77.1.0/24, …]
    #[arg(long, value_name = "NETWORK")]
    network: Option<LoopbackNetwork>,
    #[command(flatten)]
    store: StoreArgs,
    /// Directory of the programs that gates of rollouts may run [default: gates run no commands]
    #[arg(long, value_name = "DIR")]
    gate_commands: Option<PathBuf>,
    /// Agent binary [default: `muster-agent` next to this binary, or on the PATH]
    #[arg(long, value_name = "FILE")]
    agent: Option<PathBuf>,
    /// Key that signs the releases of the project [default: keys/release.key in the state directory, generated if missing]
    #[arg(long, value_name = "FILE")]
    release_key: Option<PathBuf>,
    /// Do not parse manifests, templates and YAML files of the releases
    #[arg(long)]
    no_validate: bool,
}

pub(super) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let began = terminal.now;
    let epoch = u64::try_from(began.as_second()).unwrap_or(0);
    let first = args.first_version.as_ref();
    let chosen = std::path::absolute(globals.state.as_deref().unwrap_or(Path::new(STATE_DIR)));
    let chosen = chosen.context("cannot determine the state directory").map_err(Failure::failed)?;
    // Before the project is read: no change is missed.
    let watch = args.watch.then(|| ProjectWatch::open(&args.dir, &chosen));
    // First: an invalid project leaves no files behind.
    let project = project::load(&args.dir, globals.env.as_ref(), first, epoch, !args.no_validate, &mut terminal.notes)?;
    let mut follower = match watch {
        Some(watch) => Some(ProjectFollower::new(watch.map_err(Failure::failed)?, &project)),
        None => None,
    };
    if args.fresh {
        forget_state(&chosen, args.yes, &mut terminal.notes).await?;
    }
    let state = state_dir(globals.state.as_deref()).map_err(Failure::failed)?;
    let log = state.join("server.log");
    let logged = log_to_file(&log).with_context(|| format!("cannot log to {}", log.display()));
    logged.map_err(Failure::failed)?;
    // Before anything is started: Ctrl-C at any time stops everything.
    let mut signals = Signals::new().context("cannot listen for signals").map_err(Failure::failed)?;

    let mut fleet = tokio::select! {
        started = LocalFleet::start(args, project, &state, globals.token_file.as_deref(), &mut terminal.notes) => started?,
        // The agents are started last: there is nothing to stop yet.
        () = signals.recv() => return Ok(Exit::Yes),
    };
    if let Some(follower) = &mut follower {
        follower.compare(&fleet);
    }
    let shown = show(args, &state, &mut fleet, &mut follower, &mut signals, terminal, began).await;
    terminal.notes.progress("stopping the agents and their processes …");
    let stopped = fleet.stop().await;
    terminal.notes.end_progress();
    let exit = match (shown, stopped) {
        (Ok(exit), Ok(())) => exit,
        (Ok(_), Err(failure)) | (Err(failure), Ok(())) => return Err(failure),
        (Err(failure), Err(also)) => {
            // Processes that are left running are always reported.
            terminal.notes.failure(&also);
            return Err(failure);
        }
    };
    if !args.once {
        terminal.notes.note(format_args!("stopped; the state is kept in {}", state.display()));
    }
    Ok(exit)
}

/// Shows the fleet until a signal arrives, or with `--once` until the result is final.
async fn show(
    args: &Args,
    state: &Path,
    fleet: &mut LocalFleet,
    follower: &mut Option<ProjectFollower>,
    signals: &mut Signals,
    terminal: &mut Terminal,
    began: Timestamp,
) -> Result<Exit, Failure> {
    let clock = fleet.app.clock.clone();
    let (mut steps, mut connections) = (fleet.app.view.subscribe(), fleet.app.agents.hub.subscribe());
    show_start(fleet, &mut terminal.out);

    let mut view = FleetView::new(terminal, began);
    let mut timer = ProgressTimer::new(args);
    let mut frames = interval(FRAME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (mut announced, mut is_first, mut is_broken) = (false, true, false);
    let mut held_by: Option<ControllerRecord> = None;
    loop {
        steps.mark_unchanged();
        connections.mark_unchanged();
        let holder = fleet.machines_held_by();
        if holder != held_by {
            note_holder(holder.as_ref(), clock.now(), terminal);
            held_by = holder;
        }
        let rows = fleet.rows();
        view.show(&rows, clock.now(), &mut terminal.out);
        let progress = fleet.progress(&rows, began);
        if timer.is_final(progress, &rows) && !announced {
            announced = true;
            view.finish(&rows);
            if !std::mem::take(&mut is_first) {
                conclude(progress, &rows, fleet, terminal);
                continue;
            }
            terminal.out.gap();
            terminal.out.table(node_table(&rows, clock.now()));
            terminal.out.gap();
            let exit = conclude(progress, &rows, fleet, terminal);
            terminal.out.line(format_args!("API: {}", fleet.url));
            terminal.out.flush();
            if args.once {
                return Ok(exit);
            }
            terminal.out.line("Ctrl-C stops the fleet and keeps its state.");
            if follower.is_some() {
                terminal.out.line(format_args!("Saved changes in {} are taken over.", args.dir.display()));
            }
            terminal.out.flush();
        }
        tokio::select! {
            () = signals.recv() => return Ok(Exit::Yes),
            _ = steps.changed() => {}
            _ = connections.changed() => {}
            // For ages on the screen, and for the times at which a fleet counts as stuck or late.
            _ = frames.tick(), if view.is_live() || (!announced && timer.needs_ticks()) => {}
            saved = next_save(follower.as_mut()) => {
                view.finish(&rows);
                terminal.out.flush();
                let follower = match saved {
                    Ok(follower) => follower,
                    Err(failure) => {
                        terminal.notes.failure(&failure);
                        terminal.notes.warning("saved changes are no longer taken over; the fleet continues");
                        *follower = None;
                        continue;
                    }
                };
                let taken_over = follower.take_over(args, state, fleet, &mut terminal.notes).await;
                let seconds = clock.now().duration_since(began).as_secs_f64();
                match taken_over {
                    // After an error the operator expects an answer.
                    Ok(None) if std::mem::take(&mut is_broken) => {
                        terminal.out.line(format_args!("{seconds:6.1}s  saved: no change"));
                    }
                    Ok(None) => {}
                    Ok(Some(text)) => {
                        is_broken = false;
                        terminal.out.line(format_args!("{seconds:6.1}s  saved: {text}"));
                        (announced, timer) = (false, ProgressTimer::new(args));
                    }
                    Err(TakeOverError { failure, effect }) => {
                        is_broken = true;
                        terminal.notes.failure(&failure);
                        terminal.notes.note(effect);
                    }
                }
            }
            ended = fleet.server.join_next() => {
                let why = format!("{ended:?}");
                return Err(Failure::failed(anyhow::anyhow!("the server stopped: {why}")));
            }
        }
    }
}

/// Waits for a save, for ever without `--watch`.
async fn next_save(follower: Option<&mut ProjectFollower>) -> Result<&mut ProjectFollower, Failure> {
    match follower {
        Some(follower) => follower.saved().await.map(|()| follower),
        None => std::future::pending().await,
    }
}

/// Prints the environment, its address, and the nodes that were removed.
fn show_start(fleet: &LocalFleet, out: &mut Out) {
    let nodes = count(staying(&fleet.rows()).count(), "node");
    out.line(format_args!("environment {}: {nodes}, version {}", fleet.env, fleet.current_version()));
    out.line(format_args!("API: {}", fleet.url));
    for node in &fleet.registered.nodes.removed {
        out.line(format_args!("{node} is no longer in the design, and was removed"));
    }
    for node in &fleet.registered.nodes.leaving {
        out.line(format_args!("{node} is no longer in the design, and leaves"));
    }
    for node in &fleet.released {
        out.line(format_args!("the machine of {node} was released: its processes were ended and its files removed"));
    }
    out.flush();
}

/// The nodes on the screen: redrawn on a terminal, and a transcript elsewhere or after the result.
struct FleetView {
    live: Option<LiveLines>,
    transcript: FleetTranscript,
}

impl FleetView {
    fn new(terminal: &Terminal, began: Timestamp) -> Self {
        Self { live: terminal.notes.shows_progress().then(LiveLines::new), transcript: FleetTranscript::new(began) }
    }

    fn show(&mut self, rows: &[NodeRow], now: Timestamp, out: &mut Out) {
        match &mut self.live {
            Some(live) => live.show(view::live_lines(rows, now)),
            None => {
                self.transcript.changes(rows, now).into_iter().for_each(|line| out.line(line));
                out.flush();
            }
        }
    }

    /// Removes the redrawn lines; later changes are printed one by one.
    fn finish(&mut self, rows: &[NodeRow]) {
        if let Some(live) = self.live.take() {
            live.clear();
        }
        self.transcript.skip(rows);
    }

    fn is_live(&self) -> bool {
        self.live.is_some()
    }
}

/// Decides when the progress of a fleet is a final result: at once, after a time without progress, or at the deadline.
struct ProgressTimer {
    once: bool,
    deadline: Instant,
    stuck_since: Option<Instant>,
}

impl ProgressTimer {
    fn new(args: &Args) -> Self {
        let now = Instant::now();
        let deadline = Duration::try_from(args.timeout).map_or(now, |timeout| now + timeout);
        Self { once: args.once, deadline, stuck_since: None }
    }

    fn is_final(&mut self, progress: FleetProgress, rows: &[NodeRow]) -> bool {
        if progress != FleetProgress::Stuck {
            self.stuck_since = None;
        }
        match progress {
            // With --once nodes that leave must be gone, too.
            FleetProgress::Validated => !self.once || rows.len() == staying(rows).count() || self.is_late(),
            FleetProgress::Stuck => self.stuck_since.get_or_insert_with(Instant::now).elapsed() >= SETTLED,
            FleetProgress::InProgress => self.once && self.is_late(),
        }
    }

    fn is_late(&self) -> bool {
        Instant::now() >= self.deadline
    }

    fn needs_ticks(&self) -> bool {
        self.once || self.stuck_since.is_some()
    }
}

/// The nodes that stay in the environment.
fn staying(rows: &[NodeRow]) -> impl Iterator<Item = &NodeRow> {
    rows.iter().filter(|row| row.state != NodeState::Leaving)
}

/// The versions that nodes run: one, unless a rollout is in progress.
fn versions(rows: &[NodeRow]) -> String {
    let mut nodes: BTreeMap<&Version, usize> = BTreeMap::new();
    staying(rows).filter_map(|row| row.running.as_ref()).for_each(|version| *nodes.entry(version).or_default() += 1);
    match nodes.len() {
        1 => nodes.into_keys().map(Version::to_string).collect(),
        _ => nodes.iter().map(|(version, nodes)| format!("{version} ({nodes})")).collect::<Vec<_>>().join(" and "),
    }
}

/// Prints which replica controls the machines.
fn note_holder(holder: Option<&ControllerRecord>, now: Timestamp, terminal: &mut Terminal) {
    match holder {
        Some(ControllerRecord { replica, since }) => terminal.notes.note(format_args!(
            "replica {replica} has controlled the machines of this environment for {}; this process takes over when that \
             replica stops",
            age(*since, now)
        )),
        None => terminal.notes.note("this process takes over the control of the machines"),
    }
}

/// Prints the result, and the reasons of a failure.
fn conclude(progress: FleetProgress, rows: &[NodeRow], fleet: &LocalFleet, terminal: &mut Terminal) -> Exit {
    let exit = match progress {
        FleetProgress::Validated => {
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
        FleetProgress::Stuck => {
            terminal.out.line("the fleet is stuck and cannot become validated:");
            Exit::No
        }
        FleetProgress::InProgress => {
            terminal.out.line("the fleet did not become validated before the timeout:");
            Exit::No
        }
    };
    if exit == Exit::No {
        for (row, why) in rows.iter().filter_map(|row| Some((row, row.reason.as_ref()?))) {
            terminal.out.line(format_args!("  {}: {why}", row.node));
        }
    }
    terminal.out.flush();
    exit
}
