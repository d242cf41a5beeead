//! Renewal of certificates by the holder of their key, and limits on guesses, over real TLS.

use std::sync::atomic::Ordering;

use jiff::{SignedDuration, Timestamp};
use muster_identity::authority::Authority;
use muster_identity::certificate;
use muster_identity::request::generate_key;
use muster_identity::tls::{PresentedCertificate, client_config};
use muster_identity::token::JoinToken;
use muster_wire::client::{Client, Credentials};
use muster_wire::identity::{CertificateState, JoinRequest, RenewRequest, RevokeCertificate};
use muster_wire::problem::{Problem, ProblemCode};

use crate::fixture::{CapturedLog, Fixture, node};
use crate::identity::{Machine, code, for_node, for_role, make_token, renewal, tls_url};
use crate::restore::{REPLACE, backup};

#[tokio::test]
async fn ended_certificate_renews_itself_and_does_nothing_else() {
    let fixture = Fixture::start(&[("db1", "db"), ("db2", "db")]).await;
    // By the clock of TLS, too: the machine joined 48 hours ago.
    fixture.hours.store(-48, Ordering::Relaxed);
    let (machine, token) = (Machine::new("db1"), make_token(&fixture, for_node("db1"), 1).await);
    let joined = machine.join(&fixture, &token).await.unwrap();
    fixture.hours.store(0, Ordering::Relaxed);
    assert!(joined.certificate.expires < Timestamp::now());
    assert_eq!(fixture.client.certificates(&fixture.env).await.unwrap().items[0].state, CertificateState::Expired);

    let client = machine.client(&fixture, &joined);
    let ended = client.desired(&fixture.env, &node("db1")).await.unwrap_err();
    assert!(ended.to_string().contains("the certificate of db1 ended at "), "{ended}");
    let tls = machine.credentials(&joined.certificate).tls.unwrap();
    let http = muster_wire::client::plain_http().tls_backend_preconfigured(tls).build().unwrap();
    let document = muster_server::openapi();
    let (mut refused, mut admitted) = (0, Vec::new());
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let url = format!("{}{}", tls_url(&fixture), path.replace("{env}", "test").replace("{node}", "db1"));
            let request = http.request(method.to_uppercase().parse().unwrap(), url).body("");
            let response = request.send().await.unwrap();
            if response.status() == 401 {
                let problem = response.json::<Problem>().await.unwrap();
                assert_eq!(problem.code, ProblemCode::CertificateRefused, "{method} {path}");
                refused += 1;
            } else {
                admitted.push(format!("{} {path}", method.to_uppercase()));
            }
        }
    }
    assert!(refused > 70, "{refused}");
    admitted.sort();
    // Besides the renewal only what needs no identity.
    insta::assert_snapshot!(admitted.join("\n"), @r"
    GET /docs
    GET /healthz
    GET /readyz
    GET /v1/ca
    GET /v1/login
    GET /v1/openapi.json
    POST /v1/join
    POST /v1/login
    POST /v1/renew
    ");

    let renewed = machine.renew(&fixture, &joined.certificate, "db1").await.unwrap();
    assert!(renewed.expires > Timestamp::now());
    assert_eq!(fixture.client.certificates(&fixture.env).await.unwrap().items[0].state, CertificateState::Valid);
    machine.client_with(&fixture, &renewed).desired(&fixture.env, &node("db1")).await.unwrap();

    // Nine days after its end.
    fixture.hours.store(24 + 9 * 24, Ordering::Relaxed);
    for certificate in [&joined.certificate, &renewed] {
        let late = machine.renew(&fixture, certificate, "db1").await.unwrap_err();
        assert_eq!(code(&late), ProblemCode::CertificateRefused);
        assert!(late.to_string().contains("too long ago to be renewed"), "{late}");
    }
    assert_eq!(fixture.client.certificates(&fixture.env).await.unwrap().items[0].state, CertificateState::Ended);
    fixture.stop().await;
}

/// The record of a machine that has renewed its certificate does not help an earlier one that ended before the grace.
#[tokio::test]
async fn certificate_beyond_the_grace_is_refused_despite_a_renewal() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    fixture.hours.store(-(24 + 7 * 24 + 1), Ordering::Relaxed);
    let (machine, token) = (Machine::new("db1"), make_token(&fixture, for_node("db1"), 1).await);
    let joined = machine.join(&fixture, &token).await.unwrap();
    fixture.hours.store(-24, Ordering::Relaxed);
    let renewed = machine.renew(&fixture, &joined.certificate, "db1").await.unwrap();
    fixture.hours.store(0, Ordering::Relaxed);
    let late = machine.renew(&fixture, &joined.certificate, "db1").await.unwrap_err();
    assert!(late.to_string().contains("too long ago to be renewed"), "{late}");
    machine.renew(&fixture, &renewed, "db1").await.unwrap();
    fixture.stop().await;
}

