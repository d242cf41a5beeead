//! Several servers with TLS: one certificate authority, and identities that count on all of them.

use std::os::unix::fs::PermissionsExt;

use muster_core::authority::RotationPhase;
use muster_core::identity::TokenScope;
use muster_identity::certificate;
use muster_identity::request::{generate_key, make_request};
use muster_identity::tls::{PresentedCertificate, certified_key, client_config};
use muster_identity::token::JoinToken;
use muster_wire::client::{Client, Credentials};
use muster_wire::identity::{CreateToken, JoinRequest, RevokeCertificate, RotateAuthority};
use muster_wire::sync::SyncOpen;

use crate::cluster::{Cluster, Replica, env, node, until};

/// Joins a machine at one replica. Returns a client of another one, with its certificate.
async fn join(at: &Replica, name: &str, other: &Replica) -> Client {
    let request = CreateToken { scope: TokenScope::Node { node: node(name) }, uses: 1, seconds: 3600 };
    let token: JoinToken = at.client.create_token(&env(), &request, "ada").await.unwrap().token.parse().unwrap();
    let key = generate_key().unwrap();
    let request = make_request(&key).unwrap();
    let request = JoinRequest { token: token.id().clone(), secret: token.secret(), request, host: name.to_owned() };
    let joined = at.client.join(&request).await.unwrap();
    let certified = certified_key(&joined.certificate.certificate, &key).unwrap();
    let roots = certificate::from_pem(&joined.certificate.roots).unwrap();
    let tls = client_config(&roots, Some(PresentedCertificate::new(certified))).unwrap();
    let url = other.client.base().replace("http://", "https://");
    Client::with_credentials(&url, &Credentials { token: None, tls: Some(tls) }).unwrap()
}

#[tokio::test]
async fn revocation_at_one_server_ends_streams_at_the_other() {
    let cluster = Cluster::patient().await.with_authority("ca");
    let (a, b) = cluster.pair(&[("db1", "db")]).await;
    let machine = join(&a, "db1", &b).await;
    until("b knows the certificate", || {
        b.app.view.fleets()[&env()].get(&node("db1")).is_some_and(|node| node.certificate.is_some())
    })
    .await;
    let mut stream = machine.sync(&env(), &node("db1"), &SyncOpen::default()).await.unwrap();
    stream.next().await.unwrap().unwrap();
    let revoke = RevokeCertificate { reason: "disk was stolen".into() };
    let began = std::time::Instant::now();
    a.client.revoke_certificate(&env(), "db1", &revoke, "ada").await.unwrap();
    // Without the end of the stream this waits for the limit of the test.
    while let Ok(Some(_)) = stream.next().await {}
    println!("the stream ended after {:?}", began.elapsed());
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn server_with_another_authority_does_not_start() {
    let cluster = Cluster::patient().await.with_authority("ca");
    let (a, b) = cluster.pair(&[("db1", "db")]).await;
    let pins = |record: &muster_core::replica::ReplicaRecord| record.authorities.len() == 1;
    a.sees("the authority of both", |fleet| fleet.replicas().values().all(|(record, _)| pins(record))).await;
    let cluster = cluster.with_authority("other");
    let refused = cluster.start(cluster.blobs()).await.err().unwrap().to_string();
    let pin = a.client.authority().await.unwrap().pin;
    assert!(refused.contains(&format!("have the certificate authority {pin}")), "{refused}");
    assert!(refused.contains("copy ca.crt and ca.key") && refused.contains(" from the server on "), "{refused}");
    a.stop().await;
    b.stop().await;
}

/// The first key is still there: it must not be taken for the one in use, and no advice to replace the authority must be given.
#[tokio::test]
async fn server_with_an_unusable_key_after_a_rotation_says_what_to_do() {
    let cluster = Cluster::patient().await.with_authority("ca");
    let (a, b) = cluster.pair(&[("db1", "db")]).await;
    let rotation = a.client.rotate_authority(&RotateAuthority::default(), "ada").await.unwrap().rotation.unwrap();
    let pin = || a.app.view.server_records().authority().map(|(record, _)| record.current.pin.clone());
    until("the new authority is in use", || pin().as_ref() == Some(&rotation.pin)).await;
    let ca = cluster.dir.path().join("ca");
    let key = ca.join(&rotation.pin[..16]).join("ca.key");
    assert!(ca.join("ca.key").exists());
    let refusal = async || {
        let refused = cluster.start(cluster.blobs()).await.err().unwrap();
        let causes = std::iter::successors(Some(&refused as &dyn std::error::Error), |error| error.source());
        causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
    };
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let text = refusal().await;
    assert!(text.contains(&rotation.pin) && text.contains(&format!("`chmod 600 {}`", key.display())), "{text}");
    assert!(!text.contains("--replace-authority"), "{text}");
    std::fs::rename(&key, ca.join("kept")).unwrap();
    let text = refusal().await;
    assert!(text.contains("restore the file from a backup") && text.contains(&*key.to_string_lossy()), "{text}");
    assert!(text.contains(" from the server on ") && !text.contains("--replace-authority"), "{text}");
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn rotation_waits_for_a_server_without_the_new_key() {
    let cluster = Cluster::patient().await.with_authority("one");
    let a = cluster.replica().await;
    muster_server::register(&a.app, &crate::cluster::registration(&[("db1", "db")])).await.unwrap();
    let directory = |name: &str| cluster.dir.path().join(name);
    std::fs::create_dir(directory("two")).unwrap();
    for file in ["ca.crt", "ca.key"] {
        std::fs::copy(directory("one").join(file), directory("two").join(file)).unwrap();
    }
    let (one, two) = (directory("one"), directory("two"));
    let cluster = cluster.with_authority("two");
    let b = cluster.replica().await;
    a.sees("both", |fleet| fleet.replicas().len() == 2).await;
    let rotation = a.client.rotate_authority(&RotateAuthority::default(), "ada").await.unwrap().rotation.unwrap();
    assert!(rotation.phase == RotationPhase::Announced && rotation.waits_for.replicas.contains(b.id()), "{rotation:?}");
    let name = &rotation.pin[..16];
    std::fs::create_dir(two.join(name)).unwrap();
    for file in ["ca.crt", "ca.key"] {
        std::fs::copy(one.join(name).join(file), two.join(name).join(file)).unwrap();
    }
    // No machine has joined: the phases end as soon as both servers have the key.
    for replica in [&a, &b] {
        let pin = || replica.app.view.server_records().authority().map(|(record, _)| record.current.pin.clone());
        until("the new authority is in use", || pin().as_ref() == Some(&rotation.pin)).await;
    }
    a.stop().await;
    b.stop().await;
}
