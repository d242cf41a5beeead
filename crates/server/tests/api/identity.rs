//! Joining, certificates and authorisation of nodes, over real TLS.

use std::sync::atomic::Ordering;

use muster_core::identity::TokenScope;
use muster_core::names::{EnvName, Role};
use muster_identity::certificate;
use muster_identity::request::{generate_key, make_request};
use muster_identity::tls::{PresentedCertificate, certified_key, client_config, pinned_config};
use muster_identity::token::JoinToken;
use muster_server::{FirstVersion, Registration, register};
use muster_testkit::records::{node_records, release_records};
use muster_wire::client::{Client, ClientError, Credentials};
use muster_wire::data::SelfResponse;
use muster_wire::identity::{
    CertificateResponse, CertificateState, CreateToken, JoinRequest, JoinResponse, RenewRequest, RevokeCertificate,
};
use muster_wire::problem::{Problem, ProblemCode};
use muster_wire::sync::{SyncEvent, SyncOpen};

use crate::fixture::{Fixture, PASSED, node, token, version};

pub(crate) fn tls_url(fixture: &Fixture) -> String {
    fixture.url("").replace("http://", "https://")
}

pub(crate) fn for_node(name: &str) -> TokenScope {
    TokenScope::Node { node: node(name) }
}

pub(crate) fn for_role(role: &str, hosts: Option<&str>) -> TokenScope {
    TokenScope::Role { role: Role::new(role).unwrap(), hosts: hosts.map(str::to_owned) }
}

pub(crate) async fn make_token(fixture: &Fixture, scope: TokenScope, uses: u32) -> JoinToken {
    let made = fixture.client.create_token(&fixture.env, &CreateToken { scope, uses, seconds: 3600 }, "ada").await;
    made.unwrap().token.parse().unwrap()
}

/// A machine with a key of its own.
pub(crate) struct Machine {
    pub(crate) key: String,
    host: String,
}

impl Machine {
    pub(crate) fn new(host: &str) -> Self {
        Self { key: generate_key().unwrap(), host: host.to_owned() }
    }

    pub(crate) fn request(&self, token: &JoinToken) -> JoinRequest {
        let request = make_request(&self.key).unwrap();
        JoinRequest { token: token.id().clone(), secret: token.secret(), request, host: self.host.clone() }
    }

    pub(crate) async fn join(&self, fixture: &Fixture, token: &JoinToken) -> Result<JoinResponse, ClientError> {
        let (tls, pinned) = pinned_config(token.pin).unwrap();
        let client = Client::with_credentials(&tls_url(fixture), &Credentials { token: None, tls: Some(tls) }).unwrap();
        let joined = client.join(&self.request(token)).await?;
        assert!(pinned.found_pem().is_some());
        Ok(joined)
    }

    pub(crate) fn credentials(&self, issued: &CertificateResponse) -> Credentials {
        let certified = certified_key(&issued.certificate, &self.key).unwrap();
        let roots = certificate::from_pem(&issued.roots).unwrap();
        let tls = client_config(&roots, Some(PresentedCertificate::new(certified))).unwrap();
        Credentials { token: None, tls: Some(tls) }
    }

    /// Renews a certificate of this machine, which it presents.
    pub(crate) async fn renew(
        &self,
        fixture: &Fixture,
        certificate: &CertificateResponse,
        name: &str,
    ) -> Result<CertificateResponse, ClientError> {
        let request = make_request(&self.key).unwrap();
        let renewal = RenewRequest { env: fixture.env.clone(), node: node(name), request, roots: Vec::new() };
        self.client_with(fixture, certificate).renew(&renewal).await
    }

    /// A client with the certificate of a machine that has joined.
    pub(crate) fn client(&self, fixture: &Fixture, joined: &JoinResponse) -> Client {
        self.client_with(fixture, &joined.certificate)
    }

    pub(crate) fn client_with(&self, fixture: &Fixture, certificate: &CertificateResponse) -> Client {
        Client::with_credentials(&tls_url(fixture), &self.credentials(certificate)).unwrap()
    }
}

pub(crate) fn code(error: &ClientError) -> ProblemCode {
    error.problem().unwrap_or_else(|| panic!("{error:?}")).code
}

