//! The local fleet of `muster up`: the server in this process, and the driver of the machines.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use jiff::Timestamp;
use muster_core::names::{EnvName, NodeName};
use muster_core::node::liveness::LivenessTimeouts;
use muster_core::replica::{ControllerName, ControllerRecord};
use muster_provision::lifecycle::Policy;
use muster_provision::local::{LocalConfig, LocalDriver, PowerOffError, PowerOffResult};
use muster_server::controllers::provision::ProvisionController;
use muster_server::{
    App, Clock, ConnectionLimits, LeasePace, RegisterError, RegistrationResult, Server, ServerConfig, node_rows,
    register_design,
};
use muster_wire::client::Client;
use muster_wire::operator::NodeRow;
use thiserror::Error;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::connect::{Announcement, AnnouncementGuard, SearchPaths, announce};
use crate::failure::Failure;
use crate::output::Notes;
use crate::process::{SECRETS_KEY, ServerAccess, store_in};
use crate::project::{LoadedProject, signing_key};

use super::Args;
use super::take_over::drop_changed_releases;
use crate::commands::fleet_progress::{FleetNode, FleetProgress, fleet_progress};

/// A running server with its machines.
pub(super) struct LocalFleet {
    pub(super) app: App,
    pub(super) env: EnvName,
    pub(super) registered: RegistrationResult,
    /// Nodes that are not in the design, whose machines were removed at the start.
    pub(super) released: Vec<NodeName>,
    pub(super) url: String,
    /// A client of this server.
    pub(super) client: Client,
    driver: Arc<LocalDriver>,
    machines: JoinSet<()>,
    pub(super) server: JoinSet<std::io::Result<()>>,
    stop: CancellationToken,
    _announcement: AnnouncementGuard,
}

impl LocalFleet {
    pub(super) async fn start(
        args: &Args,
        mut project: LoadedProject,
        state: &Path,
        token_file: Option<&Path>,
        notes: &mut Notes,
    ) -> Result<Self, Failure> {
        let env = project.registration.env.clone();
        let store = args.store.open(Some(&store_in(state)), notes).await?;
        let access = ServerAccess::open(state, token_file).map_err(Failure::failed)?;
        let clock = Clock::system();
        let config = ServerConfig {
            listen: args.listen,
            // Only this machine uses it.
            tls: None,
            socket: access.socket.clone(),
            token: access.token.clone(),
            limits: ConnectionLimits::default(),
            blobs: args.store.blob_place(state)?,
            secrets_key: state.join(SECRETS_KEY),
            liveness_timeouts: LivenessTimeouts::default(),
            lease: LeasePace::default(),
            gate_commands: args.gate_commands.clone(),
            oidc: None,
            clock: clock.clone(),
        };
        let stop = CancellationToken::new();
        let server = Server::start(config, store, stop.clone()).await.map_err(Failure::failed)?;
        let url = format!("http://{}", server.address());
        let app = server.app().clone();
        let key = signing_key(args.release_key.as_deref(), state)?;
        let (agents_server, agents_token) = access.for_agents(&server);
        let config = LocalConfig {
            state: state.to_owned(),
            network: args.network,
            server: agents_server,
            token_file: agents_token,
            // Later lists of trusted keys reach the agents through the server, signed.
            trusted_keys: vec![key.public().clone()],
            agent: args.agent.clone(),
            puppet: None,
            check_ports: project.releases.iter().flat_map(|(_, release)| release.check_ports.clone()).collect(),
        };
        let client = Client::with_token(&url, Some(&access.token)).map_err(Failure::from)?;
        if args.watch {
            drop_changed_releases(&mut project, &app);
        }
        project.build(&app, key).await?;
        let LoadedProject { registration, design, by, .. } = project;
        let driver = Arc::new(LocalDriver::open(config).map_err(Failure::failed)?);
        let registered = match register_design(&app, &registration, design, true, &by).await {
            // Only this process can remove the machines of the environment.
            Err(error @ RegisterError::Destroying { .. }) => {
                notes.note(format_args!("{error}; this process removes its nodes first"));
                RegistrationResult::default()
            }
            registered => registered.map_err(registration_failure)?,
        };
        // After the registration, which may be refused: removed machines cannot be restored.
        let known = recorded_nodes(&app, &env);
        let released = driver.release_others(&env, &known).await.map_err(Failure::failed)?;
        let announcement = announce_server(&server, &env, clock.now(), state, access)?;
        let (mut serving, mut machines) = (JoinSet::new(), JoinSet::new());
        serving.spawn(server.run());
        let policy = Policy::local(clock.now());
        machines.spawn(ProvisionController::new(app.clone(), env.clone(), driver.clone(), policy).run());
        Ok(Self {
            app,
            env,
            registered,
            released,
            url,
            client,
            driver,
            machines,
            server: serving,
            stop,
            _announcement: announcement,
        })
    }

    pub(super) fn rows(&self) -> Vec<NodeRow> {
        let fleets = self.app.view.fleets();
        // Agents of this fleet connect to this process; `muster status` also shows those of other replicas.
        let elsewhere = node_rows::RemoteActivities::new();
        let agents = self.app.agents.activities(&elsewhere);
        fleets.get(&self.env).map(|fleet| node_rows::all(fleet, agents)).unwrap_or_default()
    }

    /// The replica that controls the machines in place of this process, if any.
    pub(super) fn machines_held_by(&self) -> Option<ControllerRecord> {
        self.app.replica.controller_locks.held_elsewhere(&self.env, ControllerName::Provision)
    }

