//! Nodes that leave a running fleet: out of service at once, released after the drain, and then removed, also when the
//! controller is interrupted.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use muster_core::fleet::Fleet;
use muster_core::lookup::Lookups;
use muster_core::names::NodeName;
use muster_core::node::decommission::DRAIN_TIMEOUT;
use muster_core::node::policy::NodePolicy;
use muster_core::node::record::MachinePhase;
use muster_core::node::status::NodeState;
use muster_core::replica::ControllerName;
use muster_core::report::{Outcome, Report, RunResult};
use muster_provision::driver::{
    Capabilities, Driver, MachineObservation, MachineSpec, MachineState, ObserveError, StepError,
};
use muster_provision::lifecycle::Policy;
use muster_server::controllers::provision::ProvisionController;
use muster_server::follow_design;
use muster_wire::policy::SetPolicy;
use muster_wire::sync::SyncOpen;
use tokio::task::JoinHandle;

use crate::cluster::{Cluster, Replica, env, keys, node, registration, until};
use crate::consistency::passed;

const FLEET: [(&str, &str); 3] = [("web1", "web"), ("web2", "web"), ("lb1", "lb")];
const SMALLER: [(&str, &str); 2] = [("web1", "web"), ("lb1", "lb")];

/// The machines of a data centre. They outlive the driver and its controller.
#[derive(Debug, Default)]
struct TestSite {
    machines: Mutex<BTreeMap<NodeName, MachineState>>,
    /// Steps that the controller requested from the driver, in order.
    steps: Mutex<Vec<String>>,
}

impl TestSite {
    fn seen(&self, name: &NodeName) -> MachineState {
        self.machines.lock().unwrap().get(name).cloned().unwrap_or(MachineState::Absent)
    }

    fn steps(&self, step: &str) -> usize {
        self.steps.lock().unwrap().iter().filter(|taken| *taken == step).count()
    }
}

/// A driver of the machines that can hang in one of its calls. The test ends the controller in that call.
#[derive(Debug)]
struct TestDriver {
    site: Arc<TestSite>,
    calls_left: Mutex<Option<usize>>,
    /// A step that never ends.
    hangs_in: Option<&'static str>,
    stuck: tokio::sync::watch::Sender<bool>,
}

impl TestDriver {
    fn new(site: &Arc<TestSite>, calls: Option<usize>) -> Arc<Self> {
        Arc::new(Self::with_calls(site, calls))
    }

    fn with_calls(site: &Arc<TestSite>, calls: Option<usize>) -> Self {
        let stuck = tokio::sync::watch::Sender::new(false);
        Self { site: site.clone(), calls_left: Mutex::new(calls), hangs_in: None, stuck }
    }

    /// Returns true if the driver hangs in this call.
    fn is_last(&self) -> bool {
        let mut left = self.calls_left.lock().unwrap();
        match left.as_mut() {
            None => false,
            Some(0) => true,
            Some(calls) => {
                *calls -= 1;
                false
            }
        }
    }

    async fn call(&self) {
        if self.is_last() {
            self.stuck.send_replace(true);
            std::future::pending::<()>().await;
        }
    }

    fn step<'a>(
        &'a self,
        word: &'static str,
        spec: &'a MachineSpec,
        next: MachineState,
    ) -> BoxFuture<'a, Result<(), StepError>> {
        async move {
            self.call().await;
            let step = format!("{word} {}", spec.node);
            if self.hangs_in == Some(step.as_str()) {
                self.stuck.send_replace(true);
                std::future::pending::<()>().await;
            }
            self.site.steps.lock().unwrap().push(step);
            self.site.machines.lock().unwrap().insert(spec.node.clone(), next);
            Ok(())
        }
        .boxed()
    }
}

impl Driver for TestDriver {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { machine: "a value", replaceable: true, reports_changes: true }
    }

    fn observe<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<MachineObservation, ObserveError>> {
        async move {
            self.call().await;
            Ok(MachineObservation { state: self.site.seen(&spec.node), log: None })
        }
        .boxed()
    }

    fn allocate<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<(), StepError>> {
        self.step("allocate", spec, MachineState::Allocated)
    }

    fn deploy<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<(), StepError>> {
        self.step("deploy", spec, MachineState::Off)
    }

    fn boot<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<(), StepError>> {
        self.step("boot", spec, MachineState::Running)
    }

    fn release<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<(), StepError>> {
        self.step("release", spec, MachineState::Absent)
    }
}