pub(crate) fn renewal(fixture: &Fixture, key: &str, name: &str) -> RenewRequest {
    let request = make_request(key).unwrap();
    RenewRequest { env: fixture.env.clone(), node: node(name), request, roots: Vec::new() }
}

fn open() -> SyncOpen {
    SyncOpen::default()
}

#[tokio::test]
async fn machine_joins_and_reports_for_its_node_only() {
    let fixture = Fixture::start(&[("db1", "db"), ("db2", "db")]).await;
    let (machine, token) = (Machine::new("db1"), make_token(&fixture, for_node("db1"), 1).await);
    let joined = machine.join(&fixture, &token).await.unwrap();
    assert_eq!((joined.env.as_str(), joined.node.as_str(), joined.role.as_str()), ("test", "db1", "db"));
    let client = machine.client(&fixture, &joined);
    let mut stream = client.sync(&fixture.env, &node("db1"), &open()).await.unwrap();
    let Some(SyncEvent::Hello { incarnation, .. }) = stream.next().await.unwrap() else { panic!("no hello") };
    client.report(&fixture.env, &fixture.report("db1", incarnation, 1, PASSED)).await.unwrap();

    let of_other = fixture.report("db2", 1, 1, PASSED);
    assert_eq!(code(&client.report(&fixture.env, &of_other).await.unwrap_err()), ProblemCode::Forbidden);
    assert_eq!(code(&client.sync(&fixture.env, &node("db2"), &open()).await.unwrap_err()), ProblemCode::Forbidden);
    assert_eq!(code(&client.desired(&fixture.env, &node("db2")).await.unwrap_err()), ProblemCode::Forbidden);
    assert_eq!(code(&client.nodes(&fixture.env).await.unwrap_err()), ProblemCode::Forbidden);
    let listed = fixture.client.certificates(&fixture.env).await.unwrap().items;
    assert_eq!(
        (listed.len(), listed[0].state, listed[0].certificate.host.as_str()),
        (1, CertificateState::Valid, "db1")
    );
    fixture.stop().await;
}

#[tokio::test]
async fn node_reads_its_own_values_without_a_name() {
    let fixture = Fixture::start(&[("db1", "db"), ("db2", "db")]).await;
    let (machine, token) = (Machine::new("db1"), make_token(&fixture, for_node("db1"), 1).await);
    let joined = machine.join(&fixture, &token).await.unwrap();
    let http = muster_wire::client::plain_http()
        .tls_backend_preconfigured(machine.credentials(&joined.certificate).tls.unwrap());
    let http = http.build().unwrap();
    let own = http.get(format!("{}/v1/self", tls_url(&fixture))).send().await.unwrap().text().await.unwrap();
    let own: SelfResponse = serde_json::from_str(&own).expect(&own);
    assert_eq!(own.node, node("db1"));
    let missing = http.get(format!("{}/v1/self/no::value", tls_url(&fixture))).send().await.unwrap();
    assert_eq!(missing.json::<Problem>().await.unwrap().code, ProblemCode::NotFound);
    let person = crate::fixture::http().get(fixture.url("/v1/self")).send().await.unwrap();
    let problem: Problem = person.json().await.unwrap();
    assert_eq!((problem.code, problem.hint.is_some()), (ProblemCode::InvalidRequest, true));
    fixture.stop().await;
}

