//! Lifecycle of a local machine, from allocation to release.

use std::fs;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::{SignedDuration, Timestamp};

use muster_core::node::record::{MachinePhase, MachineRecord};
use muster_provision::driver::{Driver, MachineState, StepError};
use muster_provision::executor::{ReconcileInput, Requeue, reconcile};
use muster_provision::lifecycle::Policy;
use muster_provision::local::{LocalConfig, LocalDriver, MACHINE_MARK, OpenDriverError};

use super::site::{STAYS, Site, bring_up, observed_state, spec};

#[tokio::test]
async fn steps_are_observed_and_idempotent() {
    let mut site = Site::new(STAYS);
    let (driver, web1) = (site.driver(), spec("web1", 0));
    assert_eq!(observed_state(&driver, &web1).await, MachineState::Absent);
    for _ in 0..2 {
        driver.allocate(&web1).await.unwrap();
        assert_eq!(observed_state(&driver, &web1).await, MachineState::Allocated);
    }
    for _ in 0..2 {
        driver.deploy(&web1).await.unwrap();
        assert_eq!(observed_state(&driver, &web1).await, MachineState::Off);
    }
    for _ in 0..2 {
        driver.boot(&web1).await.unwrap();
        assert_eq!(observed_state(&driver, &web1).await, MachineState::Running);
    }
    site.next_pid("started").await;
    driver.shutdown().await.unwrap();
    assert_eq!(site.next_line().await, "bye", "it was started once");
    drop(driver);
    let driver = site.driver();
    assert_eq!(observed_state(&driver, &web1).await, MachineState::Off);
    for _ in 0..2 {
        driver.release(&web1).await.unwrap();
        assert_eq!(observed_state(&driver, &web1).await, MachineState::Absent);
        assert!(!site.machine("web1").exists());
    }
}

#[tokio::test]
async fn agent_gets_its_configuration_and_a_clean_environment() {
    let mut site =
        Site::new("say \"$@\"; for name in $(env | cut -d= -f1 | sort); do say $name; done; say end; sleep 3600");
    let (driver, web1) = (site.driver(), spec("web1", 0));
    bring_up(&driver, &web1).await;

    let machine = site.machine("web1");
    let config = machine.join("agent.toml");
    assert_eq!(site.next_line().await, format!("run --config {}", config.display()));
    let mut names = Vec::new();
    loop {
        match site.next_line().await {
            end if end == "end" => break,
            name => names.push(name),
        }
    }
    // The shell adds PWD; the others are set only if the test environment has them.
    names.retain(|name| !matches!(name.as_str(), "PWD" | "OLDPWD" | "SHLVL" | "_" | "HOME" | "LANG" | "RUST_LOG"));
    assert_eq!(names, ["MUSTER_BOOT", "MUSTER_MACHINE", "PATH"]);

    let text = fs::read_to_string(config).unwrap();
    for line in [
        "env = \"prod\"",
        "node = \"web1\"",
        "server = \"http://127.0.0.1:7077\"",
        &format!("eth0 = \"{}\"", site.address(0)),
        &format!("root = \"{}/root\"", machine.display()),
        &format!("state_dir = \"{}/agent\"", machine.display()),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
    }
    driver.shutdown().await.unwrap();
}

#[tokio::test]
async fn addresses_persist_until_the_machine_is_released() {
    let site = Site::new(STAYS);
    let address = |node: &str| {
        let text = fs::read_to_string(site.machine(node).join("machine.json")).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["interfaces"]["eth0"].as_str().unwrap().to_owned()
    };
    let driver = site.driver();
    for (node, position) in [("web2", 1), ("web1", 0)] {
        driver.allocate(&spec(node, position)).await.unwrap();
    }
    drop(driver);
    let driver = site.driver();
    // The index of web2 in the design has changed, but it keeps its address.
    driver.allocate(&spec("web2", 7)).await.unwrap();
    driver.allocate(&spec("web3", 1)).await.unwrap();
    assert_eq!(["web1", "web2", "web3"].map(address), [0, 1, 2].map(|position| site.address(position)));

    driver.release(&spec("web2", 7)).await.unwrap();
    driver.allocate(&spec("web4", 1)).await.unwrap();
    assert_eq!(address("web4"), site.address(1));
}

#[tokio::test]
async fn exhausted_network_refuses_and_another_moves_machines() {
    let site = Site::new(STAYS);
    let open =
        |part: &str| LocalDriver::open(LocalConfig { network: Some(site.network(part)), ..site.config() }).unwrap();
    let driver = open("0/30");
    driver.allocate(&spec("web1", 0)).await.unwrap();
    driver.allocate(&spec("web2", 1)).await.unwrap();
    let error = driver.allocate(&spec("web3", 2)).await.unwrap_err();
    assert!(matches!(error, StepError::Transient(_)) && error.cause().contains(".0/30 is exhausted"), "{error:?}");
    drop(driver);

    let driver = open("128/25");
    let web1 = spec("web1", 0);
    assert_eq!(observed_state(&driver, &web1).await, MachineState::Absent, "no machine of this network");
    driver.allocate(&web1).await.unwrap();
    assert_eq!(observed_state(&driver, &web1).await, MachineState::Allocated);
}

#[tokio::test]
async fn two_drivers_never_share_a_directory() {
    let site = Site::new(STAYS);
    let first = site.driver();
    let second = LocalDriver::open(site.config()).unwrap_err();
    assert!(matches!(second, OpenDriverError::InUse { .. }));
    let text = second.to_string();
    assert!(
        text.contains(&format!("(pid {})", std::process::id())) && text.contains("choose another --state"),
        "{text}"
    );
    drop(first);
    site.driver();
}