/// Servers make their own certificates: one that has ended is of no use, also for a renewal.
#[tokio::test]
async fn ended_certificate_of_a_server_is_refused() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    let authority = Authority::open(&fixture.dir.path().join("ca"), Timestamp::now()).unwrap();
    for (hours, expected) in [(1, 200), (48, 401)] {
        let issued = Timestamp::now() - SignedDuration::from_hours(hours);
        let certified = authority.issue_replica(&["127.0.0.1".to_owned()], &[], issued).unwrap();
        let tls = client_config(&[authority.root().clone()], Some(PresentedCertificate::new(certified))).unwrap();
        let http = muster_wire::client::plain_http().tls_backend_preconfigured(tls).build().unwrap();
        let own = http.get(format!("{}/v1/doctor/self", tls_url(&fixture))).send().await.unwrap();
        assert_eq!(own.status(), expected, "issued {hours} hours ago");
        let renewal = renewal(&fixture, &generate_key().unwrap(), "db1");
        let renewal = http.post(format!("{}/v1/renew", tls_url(&fixture))).json(&renewal).send().await.unwrap();
        assert_eq!(renewal.json::<Problem>().await.unwrap().code, ProblemCode::CertificateRefused);
    }
    fixture.stop().await;
}

#[tokio::test]
async fn replayed_renewal_without_the_key_is_refused() {
    let fixture = Fixture::start(&[("db1", "db"), ("db2", "db")]).await;
    let (machine, token) = (Machine::new("db1"), make_token(&fixture, for_node("db1"), 1).await);
    let joined = machine.join(&fixture, &token).await.unwrap();
    let captured = renewal(&fixture, &machine.key, "db1");
    machine.client(&fixture, &joined).renew(&captured).await.unwrap();
    let serial = async || fixture.client.certificates(&fixture.env).await.unwrap().items[0].certificate.serial.clone();
    let before = serial().await;

    let refused = async |client: &Client, request: &RenewRequest| {
        let error = client.renew(request).await.unwrap_err();
        assert_eq!(code(&error), ProblemCode::CertificateRefused, "{error}");
        error.to_string()
    };
    // Without a certificate: over TLS, on the loopback interface with the server's token, and on the Unix socket.
    let roots = certificate::from_pem(&joined.certificate.roots).unwrap();
    let anonymous = Credentials { token: None, tls: Some(client_config(&roots, None).unwrap()) };
    let anonymous = Client::with_credentials(&tls_url(&fixture), &anonymous).unwrap();
    let plain = Client::with_token(&fixture.url(""), None).unwrap();
    let socket = Client::with_token(&format!("unix:{}", fixture.socket().display()), None).unwrap();
    for client in [&anonymous, &plain, &fixture.client, &socket] {
        let why = refused(client, &captured).await;
        assert!(why.contains("the connection has no certificate"), "{why}");
    }
    // With the certificate of another node of the environment.
    let (other, token) = (Machine::new("db2"), make_token(&fixture, for_node("db2"), 1).await);
    let of_other = other.join(&fixture, &token).await.unwrap();
    let by_other = other.client(&fixture, &of_other);
    let why = refused(&by_other, &captured).await;
    assert!(why.contains("is not one of db1 with the key of the request"), "{why}");
    refused(&by_other, &renewal(&fixture, &other.key, "db1")).await;
    // The own certificate renews neither another key nor another node.
    let own = machine.client(&fixture, &joined);
    refused(&own, &renewal(&fixture, &generate_key().unwrap(), "db1")).await;
    refused(&own, &renewal(&fixture, &machine.key, "db2")).await;
    assert_eq!(serial().await, before);
    own.renew(&captured).await.unwrap();
    fixture.stop().await;
}

/// Both sides verify certificates with their own clocks. That of the server is ahead of that of this process, or behind it.
#[tokio::test]
async fn machine_with_a_clock_an_hour_off_joins_and_renews() {
    for hours in [1, -1] {
        let fixture = Fixture::start_ahead(&[("db1", "db")], hours).await;
        let (machine, token) = (Machine::new("db1"), make_token(&fixture, for_node("db1"), 1).await);
        let joined = machine.join(&fixture, &token).await.unwrap();
        machine.client(&fixture, &joined).desired(&fixture.env, &node("db1")).await.unwrap();
        let renewed = machine.renew(&fixture, &joined.certificate, "db1").await.unwrap();
        machine.client_with(&fixture, &renewed).desired(&fixture.env, &node("db1")).await.unwrap();
        fixture.hours.store(hours + 30, Ordering::Relaxed);
        machine.renew(&fixture, &renewed, "db1").await.unwrap();
        fixture.stop().await;
    }
}