/// Requests of every route of the API with the certificate of a node: what is not for nodes is refused before the handler.
#[tokio::test]
async fn every_route_refuses_a_node_unless_it_is_for_nodes() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    let (machine, token) = (Machine::new("db1"), make_token(&fixture, for_node("db1"), 1).await);
    let joined = machine.join(&fixture, &token).await.unwrap();
    let tls = machine.credentials(&joined.certificate).tls.unwrap();
    let http = reqwest::Client::builder().no_proxy().tls_backend_preconfigured(tls).build().unwrap();
    let document = serde_json::to_value(muster_server::openapi()).unwrap();
    let (mut refused, mut admitted) = (0, Vec::new());
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let concrete = path.replace("{env}", "test").replace("{node}", "db1");
            let url = format!("{}{concrete}", tls_url(&fixture));
            let request = http.request(method.to_uppercase().parse().unwrap(), url).body("");
            let response = request.send().await.unwrap();
            if response.status() == 403 {
                assert_eq!(response.json::<Problem>().await.unwrap().code, ProblemCode::Forbidden, "{method} {path}");
                refused += 1;
            } else {
                assert_ne!(response.status(), 401, "{method} {path}");
                admitted.push(format!("{} {path}", method.to_uppercase()));
            }
        }
    }
    admitted.sort();
    assert!(refused > 60, "{refused}");
    insta::assert_snapshot!(admitted.join("\n"), @r"
    GET /docs
    GET /healthz
    GET /readyz
    GET /v1/ca
    GET /v1/envs/{env}/nodes/{node}/desired
    GET /v1/envs/{env}/nodes/{node}/self
    GET /v1/envs/{env}/nodes/{node}/self/{path}
    GET /v1/envs/{env}/releases/{version}/bundle
    GET /v1/envs/{env}/releases/{version}/delta
    GET /v1/login
    GET /v1/openapi.json
    GET /v1/self
    GET /v1/self/{path}
    POST /v1/envs/{env}/nodes/{node}/reports
    POST /v1/envs/{env}/nodes/{node}/runs/{run}/log
    POST /v1/envs/{env}/nodes/{node}/sync
    POST /v1/join
    POST /v1/login
    POST /v1/renew
    PUT /v1/envs/{env}/nodes/{node}/activity
    ");
    for (name, value) in [("host", "evil.example"), ("origin", "https://evil.example"), ("origin", "null")] {
        for path in ["/docs", "/v1/openapi.json", "/v1/envs/test/nodes/db1/desired"] {
            let request = http.get(format!("{}{path}", tls_url(&fixture))).header(name, value);
            let problem: Problem = request.send().await.unwrap().json().await.unwrap();
            assert_eq!(problem.code, ProblemCode::Forbidden, "{name}: {value} {path}");
        }
    }
    fixture.stop().await;
}

#[tokio::test]
async fn token_is_used_once_also_at_the_same_moment() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    let token = make_token(&fixture, for_node("db1"), 1).await;
    let (one, other) = (Machine::new("one"), Machine::new("other"));
    let (first, second) = tokio::join!(one.join(&fixture, &token), other.join(&fixture, &token));
    let (winner, refused) = match (first, second) {
        (Ok(_), Err(refused)) => (one, refused),
        (Err(refused), Ok(_)) => (other, refused),
        both => panic!("{both:?}"),
    };
    assert_eq!(code(&refused), ProblemCode::JoinRefused);
    // The machine that has joined may repeat its request: the response may have been lost.
    let again = winner.join(&fixture, &token).await.unwrap();
    assert_eq!(again.node, node("db1"));
    assert_eq!(fixture.client.certificates(&fixture.env).await.unwrap().items.len(), 1);
    assert!(!fixture.client.tokens(&fixture.env).await.unwrap().items[0].usable);
    fixture.stop().await;
}

#[tokio::test]
async fn wrong_expired_and_deleted_tokens_are_refused() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    let machine = Machine::new("db1");
    let token = make_token(&fixture, for_node("db1"), 1).await;
    let refusal = async |request: JoinRequest| {
        let problem = fixture.client.join(&request).await.unwrap_err();
        problem.problem().unwrap().detail.clone()
    };
    let wrong = JoinRequest { secret: "0".repeat(32), ..machine.request(&token) };
    let foreign = JoinToken::generate(token.pin).unwrap();
    assert_eq!(refusal(wrong).await, "the join token is not valid");
    assert_eq!(refusal(machine.request(&foreign)).await, "the join token is not valid", "the same answer");
    fixture.hours.store(2, Ordering::Relaxed);
    let expired = refusal(machine.request(&token)).await;
    assert!(expired.starts_with("the join token expired at "), "{expired}");
    fixture.hours.store(0, Ordering::Relaxed);
    fixture.client.delete_token(&fixture.env, token.id()).await.unwrap();
    assert_eq!(refusal(machine.request(&token)).await, "the join token is not valid");
    let unknown = fixture.client.delete_token(&fixture.env, token.id()).await.unwrap_err();
    assert_eq!(code(&unknown), ProblemCode::UnknownIdentity);

    // Expired tokens are shown for a day, and deleted with the next new one.
    let old = make_token(&fixture, for_node("db1"), 1).await;
    fixture.hours.store(24, Ordering::Relaxed);
    make_token(&fixture, for_node("db1"), 1).await;
    let listed = async || fixture.client.tokens(&fixture.env).await.unwrap().items;
    assert!(listed().await.iter().any(|row| row.id == *old.id() && !row.usable));
    fixture.hours.store(26, Ordering::Relaxed);
    make_token(&fixture, for_node("db1"), 1).await;
    assert!(listed().await.iter().all(|row| row.id != *old.id()));
    fixture.stop().await;
}

