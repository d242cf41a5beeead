//! Makes a machine for each node of an environment, keeps it, and gives it back when the node leaves.
//!
//! [`muster_provision`] decides and acts for one machine; this feeds it with what the view and the hub know, commits
//! what became of it, and sleeps until something changes or is due. Machines come and go with `nodes/`: whoever changes
//! the design has to tell nobody. It does nothing until this replica holds the controller, and nothing more once it does
//! not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use jiff::Timestamp;
use muster_core::departure;
use muster_core::fleet::{Fleet, Node};
use muster_core::keys::Keys;
use muster_core::names::{EnvName, NodeName};
use muster_core::replicas::ControllerName;
use muster_core::txn::{Guard, Revision, Txn};
use muster_provision::driver::{Driver, MachineSpec};
use muster_provision::executor::{Advance, Known, Next, advance};
use muster_provision::lifecycle::{Decision, Departure, Policy};
use muster_provision::record::record_txn;

use crate::App;
use crate::fleet_change::removal::removal;
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
    machines: BTreeMap<NodeName, Machine>,
}

#[derive(Debug)]
struct Machine {
    next: Next,
    /// As it was at the last turn: when it is another one, the next turn is due.
    last: Sight,
}

/// What a machine's turn depends on, besides its own record and what its driver sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sight {
    position: u32,
    record_at: Option<Revision>,
    connected: bool,
    /// For one that leaves.
    waits_for: Vec<NodeName>,
}

impl Provision {
    pub fn new(app: App, env: EnvName, driver: Arc<dyn Driver>, policy: Policy) -> Self {
        Self { app, env, driver, policy, machines: BTreeMap::new() }
    }

    /// Looks after the machines, for ever: as soon as nobody else does.
    pub async fn run(mut self) {
        self.app.tenures.want(&self.env, ControllerName::Provision);
        // Connections to this server, and to the others.
        let mut connections = self.app.hub.subscribe();
        let mut servers = self.app.view.subscribe_servers();
        let mut records = self.app.view.subscribe_records();
        // Reports: they matter only while a node that leaves waits for others to run.
        let mut steps = self.app.view.subscribe();
        let mut tenures = self.app.tenures.subscribe();
        let mut changes = self.driver.changes();
        let mut last: Option<Held> = None;
        loop {
            connections.mark_unchanged();
            servers.mark_unchanged();
            records.mark_unchanged();
            steps.mark_unchanged();
            tenures.mark_unchanged();
            changes.as_mut().map(tokio::sync::watch::Receiver::mark_unchanged);
            let held = self.app.tenures.held(&self.env, ControllerName::Provision);
            if held.is_some() && held != last {
                // Others may have moved the machines meanwhile: every one of them is looked at.
                self.look_at_all();
            }
            last = held;
            let Some(held) = &last else {
                let _ = tenures.changed().await;
                continue;
            };
            self.turn(held).await;
            if self.machines.values().any(|machine| machine.next == Next::AtOnce) {
                continue;
            }
            let awaits_runs = self.machines.values().any(|machine| !machine.last.waits_for.is_empty());
            let driver_tells = async {
                match &mut changes {
                    Some(changes) => changes.changed().await.is_ok(),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = connections.changed() => {}
                _ = servers.changed() => {}
                _ = records.changed() => {}
                _ = steps.changed(), if awaits_runs => {}
                _ = tenures.changed() => {}
                told = driver_tells => {
                    self.look_at_all();
                    if !told {
                        changes = None;
                    }
                }
                () = self.due() => {}
            }
        }
    }

    fn look_at_all(&mut self) {
        self.machines.values_mut().for_each(|machine| machine.next = Next::AtOnce);
    }

    /// Sleeps until the first machine is due.
    async fn due(&self) {
        let at = self.machines.values().filter_map(|machine| match machine.next {
            Next::At(at) => Some(at),
            Next::AtOnce | Next::OnChange => None,
        });
        match at.min() {
            Some(at) => tokio::time::sleep(until(at, self.app.clock.now())).await,
            None => std::future::pending().await,
        }
    }

    /// One turn for each machine that is due, or of which something has changed.
    async fn turn(&mut self, held: &Held) {
        let mut seen = self.look();
        self.machines.retain(|name, _| seen.contains_key(name));
        for name in seen.keys().filter(|name| !self.machines.contains_key(*name)).cloned().collect::<Vec<_>>() {
            self.machines.insert(name, Machine { next: Next::AtOnce, last: Sight::default() });
        }
        let now = self.app.clock.now();
        let (app, driver, policy) = (&self.app, &self.driver, &self.policy);
        let mut turns = Vec::new();
        for (name, machine) in &mut self.machines {
            let sight = seen.remove(name).unwrap_or_default();
            let position = sight.position;
            let changed = std::mem::replace(&mut machine.last, sight.clone()) != sight;
            let due = match machine.next {
                Next::AtOnce => true,
                Next::At(at) => at <= now,
                Next::OnChange => false,
            };
            if due || changed {
                let turn = async move { machine.next = one(app, held, driver.as_ref(), policy, name).await };
                turns.push((position, turn));
            }
        }
        // In the order of the design: what others need stands before them there.
        turns.sort_by_key(|(position, _)| *position);
        let turns: Vec<_> = turns.into_iter().map(|(_, turn)| turn).collect();
        stream::iter(turns).buffer_unordered(AT_ONCE).collect::<()>().await;
    }

    /// All nodes that have a machine, or should.
    fn look(&self) -> BTreeMap<NodeName, Sight> {
        let fleets = self.app.view.fleets();
        let Some(fleet) = fleets.get(&self.env) else { return BTreeMap::new() };
        let sight = |node: &Node, name: &NodeName, position| Sight {
            position,
            record_at: node.record_at,
            connected: self.app.links.is_connected(fleet, name),
            waits_for: if node.is_leaving() { departure::waits_for(fleet, node) } else { Vec::new() },
        };
        fleet.recorded().map(|(name, node, record)| (name.clone(), sight(node, name, record.position))).collect()
    }
}

/// A node as it is known when its turn begins.
struct Whole {
    node: Node,
    spec: MachineSpec,
    connected: bool,
    leaving: Option<Departure>,
}

impl Whole {
    fn read(app: &App, env: &EnvName, name: &NodeName) -> Option<Self> {
        let fleets = app.view.fleets();
        let fleet: &Fleet = fleets.get(env)?;
        let node = fleet.get(name)?;
        let record = node.record.as_ref()?;
        let departs = |until| Departure { waits_for: departure::waits_for(fleet, node), until };
        Some(Self {
            spec: MachineSpec::of(env, name, record),
            connected: app.links.is_connected(fleet, name),
            leaving: record.leaving.map(|leaving| departs(leaving.until)),
            node: node.clone(),
        })
    }

