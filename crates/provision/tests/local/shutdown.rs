//! Shutdown: no process is left, even if an agent ignores signals.

use muster_provision::driver::{Driver, MachineState};

use super::site::{STAYS, Site, bring_up, marked, seen, spec};

#[tokio::test]
async fn the_agent_ends_cleanly_and_what_ignores_the_asking_is_killed() {
    let mut site = Site::new(
        r#"setsid sh -c 'trap "" TERM; echo deaf $$ > "$0"; while :; do sleep 3600; done' "$(dirname "$0")/pipe" &
        trap 'say bye; exit 0' TERM; say started $$; while :; do sleep 3600 & wait $!; done"#,
    );
    let (driver, web1) = (site.driver(), spec("web1", 0));
    bring_up(&driver, &web1).await;
    let mut said = [site.hear().await, site.hear().await];
    said.sort();
    let deaf: u32 = said[0].strip_prefix("deaf ").unwrap().parse().unwrap();

    let off = driver.shutdown().await.unwrap();

    assert_eq!(site.hear().await, "bye", "the agent was asked first");
    let [machine] = &off[..] else { panic!("{off:?}") };
    let ended = machine.result.as_ref().unwrap();
    assert!(ended.is_complete() && ended.killed.contains(&deaf), "{ended:?}");
    assert!(marked(&site.machine("web1")).is_empty());
    drop(driver);
    assert_eq!(seen(&site.driver(), &web1).await, MachineState::Off);
    assert!(site.machine("web1").join("root").is_dir(), "its state is kept");
}

#[tokio::test]
async fn all_machines_are_switched_off_and_none_comes_back() {
    let mut site = Site::new(STAYS);
    let driver = site.driver();
    let specs = ["web1", "web2", "web3"].map(|node| spec(node, 0));
    for spec in &specs {
        bring_up(&driver, spec).await;
        site.hear_pid("started").await;
    }

    driver.shutdown().await.unwrap();

    for spec in &specs {
        assert_eq!(site.hear().await, "bye");
        assert!(marked(&site.machine(spec.node.as_str())).is_empty());
        let error = driver.boot(spec).await.unwrap_err().cause();
        assert_eq!(error, "the machines are being powered off");
        let cause = "the machines are being powered off".to_owned();
        assert_eq!(
            seen(&driver, spec).await,
            MachineState::Unknown { cause },
            "no reason for a planner to do anything"
        );
    }
    assert!(driver.shutdown().await.unwrap().iter().all(|machine| machine.result.is_ok()), "twice is as good");
}

#[tokio::test]
async fn a_machine_is_released_while_it_runs() {
    let mut site = Site::new(STAYS);
    let driver = site.driver();
    let (web1, web2) = (spec("web1", 0), spec("web2", 1));
    bring_up(&driver, &web1).await;
    bring_up(&driver, &web2).await;
    for _ in 0..2 {
        site.hear_pid("started").await;
    }

    driver.release(&web1).await.unwrap();

    assert_eq!(site.hear().await, "bye");
    assert_eq!(seen(&driver, &web1).await, MachineState::Absent);
    assert!(!site.machine("web1").exists());
    assert_eq!(seen(&driver, &web2).await, MachineState::Running, "others are left alone");
    driver.shutdown().await.unwrap();
}
