//! Rotation of the certificate authority under running agents, and renewal in running agents, over real TLS.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use jiff::{SignedDuration, Timestamp};
use muster_agent::config::ConfigFile;
use muster_core::authority::RotationPhase;
use muster_core::identity::CertificateRecord;
use muster_identity::certificate;
use muster_identity::token::Pin;
use muster_testkit::wait::until;
use muster_wire::identity::{RotateAuthority, RotationResponse};
use muster_wire::problem::ProblemCode;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::fixture::{Fixture, node};
use crate::identity::{Machine, code, for_node, make_token, tls_url};

/// A public key that signs no release of these tests.
const KEY: &str = "ed25519:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc= ada";

/// A running agent of a machine that has joined.
struct RunningAgent {
    name: String,
    directory: PathBuf,
    config: ConfigFile,
    running: Option<(CancellationToken, JoinHandle<()>)>,
}

impl RunningAgent {
    async fn join(fixture: &Fixture, name: &str) -> Self {
        let (machine, token) = (Machine::new(name), make_token(fixture, for_node(name), 1).await);
        let joined = machine.join(fixture, &token).await.unwrap();
        let directory = fixture.dir.path().join(name);
        let identity = directory.join("state/identity");
        std::fs::create_dir_all(&identity).unwrap();
        for (file, text) in [
            ("node.key", &machine.key),
            ("node.crt", &joined.certificate.certificate),
            ("ca.crt", &joined.certificate.roots),
        ] {
            muster_identity::private_file::write(&identity.join(file), text).unwrap();
        }
        let text = format!(
            "env = \"test\"\nnode = \"{name}\"\nserver = \"{}\"\nstate_dir = \"{}\"\nroot = \"{}\"\ntrusted_keys = [\"{}\"]\ninterfaces = \"auto\"\n",
            tls_url(fixture),
            directory.join("state").display(),
            directory.display(),
            KEY,
        );
        let path = directory.join("agent.toml");
        std::fs::write(&path, text).unwrap();
        let config = ConfigFile::read(&path).unwrap();
        Self { name: name.to_owned(), directory, config, running: None }
    }

    fn start(&mut self) {
        let (cancel, config) = (CancellationToken::new(), self.config.clone());
        let stop = cancel.clone();
        let task = tokio::spawn(async move { muster_agent::agent::run(&config, stop).await.unwrap() });
        self.running = Some((cancel, task));
    }

    async fn stop(&mut self) {
        let (cancel, task) = self.running.take().unwrap();
        cancel.cancel();
        task.await.unwrap();
    }

    /// Pins of the roots that it has stored.
    fn roots(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.directory.join("state/identity/ca.crt")).unwrap();
        let roots = certificate::from_pem(&text).unwrap();
        roots.iter().map(|root| Pin::of(root).unwrap().to_string()).collect()
    }

    fn is_connected(&self, fixture: &Fixture) -> bool {
        fixture.app.agents.hub.session(&fixture.env, &node(&self.name)).is_some()
    }

    fn record(&self, fixture: &Fixture) -> CertificateRecord {
        let fleets = fixture.app.view.fleets();
        fleets[&fixture.env].get(&node(&self.name)).unwrap().certificate.clone().unwrap().0
    }
}

async fn fleet(fixture: &Fixture, names: &[&str]) -> Vec<RunningAgent> {
    let mut agents = Vec::new();
    for name in names {
        agents.push(RunningAgent::join(fixture, name).await);
    }
    agents
}

async fn connected(fixture: &Fixture, agents: &[RunningAgent]) {
    until("all agents are connected", || agents.iter().all(|agent| agent.is_connected(fixture))).await;
}

async fn rotate(fixture: &Fixture, force: bool) -> RotationResponse {
    fixture.client.rotate_authority(&RotateAuthority { pin: None, force }, "ada").await.unwrap()
}

fn phase(fixture: &Fixture) -> Option<RotationPhase> {
    let records = fixture.app.view.server_records();
    records.authority().unwrap().0.rotation.as_ref().map(|rotation| rotation.phase)
}

#[tokio::test]
async fn rotation_under_running_agents_loses_none() {
    let fixture = Fixture::start(&[("db1", "db"), ("db2", "db"), ("db3", "db"), ("web1", "web")]).await;
    let mut agents = fleet(&fixture, &["db1", "db2", "db3"]).await;
    agents.iter_mut().for_each(RunningAgent::start);
    connected(&fixture, &agents).await;
    let old_token = make_token(&fixture, for_node("web1"), 1).await;
    let old = fixture.client.authority().await.unwrap().pin;

    let begun = rotate(&fixture, false).await;
    let new = begun.rotation.unwrap().pin;
    until("the rotation has ended", || phase(&fixture).is_none()).await;
    let shown = fixture.client.authority().await.unwrap();
    assert_eq!(shown.pin, new);
    assert!(agents.iter().all(|agent| agent.record(&fixture).authority.as_ref() == Some(&new)));
    until("all agents have dropped the old root", || agents.iter().all(|agent| agent.roots() == [new.clone()])).await;
    connected(&fixture, &agents).await;

    // A restarted agent trusts the new authority alone, and a token with the old pin is accepted for a time.
    agents[0].stop().await;
    agents[0].start();
    connected(&fixture, &agents).await;
    let joined = Machine::new("web1").join(&fixture, &old_token).await.unwrap();
    assert!(joined.certificate.roots.trim() == shown.root.trim());
    let ended = fixture.client.rotation().await.unwrap();
    assert_eq!((ended.bridges[0].pin.clone(), ended.retired), (old.clone(), vec![old]));
    let audited = {
        let records = fixture.app.view.server_records();
        records.open_audit().filter(|(_, line)| line.contains("\"_server/ca\"")).count()
    };
    assert_eq!(audited, 3, "each phase");
    for agent in &mut agents {
        agent.stop().await;
    }
    fixture.stop().await;
}

