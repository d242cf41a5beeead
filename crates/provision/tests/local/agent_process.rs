//! Agents that end are restarted. Agents that crash repeatedly are reported.

use std::fs;

use muster_core::node::record::MachineStage;
use muster_marked::{Process, Signal};
use muster_provision::driver::{Driver, MachineSpec, MachineState};
use muster_provision::local::LocalDriver;

use super::site::{STAYS, Site, bring_up, marked, observed_state, spec};

/// Waits until the driver reports that the machine is broken.
async fn broken(driver: &LocalDriver, spec: &MachineSpec) -> String {
    let mut changes = driver.changes().unwrap();
    loop {
        if let MachineState::Broken { during: MachineStage::Booting, cause } = observed_state(driver, spec).await {
            return cause;
        }
        changes.changed().await.unwrap();
    }
}

#[tokio::test]
async fn killed_agent_is_restarted() {
    let mut site = Site::new(STAYS);
    let (driver, web1) = (site.driver(), spec("web1", 0));
    bring_up(&driver, &web1).await;
    let first = site.next_pid("started").await;

    Process::open(first).unwrap().unwrap().signal(Signal::KILL).unwrap();

    assert_ne!(site.next_pid("started").await, first);
    assert_eq!(observed_state(&driver, &web1).await, MachineState::Running);
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
    site.next_pid("started").await;
    assert_eq!(observed_state(&driver, &web1).await, MachineState::Running);
    driver.shutdown().await.unwrap();
}

#[tokio::test]
async fn crashing_machine_can_be_powered_off() {
    let site = Site::new("exit 1");
    let (driver, web1) = (site.driver(), spec("web1", 0));
    bring_up(&driver, &web1).await;
    let cause = broken(&driver, &web1).await;
    assert!(cause.contains("and wrote nothing to "), "{cause}");

    driver.shutdown().await.unwrap();

    assert!(marked(&site.machine("web1")).is_empty());
}

#[tokio::test]
async fn process_that_ignores_sigterm_is_killed() {
    let mut site = Site::new(
        r#"setsid sh -c 'trap "" TERM; echo deaf $$ > "$0"; while :; do sleep 3600; done' "$(dirname "$0")/pipe" &
        trap 'say bye; exit 0' TERM; say started $$; while :; do sleep 3600 & wait $!; done"#,
    );
    let (driver, web1) = (site.driver(), spec("web1", 0));
    bring_up(&driver, &web1).await;
    let mut said = [site.next_line().await, site.next_line().await];
    said.sort();
    let deaf: u32 = said[0].strip_prefix("deaf ").unwrap().parse().unwrap();

    let off = driver.shutdown().await.unwrap();

    assert_eq!(site.next_line().await, "bye", "the agent was asked first");
    let [machine] = &off[..] else { panic!("{off:?}") };
    let ended = machine.result.as_ref().unwrap();
    assert!(ended.is_complete() && ended.killed.contains(&deaf), "{ended:?}");
    assert!(marked(&site.machine("web1")).is_empty());
    drop(driver);
    assert_eq!(observed_state(&site.driver(), &web1).await, MachineState::Off);
    assert!(site.machine("web1").join("root").is_dir(), "its state is kept");
}

#[tokio::test]
async fn shutdown_powers_off_all_machines() {
    let mut site = Site::new(STAYS);
    let driver = site.driver();
    let specs = ["web1", "web2", "web3"].map(|node| spec(node, 0));
    for spec in &specs {
        bring_up(&driver, spec).await;
        site.next_pid("started").await;
    }

    driver.shutdown().await.unwrap();

    for spec in &specs {
        assert_eq!(site.next_line().await, "bye");
        assert!(marked(&site.machine(spec.node.as_str())).is_empty());
        let error = driver.boot(spec).await.unwrap_err().cause();
        assert_eq!(error, "the machines are being powered off");
        let cause = "the machines are being powered off".to_owned();
        assert_eq!(
            observed_state(&driver, spec).await,
            MachineState::Unknown { cause },
            "no reason for a planner to do anything"
        );
    }
    assert!(driver.shutdown().await.unwrap().iter().all(|machine| machine.result.is_ok()), "twice is as good");
}

#[tokio::test]
async fn running_machine_can_be_released() {
    let mut site = Site::new(STAYS);
    let driver = site.driver();
    let (web1, web2) = (spec("web1", 0), spec("web2", 1));
    bring_up(&driver, &web1).await;
    bring_up(&driver, &web2).await;
    for _ in 0..2 {
        site.next_pid("started").await;
    }

    driver.release(&web1).await.unwrap();

    assert_eq!(site.next_line().await, "bye");
    assert_eq!(observed_state(&driver, &web1).await, MachineState::Absent);
    assert!(!site.machine("web1").exists());
    assert_eq!(observed_state(&driver, &web2).await, MachineState::Running, "others are left alone");
    driver.shutdown().await.unwrap();
}