#[tokio::test]
async fn token_of_an_illegal_scope_is_refused() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    for (scope, uses, seconds, expected) in [
        (for_node("db9"), 1, 60, ProblemCode::UnknownNode),
        (for_role("web", None), 1, 60, ProblemCode::UnknownRole),
        (for_node("db1"), 2, 60, ProblemCode::InvalidRequest),
        (for_role("db", None), 0, 60, ProblemCode::InvalidRequest),
        (for_role("db", None), 1, 0, ProblemCode::InvalidRequest),
        (for_role("db", None), 1, 365 * 86_400, ProblemCode::InvalidRequest),
    ] {
        let request = CreateToken { scope, uses, seconds };
        let refused = fixture.client.create_token(&fixture.env, &request, "ada").await.unwrap_err();
        assert_eq!(code(&refused), expected, "{request:?}");
    }
    fixture.stop().await;
}

#[tokio::test]
async fn machines_of_a_role_get_free_places() {
    let fixture = Fixture::start(&[("web1", "web"), ("web2", "web"), ("web3", "web"), ("db1", "db")]).await;
    let token = make_token(&fixture, for_role("web", Some("web*")), 10).await;
    let join = async |host: &str| Machine::new(host).join(&fixture, &token).await;
    assert_eq!(join("web2").await.unwrap().node, node("web2"), "the node with the host name");
    assert_eq!(join("web-x").await.unwrap().node, node("web1"), "the first free one");
    let taken = join("web2").await.unwrap_err();
    assert_eq!(code(&taken), ProblemCode::JoinRefused, "another machine with the same name");
    assert!(taken.to_string().contains("a machine has joined as web2 already (web2, "), "{taken}");
    let other = join("evil").await.unwrap_err();
    assert!(other.to_string().contains("the token is for hosts named web*, not for \"evil\""), "{other}");
    assert_eq!(join("web-y").await.unwrap().node, node("web3"));
    let full = join("web-z").await.unwrap_err();
    let problem = full.problem().unwrap();
    assert_eq!((problem.code, problem.retry_after_seconds), (ProblemCode::NoPlace, Some(30)));
    assert!(problem.detail.contains("every node of role web in the design has a machine"), "{}", problem.detail);
    assert_eq!(fixture.client.tokens(&fixture.env).await.unwrap().items[0].uses, 7);
    fixture.stop().await;
}

#[tokio::test]
async fn host_names_of_machines_are_shown_without_control_characters() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    let token = make_token(&fixture, for_node("db1"), 1).await;
    Machine::new("db1\u{1b}[2J\nfake: line").join(&fixture, &token).await.unwrap();
    let listed = fixture.client.certificates(&fixture.env).await.unwrap().items;
    assert_eq!(listed[0].certificate.host, "db1[2Jfake: line");
    fixture.stop().await;
}

