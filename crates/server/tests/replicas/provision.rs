//! One replica at a time provisions machines. The driver of another replica is not called until it holds the controller.

use std::sync::Arc;
use std::sync::Mutex;

use futures::FutureExt;
use futures::future::BoxFuture;
use muster_core::node::record::MachinePhase;
use muster_core::replica::ControllerName;
use muster_provision::driver::{
    Capabilities, Driver, MachineObservation, MachineSpec, MachineState, ObserveError, StepError,
};
use muster_provision::lifecycle::Policy;
use muster_server::controllers::provision::ProvisionController;
use muster_wire::sync::SyncOpen;

use crate::cluster::{Cluster, Replica, env, node, until};

/// A driver with one machine. Every step succeeds, and reads of the state are counted.
#[derive(Debug)]
struct TestMachine {
    seen: Mutex<(MachineState, usize)>,
}

impl TestMachine {
    fn new() -> Arc<Self> {
        Arc::new(Self { seen: Mutex::new((MachineState::Absent, 0)) })
    }

    fn looks(&self) -> usize {
        self.seen.lock().unwrap().1
    }

    fn step(&self, next: MachineState) -> BoxFuture<'_, Result<(), StepError>> {
        self.seen.lock().unwrap().0 = next;
        async { Ok(()) }.boxed()
    }
}

impl Driver for TestMachine {
    fn name(&self) -> &'static str {
        "counted"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { machine: "a value", replaceable: true, reports_changes: false }
    }

    fn observe<'a>(&'a self, _: &'a MachineSpec) -> BoxFuture<'a, Result<MachineObservation, ObserveError>> {
        let mut seen = self.seen.lock().unwrap();
        seen.1 += 1;
        let observation = MachineObservation { state: seen.0.clone(), log: None };
        async { Ok(observation) }.boxed()
    }

    fn allocate<'a>(&'a self, _: &'a MachineSpec) -> BoxFuture<'a, Result<(), StepError>> {
        self.step(MachineState::Allocated)
    }

    fn deploy<'a>(&'a self, _: &'a MachineSpec) -> BoxFuture<'a, Result<(), StepError>> {
        self.step(MachineState::Off)
    }

    fn boot<'a>(&'a self, _: &'a MachineSpec) -> BoxFuture<'a, Result<(), StepError>> {
        self.step(MachineState::Running)
    }

    fn release<'a>(&'a self, _: &'a MachineSpec) -> BoxFuture<'a, Result<(), StepError>> {
        self.step(MachineState::Absent)
    }
}

fn look_after(replica: &Replica, machine: &Arc<TestMachine>) -> tokio::task::JoinHandle<()> {
    let policy = Policy::local(replica.app.clock.now());
    let driver: Arc<dyn Driver> = machine.clone();
    tokio::spawn(ProvisionController::new(replica.app.clone(), env(), driver, policy).run())
}

#[tokio::test(flavor = "multi_thread")]
async fn second_provision_controller_waits_for_the_first() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair(&[("web1", "web")]).await;
    let (at_a, at_b) = (TestMachine::new(), TestMachine::new());
    let first = look_after(&a, &at_a);
    until("a holds the machines", || a.app.replica.controller_locks.held(&env(), ControllerName::Provision).is_some())
        .await;
    let second = look_after(&b, &at_b);
    let _web1 = b.open("web1", &SyncOpen::default()).await;
    let phase = |fleet: &muster_core::fleet::Fleet| {
        fleet.get(&node("web1")).and_then(|node| Some(node.machine.as_ref()?.0.phase.clone()))
    };
    // The agent is connected to b. a reads that from the presence record.
    b.sees("web1 provisioned", |fleet| phase(fleet) == Some(MachinePhase::Provisioned)).await;
    assert!(at_a.looks() > 0);
    assert_eq!(at_b.looks(), 0, "b has not touched anything");

    first.abort();
    let _ = first.await;
    let looks = at_a.looks();
    a.stop().await;
    until("b holds the machines", || b.app.replica.controller_locks.held(&env(), ControllerName::Provision).is_some())
        .await;
    until("b looks after them", || at_b.looks() > 0).await;
    assert_eq!(at_a.looks(), looks);
    second.abort();
    b.stop().await;
}
