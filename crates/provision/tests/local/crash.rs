//! Agents that end are restarted. Agents that crash repeatedly are reported.

use std::fs;

use muster_core::node::record::MachineStage;
use muster_marked::{Process, Signal};
use muster_provision::driver::{Driver, MachineSpec, MachineState};
use muster_provision::local::LocalDriver;

use super::site::{STAYS, Site, bring_up, marked, seen, spec};

/// Waits until the driver reports that the machine is broken.
async fn broken(driver: &LocalDriver, spec: &MachineSpec) -> String {
    let mut changes = driver.changes().unwrap();
    loop {
        if let MachineState::Broken { during: MachineStage::Booting, cause } = seen(driver, spec).await {
            return cause;
        }
        changes.changed().await.unwrap();
    }
}

#[tokio::test]
async fn an_agent_that_is_killed_is_started_again() {
    let mut site = Site::new(STAYS);
    let (driver, web1) = (site.driver(), spec("web1", 0));
    bring_up(&driver, &web1).await;
    let first = site.hear_pid("started").await;

    Process::open(first).unwrap().unwrap().signal(Signal::KILL).unwrap();

    assert_ne!(site.hear_pid("started").await, first);
    assert_eq!(seen(&driver, &web1).await, MachineState::Running);
    driver.shutdown().await.unwrap();
}

#[tokio::test]
async fn crashing_agent_is_reported_with_its_last_log_lines() {
    let mut site = Site::new("echo one; echo 'the port 7077 is taken' >&2; exit 3");
    let (driver, web1) = (site.driver(), spec("web1", 0));
    bring_up(&driver, &web1).await;

    let cause = broken(&driver, &web1).await;
    let log = site.machine("web1").join("agent.log");
    assert_eq!(
        cause,
        format!(
            "the agent ended 5 times in a row, the last time with exit status: 3: one | the port 7077 is taken (see {})",
            log.display()
        )
    );
    assert_eq!(fs::read_to_string(&log).unwrap().lines().count(), 10, "both streams, of every start");

    // It is repaired. Booting again retries at once, with a reset count.
    site.agent(STAYS);
    driver.boot(&web1).await.unwrap();
    site.hear_pid("started").await;
    assert_eq!(seen(&driver, &web1).await, MachineState::Running);
    driver.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_machine_that_does_not_stay_up_can_be_switched_off() {
    let site = Site::new("exit 1");
    let (driver, web1) = (site.driver(), spec("web1", 0));
    bring_up(&driver, &web1).await;
    let cause = broken(&driver, &web1).await;
    assert!(cause.contains("and wrote nothing to "), "{cause}");

    driver.shutdown().await.unwrap();

    assert!(marked(&site.machine("web1")).is_empty());
}