#[tokio::test]
async fn revoked_certificate_ends_open_streams() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    let (machine, token) = (Machine::new("db1"), make_token(&fixture, for_node("db1"), 1).await);
    let joined = machine.join(&fixture, &token).await.unwrap();
    let client = machine.client(&fixture, &joined);
    let mut stream = client.sync(&fixture.env, &node("db1"), &open()).await.unwrap();
    stream.next().await.unwrap().unwrap();
    let revoke = RevokeCertificate { reason: "disk was stolen".into() };
    let serial = fixture.client.certificates(&fixture.env).await.unwrap().items[0].certificate.serial.clone();
    let revoked = fixture.client.revoke_certificate(&fixture.env, &serial, &revoke, "ada").await.unwrap();
    assert!(revoked.changed && revoked.row.state == CertificateState::Revoked);
    // Without the end of the stream this waits for the limit of the test.
    while let Ok(Some(_)) = stream.next().await {}
    let refused = client.desired(&fixture.env, &node("db1")).await.unwrap_err();
    assert_eq!(code(&refused), ProblemCode::CertificateRefused);
    let refused = machine.renew(&fixture, &joined.certificate, "db1").await.unwrap_err();
    assert!(refused.to_string().contains("was revoked by ada: disk was stolen"), "{refused}");
    assert_eq!(code(&machine.join(&fixture, &token).await.unwrap_err()), ProblemCode::JoinRefused);
    let again = fixture.client.revoke_certificate(&fixture.env, "db1", &revoke, "bob").await.unwrap();
    assert!(!again.changed);

    // A new token lets a machine join again; the old key stays refused.
    let token = make_token(&fixture, for_node("db1"), 1).await;
    let replacement = Machine::new("db1");
    let joined = replacement.join(&fixture, &token).await.unwrap();
    replacement.client(&fixture, &joined).desired(&fixture.env, &node("db1")).await.unwrap();
    let refused = client.desired(&fixture.env, &node("db1")).await.unwrap_err();
    assert!(refused.to_string().contains("another machine has joined as db1"), "{refused}");
    fixture.stop().await;
}

#[tokio::test]
async fn machine_that_was_replaced_loses_its_connections() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    let (first, token) = (Machine::new("db1"), make_token(&fixture, for_node("db1"), 1).await);
    let joined = first.join(&fixture, &token).await.unwrap();
    let mut stream = first.client(&fixture, &joined).sync(&fixture.env, &node("db1"), &open()).await.unwrap();
    stream.next().await.unwrap().unwrap();
    let token = make_token(&fixture, for_node("db1"), 1).await;
    Machine::new("db1").join(&fixture, &token).await.unwrap();
    while let Ok(Some(_)) = stream.next().await {}
    fixture.stop().await;
}

#[tokio::test]
async fn token_of_an_environment_counts_for_its_node_only() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    let other = EnvName::new("other").unwrap();
    let registration = Registration {
        env: other.clone(),
        nodes: node_records(&[("db1", "db")], "default"),
        releases: release_records(&["v1"]),
        first_version: FirstVersion::Default(version("v1")),
        epoch: 7,
    };
    register(&fixture.app, &registration).await.unwrap();
    let (machine, token) = (Machine::new("db1"), make_token(&fixture, for_node("db1"), 1).await);
    let joined = machine.join(&fixture, &token).await.unwrap();
    assert_eq!((&joined.env, joined.node.as_str()), (&fixture.env, "db1"));
    let client = machine.client(&fixture, &joined);
    client.desired(&fixture.env, &node("db1")).await.unwrap();
    assert_eq!(code(&client.desired(&other, &node("db1")).await.unwrap_err()), ProblemCode::Forbidden);
    assert_eq!(code(&client.sync(&other, &node("db1"), &open()).await.unwrap_err()), ProblemCode::Forbidden);
    let report = fixture.report("db1", 1, 1, PASSED);
    assert_eq!(code(&client.report(&other, &report).await.unwrap_err()), ProblemCode::Forbidden);
    let elsewhere = RenewRequest { env: other.clone(), ..renewal(&fixture, &machine.key, "db1") };
    assert_eq!(code(&client.renew(&elsewhere).await.unwrap_err()), ProblemCode::CertificateRefused);
    assert!(fixture.client.certificates(&other).await.unwrap().items.is_empty());
    fixture.stop().await;
}