#[tokio::test]
async fn restore_brings_no_revoked_key_back_and_loses_no_machine() {
    let fixture = Fixture::start(&[("db1", "db"), ("db2", "db"), ("db3", "db")]).await;
    fixture.hours.store(-10 * 24, Ordering::Relaxed);
    let join = async |name: &str| {
        let (machine, token) = (Machine::new(name), make_token(&fixture, for_node(name), 1).await);
        let joined = machine.join(&fixture, &token).await.unwrap();
        let client = machine.client(&fixture, &joined);
        (machine, joined.certificate, client)
    };
    let ((_, _, first), (machine, certificate, second)) = (join("db1").await, join("db2").await);
    let saved = backup(&fixture).await;
    let revoke = RevokeCertificate { reason: "disk was stolen".into() };
    fixture.client.revoke_certificate(&fixture.env, "db1", &revoke, "ada").await.unwrap();
    let (_, _, third) = join("db3").await;
    fixture.client.restore(&fixture.env, REPLACE, saved.clone()).await.unwrap();
    let refused = first.desired(&fixture.env, &node("db1")).await.unwrap_err();
    assert_eq!(code(&refused), ProblemCode::CertificateRefused);
    second.desired(&fixture.env, &node("db2")).await.unwrap();
    third.desired(&fixture.env, &node("db3")).await.unwrap();

    // On a new store, ten days later: the machine has renewed its certificate since, and renews it again.
    fixture.hours.store(-5 * 24, Ordering::Relaxed);
    let renewed = machine.renew(&fixture, &certificate, "db2").await.unwrap();
    fixture.client.destroy(&fixture.env, None).await.unwrap();
    let is_gone = || !fixture.app.view.fleets().get(&fixture.env).is_some_and(muster_core::fleet::Fleet::is_founded);
    muster_testkit::wait::until("the environment is destroyed", is_gone).await;
    fixture.hours.store(0, Ordering::Relaxed);
    fixture.client.restore(&fixture.env, REPLACE, saved).await.unwrap();
    machine.renew(&fixture, &renewed, "db2").await.unwrap();
    fixture.stop().await;
}

#[tokio::test]
async fn renewed_certificate_is_revoked_by_its_earlier_serial() {
    let fixture = Fixture::start(&[("db1", "db"), ("db2", "db")]).await;
    let (machine, token) = (Machine::new("db1"), make_token(&fixture, for_node("db1"), 1).await);
    let joined = machine.join(&fixture, &token).await.unwrap();
    // A repeated request and a renewal: three certificates of one key.
    let repeated = machine.join(&fixture, &token).await.unwrap();
    machine.renew(&fixture, &repeated.certificate, "db1").await.unwrap();
    let serials = [&joined, &repeated].map(|joined| {
        let leaf = certificate::from_pem(&joined.certificate.certificate).unwrap().remove(0);
        certificate::read(&leaf).unwrap().serial
    });
    let record = fixture.client.certificates(&fixture.env).await.unwrap().items.remove(0).certificate;
    assert_eq!(record.earlier.iter().map(|earlier| earlier.serial.as_str()).collect::<Vec<_>>(), serials);
    let revoke = RevokeCertificate { reason: "key on a public server".into() };
    let revoke = async |which: &str| fixture.client.revoke_certificate(&fixture.env, which, &revoke, "ada").await;
    let unknown = revoke(&"5".repeat(32)).await.unwrap_err();
    assert_eq!(code(&unknown), ProblemCode::UnknownIdentity);
    assert!(
        unknown.to_string().contains("no certificate that may still be valid has the serial number 555"),
        "{unknown}"
    );
    assert_eq!(code(&revoke("db9").await.unwrap_err()), ProblemCode::UnknownNode);
    let revoked = revoke(&serials[0].to_uppercase()).await.unwrap();
    assert_eq!((revoked.row.node, revoked.row.state), (node("db1"), CertificateState::Revoked));
    assert!(!revoke(&serials[1]).await.unwrap().changed);
    let refused = machine.client(&fixture, &repeated).desired(&fixture.env, &node("db1")).await.unwrap_err();
    assert_eq!(code(&refused), ProblemCode::CertificateRefused);
    fixture.stop().await;
}