fn look_after(replica: &Replica, driver: &Arc<TestDriver>) -> JoinHandle<()> {
    let policy = Policy::local(replica.app.clock.now());
    tokio::spawn(ProvisionController::new(replica.app.clone(), env(), driver.clone(), policy).run())
}

async fn end(controller: JoinHandle<()>) {
    controller.abort();
    let _ = controller.await;
}

async fn follow(replica: &Replica, nodes: &[(&str, &str)]) -> muster_server::FleetChange {
    follow_design(&replica.app, &env(), &registration(nodes).nodes).await.unwrap()
}

fn phase(fleet: &Fleet, name: &str) -> Option<MachinePhase> {
    Some(fleet.get(&node(name))?.machine.as_ref()?.0.phase.clone())
}

fn all_run(fleet: &Fleet) -> bool {
    let up = |phase| matches!(phase, Some(MachinePhase::Bootstrapping | MachinePhase::Provisioned));
    fleet.recorded().all(|(name, ..)| up(phase(fleet, name.as_str())))
}

fn is_active(fleet: &Fleet, name: &str) -> bool {
    fleet.get(&node(name)).is_some_and(|node| node.active().is_some())
}

/// Reports a run of lb1 that has looked up the current web nodes.
async fn lb1_runs(replica: &Replica, seq: u64) {
    let key = "active_roles::web".to_owned();
    let tag = replica.fleet().tag(&key, None);
    let report = Report {
        outcome: Outcome::Configured(RunResult::Changed),
        lookups: Lookups::from([(key, tag)]),
        started: replica.app.clock.now(),
        ..passed(replica, "lb1", seq)
    };
    replica.client.report(&env(), &report).await.unwrap();
}

/// A fleet whose web nodes are in service and known to lb1.
async fn fleet_in_service(replica: &Replica, site: &Arc<TestSite>) -> JoinHandle<()> {
    muster_server::register(&replica.app, &registration(&FLEET)).await.unwrap();
    let controller = look_after(replica, &TestDriver::new(site, None));
    replica.sees("all machines up", all_run).await;
    for name in ["web1", "web2"] {
        replica.client.report(&env(), &passed(replica, name, 1)).await.unwrap();
    }
    replica.sees("web in service", |fleet| is_active(fleet, "web1") && is_active(fleet, "web2")).await;
    lb1_runs(replica, 1).await;
    controller
}