#[tokio::test]
async fn machine_that_joins_after_a_wiped_disk_has_a_new_incarnation() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    let mut incarnations = Vec::new();
    let spent = make_token(&fixture, for_node("db1"), 1).await;
    let mut token = spent.clone();
    for _ in 0..2 {
        // Each time with a new key, and without any state.
        let machine = Machine::new("db1");
        let joined = machine.join(&fixture, &token).await.unwrap();
        let client = machine.client(&fixture, &joined);
        let mut stream = client.sync(&fixture.env, &node("db1"), &open()).await.unwrap();
        let Some(SyncEvent::Hello { incarnation, .. }) = stream.next().await.unwrap() else { panic!("no hello") };
        client.report(&fixture.env, &fixture.report("db1", incarnation, 1, PASSED)).await.unwrap();
        incarnations.push(incarnation);
        drop(stream);
        let refused = Machine::new("db1").join(&fixture, &spent).await.unwrap_err();
        assert_eq!(code(&refused), ProblemCode::JoinRefused, "it needs a new token");
        token = make_token(&fixture, for_node("db1"), 1).await;
    }
    assert!(incarnations[1] > incarnations[0], "{incarnations:?}");
    fixture.stop().await;
}

#[tokio::test]
async fn machine_with_a_revoked_key_gets_no_other_place() {
    let fixture = Fixture::start(&[("web1", "web"), ("web2", "web")]).await;
    let token = make_token(&fixture, for_role("web", None), 5).await;
    let machine = Machine::new("x");
    assert_eq!(machine.join(&fixture, &token).await.unwrap().node, node("web1"));
    let revoke = RevokeCertificate { reason: "disk was stolen".into() };
    fixture.client.revoke_certificate(&fixture.env, "web1", &revoke, "ada").await.unwrap();
    let refused = Machine::new("x").join(&fixture, &token).await.unwrap_err();
    assert!(refused.to_string().contains("the join token is not valid"), "its token was deleted: {refused}");
    let other = make_token(&fixture, for_role("web", None), 5).await;
    let refused = machine.join(&fixture, &other).await.unwrap_err();
    assert!(refused.to_string().contains("the key of this machine was revoked"), "{refused}");
    fixture.stop().await;
}

#[tokio::test]
async fn large_body_of_a_machine_without_identity_is_refused() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    let http = muster_wire::client::plain_http().build().unwrap();
    let (machine, token) = (Machine::new("db1"), make_token(&fixture, for_node("db1"), 1).await);
    let joined = machine.join(&fixture, &token).await.unwrap();
    let tls = machine.credentials(&joined.certificate).tls.unwrap();
    let with_certificate = muster_wire::client::plain_http().tls_backend_preconfigured(tls).build().unwrap();
    let (plain, encrypted) = (fixture.url("/v1/join"), tls_url(&fixture) + "/v1/renew");
    for (http, url, status) in
        [(&http, plain, 413), (&with_certificate, encrypted, 413), (&http, fixture.url("/v1/renew"), 401)]
    {
        let body = format!("{{\"request\": \"{}\"}}", "x".repeat(20_000));
        let request = http.post(&url).header("content-type", "application/json").body(body);
        assert_eq!(request.send().await.unwrap().status(), status, "{url}");
    }
    fixture.stop().await;
}

#[tokio::test]
async fn servers_and_clients_of_another_authority_are_refused() {
    let (fixture, other) = (Fixture::start(&[("db1", "db")]).await, Fixture::start(&[("db1", "db")]).await);
    let machine = Machine::new("db1");
    let foreign = make_token(&other, for_node("db1"), 1).await;
    let refused = machine.join(&fixture, &foreign).await.unwrap_err();
    assert!(matches!(refused, ClientError::Unreachable { .. }), "the pin is that of another server: {refused}");

    let joined = machine.join(&other, &foreign).await.unwrap();
    let certified = certified_key(&joined.certificate.certificate, &machine.key).unwrap();
    let roots = certificate::from_pem(&fixture.client.authority().await.unwrap().root).unwrap();
    let tls = client_config(&roots, Some(PresentedCertificate::new(certified))).unwrap();
    let client = Client::with_credentials(&tls_url(&fixture), &Credentials { token: None, tls: Some(tls) }).unwrap();
    assert!(matches!(client.alive().await, Err(ClientError::Unreachable { .. })), "a certificate of another authority");

    let tls = Some(client_config(&roots, None).unwrap());
    let credentials = Credentials { token: Some(token()), tls };
    Client::with_credentials(&tls_url(&fixture), &credentials).unwrap().environments().await.unwrap();
    fixture.stop().await;
    other.stop().await;
}