#[tokio::test]
async fn wildcard_listener_on_the_port_of_a_check_is_refused() {
    let site = Site::new(STAYS);
    site.driver().allocate(&spec("web1", 0)).await.unwrap();
    for bind in ["0.0.0.0:0", "[::]:0"] {
        let listener = TcpListener::bind(bind).unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(site.driver());
        let config = || LocalConfig { check_ports: [port].into(), ..site.config() };
        let refused = LocalDriver::open(config()).unwrap_err();
        assert!(matches!(refused, OpenDriverError::WildcardPortInUse { port: found } if found == port), "{refused:?}");

        // A process that the machine has started earlier.
        let mut own = Command::new("sleep");
        own.arg("600").env(MACHINE_MARK, site.machine("web1")).stdin(OwnedFd::from(listener));
        let mut own_process = own.spawn().unwrap();
        drop(own);
        LocalDriver::open(config()).unwrap();
        own_process.kill().unwrap();
        own_process.wait().unwrap();
    }
}

#[tokio::test]
async fn port_of_another_process_is_refused_at_start() {
    let site = Site::new(STAYS);
    site.driver().allocate(&spec("web1", 0)).await.unwrap();
    let listener = TcpListener::bind((site.address(0).as_str(), 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let refused = LocalDriver::open(site.config()).unwrap_err();
    assert!(matches!(refused, OpenDriverError::PortInUse { port: found, .. } if found == port), "{refused:?}");
    let text = format!("{}:{port} is in use by a process that does not belong to this fleet", site.address(0));
    assert!(refused.to_string().starts_with(&text), "{refused}");

    // A process that the machine has started earlier.
    let mut own = Command::new("sleep");
    own.arg("600").env(MACHINE_MARK, site.machine("web1")).stdin(OwnedFd::from(listener));
    let mut own_process = own.spawn().unwrap();
    drop(own);
    site.driver();
    own_process.kill().unwrap();
    own_process.wait().unwrap();
}

#[tokio::test]
async fn two_fleets_have_different_addresses() {
    let (one, two) = (Site::new(STAYS), Site::new(STAYS));
    let open = |site: &Site| LocalDriver::open(LocalConfig { network: None, ..site.config() }).unwrap();
    let (first, second) = (open(&one), open(&two));
    assert!(!first.network().overlaps(&second.network()), "{} {}", first.network(), second.network());
    let third = Site::new(STAYS);
    let same = LocalConfig { network: Some(first.network()), ..third.config() };
    let refused = LocalDriver::open(same).unwrap_err();
    assert!(matches!(refused, OpenDriverError::Network(_)), "{refused:?}");
}

#[tokio::test]
async fn permanent_errors_are_refused_with_a_reason() {
    let site = Site::new(STAYS);
    let missing = LocalConfig { agent: Some("/nowhere/muster-agent".into()), ..site.config() };
    let error = LocalDriver::open(missing).unwrap_err().to_string();
    assert_eq!(error, "/nowhere/muster-agent is not an executable program: give the path of muster-agent");

    let driver = site.driver();
    let error = driver.boot(&spec("web1", 0)).await.unwrap_err().cause();
    assert_eq!(error, "web1 has no machine: allocate one first");

    driver.allocate(&spec("web1", 0)).await.unwrap();
    let mut other = spec("web1", 0);
    other.env = "staging".parse().unwrap();
    assert_eq!(observed_state(&driver, &other).await, MachineState::Absent);
    let error = driver.allocate(&other).await.unwrap_err();
    assert!(matches!(error, StepError::Final(_)) && error.cause().contains("environment prod"), "{error:?}");

    driver.deploy(&spec("web1", 0)).await.unwrap();
    fs::remove_file(site.agent_path()).unwrap();
    let error = driver.boot(&spec("web1", 0)).await.unwrap_err();
    assert!(matches!(error, StepError::Final(_)) && error.cause().starts_with("cannot start "), "{error:?}");
}

/// Reconciles until the machine has to wait, as the server does. The agent counts as connected when it has started.
async fn drive(site: &mut Site, driver: &LocalDriver, record: &mut Option<MachineRecord>, clock: &AtomicI64) {
    let started: Timestamp = "2026-11-15T10:00:00Z".parse().unwrap();
    let now = || started + SignedDuration::from_secs(clock.fetch_add(1, Ordering::SeqCst));
    let (policy, web1) = (Policy::local(started), spec("web1", 0));
    let mut connected = false;
    loop {
        let turn = reconcile(
            driver,
            &web1,
            ReconcileInput { record: record.as_ref(), agent_connected: connected, leaving: None },
            &policy,
            &now,
        )
        .await;
        *record = turn.record.or(record.take());
        match turn.next {
            Requeue::Now => {}
            Requeue::At(_) => {
                site.next_pid("started").await;
                connected = true;
            }
            Requeue::OnChange => return,
        }
    }
}

#[tokio::test]
async fn planner_boots_a_machine_that_was_powered_off() {
    let mut site = Site::new(STAYS);
    let clock = AtomicI64::new(0);
    let mut record = None;
    for _ in 0..2 {
        let driver = site.driver();
        drive(&mut site, &driver, &mut record, &clock).await;
        assert_eq!(record.as_ref().unwrap().phase, MachinePhase::Provisioned);
        assert_eq!(record.as_ref().unwrap().driver, "local");
        driver.shutdown().await.unwrap();
        assert_eq!(site.next_line().await, "bye");
    }
}