#[tokio::test]
async fn rotation_waits_for_a_machine_that_is_off() {
    let fixture = Fixture::start(&[("db1", "db"), ("db2", "db")]).await;
    let mut agents = fleet(&fixture, &["db1", "db2"]).await;
    agents[0].start();
    connected(&fixture, &agents[..1]).await;
    let begun = rotate(&fixture, false).await.rotation.unwrap();
    assert_eq!(begun.phase, RotationPhase::Announced);
    let held = async || {
        let rotation = fixture.client.rotation().await.unwrap().rotation.unwrap();
        rotation.waits_for.nodes.into_iter().map(|held| held.node.to_string()).collect::<Vec<_>>()
    };
    until("db1 has stored the new root", || agents[0].record(&fixture).roots.contains(&begun.pin)).await;
    assert_eq!((held().await, phase(&fixture)), (vec!["db2".to_owned()], Some(RotationPhase::Announced)));
    let again = rotate(&fixture, false).await.rotation.unwrap();
    assert_eq!((again.pin, again.phase), (begun.pin.clone(), RotationPhase::Announced), "a repeated request");
    let other = RotateAuthority { pin: Some("0".repeat(64)), force: false };
    assert_eq!(code(&fixture.client.rotate_authority(&other, "ada").await.unwrap_err()), ProblemCode::Conflict);

    // Forced to its end while db2 is off: db2 knows only the old root, and recovers.
    rotate(&fixture, true).await;
    assert_eq!(code(&fixture.client.cancel_rotation("ada").await.unwrap_err()), ProblemCode::Conflict);
    until("db1 has a new certificate", || agents[0].record(&fixture).authority.as_ref() == Some(&begun.pin)).await;
    assert_eq!(held().await, ["db2"]);
    rotate(&fixture, true).await;
    assert_eq!(phase(&fixture), None);
    agents[1].start();
    connected(&fixture, &agents).await;
    until("db2 trusts the new root alone", || agents[1].roots() == [begun.pin.clone()]).await;
    for agent in &mut agents {
        agent.stop().await;
    }
    fixture.stop().await;
}

#[tokio::test]
async fn announced_rotation_is_cancelled() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    let _off = RunningAgent::join(&fixture, "db1").await;
    let before = fixture.client.authority().await.unwrap();
    let begun = rotate(&fixture, false).await.rotation.unwrap();
    assert_eq!(fixture.client.authority().await.unwrap().root.matches("BEGIN CERTIFICATE").count(), 2);
    assert!(fixture.client.cancel_rotation("ada").await.unwrap().rotation.is_none());
    assert_eq!(fixture.client.authority().await.unwrap(), before);
    let again = rotate(&fixture, false).await.rotation.unwrap();
    assert_eq!(again.pin, begun.pin, "its files are used");
    fixture.stop().await;
}

#[tokio::test]
async fn restarted_server_continues_a_rotation() {
    let nodes = [("db1", "db")];
    let fixture = Fixture::start(&nodes).await;
    let _off = RunningAgent::join(&fixture, "db1").await;
    let begun = rotate(&fixture, false).await.rotation.unwrap();
    let fixture = Fixture::start_in(fixture.stop().await, &nodes, Default::default()).await;
    assert_eq!(fixture.client.rotation().await.unwrap().rotation.unwrap().pin, begun.pin);
    rotate(&fixture, true).await;
    let fixture = Fixture::start_in(fixture.stop().await, &nodes, Default::default()).await;
    assert_eq!(phase(&fixture), Some(RotationPhase::Issuing));
    rotate(&fixture, true).await;
    let fixture = Fixture::start_in(fixture.stop().await, &nodes, Default::default()).await;
    assert_eq!(fixture.client.authority().await.unwrap().pin, begun.pin);
    fixture.stop().await;
}

#[tokio::test]
async fn running_agent_renews_its_certificate_at_two_thirds() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    // By the clock of the machine it was issued 17 hours ago.
    fixture.hours.store(-17, Ordering::Relaxed);
    let mut agent = RunningAgent::join(&fixture, "db1").await;
    fixture.hours.store(0, Ordering::Relaxed);
    let first = agent.record(&fixture);
    agent.start();
    until("the certificate was renewed", || agent.record(&fixture).expires > first.expires).await;
    let stored = || {
        let text = std::fs::read_to_string(agent.directory.join("state/identity/node.crt")).unwrap();
        certificate::read(&certificate::from_pem(&text).unwrap()[0]).unwrap().serial
    };
    until("the agent has stored it", || stored() == agent.record(&fixture).serial).await;
    agent.stop().await;
    fixture.stop().await;
}

#[tokio::test]
async fn running_agent_renews_an_ended_certificate_in_the_grace() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    fixture.hours.store(-48, Ordering::Relaxed);
    let mut agent = RunningAgent::join(&fixture, "db1").await;
    fixture.hours.store(0, Ordering::Relaxed);
    assert!(agent.record(&fixture).expires < Timestamp::now() - SignedDuration::from_hours(23));
    agent.start();
    connected(&fixture, std::slice::from_ref(&agent)).await;
    assert!(agent.record(&fixture).expires > Timestamp::now());
    agent.stop().await;
    fixture.stop().await;
}