#[tokio::test]
async fn record_keeps_a_bounded_list_of_valid_serials() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    let (machine, token) = (Machine::new("db1"), make_token(&fixture, for_node("db1"), 1).await);
    let joined = machine.join(&fixture, &token).await.unwrap();
    let record = async || fixture.client.certificates(&fixture.env).await.unwrap().items.remove(0).certificate;
    for _ in 0..20 {
        machine.renew(&fixture, &joined.certificate, "db1").await.unwrap();
    }
    let last = record().await;
    assert_eq!(last.earlier.len(), 16);
    fixture.hours.store(23, Ordering::Relaxed);
    machine.renew(&fixture, &joined.certificate, "db1").await.unwrap();
    assert_eq!(record().await.earlier.last().unwrap().serial, last.serial);
    // All but the last one have ended.
    fixture.hours.store(25, Ordering::Relaxed);
    machine.renew(&fixture, &joined.certificate, "db1").await.unwrap();
    assert_eq!(record().await.earlier.len(), 1);
    fixture.stop().await;
}

#[tokio::test]
async fn address_with_wrong_join_tokens_has_to_wait() {
    let log = CapturedLog::start();
    let fixture = Fixture::start(&[("web1", "web"), ("db1", "db")]).await;
    let token = make_token(&fixture, for_role("web", None), 2).await;
    let machine = Machine::new("x");
    let wrong = JoinRequest { secret: "0".repeat(32), ..machine.request(&token) };
    let unknown = machine.request(&JoinToken::generate(token.pin).unwrap());
    let attempt = async |request: &JoinRequest| code(&fixture.client.join(request).await.unwrap_err());
    for number in 0..10 {
        let request = if number % 2 == 0 { &wrong } else { &unknown };
        assert_eq!(attempt(request).await, ProblemCode::JoinRefused);
    }
    // A wrong secret is refused by the view alone, and an address that guesses gets nothing that needs the store.
    let reads = fixture.app.latest_revision.requests();
    assert_eq!(attempt(&wrong).await, ProblemCode::TooManyAttempts);
    assert_eq!(attempt(&unknown).await, ProblemCode::TooManyAttempts);
    let refused = fixture.client.join(&unknown).await.unwrap_err();
    assert!(refused.problem().unwrap().retry_after_seconds.is_some());
    assert_eq!(fixture.app.latest_revision.requests(), reads);

    let text = String::from_utf8(log.bytes()).unwrap();
    let warnings = |what: &str| text.lines().filter(|line| line.contains("WARN") && line.contains(what)).count();
    assert!(text.contains("a machine has presented a wrong token"), "at a level below that of warnings");
    assert_eq!((warnings("machine"), warnings("an address presents wrong tokens")), (0, 1));

    // Machines behind the same address are not locked out, and one that waits for a place has not guessed.
    let joined = machine.join(&fixture, &token).await.unwrap();
    assert_eq!(code(&Machine::new("y").join(&fixture, &token).await.unwrap_err()), ProblemCode::NoPlace);
    machine.renew(&fixture, &joined.certificate, "web1").await.unwrap();
    let guess = renewal(&fixture, &generate_key().unwrap(), "web1");
    let refused = machine.client(&fixture, &joined).renew(&guess).await.unwrap_err();
    assert_eq!(code(&refused), ProblemCode::TooManyAttempts);
    fixture.stop().await;
}

#[tokio::test]
async fn waiting_for_a_place_is_not_counted_as_a_guess() {
    let fixture = Fixture::start(&[("web1", "web")]).await;
    let token = make_token(&fixture, for_role("web", None), 20).await;
    Machine::new("x").join(&fixture, &token).await.unwrap();
    for _ in 0..12 {
        assert_eq!(code(&Machine::new("y").join(&fixture, &token).await.unwrap_err()), ProblemCode::NoPlace);
    }
    fixture.stop().await;
}

#[tokio::test]
async fn address_with_wrong_keys_in_renewals_has_to_wait() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    let (machine, token) = (Machine::new("db1"), make_token(&fixture, for_node("db1"), 1).await);
    let joined = machine.join(&fixture, &token).await.unwrap();
    let client = machine.client(&fixture, &joined);
    let guess = renewal(&fixture, &generate_key().unwrap(), "db1");
    for _ in 0..10 {
        assert_eq!(code(&client.renew(&guess).await.unwrap_err()), ProblemCode::CertificateRefused);
    }
    assert_eq!(code(&client.renew(&guess).await.unwrap_err()), ProblemCode::TooManyAttempts);
    machine.renew(&fixture, &joined.certificate, "db1").await.unwrap();
    fixture.stop().await;
}