    /// What a turn has to write, if anything. Decided in the design's name: refused if that says something else now.
    fn txn(&self, keys: &Keys, advance: &Advance) -> Result<Option<Txn>, serde_json::Error> {
        let name = &self.spec.node;
        if advance.decision == Decision::Retire {
            return Ok(Some(removal(keys, name, &self.node)));
        }
        let Some(record) = &advance.record else { return Ok(None) };
        let before = self.node.machine.as_ref().map(|(_, at)| *at);
        let txn = record_txn(keys, name, before, record)?;
        Ok(Some(txn.guard(Guard::seen(keys.node(name), self.node.record_at))))
    }
}

async fn one(app: &App, held: &Held, driver: &dyn Driver, policy: &Policy, name: &NodeName) -> Next {
    let env = &held.env;
    if app.tenures.held(env, held.name).as_ref() != Some(held) {
        return Next::OnChange;
    }
    let Some(whole) = Whole::read(app, env, name) else { return Next::OnChange };
    let record = whole.node.machine.as_ref().map(|(record, _)| record);
    let known = Known { record, agent_connected: whole.connected, leaving: whole.leaving.clone() };
    let clock = || app.clock.now();
    let advance = advance(driver, &whole.spec, known, policy, &clock).await;
    let later = || Next::At(app.clock.now().checked_add(PAUSE).unwrap_or(Timestamp::MAX));
    let txn = match whole.txn(&Keys::of(env), &advance) {
        Ok(Some(txn)) => txn,
        Ok(None) => return advance.next,
        Err(error) => {
            tracing::error!(node = %name, %error, "the record of its machine cannot be written");
            return later();
        }
    };
    match app.tenures.commit(held, txn).await {
        Ok(Fenced::Committed { revision }) => {
            match &advance.record {
                Some(record) => tracing::debug!(node = %name, phase = record.phase.word(), "machine"),
                None => {
                    tracing::info!(%env, node = %name, "it has left: its machine is released, and its keys are gone")
                }
            }
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
            tracing::warn!(node = %name, %error, "the record of its machine cannot be committed");
            later()
        }
    }
}

fn until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default()
}
