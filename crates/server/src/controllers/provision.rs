//! Creates a machine for each node of an environment, maintains it, and releases it when the node leaves.
//!
//! [`muster_provision`] decides and acts for one machine. This controller passes it the state of the view and the hub,
//! commits the result, and sleeps until something changes or is due. It follows `nodes/`, and acts only while this replica
//! holds the lock. Only `muster up` starts it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use muster_core::fleet::{Fleet, Node};
use muster_core::keys::Keys;
use muster_core::names::{EnvName, NodeName};
use muster_core::node::decommission;
use muster_core::replica::ControllerName;
use muster_core::txn::{Guard, Revision, Txn};
use muster_provision::driver::{Driver, MachineSpec};
use muster_provision::executor::{MachineReconcileResult, ReconcileInput, Requeue, reconcile};
use muster_provision::lifecycle::{MachineDecision, PendingDecommission, Policy};
use muster_provision::record::record_txn;

use crate::App;
use crate::design::node_records::removal;
use crate::replica::{ControllerLock, FencedOutcome};

/// Machines that are handled at the same time. The API behind a driver is often a small service.
const AT_ONCE: usize = 16;
/// Time until the next attempt after a failed write.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct ProvisionController {
    context: Arc<Context>,
    machines: BTreeMap<NodeName, ManagedMachine>,
}

/// State that every turn needs.
#[derive(Debug)]
struct Context {
    app: App,
    env: EnvName,
    driver: Arc<dyn Driver>,
    policy: Policy,
}

#[derive(Debug)]
struct ManagedMachine {
    next: Requeue,
    /// A turn is in progress. A slow one does not delay other machines.
    busy: bool,
    /// Inputs at the start of the last turn. A change makes the next turn due.
    last: TurnInput,
}

/// Inputs of a machine's turn, besides its own record and the driver's observation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct TurnInput {
    position: u32,
    record_at: Option<Revision>,
    connected: bool,
    /// For a node that leaves.
    waits_for: Vec<NodeName>,
}

/// Turns in progress. Each ends with the time of the machine's next turn.
type Turns = FuturesUnordered<BoxFuture<'static, (NodeName, Requeue)>>;

impl ProvisionController {
    pub fn new(app: App, env: EnvName, driver: Arc<dyn Driver>, policy: Policy) -> Self {
        Self { context: Arc::new(Context { app, env, driver, policy }), machines: BTreeMap::new() }
    }

    /// Reconciles the machines, forever, while this replica holds the lock.
    pub async fn run(mut self) {
        let Context { app, env, driver, .. } = &*self.context.clone();
        app.replica.controller_locks.want(env, ControllerName::Provision);
        // Connections to this server, and to other replicas.
        let mut connections = app.agents.hub.subscribe();
        let mut servers = app.view.subscribe_servers();
        let mut records = app.view.subscribe_records();
        // Reports matter only while a node that leaves waits for runs of its dependents.
        let mut steps = app.view.subscribe();
        let mut controller_locks = app.replica.controller_locks.subscribe();
        let mut changes = driver.changes();
        let mut last: Option<ControllerLock> = None;
        let mut turns = Turns::new();
        // False if only a turn has ended: then the nodes are not compared again.
        let mut news = true;
        loop {
            if std::mem::replace(&mut news, true) {
                connections.mark_unchanged();
                servers.mark_unchanged();
                records.mark_unchanged();
                steps.mark_unchanged();
                controller_locks.mark_unchanged();
                changes.as_mut().map(tokio::sync::watch::Receiver::mark_unchanged);
                let held = app.replica.controller_locks.held(env, ControllerName::Provision);
                let is_new = held.is_some() && held != last;
                last = held;
                self.follow_view();
                if is_new {
                    // Another replica may have changed the machines: all of them are due.
                    self.requeue_all();
                }
            }
            if let Some(held) = &last {
                self.begin_turns(held, &turns);
            }
            let awaits_runs = self.machines.values().any(|machine| !machine.last.waits_for.is_empty());
            let driver_change = async {
                match &mut changes {
                    Some(changes) => changes.changed().await.is_ok(),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some((name, next)) = turns.next(), if !turns.is_empty() => {
                    self.end_turn(&name, next);
                    while let Some(Some((name, next))) = turns.next().now_or_never() {
                        self.end_turn(&name, next);
                    }
                    news = false;
                }
                _ = controller_locks.changed() => {}
                _ = connections.changed(), if last.is_some() => {}
                _ = servers.changed(), if last.is_some() => {}
                _ = records.changed(), if last.is_some() => {}
                _ = steps.changed(), if last.is_some() && awaits_runs => {}
                is_open = driver_change, if last.is_some() => {
                    self.requeue_all();
                    if !is_open {
                        changes = None;
                    }
                }
                () = self.due(), if last.is_some() => {}
            }
        }
    }

    fn requeue_all(&mut self) {
        self.machines.values_mut().for_each(|machine| machine.next = Requeue::Now);
    }

    /// Sleeps until the next idle machine is due.
    async fn due(&self) {
        let at = self.machines.values().filter(|machine| !machine.busy).filter_map(|machine| match machine.next {
            Requeue::At(at) => Some(at),
            Requeue::Now | Requeue::OnChange => None,
        });
        match at.min() {
            Some(at) => tokio::time::sleep(until(at, self.context.app.clock.now())).await,
            None => std::future::pending().await,
        }
    }

    /// Adds and removes machines with the view. A machine whose inputs changed is due.
    fn follow_view(&mut self) {
        let inputs = self.inputs();
        self.machines.retain(|name, machine| machine.busy || inputs.contains_key(name));
        for (name, input) in inputs {
            let new = || ManagedMachine { next: Requeue::Now, busy: false, last: TurnInput::default() };
            let machine = self.machines.entry(name).or_insert_with(new);
            if machine.last != input {
                machine.next = Requeue::Now;
                machine.last = input;
            }
        }
    }

    /// Starts a turn for each machine that is due, up to the limit.
    fn begin_turns(&mut self, held: &ControllerLock, turns: &Turns) {
        let now = self.context.app.clock.now();
        let is_due = |machine: &ManagedMachine| match machine.next {
            Requeue::Now => true,
            Requeue::At(at) => at <= now,
            Requeue::OnChange => false,
        };
        let due = self.machines.iter().filter(|(_, machine)| !machine.busy && is_due(machine));
        let mut due: Vec<(u32, NodeName)> = due.map(|(name, machine)| (machine.last.position, name.clone())).collect();
        // In the order of the design: nodes stand after those that they depend on. The rest waits for a free turn.
        due.sort();
        for (_, name) in due.into_iter().take(AT_ONCE.saturating_sub(turns.len())) {
            if let Some(machine) = self.machines.get_mut(&name) {
                machine.busy = true;
                // Changes from here on make another turn due.
                machine.next = Requeue::OnChange;
                let (context, held) = (self.context.clone(), held.clone());
                turns.push(async move { (name.clone(), run_turn(&context, &held, &name).await) }.boxed());
            }
        }
    }

    fn end_turn(&mut self, name: &NodeName, next: Requeue) {
        if let Some(machine) = self.machines.get_mut(name) {
            machine.busy = false;
            if machine.next != Requeue::Now {
                machine.next = next;
            }
        }
    }

    /// Inputs of all nodes that have a machine, or should have one.
    fn inputs(&self) -> BTreeMap<NodeName, TurnInput> {
        let Context { app, env, .. } = &*self.context;
        let fleets = app.view.fleets();
        let Some(fleet) = fleets.get(env) else { return BTreeMap::new() };
        let input = |node: &Node, name: &NodeName, position| TurnInput {
            position,
            record_at: node.record_at,
            connected: app.agents.links.is_connected(fleet, name),
            waits_for: if node.is_leaving() { decommission::dependents(fleet, node) } else { Vec::new() },
        };
        fleet.recorded().map(|(name, node, record)| (name.clone(), input(node, name, record.position))).collect()
    }
}

/// A node at the start of its turn.
struct TurnState {
    node: Node,
    spec: MachineSpec,
    connected: bool,
    leaving: Option<PendingDecommission>,
}

impl TurnState {
    fn read(app: &App, env: &EnvName, name: &NodeName) -> Option<Self> {
        let fleets = app.view.fleets();
        let fleet: &Fleet = fleets.get(env)?;
        let node = fleet.get(name)?;
        let record = node.record.as_ref()?;
        let departs = |until| PendingDecommission { waits_for: decommission::dependents(fleet, node), until };
        Some(Self {
            spec: MachineSpec::for_node(env, name, record),
            connected: app.agents.links.is_connected(fleet, name),
            leaving: record.leaving.map(|leaving| departs(leaving.until)),
            node: node.clone(),
        })
    }

