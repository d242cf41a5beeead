//! Tests of the agents and machines that a killed driver leaves behind.

use std::fs;

use muster_core::names::NodeName;
use muster_core::node::record::MachineStage;
use muster_marked::Process;
use muster_provision::driver::{Driver, MachineSpec, MachineState};
use muster_provision::local::{LocalConfig, LocalDriver};

use super::site::{Site, bring_up, marked, observed_state, spec};

/// An agent with a listener, which has left its session.
const WITH_LISTENER: &str =
    "setsid sleep 3600 & say listener $!; say started $$; while :; do sleep 3600 & wait $!; done";

/// Drops a driver without a shutdown: its processes continue, as after a kill.
fn kill(driver: LocalDriver) {
    drop(driver);
}

#[tokio::test]
async fn agent_of_a_killed_driver_is_ended_and_its_services_stay() {
    let mut site = Site::new(WITH_LISTENER);
    let web1 = spec("web1", 0);
    let first = site.driver();
    bring_up(&first, &web1).await;
    let listener = Process::open(site.next_pid("listener").await).unwrap().unwrap();
    let old = Process::open(site.next_pid("started").await).unwrap().unwrap();
    kill(first);
    assert!(!old.has_ended().unwrap(), "an agent does not need its driver to live");

    let server = "http://127.0.0.1:8088".to_owned();
    let second = LocalDriver::open(LocalConfig { server, ..site.config() }).unwrap();
    assert_eq!(observed_state(&second, &web1).await, MachineState::Off, "it has no supervisor");
    second.boot(&web1).await.unwrap();

    site.next_pid("listener").await;
    let new = site.next_pid("started").await;
    assert!(old.has_ended().unwrap());
    assert_ne!(new, old.pid());
    assert!(!listener.has_ended().unwrap());
    let config = fs::read_to_string(site.machine("web1").join("agent.toml")).unwrap();
    assert!(config.contains("server = \"http://127.0.0.1:8088\""), "{config}");

    second.shutdown().await.unwrap();
    assert!(listener.has_ended().unwrap());
    assert!(marked(&site.machine("web1")).is_empty());
}

#[tokio::test]
async fn shutdown_powers_off_machines_of_a_killed_driver() {
    let mut site = Site::new(WITH_LISTENER);
    let first = site.driver();
    bring_up(&first, &spec("web1", 0)).await;
    site.next_pid("listener").await;
    site.next_pid("started").await;
    kill(first);

    let second = site.driver();
    let off = second.shutdown().await.unwrap();

    assert_eq!(off.iter().map(|machine| machine.node.as_str()).collect::<Vec<_>>(), ["web1"]);
    assert!(marked(&site.machine("web1")).is_empty());
}

#[tokio::test]
async fn only_machines_of_removed_nodes_are_released() {
    let mut site = Site::new(WITH_LISTENER);
    let (web1, web2) = (spec("web1", 0), spec("web2", 1));
    let first = site.driver();
    for spec in [&web1, &web2] {
        bring_up(&first, spec).await;
        site.next_pid("listener").await;
        site.next_pid("started").await;
    }
    let mut staging = spec("db1", 2);
    staging.env = "staging".parse().unwrap();
    first.allocate(&staging).await.unwrap();
    kill(first);
    let half_gone = site.machine("web3").join("root");
    fs::create_dir_all(&half_gone).unwrap();

    let second = site.driver();
    let released = second.release_others(&web1.env, &[web1.node.clone()].into()).await.unwrap();

    assert_eq!(released.iter().map(NodeName::as_str).collect::<Vec<_>>(), ["web2", "web3"]);
    assert!(marked(&site.machine("web2")).is_empty());
    assert!(!site.machine("web2").exists() && !half_gone.exists());
    assert!(!marked(&site.machine("web1")).is_empty(), "what is wanted was not touched");
    assert!(site.machine("db1").exists(), "it belongs to another environment");
    second.allocate(&spec("web4", 1)).await.unwrap();
    let machine = fs::read_to_string(site.machine("web4").join("machine.json")).unwrap();
    assert!(machine.contains(&site.address(1)), "the address is free again: {machine}");
    assert_eq!(second.release_others(&web1.env, &[web1.node.clone(), spec("web4", 1).node].into()).await.unwrap(), []);
    second.shutdown().await.unwrap();
}

#[tokio::test]
async fn interrupted_release_is_observed_and_completed() {
    let mut site = Site::new(WITH_LISTENER);
    let driver = site.driver();
    let web1 = MachineSpec { leaving: true, ..spec("web1", 0) };
    bring_up(&driver, &web1).await;
    site.next_pid("listener").await;
    site.next_pid("started").await;
    // State after a release that was killed while it removed files.
    driver.shutdown().await.unwrap();
    drop(driver);
    fs::remove_file(site.machine("web1").join("machine.json")).unwrap();

    let driver = site.driver();
    let broken = observed_state(&driver, &web1).await;
    assert!(matches!(broken, MachineState::Broken { during: MachineStage::Releasing, .. }), "{broken:?}");
    for _ in 0..2 {
        driver.release(&web1).await.unwrap();
        assert_eq!(observed_state(&driver, &web1).await, MachineState::Absent);
    }
    assert!(!site.machine("web1").exists());
}

#[tokio::test]
async fn machine_that_does_not_match_its_spec_is_released() {
    let site = Site::new("exit 0");
    let driver = site.driver();
    driver.allocate(&spec("web1", 0)).await.unwrap();
    drop(driver);
    let driver = LocalDriver::open(LocalConfig { network: Some(site.network("128/25")), ..site.config() }).unwrap();
    assert_eq!(
        observed_state(&driver, &spec("web1", 0)).await,
        MachineState::Absent,
        "its address is of another network"
    );
    let leaving = MachineSpec { leaving: true, ..spec("web1", 0) };
    assert_eq!(observed_state(&driver, &leaving).await, MachineState::Allocated);
    driver.release(&leaving).await.unwrap();
    assert!(!site.machine("web1").exists());
}
