//! Brings the machines of an environment up, and keeps them so.
//!
//! [`muster_provision`] decides and acts for one machine; this feeds it with what the view and the hub know, commits
//! what became of it, and sleeps until something changes or is due. It does nothing until this replica holds the
//! controller, and nothing more once it does not.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use jiff::Timestamp;
use muster_core::keys::Keys;
use muster_core::names::EnvName;
use muster_core::records::MachineRecord;
use muster_core::replicas::ControllerName;
use muster_core::txn::Revision;
use muster_provision::driver::{Driver, MachineSpec};
use muster_provision::executor::{Next, advance};
use muster_provision::lifecycle::Policy;
use muster_provision::record::record_txn;

use crate::App;
use crate::replica::{Fenced, Held};

/// How many machines are looked after at the same time. A driver's controller is one service, often a small one.
const AT_ONCE: usize = 16;
/// When the store does not take a record, it is tried again after this.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Provision {
    app: App,
    env: EnvName,
    driver: Arc<dyn Driver>,
    policy: Policy,
    machines: Vec<Machine>,
}

#[derive(Debug)]
struct Machine {
    spec: MachineSpec,
    next: Next,
    /// Whether its agent was connected at the last turn.
    connected: bool,
}

impl Provision {
    pub fn new(app: App, env: EnvName, driver: Arc<dyn Driver>, policy: Policy, specs: Vec<MachineSpec>) -> Self {
        let machine = |spec| Machine { spec, next: Next::AtOnce, connected: false };
        Self { app, env, driver, policy, machines: specs.into_iter().map(machine).collect() }
    }

    /// Looks after the machines, for ever: as soon as nobody else does.
    pub async fn run(mut self) {
        self.app.tenures.want(&self.env, ControllerName::Provision);
        // Connections to this server, and to the others.
        let mut connections = self.app.hub.subscribe();
        let mut servers = self.app.view.subscribe_servers();
        let mut tenures = self.app.tenures.subscribe();
        let mut changes = self.driver.changes();
        let mut last: Option<Held> = None;
        loop {
            connections.mark_unchanged();
            servers.mark_unchanged();
            tenures.mark_unchanged();
            changes.as_mut().map(tokio::sync::watch::Receiver::mark_unchanged);
            let held = self.app.tenures.held(&self.env, ControllerName::Provision);
            if held.is_some() && held != last {
                // Others may have moved the machines meanwhile: every one of them is looked at.
                self.machines.iter_mut().for_each(|machine| machine.next = Next::AtOnce);
            }
            last = held;
            let Some(held) = &last else {
                let _ = tenures.changed().await;
                continue;
            };
            self.turn(held).await;
            if self.machines.iter().any(|machine| machine.next == Next::AtOnce) {
                continue;
            }
            let driver_tells = async {
                match &mut changes {
                    Some(changes) => changes.changed().await.is_ok(),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = connections.changed() => {}
                _ = servers.changed() => {}
                _ = tenures.changed() => {}
                told = driver_tells => {
                    self.machines.iter_mut().for_each(|machine| machine.next = Next::AtOnce);
                    if !told {
                        changes = None;
                    }
                }
                () = self.due() => {}
            }
        }
    }

    /// Sleeps until the first machine is due.
    async fn due(&self) {
        let at = self.machines.iter().filter_map(|machine| match machine.next {
            Next::At(at) => Some(at),
            Next::AtOnce | Next::OnChange => None,
        });
        match at.min() {
            Some(at) => tokio::time::sleep(until(at, self.app.clock.now())).await,
            None => std::future::pending().await,
        }
    }

    /// One turn for each machine that is due, or whose agent has come or gone.
    async fn turn(&mut self, held: &Held) {
        let now = self.app.clock.now();
        let (app, env, driver, policy) = (&self.app, &self.env, &self.driver, &self.policy);
        let mut turns = Vec::new();
        for machine in &mut self.machines {
            let connected = {
                let fleets = app.view.fleets();
                fleets.get(env).is_some_and(|fleet| app.links.is_connected(fleet, &machine.spec.node))
            };
            let changed = std::mem::replace(&mut machine.connected, connected) != connected;
            let due = match machine.next {
                Next::AtOnce => true,
                Next::At(at) => at <= now,
                Next::OnChange => false,
            };
            if due || changed {
                turns.push(async move { machine.next = one(app, held, driver.as_ref(), policy, machine).await });
            }
        }
        stream::iter(turns).buffer_unordered(AT_ONCE).collect::<()>().await;
    }
}

async fn one(app: &App, held: &Held, driver: &dyn Driver, policy: &Policy, machine: &Machine) -> Next {
    let (env, node) = (&held.env, &machine.spec.node);
    if app.tenures.held(env, held.name).as_ref() != Some(held) {
        return Next::OnChange;
    }
    let known: Option<(MachineRecord, Revision)> = {
        let fleets = app.view.fleets();
        fleets.get(env).and_then(|fleet| fleet.get(node)).and_then(|node| node.machine.clone())
    };
    let clock = || app.clock.now();
    let record = known.as_ref().map(|(record, _)| record);
    let advance = advance(driver, &machine.spec, record, machine.connected, policy, &clock).await;
    let Some(record) = advance.record else { return advance.next };
    let later = || Next::At(app.clock.now().checked_add(PAUSE).unwrap_or(Timestamp::MAX));
    let before = known.map(|(_, at)| at);
    let txn = match record_txn(&Keys::of(env), node, before, &record) {
        Ok(txn) => txn,
        Err(error) => {
            tracing::error!(%node, %error, "the record of its machine cannot be written");
            return later();
        }
    };
    match app.tenures.commit(held, txn).await {
        Ok(Fenced::Committed { revision }) => {
            tracing::debug!(%node, phase = record.phase.word(), "machine");
            if app.view.reach(revision).await.is_err() { later() } else { advance.next }
        }
        // Someone else moved it: the next turn begins with what they wrote.
        Ok(Fenced::Refused { revision }) => {
            if app.view.reach(revision).await.is_err() {
                later()
            } else {
                Next::AtOnce
            }
        }
        Ok(Fenced::Deposed) => Next::OnChange,
        Err(error) => {
            tracing::warn!(%node, %error, "the record of its machine cannot be committed");
            later()
        }
    }
}

fn until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default()
}