    /// Transaction of a turn, if there is anything to write. Guarded by the node's record in the design.
    fn txn(&self, keys: &Keys, result: &MachineReconcileResult) -> Result<Option<Txn>, serde_json::Error> {
        let name = &self.spec.node;
        if result.decision == MachineDecision::Retire {
            return Ok(Some(removal(keys, name, &self.node)));
        }
        let Some(record) = &result.record else { return Ok(None) };
        let before = self.node.machine.as_ref().map(|(_, at)| *at);
        let txn = record_txn(keys, name, before, record)?;
        Ok(Some(txn.guard(Guard::observed(keys.node(name), self.node.record_at))))
    }
}

/// Runs one turn of a machine. Returns the time of its next turn.
async fn run_turn(context: &Context, held: &ControllerLock, name: &NodeName) -> Requeue {
    let Context { app, env, driver, policy } = context;
    if app.replica.controller_locks.held(env, held.name).as_ref() != Some(held) {
        return Requeue::OnChange;
    }
    let Some(state) = TurnState::read(app, env, name) else { return Requeue::OnChange };
    let record = state.node.machine.as_ref().map(|(record, _)| record);
    let known = ReconcileInput { record, agent_connected: state.connected, leaving: state.leaving.clone() };
    let clock = || app.clock.now();
    let result = reconcile(driver.as_ref(), &state.spec, known, policy, &clock).await;
    let later = || Requeue::At(app.clock.now().checked_add(PAUSE).unwrap_or(Timestamp::MAX));
    let txn = match state.txn(&Keys::new(env), &result) {
        Ok(Some(txn)) => txn,
        Ok(None) => return result.next,
        Err(error) => {
            tracing::error!(node = %name, %error, "the record of its machine cannot be written");
            return later();
        }
    };
    match app.replica.controller_locks.commit(held, txn).await {
        Ok(FencedOutcome::Committed { revision }) => {
            match &result.record {
                Some(record) => tracing::debug!(node = %name, phase = record.phase.word(), "machine"),
                None => {
                    tracing::info!(%env, node = %name, "decommissioned: its machine is released and its keys are removed")
                }
            }
            if app.view.reach(revision).await.is_err() { later() } else { result.next }
        }
        // Another writer changed it: the next turn starts from that.
        Ok(FencedOutcome::Refused { revision }) => {
            if app.view.reach(revision).await.is_err() {
                later()
            } else {
                Requeue::Now
            }
        }
        Ok(FencedOutcome::LockLost) => Requeue::OnChange,
        Err(error) => {
            tracing::warn!(node = %name, %error, "the record of its machine cannot be committed");
            later()
        }
    }
}

fn until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default()
}