async fn keys_of(cluster: &Cluster, name: &str) -> Vec<String> {
    let range = cluster.store.range(keys().prefix(), None).await.unwrap();
    let all = range.kvs.into_iter().map(|kv| kv.key);
    all.filter(|key| key.split('/').any(|part| part == name)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn leaving_node_is_released_after_dependents_ran_without_it() {
    let cluster = Cluster::patient().await;
    let (replica, site) = (cluster.replica().await, Arc::new(TestSite::default()));
    let controller = fleet_in_service(&replica, &site).await;

    let change = follow(&replica, &SMALLER).await;
    assert_eq!(change.leaving, [node("web2")]);
    let fleet = replica.fleet();
    assert!(!is_active(&fleet, "web2") && is_active(&fleet, "web1"));
    // A report of the leaving node does not put it back in service.
    replica.client.report(&env(), &passed(&replica, "web2", 2)).await.unwrap();
    assert!(!is_active(&replica.fleet(), "web2"));

    let status = replica.client.status(&env()).await.unwrap();
    assert_eq!((status.nodes, status.leaving.len()), (2, 1));
    let why = status.leaving[0].reason.as_ref().unwrap().to_string();
    assert!(why.starts_with("waits until lb1 has run without it, at the latest until "), "{why}");
    assert_eq!(status.leaving[0].state, NodeState::Leaving);
    assert_eq!(status.running.values().sum::<usize>(), 1, "what it runs does not count: {:?}", status.running);
    assert_eq!(site.seen(&node("web2")), MachineState::Running, "its machine keeps running");

    lb1_runs(&replica, 2).await;
    replica.sees("web2 is gone", |fleet| fleet.get(&node("web2")).is_none()).await;
    assert_eq!((site.steps("release web2"), site.seen(&node("web2"))), (1, MachineState::Absent));
    assert_eq!(keys_of(&cluster, "web2").await, Vec::<String>::new());
    assert_eq!(site.steps("boot web1") + site.steps("boot lb1"), 2, "the others were not touched");
    // The node can join again, as a new one.
    assert_eq!(follow(&replica, &FLEET).await.added, [node("web2")]);
    replica.sees("web2 up again", all_run).await;
    assert_eq!(site.steps("boot web2"), 2);
    end(controller).await;
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retired_node_drains_and_stays_out() {
    let cluster = Cluster::patient().await;
    let (replica, site) = (cluster.replica().await, Arc::new(TestSite::default()));
    let controller = fleet_in_service(&replica, &site).await;
    let retire = SetPolicy { policy: NodePolicy::Retired, reason: "end of lease".into() };
    replica.client.set_policy(&env(), "web2", &retire, "jo").await.unwrap();
    let fleet = replica.fleet();
    assert!(!is_active(&fleet, "web2") && is_active(&fleet, "web1"));
    let detail = replica.client.node(&env(), "web2").await.unwrap();
    assert_eq!(detail.row.policy.unwrap().policy, NodePolicy::Retired);
    assert!(detail.row.reason.unwrap().to_string().starts_with("waits until lb1 has run without it"));
    // The design still has it.
    assert!(follow(&replica, &FLEET).await.is_nothing());

    lb1_runs(&replica, 2).await;
    let gone = |fleet: &Fleet| fleet.get(&node("web2")).is_none_or(|node| node.record.is_none());
    replica.sees("web2 is gone", gone).await;
    assert_eq!((site.steps("release web2"), site.seen(&node("web2"))), (1, MachineState::Absent));
    assert_eq!(keys_of(&cluster, "web2").await, [keys().policy(&node("web2"))]);
    assert!(follow(&replica, &FLEET).await.is_nothing());

    replica.client.end_policy(&env(), "web2", NodePolicy::Retired, "jo").await.unwrap();
    assert_eq!(follow(&replica, &FLEET).await.added, [node("web2")]);
    replica.sees("web2 up again", all_run).await;
    // A cordon ends with the node.
    let cordon = SetPolicy { policy: NodePolicy::Cordoned, reason: "disk".into() };
    replica.client.set_policy(&env(), "web2", &cordon, "jo").await.unwrap();
    follow(&replica, &SMALLER).await;
    replica.sees("web2 is gone", |fleet| fleet.get(&node("web2")).is_none()).await;
    assert_eq!(keys_of(&cluster, "web2").await, Vec::<String>::new());
    end(controller).await;
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dependent_without_runs_delays_a_release_only_to_its_deadline() {
    let cluster = Cluster::patient().await;
    let (replica, site) = (cluster.replica().await, Arc::new(TestSite::default()));
    let controller = fleet_in_service(&replica, &site).await;
    follow(&replica, &SMALLER).await;

    // A failed run of lb1 does not count as a run without web2.
    let failed = Report { outcome: Outcome::Configured(RunResult::Failed), ..passed(&replica, "lb1", 2) };
    replica.client.report(&env(), &failed).await.unwrap();
    cluster.time.fetch_add(DRAIN_TIMEOUT.as_secs() - 1, Ordering::SeqCst);
    replica.client.report(&env(), &passed(&replica, "web1", 2)).await.unwrap();
    assert_eq!(phase(&replica.fleet(), "web2"), Some(MachinePhase::Bootstrapping));
    cluster.time.fetch_add(1, Ordering::SeqCst);
    replica.client.report(&env(), &passed(&replica, "web1", 3)).await.unwrap();
    replica.sees("web2 is gone", |fleet| fleet.get(&node("web2")).is_none()).await;
    assert_eq!(site.seen(&node("web2")), MachineState::Absent);
    end(controller).await;
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_wanted_again_before_its_release_returns_unchanged() {
    let cluster = Cluster::patient().await;
    let (replica, site) = (cluster.replica().await, Arc::new(TestSite::default()));
    let controller = fleet_in_service(&replica, &site).await;
    let _web2 = replica.open("web2", &SyncOpen { incarnation: Some(1), ..SyncOpen::default() }).await;
    follow(&replica, &SMALLER).await;
    assert!(!is_active(&replica.fleet(), "web2"));

    let change = follow(&replica, &FLEET).await;
    assert_eq!((change.returned, change.added), (vec![node("web2")], vec![]));
    replica.sees("web2 in service", |fleet| is_active(fleet, "web2")).await;
    lb1_runs(&replica, 2).await;
    replica.sees("web2 stays", |fleet| phase(fleet, "web2") == Some(MachinePhase::Provisioned)).await;
    assert_eq!((site.steps("release web2"), site.steps("boot web2")), (0, 1));
    end(controller).await;
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_leave_together_do_not_wait_for_each_other() {
    let cluster = Cluster::patient().await;
    let (replica, site) = (cluster.replica().await, Arc::new(TestSite::default()));
    let controller = fleet_in_service(&replica, &site).await;
    assert_eq!(follow(&replica, &[]).await.leaving.len(), 3);
    replica.sees("no node", |fleet| fleet.nodes().next().is_none()).await;
    assert!(FLEET.iter().all(|(name, _)| site.seen(&node(name)) == MachineState::Absent));
    end(controller).await;
    replica.stop().await;
}

/// The controller is ended in each of its driver calls in turn while a node leaves. The next controller completes the removal.
#[tokio::test(flavor = "multi_thread")]
async fn leaving_node_is_removed_wherever_its_controller_ended() {
    let cluster = Cluster::patient().await;
    let replica = cluster.replica().await;
    let site = Arc::new(TestSite::default());
    muster_server::register(&replica.app, &registration(&SMALLER)).await.unwrap();
    for calls in 0.. {
        assert!(calls < 100, "it never ends");
        follow(&replica, &FLEET).await;
        let up = look_after(&replica, &TestDriver::new(&site, None));
        replica.sees("all machines up", all_run).await;
        end(up).await;
        follow(&replica, &SMALLER).await;

        let driver = TestDriver::new(&site, Some(calls));
        let cut_off = look_after(&replica, &driver);
        let mut stuck = driver.stuck.subscribe();
        let gone = |fleet: &Fleet| fleet.get(&node("web2")).is_none();
        tokio::select! {
            stuck = stuck.wait_for(|stuck| *stuck) => { stuck.unwrap(); }
            () = replica.sees("web2 is gone", gone) => {
                assert!(calls > 3, "it looks at least at each machine, and releases one");
                end(cut_off).await;
                break;
            }
        }
        end(cut_off).await;
        let next = look_after(&replica, &TestDriver::new(&site, None));
        replica.sees("web2 is gone", gone).await;
        assert_eq!(site.seen(&node("web2")), MachineState::Absent, "ended in call {calls}");
        assert_eq!(keys_of(&cluster, "web2").await, Vec::<String>::new(), "ended in call {calls}");
        end(next).await;
    }
    assert_eq!(site.steps("boot web1"), 1, "no other machine was changed");
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_replica_completes_a_release_after_a_crash() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair(&FLEET).await;
    let site = Arc::new(TestSite::default());
    let driver = TestDriver::new(&site, None);
    let first = look_after(&a, &driver);
    until("a holds the machines", || a.app.replica.controller_locks.held(&env(), ControllerName::Provision).is_some())
        .await;
    let second = look_after(&b, &TestDriver::new(&site, None));
    b.sees("all machines up", all_run).await;
    // a dies just before it releases the machine. The two calls before that read the machine's state.
    *driver.calls_left.lock().unwrap() = Some(2);
    follow(&b, &SMALLER).await;
    driver.stuck.subscribe().wait_for(|stuck| *stuck).await.unwrap();
    end(first).await;
    a.kill().await;
    b.sees("web2 is gone", |fleet| fleet.get(&node("web2")).is_none()).await;
    assert_eq!((site.steps("release web2"), site.seen(&node("web2"))), (1, MachineState::Absent));
    assert_eq!(keys_of(&cluster, "web2").await, Vec::<String>::new());
    end(second).await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_release_does_not_delay_other_nodes() {
    let cluster = Cluster::patient().await;
    let (replica, site) = (cluster.replica().await, Arc::new(TestSite::default()));
    muster_server::register(&replica.app, &registration(&FLEET)).await.unwrap();
    let driver = Arc::new(TestDriver { hangs_in: Some("release web2"), ..TestDriver::with_calls(&site, None) });
    let controller = look_after(&replica, &driver);
    replica.sees("all machines up", all_run).await;
    follow(&replica, &SMALLER).await;
    driver.stuck.subscribe().wait_for(|stuck| *stuck).await.unwrap();
    follow(&replica, &[("web1", "web"), ("lb1", "lb"), ("db1", "db")]).await;
    replica.sees("db1 up", |fleet| phase(fleet, "db1") == Some(MachinePhase::Bootstrapping)).await;
    assert_eq!(phase(&replica.fleet(), "web2"), Some(MachinePhase::Releasing));
    end(controller).await;
    replica.stop().await;
}