    /// Evaluates the fleet. Only runs that started after `began` count.
    pub(super) fn progress(&self, rows: &[NodeRow], began: Timestamp) -> FleetProgress {
        let fleets = self.app.view.fleets();
        let Some(fleet) = fleets.get(&self.env) else { return FleetProgress::InProgress };
        let ran = |row: &NodeRow| {
            let observed = fleet.get(&row.node).and_then(|node| node.observed.as_ref());
            observed.and_then(|(observed, _)| observed.last.as_ref()).is_some_and(|last| last.started >= began)
        };
        fleet_progress(&rows.iter().map(|row| FleetNode { row: row.clone(), ran: ran(row) }).collect::<Vec<_>>())
    }

    pub(super) fn current_version(&self) -> String {
        let fleets = self.app.view.fleets();
        let current = fleets.get(&self.env).and_then(|fleet| fleet.current_version());
        current.map_or_else(|| "none".to_owned(), |(version, _)| version.to_string())
    }

    /// A note about a rollout in progress, which means that not all nodes were granted the version yet.
    pub(super) fn open_rollout(&self) -> Option<String> {
        let fleets = self.app.view.fleets();
        let (record, _) = fleets.get(&self.env)?.active_rollout_record()?;
        let open = record.phase.is_open() && !record.at_once;
        open.then(|| format!("rollout {} to {} is in progress: muster rollout status", record.id, record.to))
    }

    /// Powers the machines off while the server still receives their last reports, then stops the server.
    pub(super) async fn stop(mut self) -> Result<(), Failure> {
        self.machines.shutdown().await;
        let off = self.power_off().await;
        self.app.replica.liveness.switched_off(&self.env).await;
        self.stop.cancel();
        let served =
            self.server.join_next().await.transpose().context("the server panicked").map_err(Failure::failed)?;
        off?;
        served.transpose().context("the server failed").map(drop).map_err(Failure::failed)
    }

    /// Ends every process of every machine.
    async fn power_off(&self) -> Result<(), Failure> {
        let machines = self.driver.shutdown().await.context("cannot list the processes of the nodes");
        check_all_off(machines.map_err(Failure::failed)?).map_err(Failure::failed)
    }
}

fn announce_server(
    server: &Server,
    env: &EnvName,
    started: Timestamp,
    state: &Path,
    access: ServerAccess,
) -> Result<AnnouncementGuard, Failure> {
    let paths = SearchPaths::from_process().context("cannot announce the server").map_err(Failure::failed)?;
    let announcement = Announcement {
        url: format!("http://{}", server.address()),
        pid: i32::try_from(std::process::id()).unwrap_or(i32::MAX),
        env: Some(env.clone()),
        started,
        state: state.to_owned(),
        socket: server.socket().map(Path::to_owned),
        token_file: Some(access.token_file),
    };
    announce(&paths, announcement).map_err(Failure::failed)
}

/// The nodes in the store: those of the design, and those that are leaving it.
fn recorded_nodes(app: &App, env: &EnvName) -> BTreeSet<NodeName> {
    let fleets = app.view.fleets();
    fleets.get(env).into_iter().flat_map(|fleet| fleet.recorded()).map(|(name, ..)| name.clone()).collect()
}

pub(super) fn registration_failure(error: RegisterError) -> Failure {
    let hint = match &error {
        RegisterError::HasVersion { asked, .. } => {
            Some(format!("omit --first-version, and run `muster trigger-update {asked}` when the fleet is up"))
        }
        RegisterError::ReleaseChanged { .. } => Some(
            "`muster up --watch` takes changed releases over as development versions; `muster up --fresh` forgets the \
             registered ones"
                .to_owned(),
        ),
        RegisterError::Restoring { .. }
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

/// Reasons that some machines are still on.
#[derive(Debug, Error)]
pub(in crate::commands) enum ShutdownError {
    #[error("cannot power off {node}")]
    PowerOff {
        node: NodeName,
        #[source]
        source: PowerOffError,
    },
    #[error("these processes do not end: {left}; inspect them with ps, and kill them by hand")]
    Left { left: String },
}

/// Checks that no process of a machine is left. Lists all processes that are.
pub(in crate::commands) fn check_all_off(machines: Vec<PowerOffResult>) -> Result<(), ShutdownError> {
    let mut left = Vec::new();
    let mut failed = None;
    for machine in machines {
        match machine.result {
            Ok(ended) if ended.is_complete() => {}
            Ok(ended) => {
                let pids: Vec<String> = ended.remaining.iter().map(ToString::to_string).collect();
                left.push(format!("{} of {}", pids.join(", "), machine.node));
            }
            Err(source) => failed = Some(ShutdownError::PowerOff { node: machine.node, source }),
        }
    }
    left.sort();
    match failed {
        // The operator can act on process ids, but only retry a failed search.
        _ if !left.is_empty() => Err(ShutdownError::Left { left: left.join("; ") }),
        Some(failed) => Err(failed),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use muster_marked::TerminationSummary;

    use super::*;

    fn machine(node: &str, left: &[u32]) -> PowerOffResult {
        let ended = TerminationSummary { terminated: vec![7], killed: vec![8], remaining: left.to_vec() };
        PowerOffResult { node: NodeName::new(node).unwrap(), result: Ok(ended) }
    }

    #[test]
    fn ended_and_killed_processes_are_off() {
        check_all_off(vec![machine("web1", &[]), machine("web2", &[])]).unwrap();
        check_all_off(Vec::new()).unwrap();
    }

    #[test]
    fn remaining_processes_are_listed_by_node() {
        let machines = vec![machine("web2", &[30]), machine("db1", &[]), machine("web1", &[10, 20])];
        assert_eq!(
            check_all_off(machines).unwrap_err().to_string(),
            "these processes do not end: 10, 20 of web1; 30 of web2; inspect them with ps, and kill them by hand"
        );
    }
}
